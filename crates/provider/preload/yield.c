// SPDX-License-Identifier: Apache-2.0 OR MIT
// sched_yield for MPI libraries that call it after every question that found nothing, as MPICH does: the system call
// takes longer than the question, and a message that comes meanwhile waits for it. Here only each 64th goes to the
// kernel: who shares a core with others still gives it away, every few microseconds. `barewire run` preloads this into
// ranks of MPICH that have a core each.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

#define EACH 64

static _Thread_local unsigned calls __attribute__((tls_model("initial-exec")));

__attribute__((visibility("default"))) int sched_yield(void) {
  return ++calls % EACH ? 0 : (int)syscall(SYS_sched_yield);
}
