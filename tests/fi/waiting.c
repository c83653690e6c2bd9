// SPDX-License-Identifier: Apache-2.0 OR MIT
// Waiting by descriptors, timeouts and signals; progress without calls; threads.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b, to_a;

// A send completes on delivery, so that its sender needs no progress afterwards.
static void open_both(struct options options) {
  options.transmit_flags = FI_DELIVERY_COMPLETE;
  node_open(&a, options);
  node_open(&b, options);
  to_b = node_add_peer(&a, &b);
  to_a = node_add_peer(&b, &a);
}

static void close_both(void) {
  node_close(&a);
  node_close(&b);
}

// Sends a message to `b` after a delay, in a separate thread.
static void *send_later(void *length) {
  static char out[1 << 20];
  usleep(500000);
  fill(out, (size_t)length, 3);
  OK(fi_send(a.ep, out, (size_t)length, NULL, to_b, out));
  struct fi_cq_tagged_entry entry;
  long read;
  while ((read = fi_cq_sread(a.cq, &entry, 1, NULL, 5000)) == -FI_EAGAIN) continue;
  CHECK(read == 1, "%ld", read);
  return NULL;
}

// A reader that sleeps in poll(2) uses no processor time, and wakes in time; `length` selects eager or rendezvous.
static void sleep_in_poll(size_t length) {
  open_both((struct options){.wait = FI_WAIT_FD, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_MANUAL});
  int descriptor;
  OK(fi_control(&b.cq->fid, FI_GETWAIT, &descriptor));
  static char in[1 << 20];
  OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
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
    OK(status);
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

static void sread_returns_on_timeout_or_completion(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_WAIT", "block", 1);
  open_both((struct options){.wait = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_MANUAL});
  struct fi_cq_tagged_entry entry;
  double began = now_s(), cpu_began = cpu_s();
  EXPECT(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 400));
  CHECK(now_s() - began > 0.39 && now_s() - began < 0.8, "%.3f s", now_s() - began);
  CHECK(cpu_s() - cpu_began < 0.05, "%.3f s of a processor", cpu_s() - cpu_began);
  EXPECT(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 0));
  char in[8];
  OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  pthread_t sender;
  CHECK(!pthread_create(&sender, NULL, send_later, (void *)8));
  began = now_s(), cpu_began = cpu_s();
  EXPECT(1, fi_cq_sread(b.cq, &entry, 1, NULL, -1));
  CHECK(now_s() - began < 1.0 && cpu_s() - cpu_began < 0.1, "%.3f s, %.3f of a processor", now_s() - began,
        cpu_s() - cpu_began);
  pthread_join(sender, NULL);
  close_both();
}

// Posts a receive for a message that has arrived, after a delay.
static void *receive_later(void *in) {
  usleep(200000);
  OK(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, in));
  return NULL;
}

// A receive whose message has arrived completes when it is posted: the posting thread wakes a thread that sleeps on the
// queue or on a counter.
static void a_post_wakes_sleeping_threads(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_WAIT", "block", 1);
  open_both((struct options){
      .wait = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_MANUAL, .has_counters = 1});
  struct fi_cq_tagged_entry entry;
  char in[8], out[8] = "held";
  for (uint64_t round = 1; round <= 4; round++) {
    OK(fi_inject(a.ep, out, sizeof out, to_b));
    for (double until = now_s() + 0.05; now_s() < until;) make_progress();
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, receive_later, in));
    double began = now_s();
    if (round % 2) EXPECT(1, fi_cq_sread(b.cq, &entry, 1, NULL, 5000));
    else OK(fi_cntr_wait(b.received, round, 5000));
    CHECK(now_s() - began < 0.7, "%.3f s", now_s() - began);
    pthread_join(thread, NULL);
    if (round % 2 == 0) EXPECT(1, fi_cq_read(b.cq, &entry, 1));
  }
  // A receive that does not complete at once ends no wait.
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, receive_later, in));
  double began = now_s();
  EXPECT(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 600));
  CHECK(now_s() - began > 0.59, "%.3f s", now_s() - began);
  pthread_join(thread, NULL);
  close_both();
}

