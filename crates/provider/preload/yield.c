// SPDX-License-Identifier: Apache-2.0 OR MIT
// sched_yield for MPI libraries that call it after every empty poll, as MPICH does: the system call takes longer than
// the poll, and delays a message that arrives during it. Here only every 64th call enters the kernel, so a rank that
// shares its core still yields it every few microseconds. `barewire run` preloads this into ranks of MPICH that have a
// core each.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

#define CALLS_PER_YIELD 64

static _Thread_local unsigned calls __attribute__((tls_model("initial-exec")));

__attribute__((visibility("default"))) int sched_yield(void) {
  return ++calls % CALLS_PER_YIELD ? 0 : (int)syscall(SYS_sched_yield);
}
