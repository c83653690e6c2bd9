// SPDX-License-Identifier: Apache-2.0 OR MIT
// Processes and libraries that come and go around endpoints.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node.h"

static void exchange(struct node *from, struct node *to) {
  fi_addr_t number = node_know(from, to);
  static char out[100000], in[100000];
  fill(out, sizeof out, 5);
  WORKS(fi_trecv(to->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in));
  WORKS(fi_tsend(from->ep, out, sizeof out, NULL, number, 1, out));
  next(from);
  next(to);
  CHECK(is_filled(in, sizeof in, 5));
}

static void await_child(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

static int descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  CHECK(folder);
  int count = 0;
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

// A child that ends, with or without closing what it inherited, or becomes another program leaves its parent in peace.
static void a_child_leaves_its_parent_in_peace(char **arguments) {
  (void)arguments;
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  for (int kind = 0; kind < 2; kind++) {
    struct node a, b;
    node_open(&a, (struct wish){.progress = kinds[kind], .threading = FI_THREAD_SAFE});
    node_open(&b, (struct wish){.progress = kinds[kind], .threading = FI_THREAD_SAFE});
    for (int way = 0; way < 4; way++) {
      exchange(&a, &b);
      fflush(stdout);
      pid_t child = fork();
      CHECK(child >= 0);
      if (child == 0 && way == 0) _exit(0);
      if (child == 0 && way == 1) exit(0);
      if (child == 0 && way == 2) {
        node_close(&a);
        node_close(&b);
        _exit(0);
      }
      if (child == 0) {
        // No descriptor of an endpoint's is left to the new program: 0, 1, 2 and the folder's own.
        execl("/bin/sh", "sh", "-c",
              "for fd in /proc/$$/fd/*; do case $(readlink $fd) in socket:*|anon_inode:*|*memfd*) exit 1; esac; done",
              NULL);
        _exit(9);
      }
      await_child(child);
      exchange(&a, &b);
    }
    node_close(&a);
    node_close(&b);
  }
}

// With endpoints of its own, too.
static void a_child_has_endpoints_of_its_own(char **arguments) {
  (void)arguments;
  struct node a, b;
  node_open(&a, (struct wish){0});
  node_open(&b, (struct wish){0});
  exchange(&a, &b);
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    // Those of the parent are closed first, as an orderly program does.
    node_close(&a);
    node_close(&b);
    struct node c, d;
    node_open(&c, (struct wish){0});
    node_open(&d, (struct wish){0});
    exchange(&c, &d);
    node_close(&c);
    node_close(&d);
    _exit(0);
  }
  await_child(child);
  exchange(&a, &b);
  node_close(&a);
  node_close(&b);
}

// A child must not use what it has of its parent's, and the parent does not notice that it tries.
static void a_child_that_uses_its_parents_objects_is_refused(char **arguments) {
  (void)arguments;
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  for (int kind = 0; kind < 2; kind++) {
    struct node a, b;
    node_open(&a, (struct wish){.progress = kinds[kind], .threading = FI_THREAD_SAFE, .has_counters = 1});
    node_open(&b, (struct wish){.progress = kinds[kind], .threading = FI_THREAD_SAFE});
    exchange(&a, &b);
    fi_addr_t number = node_know(&a, &b);
    uint64_t sent = fi_cntr_read(a.sent);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      struct fi_cq_tagged_entry entry;
      static char out[64];
      for (int turns = 0; turns < 1000; turns++) {
        GIVES(-FI_EOPBADSTATE, fi_cq_read(a.cq, &entry, 1));
        GIVES(-FI_EOPBADSTATE, fi_cq_read(b.cq, &entry, 1));
        GIVES(-FI_EOPBADSTATE, fi_tsend(a.ep, out, sizeof out, NULL, number, 9, NULL));
        GIVES(-FI_EOPBADSTATE, fi_tinject(a.ep, out, sizeof out, number, 9));
      }
      GIVES(-FI_EOPBADSTATE, fi_cq_sread(a.cq, &entry, 1, NULL, -1));
      GIVES(-FI_EOPBADSTATE, fi_cntr_wait(a.sent, 1000, -1));
      CHECK(fi_cntr_read(a.sent) == sent && fi_cntr_readerr(a.sent) == 1);
      _exit(0);
    }
    for (int turns = 0; turns < 50; turns++) exchange(&a, &b);
    await_child(child);
    exchange(&a, &b);
    nothing(&b, 0.02);
    node_close(&a);
    node_close(&b);
  }
}

