// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "large.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/suite.h"

#define HUGE_PAGE ((size_t)2 << 20)

void *allocate_large(size_t bytes) {
  if (bytes < HUGE_PAGE) return allocate(bytes);
  size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  void *memory = aligned_alloc(HUGE_PAGE, whole);
  if (!memory) cannot_here("no memory for %zu bytes: take a smaller problem, or more hosts", bytes);
  // Where it is refused there are ordinary pages.
  madvise(memory, whole, MADV_HUGEPAGE);
  memset(memory, 0, whole);
  return memory;
}