static char never[8];

static void *cancel_later(void *of) {
  (void)of;
  usleep(200000);
  OK(fi_cancel(&b.ep->fid, never));
  return NULL;
}

static void *remove_later(void *of) {
  (void)of;
  usleep(200000);
  OK(fi_av_remove(b.av, &to_a, 1, 0));
  return NULL;
}

// What ends a receive wakes a thread that waits for it without a limit: a cancellation, and the removal of its only
// source.
static void an_ended_receive_wakes_sleeping_threads(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_WAIT", "block", 1);
  open_both((struct options){.wait = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_MANUAL});
  static void *(*const ends[])(void *) = {cancel_later, remove_later};
  for (int turn = 0; turn < 2; turn++) {
    OK(fi_recv(b.ep, never, sizeof never, NULL, to_a, never));
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, ends[turn], NULL));
    double began = now_s();
    struct fi_cq_tagged_entry entry;
    EXPECT(-FI_EAVAIL, fi_cq_sread(b.cq, &entry, 1, NULL, 5000));
    CHECK(now_s() - began < 2, "%d: %.3f s", turn, now_s() - began);
    struct fi_cq_err_entry error = {0};
    EXPECT(1, fi_cq_readerr(b.cq, &error, 0));
    CHECK(error.op_context == never);
    pthread_join(thread, NULL);
  }
  close_both();
}

static void *signal_later(void *of) {
  (void)of;
  usleep(300000);
  OK(fi_cq_signal(b.cq));
  return NULL;
}

static void end_waits_by_signals(void) {
  open_both((struct options){.wait = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE});
  struct fi_cq_tagged_entry entry;
  pthread_t thread;
  for (int round = 0; round < 2; round++) {
    CHECK(!pthread_create(&thread, NULL, signal_later, NULL));
    double began = now_s();
    EXPECT(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 10000));
    CHECK(now_s() - began > 0.29 && now_s() - began < 2.0, "%.3f s", now_s() - began);
    pthread_join(thread, NULL);
  }
  // A signal while nobody waits ends the next wait, whatever was called before it.
  for (int is_tried = 0; is_tried < 2; is_tried++) {
    OK(fi_cq_signal(b.cq));
    struct fid *fid = &b.cq->fid;
    if (is_tried) fi_trywait(b.fabric, &fid, 1);
    double began = now_s();
    EXPECT(-FI_EAGAIN, fi_cq_sread(b.cq, &entry, 1, NULL, 3000));
    CHECK(now_s() - began < 1.0, "%.3f s", now_s() - began);
  }
  close_both();
}

static void a_signal_ends_a_wait(char **arguments) {
  (void)arguments;
  static const char *policies[] = {"spin", "adaptive", "block"};
  for (int policy = 0; policy < 3; policy++) {
    setenv("FI_BAREWIRE_WAIT", policies[policy], 1);
    end_waits_by_signals();
  }
}

// A rendezvous completes while the program makes no call.
static void progress_without_calls(char **arguments) {
  (void)arguments;
  open_both((struct options){.progress = FI_PROGRESS_AUTO, .threading = FI_THREAD_SAFE});
  size_t length = 4 << 20;
  char *out = malloc(length), *in = calloc(1, length);
  fill(out, length, 9);
  OK(fi_trecv(b.ep, in, length, NULL, to_a, 1, 0, in));
  OK(fi_tsend(a.ep, out, length, NULL, to_b, 1, out));
  sleep(1);
  CHECK(is_filled(in, length, 9));
  // Both ends have their completion after one read each.
  struct fi_cq_tagged_entry entry;
  EXPECT(1, fi_cq_read(a.cq, &entry, 1));
  EXPECT(1, fi_cq_read(b.cq, &entry, 1));
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

// Concurrent sends and receives. Each thread has its own tag; all read one queue, so a thread may get any completion,
// and the context identifies its owner.
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
    OK(status);
    while ((status = fi_tsend(a.ep, out, length, NULL, to_b, job->number, (void *)&job->sent)) == -FI_EAGAIN)
      take_one(&a);
    OK(status);
    until(&job->received, round + 1);
    until(&job->sent, round + 1);
    CHECK(is_filled(in, length, seed), "thread %d, round %d", job->number, round);
  }
  free(out);
  free(in);
  return NULL;
}

