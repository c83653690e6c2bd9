// SPDX-License-Identifier: Apache-2.0 OR MIT
// Forks, exhausted descriptors, and repeated opening and closing.
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
  fi_addr_t number = node_add_peer(from, to);
  static char out[200000], in[200000];
  fill(out, sizeof out, 5);
  OK(fi_trecv(to->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in));
  OK(fi_tsend(from->ep, out, sizeof out, NULL, number, 1, out));
  next_success(from);
  next_success(to);
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

// A child that exits, with or without closing what it inherited, or that executes another program.
static void a_child_does_not_disturb_its_parent(char **arguments) {
  (void)arguments;
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  for (int kind = 0; kind < 2; kind++) {
    struct node a, b;
    node_open(&a, (struct options){.progress = kinds[kind], .threading = FI_THREAD_SAFE});
    node_open(&b, (struct options){.progress = kinds[kind], .threading = FI_THREAD_SAFE});
    for (int end = 0; end < 4; end++) {
      exchange(&a, &b);
      fflush(stdout);
      pid_t child = fork();
      CHECK(child >= 0);
      if (child == 0 && end == 0) _exit(0);
      if (child == 0 && end == 1) exit(0);
      if (child == 0 && end == 2) {
        node_close(&a);
        node_close(&b);
        _exit(0);
      }
      if (child == 0) {
        // The new program inherits no descriptor of an endpoint.
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

static void a_child_opens_its_own_endpoints(char **arguments) {
  (void)arguments;
  struct node a, b;
  node_open(&a, (struct options){0});
  node_open(&b, (struct options){0});
  exchange(&a, &b);
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    // Closes its parent's endpoints first, as a well-behaved program does.
    node_close(&a);
    node_close(&b);
    struct node c, d;
    node_open(&c, (struct options){0});
    node_open(&d, (struct options){0});
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

// Attempts to use them do not disturb the parent.
static void inherited_objects_fail_in_a_child(char **arguments) {
  (void)arguments;
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  for (int kind = 0; kind < 2; kind++) {
    struct node a, b;
    node_open(&a, (struct options){.progress = kinds[kind], .threading = FI_THREAD_SAFE, .has_counters = 1});
    node_open(&b, (struct options){.progress = kinds[kind], .threading = FI_THREAD_SAFE});
    exchange(&a, &b);
    fi_addr_t number = node_add_peer(&a, &b);
    uint64_t sent = fi_cntr_read(a.sent);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      struct fi_cq_tagged_entry entry;
      static char out[64];
      for (int round = 0; round < 1000; round++) {
        EXPECT(-FI_EOPBADSTATE, fi_cq_read(a.cq, &entry, 1));
        EXPECT(-FI_EOPBADSTATE, fi_cq_read(b.cq, &entry, 1));
        EXPECT(-FI_EOPBADSTATE, fi_tsend(a.ep, out, sizeof out, NULL, number, 9, NULL));
        EXPECT(-FI_EOPBADSTATE, fi_tinject(a.ep, out, sizeof out, number, 9));
      }
      EXPECT(-FI_EOPBADSTATE, fi_cq_sread(a.cq, &entry, 1, NULL, -1));
      EXPECT(-FI_EOPBADSTATE, fi_cntr_wait(a.sent, 1000, -1));
      CHECK(fi_cntr_read(a.sent) == sent && fi_cntr_readerr(a.sent) == 1);
      _exit(0);
    }
    for (int round = 0; round < 50; round++) exchange(&a, &b);
    await_child(child);
    exchange(&a, &b);
    expect_idle(&b, 0.02);
    node_close(&a);
    node_close(&b);
  }
}

// The child still has its sockets, and stays alive.
static void a_closed_endpoint_is_gone_despite_a_living_child(char **arguments) {
  (void)arguments;
  struct node a, b;
  node_open(&a, (struct options){.progress = FI_PROGRESS_AUTO, .threading = FI_THREAD_SAFE});
  node_open(&b, (struct options){.progress = FI_PROGRESS_AUTO, .threading = FI_THREAD_SAFE});
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
  // A rendezvous, for which no receive is posted.
  static char out[4 << 20];
  OK(fi_tsend(b.ep, out, sizeof out, NULL, node_add_peer(&b, &a), 1, out));
  double began = now_s();
  node_close(&a);
  next_error(&b, FI_ECONNRESET);
  CHECK(now_s() - began < 20, "after %.1f s", now_s() - began);
  node_close(&b);
  CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
}

// Opens a domain with an endpoint, and closes all; the first error, or 0.
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
  if (made.ep) OK(fi_close(&made.ep->fid));
  if (made.cq) OK(fi_close(&made.cq->fid));
  if (made.av) OK(fi_close(&made.av->fid));
  if (made.domain) OK(fi_close(&made.domain->fid));
  return status;
}

// At each point where one is needed.
static void exhausted_descriptors_are_reported(char **arguments) {
  (void)arguments;
  struct node a;
  node_open(&a, (struct options){0});
  OK(another_endpoint(&a));
  struct rlimit limit;
  OK(getrlimit(RLIMIT_NOFILE, &limit));
  int first = dup(0), before = descriptors();
  close(first);
  long status;
  int left = 0;
  do {
    struct rlimit few = {(rlim_t)(first + left), limit.rlim_max};
    double began = now_s();
    OK(setrlimit(RLIMIT_NOFILE, &few));
    status = another_endpoint(&a);
    OK(setrlimit(RLIMIT_NOFILE, &limit));
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

static void opening_and_closing_leaks_nothing(char **arguments) {
  (void)arguments;
  size_t memory = 0;
  int before = 0;
  for (int round = 0; round < 40; round++) {
    struct node a, b;
    struct options options = {
        .wait = FI_WAIT_FD, .has_counters = 1, .progress = round % 4 ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO};
    node_open(&a, options);
    node_open(&b, options);
    exchange(&a, &b);
    node_close(&a);
    node_close(&b);
    if (round == 10) {
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
    {"a_child_does_not_disturb_its_parent", a_child_does_not_disturb_its_parent},
    {"a_child_opens_its_own_endpoints", a_child_opens_its_own_endpoints},
    {"inherited_objects_fail_in_a_child", inherited_objects_fail_in_a_child},
    {"a_closed_endpoint_is_gone_despite_a_living_child", a_closed_endpoint_is_gone_despite_a_living_child},
    {"exhausted_descriptors_are_reported", exhausted_descriptors_are_reported},
    {"opening_and_closing_leaks_nothing", opening_and_closing_leaks_nothing},
    {NULL, NULL},
};
