// SPDX-License-Identifier: Apache-2.0 OR MIT
// Waiting: descriptors, timeouts, signals; progress without calls; threads.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b, to_a;

// A send is complete once the peer has it: then nobody needs to look after its sender any more.
static void open_both(struct wish wish) {
  wish.transmit_flags = FI_DELIVERY_COMPLETE;
  node_open(&a, wish);
  node_open(&b, wish);
  to_b = node_know(&a, &b);
  to_a = node_know(&b, &a);
}

static void close_both(void) {
  node_close(&a);
  node_close(&b);
}

// Sends something to `b` a while later, from a thread of its own.
static void *send_later(void *length) {
  static char out[1 << 20];
  usleep(500000);
  fill(out, (size_t)length, 3);
  WORKS(fi_send(a.ep, out, (size_t)length, NULL, to_b, out));
  struct fi_cq_tagged_entry entry;
  long read;
  while ((read = fi_cq_sread(a.cq, &entry, 1, NULL, 5000)) == -FI_EAGAIN) continue;
  CHECK(read == 1, "%ld", read);
  return NULL;
}

// A reader that sleeps in poll(2) uses no processor, and wakes in time; `length` says by which path a message comes.
static void sleep_in_poll(size_t length) {
  open_both((struct wish){.wait = FI_WAIT_FD, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_MANUAL});
  int descriptor;
  WORKS(fi_control(&b.cq->fid, FI_GETWAIT, &descriptor));
  static char in[1 << 20];
  WORKS(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  pthread_t sender;
  CHECK(!pthread_create(&sender, NULL, send_later, (void *)length));
  double began = now_s(), cpu_began = cpu_s();
  int wakes = 0;
  struct fi_cq_tagged_entry entry;
  long read;
  while ((read = fi_cq_read(b.cq, &entry, 1)) == -FI_EAGAIN) {
    struct fid *fid = &b.cq->fid;
    int status = fi_trywait(b.fabric, &fid, 1);
    if (status == -FI_EAGAIN) continue;
    WORKS(status);
    struct pollfd waited = {descriptor, POLLIN, 0};
    int ready = poll(&waited, 1, 10000);
    CHECK(ready == 1, "poll: %d after %.3f s", ready, now_s() - began);
    wakes++;
  }
  double took = now_s() - began, cpu = cpu_s() - cpu_began;
  CHECK(read == 1 && entry.len == length && is_filled(in, length, 3));
  CHECK(took > 0.4 && took < 2.0, "%.3f s", took);
  CHECK(cpu < 0.2, "%.3f s of a processor in %.3f s, %d wakes", cpu, took, wakes);
  pthread_join(sender, NULL);
  close_both();
}

static void a_reader_sleeps_in_poll(char **arguments) {
  (void)arguments;
  sleep_in_poll(8);
  sleep_in_poll(1 << 20);
}

static void sread_ends_in_time_or_by_a_message(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_WAIT", "block", 1);
  open_both((struct wish){.wait = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_MANUAL});
  struct fi_cq_tagged_entry entry;
  double began = now_s(), cpu_began = cpu_s();
  GIVES(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 400));
  CHECK(now_s() - began > 0.39 && now_s() - began < 0.8, "%.3f s", now_s() - began);
  CHECK(cpu_s() - cpu_began < 0.05, "%.3f s of a processor", cpu_s() - cpu_began);
  GIVES(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 0));
  char in[8];
  WORKS(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  pthread_t sender;
  CHECK(!pthread_create(&sender, NULL, send_later, (void *)8));
  began = now_s(), cpu_began = cpu_s();
  GIVES(1, fi_cq_sread(b.cq, &entry, 1, NULL, -1));
  CHECK(now_s() - began < 1.0 && cpu_s() - cpu_began < 0.1, "%.3f s, %.3f of a processor", now_s() - began,
        cpu_s() - cpu_began);
  pthread_join(sender, NULL);
  close_both();
}

// Posts a receive for what is here already, a while later.
static void *receive_later(void *in) {
  usleep(200000);
  WORKS(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, in));
  return NULL;
}

// A receive whose message has come before ends as it is posted: whoever sleeps meanwhile, at the queue or at a counter,
// hears of it from the thread that posted it.
static void a_post_wakes_who_sleeps(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_WAIT", "block", 1);
  open_both((struct wish){
      .wait = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_MANUAL, .has_counters = 1});
  struct fi_cq_tagged_entry entry;
  char in[8], out[8] = "held";
  for (uint64_t turns = 1; turns <= 4; turns++) {
    WORKS(fi_inject(a.ep, out, sizeof out, to_b));
    for (double until = now_s() + 0.05; now_s() < until;) turn();
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, receive_later, in));
    double began = now_s();
    if (turns % 2) GIVES(1, fi_cq_sread(b.cq, &entry, 1, NULL, 5000));
    else WORKS(fi_cntr_wait(b.received, turns, 5000));
    CHECK(now_s() - began < 0.7, "%.3f s", now_s() - began);
    pthread_join(thread, NULL);
    if (turns % 2 == 0) GIVES(1, fi_cq_read(b.cq, &entry, 1));
  }
  // What does not end as it is posted ends no wait.
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, receive_later, in));
  double began = now_s();
  GIVES(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 600));
  CHECK(now_s() - began > 0.59, "%.3f s", now_s() - began);
  pthread_join(thread, NULL);
  close_both();
}