static void threads_send_and_receive_concurrently(char **arguments) {
  (void)arguments;
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  for (int kind = 0; kind < 2; kind++) {
    open_both((struct options){.threading = FI_THREAD_SAFE, .progress = kinds[kind]});
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
      jobs[i] = (struct job){.number = i};
      CHECK(!pthread_create(&threads[i], NULL, work, &jobs[i]));
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    expect_idle(&a, 0.02);
    expect_idle(&b, 0.02);
    close_both();
  }
}

enum {
  WANTED = 100000
};
static volatile int taken, are_over;

// Takes completions of receives, waiting for ever for each, or never.
static void *take(void *waits) {
  static char in[2][8];
  while (taken < WANTED) {
    struct fi_cq_tagged_entry entry;
    long read = waits ? fi_cq_sread(b.cq, &entry, 1, NULL, -1) : fi_cq_read(b.cq, &entry, 1);
    if (read == -FI_EAGAIN && (!waits || are_over)) continue;
    CHECK(read == 1, "%ld after %d", read, taken);
    __atomic_fetch_add(&taken, 1, __ATOMIC_SEQ_CST);
    OK(fi_recv(b.ep, in[!!waits], 8, NULL, FI_ADDR_UNSPEC, NULL));
  }
  return NULL;
}

// A thread that waits for ever returns with a completion, never without one because another thread has taken it.
static void two_readers_share_a_queue(char **arguments) {
  (void)arguments;
  open_both((struct options){.wait = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE});
  static char in[8];
  pthread_t readers[2];
  for (int i = 0; i < 100; i++) OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, NULL));
  for (int i = 0; i < 2; i++) CHECK(!pthread_create(&readers[i], NULL, take, i ? in : NULL));
  for (int sent = 0; sent < WANTED;) {
    long status = sent < taken + 100 ? fi_inject(a.ep, "message", 8, to_b) : -FI_EAGAIN;
    CHECK(status == 0 || status == -FI_EAGAIN, "%ld", status);
    sent += status == 0;
    fi_cq_read(a.cq, NULL, 0);
  }
  double until = now_s() + 20;
  while (taken < WANTED) {
    CHECK(now_s() < until, "%d", taken);
    fi_cq_read(a.cq, NULL, 0);
  }
  are_over = 1;
  OK(fi_cq_signal(b.cq));
  for (int i = 0; i < 2; i++) pthread_join(readers[i], NULL);
  close_both();
}

