// SPDX-License-Identifier: Apache-2.0 OR MIT
// Processes and libraries that come and go around endpoints.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
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
    {"opened_and_closed_often_nothing_is_left", opened_and_closed_often_nothing_is_left},
    {NULL, NULL},
};
