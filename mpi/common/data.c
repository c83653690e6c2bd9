// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory for messages, and contents that a receiver can check.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

void *allocate(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes / page + 1) * page;
  void *memory = aligned_alloc(page, whole);
  if (!memory) wrong_result("no memory for %zu bytes", bytes);
  memset(memory, 0, whole);
  return memory;
}

struct buffers buffers_for(size_t bytes) {
  // A cache line of distance, so that no two messages share one.
  size_t stride = (bytes / 64 + 2) * 64, count = settings.walk_bytes / stride;
  if (count == 0) count = 1;
  return (struct buffers){.memory = allocate(stride * count), .stride = stride, .count = count};
}

void free_buffers(struct buffers *buffers) {
  free(buffers->memory);
  buffers->memory = NULL;
}

uint64_t key_of(int from, int to, uint64_t number) {
  uint64_t state = settings.seed ^ (uint64_t)from << 48 ^ (uint64_t)to << 32 ^ number;
  return draw(&state);
}

void fill(void *data, size_t bytes, uint64_t key) {
  unsigned char *to = data;
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = draw(&key);
    memcpy(to + at, &word, bytes - at < 8 ? bytes - at : 8);
  }
}

void check(const void *data, size_t bytes, uint64_t key, const char *what) {
  const unsigned char *from = data;
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = draw(&key);
    size_t part = bytes - at < 8 ? bytes - at : 8;
    if (!memcmp(from + at, &word, part)) continue;
    unsigned char expected[8];
    memcpy(expected, &word, 8);
    size_t differs = 0;
    while (from[at + differs] == expected[differs]) differs++;
    wrong_result("%s: byte %zu of %zu is 0x%02x, not 0x%02x", what, at + differs, bytes, from[at + differs],
                 expected[differs]);
  }
}