// The descriptor of a queue is not readable for ever because a child still has what belonged to a peer that has left.
static void a_child_keeps_no_descriptor_readable(char **arguments) {
  (void)arguments;
  open_both((struct options){.wait = FI_WAIT_FD, .progress = FI_PROGRESS_MANUAL});
  char in[8];
  OK(fi_recv(a.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_inject(b.ep, "message", 8, to_a));
  next_success(&a);
  struct fid *fid = &a.cq->fid;
  while (fi_trywait(a.fabric, &fid, 1) == -FI_EAGAIN) fi_cq_read(a.cq, NULL, 0);
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pause();
    _exit(0);
  }
  node_close(&b);
  int descriptor;
  OK(fi_control(&a.cq->fid, FI_GETWAIT, &descriptor));
  struct pollfd waited = {descriptor, POLLIN, 0};
  double until = now_s() + 10;
  int is_quiet = 0;
  while (!is_quiet) {
    CHECK(now_s() < until);
    struct fi_cq_tagged_entry entry;
    fi_cq_read(a.cq, &entry, 1);
    is_quiet = fi_trywait(a.fabric, &fid, 1) == 0 && poll(&waited, 1, 100) == 0;
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  node_close(&a);
}

static struct node other;

static void *another_sends_later(void *to) {
  usleep(300000);
  OK(fi_send(other.ep, "another", 8, NULL, (fi_addr_t)to, NULL));
  struct fi_cq_tagged_entry entry;
  while (fi_cq_read(other.cq, &entry, 1) == -FI_EAGAIN) usleep(100);
  return NULL;
}

// A program adds the descriptor to its own set once, which still reports it after a peer has left.
static void a_set_of_the_program_keeps_the_descriptor(char **arguments) {
  (void)arguments;
  open_both((struct options){.wait = FI_WAIT_FD, .progress = FI_PROGRESS_MANUAL});
  node_open(&other, (struct options){.transmit_flags = FI_DELIVERY_COMPLETE});
  int descriptor, own = epoll_create1(EPOLL_CLOEXEC);
  OK(fi_control(&a.cq->fid, FI_GETWAIT, &descriptor));
  struct epoll_event event = {.events = EPOLLIN};
  CHECK(own >= 0 && epoll_ctl(own, EPOLL_CTL_ADD, descriptor, &event) == 0);
  char in[2][8];
  for (int i = 0; i < 2; i++) OK(fi_recv(a.ep, in[i], sizeof in[i], NULL, FI_ADDR_UNSPEC, in[i]));
  OK(fi_inject(b.ep, "message", 8, to_a));
  next_success(&a);
  struct fid *fid = &a.cq->fid;
  struct fi_cq_tagged_entry entry;
  while (fi_trywait(a.fabric, &fid, 1) == -FI_EAGAIN) fi_cq_read(a.cq, &entry, 1);
  node_close(&b);
  // Until nothing of the peer is left.
  double until = now_s() + 10;
  while (fi_trywait(a.fabric, &fid, 1) != 0 || epoll_wait(own, &event, 1, 100) != 0) {
    CHECK(now_s() < until);
    fi_cq_read(a.cq, &entry, 1);
  }
  pthread_t sender;
  CHECK(!pthread_create(&sender, NULL, another_sends_later, (void *)node_add_peer(&other, &a)));
  long read;
  while ((read = fi_cq_read(a.cq, &entry, 1)) == -FI_EAGAIN) {
    if (fi_trywait(a.fabric, &fid, 1) == 0) CHECK(epoll_wait(own, &event, 1, 3000) == 1, "the set reports nothing");
  }
  CHECK(read == 1 && strcmp(in[1], "another") == 0);
  // The message's sender waits for its acknowledgement.
  double acknowledged = now_s() + 0.5;
  while (now_s() < acknowledged) fi_cq_read(a.cq, &entry, 1);
  pthread_join(sender, NULL);
  close(own);
  node_close(&other);
  node_close(&a);
}

const struct test waiting_cases[] = {
    {"a_set_of_the_program_keeps_the_descriptor", a_set_of_the_program_keeps_the_descriptor},
    {"two_readers_share_a_queue", two_readers_share_a_queue},
    {"a_child_keeps_no_descriptor_readable", a_child_keeps_no_descriptor_readable},
    {"a_reader_sleeps_in_poll", a_reader_sleeps_in_poll},
    {"sread_returns_on_timeout_or_completion", sread_returns_on_timeout_or_completion},
    {"a_signal_ends_a_wait", a_signal_ends_a_wait},
    {"a_post_wakes_sleeping_threads", a_post_wakes_sleeping_threads},
    {"an_ended_receive_wakes_sleeping_threads", an_ended_receive_wakes_sleeping_threads},
    {"progress_without_calls", progress_without_calls},
    {"threads_send_and_receive_concurrently", threads_send_and_receive_concurrently},
    {NULL, NULL},
};
