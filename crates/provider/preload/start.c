// SPDX-License-Identifier: Apache-2.0 OR MIT
// Skips delays of Open MPI and libfabric at a job's start and end that only other fabrics need. `barewire run` preloads
// this into ranks of Open MPI over Barewire:
//
// - libfabric's verbs provider reads all of the kernel's symbols, twice, to find out whether InfiniBand cards may
// access
//   GPU memory: a quarter of a second each time. Here opening the file fails.
// - Open MPI 5's byte transfer layer over libfabric sleeps for a second when it is closed, for libfabric's sockets
//   provider. Barewire has closed its connections by then.
// - The provider's locks register the process for membarrier(2), which takes the kernel some 20 ms if there are several
//   threads. Here, before `main`, there is one.
//
// Calls by the program itself are not affected.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

// If the kernel lacks membarrier, the locks detect that themselves.
__attribute__((constructor)) static void register_barriers(void) {
  syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

// Whether an address lies in a library, except in the function `excluded`.
static int is_in(void *address, const char *library, const char *excluded) {
  Dl_info found;
  if (!dladdr(address, &found) || !found.dli_fname || !strstr(found.dli_fname, library)) return 0;
  return !found.dli_sname || strcmp(found.dli_sname, excluded) != 0;
}

static FILE *open_file(const char *name, const char *path, const char *mode, void *caller) {
  if (path && strcmp(path, "/proc/kallsyms") == 0 && is_in(caller, "libfabric.so", "")) {
    errno = ENOENT;
    return NULL;
  }
  FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, name);
  return next(path, mode);
}

PUBLIC FILE *fopen(const char *path, const char *mode) { return open_file("fopen", path, mode, CALLER); }

PUBLIC FILE *fopen64(const char *path, const char *mode) { return open_file("fopen64", path, mode, CALLER); }

PUBLIC unsigned sleep(unsigned seconds) {
  // Keep the delay before an abort, which the user has requested.
  if (seconds == 1 && is_in(CALLER, "libopen-pal.so", "opal_delay_abort")) return 0;
  unsigned (*next)(unsigned) = (unsigned (*)(unsigned))dlsym(RTLD_NEXT, "sleep");
  return next(seconds);
}