static void *signal_later(void *of) {
  (void)of;
  usleep(300000);
  WORKS(fi_cq_signal(b.cq));
  return NULL;
}

static void a_signal_ends_a_wait(char **arguments) {
  (void)arguments;
  open_both((struct wish){.wait = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE});
  struct fi_cq_tagged_entry entry;
  pthread_t thread;
  for (int turns = 0; turns < 2; turns++) {
    CHECK(!pthread_create(&thread, NULL, signal_later, NULL));
    double began = now_s();
    GIVES(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 10000));
    CHECK(now_s() - began < 2.0, "%.3f s", now_s() - began);
    pthread_join(thread, NULL);
  }
  close_both();
}

// A rendezvous finishes while the program makes no call: only then may it read its memory.
static void progress_without_calls(char **arguments) {
  (void)arguments;
  open_both((struct wish){.progress = FI_PROGRESS_AUTO, .threading = FI_THREAD_SAFE});
  size_t length = 4 << 20;
  char *out = malloc(length), *in = calloc(1, length);
  fill(out, length, 9);
  WORKS(fi_trecv(b.ep, in, length, NULL, to_a, 1, 0, in));
  WORKS(fi_tsend(a.ep, out, length, NULL, to_b, 1, out));
  sleep(1);
  CHECK(is_filled(in, length, 9));
  // Both ends have heard of it: one read each.
  struct fi_cq_tagged_entry entry;
  GIVES(1, fi_cq_read(a.cq, &entry, 1));
  GIVES(1, fi_cq_read(b.cq, &entry, 1));
  double cpu_began = cpu_s();
  sleep(1);
  CHECK(cpu_s() - cpu_began < 0.1, "%.3f s of a processor with nothing to do", cpu_s() - cpu_began);
  free(out);
  free(in);
  close_both();
}

enum {
  THREADS = 4,
  ROUNDS = 3000
};

static size_t length_of(int round) { return round % 50 == 0 ? 40000 : (size_t)(round * 37 % 3000); }

// Sends and receives at once; each thread has a tag of its own, and all read one queue, so that any thread may get any
// completion: contexts say whose it is.
struct job {
  int number;
  volatile int sent, received;
};
static struct job jobs[THREADS];

static void take_one(struct node *node) {
  struct fi_cq_tagged_entry entry;
  long read = fi_cq_read(node->cq, &entry, 1);
  CHECK(read == 1 || read == -FI_EAGAIN, "%ld", read);
  if (read == 1) __atomic_fetch_add((volatile int *)entry.op_context, 1, __ATOMIC_RELEASE);
}

static void until(volatile int *count, int wanted) {
  for (double end = now_s() + 60; __atomic_load_n(count, __ATOMIC_ACQUIRE) < wanted; take_one(&a), take_one(&b))
    CHECK(now_s() < end, "%d of %d", *count, wanted);
}

static void *work(void *argument) {
  struct job *job = argument;
  char *out = malloc(40000), *in = malloc(40000);
  for (int round = 0; round < ROUNDS; round++) {
    size_t length = length_of(round);
    uint64_t seed = (uint64_t)job->number << 32 | (unsigned)round;
    fill(out, length, seed);
    memset(in, 0, length);
    long status;
    while ((status = fi_trecv(b.ep, in, 40000, NULL, to_a, job->number, 0, (void *)&job->received)) == -FI_EAGAIN)
      take_one(&b);
    WORKS(status);
    while ((status = fi_tsend(a.ep, out, length, NULL, to_b, job->number, (void *)&job->sent)) == -FI_EAGAIN)
      take_one(&a);
    WORKS(status);
    until(&job->received, round + 1);
    until(&job->sent, round + 1);
    CHECK(is_filled(in, length, seed), "thread %d, round %d", job->number, round);
  }
  free(out);
  free(in);
  return NULL;
}

static void threads_send_and_receive_at_once(char **arguments) {
  (void)arguments;
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  for (int kind = 0; kind < 2; kind++) {
    open_both((struct wish){.threading = FI_THREAD_SAFE, .progress = kinds[kind]});
    pthread_t threads[THREADS];
    for (int place = 0; place < THREADS; place++) {
      jobs[place] = (struct job){.number = place};
      CHECK(!pthread_create(&threads[place], NULL, work, &jobs[place]));
    }
    for (int place = 0; place < THREADS; place++) pthread_join(threads[place], NULL);
    nothing(&a, 0.02);
    nothing(&b, 0.02);
    close_both();
  }
}

const struct test waiting_cases[] = {
    {"a_reader_sleeps_in_poll", a_reader_sleeps_in_poll},
    {"sread_ends_in_time_or_by_a_message", sread_ends_in_time_or_by_a_message},
    {"a_signal_ends_a_wait", a_signal_ends_a_wait},
    {"a_post_wakes_who_sleeps", a_post_wakes_who_sleeps},
    {"progress_without_calls", progress_without_calls},
    {"threads_send_and_receive_at_once", threads_send_and_receive_at_once},
    {NULL, NULL},
};
