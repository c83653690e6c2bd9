// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "large.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/suite.h"

#define HUGE_PAGE ((size_t)2 << 20)

void require_memory(size_t bytes) {
  MPI_Comm host;
  uint64_t here = bytes, all, there = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  MPI_Allreduce(&here, &all, 1, MPI_UINT64_T, MPI_SUM, host);
  MPI_Comm_free(&host);
  if (all > there)
    unsupported_here("the ranks of this host need %.1f GB, and it has %.1f: use a smaller problem, or more hosts",
                     (double)all / 1e9, (double)there / 1e9);
}

void *allocate_large(size_t bytes) {
  if (bytes < HUGE_PAGE) return allocate(bytes);
  size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  void *memory = aligned_alloc(HUGE_PAGE, whole);
  if (!memory) unsupported_here("no memory for %zu bytes: use a smaller problem, or more hosts", bytes);
  // Falls back to ordinary pages.
  madvise(memory, whole, MADV_HUGEPAGE);
  memset(memory, 0, whole);
  return memory;
}