// The child has its sockets still, and its process lives.
static void a_closed_endpoint_is_gone_though_a_child_lives(char **arguments) {
  (void)arguments;
  struct node a, b;
  node_open(&a, (struct wish){.progress = FI_PROGRESS_AUTO, .threading = FI_THREAD_SAFE});
  node_open(&b, (struct wish){.progress = FI_PROGRESS_AUTO, .threading = FI_THREAD_SAFE});
  exchange(&a, &b);
  exchange(&b, &a);
  fflush(stdout);
  pid_t parent = getpid(), child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) pause();
    _exit(0);
  }
  // Too long to be sent before it is received, which nobody does.
  static char out[4 << 20];
  WORKS(fi_tsend(b.ep, out, sizeof out, NULL, node_know(&b, &a), 1, out));
  double began = now_s();
  node_close(&a);
  next_error(&b, FI_ECONNRESET);
  CHECK(now_s() - began < 20, "after %.1f s", now_s() - began);
  node_close(&b);
  CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
}

// What opening an endpoint of its own ends with; everything is closed again.
static long another_endpoint(const struct node *like) {
  struct node made = {0};
  struct fi_av_attr av = {.type = FI_AV_TABLE};
  struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
  long status = fi_domain(like->fabric, like->info, &made.domain, NULL);
  if (!status) status = fi_av_open(made.domain, &av, &made.av, NULL);
  if (!status) status = fi_cq_open(made.domain, &cq, &made.cq, NULL);
  if (!status) status = fi_endpoint(made.domain, like->info, &made.ep, NULL);
  if (!status) status = fi_ep_bind(made.ep, &made.av->fid, 0);
  if (!status) status = fi_ep_bind(made.ep, &made.cq->fid, FI_TRANSMIT | FI_RECV);
  if (!status) status = fi_enable(made.ep);
  if (made.ep) WORKS(fi_close(&made.ep->fid));
  if (made.cq) WORKS(fi_close(&made.cq->fid));
  if (made.av) WORKS(fi_close(&made.av->fid));
  if (made.domain) WORKS(fi_close(&made.domain->fid));
  return status;
}

// At each of the places where one is needed.
static void descriptors_that_are_used_up_are_told(char **arguments) {
  (void)arguments;
  struct node a;
  node_open(&a, (struct wish){0});
  WORKS(another_endpoint(&a));
  struct rlimit limit;
  WORKS(getrlimit(RLIMIT_NOFILE, &limit));
  int first = dup(0), before = descriptors();
  close(first);
  long status;
  int left = 0;
  do {
    struct rlimit few = {(rlim_t)(first + left), limit.rlim_max};
    double began = now_s();
    WORKS(setrlimit(RLIMIT_NOFILE, &few));
    status = another_endpoint(&a);
    WORKS(setrlimit(RLIMIT_NOFILE, &limit));
    CHECK(status == 0 || status == -EMFILE, "%d left: %ld %s", left, status, fi_strerror((int)-status));
    CHECK(now_s() - began < 10, "%d left: after %.1f s", left, now_s() - began);
    left++;
  } while (status);
  CHECK(left > 8 && left < 40, "%d descriptors are enough", left - 1);
  CHECK(descriptors() == before - 1, "%d descriptors, not %d", descriptors(), before - 1);
  node_close(&a);
}

static size_t resident(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  size_t size, pages;
  CHECK(file && fscanf(file, "%zu %zu", &size, &pages) == 2);
  fclose(file);
  return pages * 4096;
}

static void opened_and_closed_often_nothing_is_left(char **arguments) {
  (void)arguments;
  size_t memory = 0;
  int before = 0;
  for (int turns = 0; turns < 40; turns++) {
    struct node a, b;
    struct wish wish = {
        .wait = FI_WAIT_FD, .has_counters = 1, .progress = turns % 4 ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO};
    node_open(&a, wish);
    node_open(&b, wish);
    exchange(&a, &b);
    node_close(&a);
    node_close(&b);
    if (turns == 10) {
      malloc_trim(0);
      memory = resident();
      before = descriptors();
    }
  }
  malloc_trim(0);
  CHECK(descriptors() == before, "%d descriptors, not %d", descriptors(), before);
  CHECK(resident() < memory + (8 << 20), "%zu bytes became %zu", memory, resident());
}

const struct test life_cases[] = {
    {"a_child_leaves_its_parent_in_peace", a_child_leaves_its_parent_in_peace},
    {"a_child_has_endpoints_of_its_own", a_child_has_endpoints_of_its_own},
    {"a_child_that_uses_its_parents_objects_is_refused", a_child_that_uses_its_parents_objects_is_refused},
    {"a_closed_endpoint_is_gone_though_a_child_lives", a_closed_endpoint_is_gone_though_a_child_lives},
    {"descriptors_that_are_used_up_are_told", descriptors_that_are_used_up_are_told},
    {"opened_and_closed_often_nothing_is_left", opened_and_closed_often_nothing_is_left},
    {NULL, NULL},
};
