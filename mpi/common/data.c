// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory for messages, and contents that a receiver can verify.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

void *allocate(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes / page + 1) * page;
  // With overcommitted memory the kernel would kill a process when the memory is touched.
  int exceeds_memory = whole / page > (size_t)sysconf(_SC_PHYS_PAGES);
  void *memory = exceeds_memory ? NULL : aligned_alloc(page, whole);
  if (!memory) unsupported_here("no memory for %zu bytes: use smaller --sizes or a smaller --walk-bytes", bytes);
  memset(memory, 0, whole);
  return memory;
}

struct buffers buffers_at_least(size_t least, size_t bytes) {
  // At least one cache line between messages, so that no two share one.
  size_t stride = (bytes / 64 + 2) * 64, count = settings.walk_bytes / stride;
  if (count < least) count = least;
  return (struct buffers){.memory = allocate(stride * count), .stride = stride, .count = count};
}

void free_buffers(struct buffers *buffers) {
  free(buffers->memory);
  buffers->memory = NULL;
}

uint64_t key_of(int from, int to, uint64_t number) {
  uint64_t state = settings.seed;
  state = draw(&state) ^ ((uint64_t)from << 32 | (uint64_t)to);
  state = draw(&state) ^ number;
  return draw(&state);
}

static inline uint64_t next_word(const struct contents *contents) {
  uint64_t sum = draw(&contents->keys[0]);
  for (int number = 1; number < contents->count; number++) {
    uint64_t word = draw(&contents->keys[number]);
    sum = contents->bytewise ? sum ^ word : sum + word;
  }
  return sum;
}

void fill(void *data, size_t bytes, uint64_t key) {
  fill_with(data, bytes, (struct contents){.keys = &key, .count = 1});
}

void fill_with(void *data, size_t bytes, struct contents contents) {
  unsigned char *to = data;
  size_t whole = bytes / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) {
    uint64_t word = next_word(&contents);
    memcpy(to + at, &word, 8);
  }
  uint64_t word = next_word(&contents);
  memcpy(to + whole, &word, bytes - whole);
}

__attribute__((noreturn)) static void report_difference(const unsigned char *received, size_t at, size_t bytes,
                                                        uint64_t expected, const char *what) {
  unsigned char word[8];
  memcpy(word, &expected, sizeof word);
  size_t byte = 0;
  while (received[at + byte] == word[byte]) byte++;
  wrong_result("%s: byte %zu of %zu is 0x%02x, not 0x%02x", what, at + byte, bytes, received[at + byte], word[byte]);
}

void check(const void *data, size_t bytes, uint64_t key, const char *what) {
  check_for(data, bytes, (struct contents){.keys = &key, .count = 1}, what);
}

void check_for(const void *data, size_t bytes, struct contents contents, const char *what) {
  static uint64_t checked;
  // The memory is writable in spite of the const.
  if (bytes && ++checked == settings.corrupt) ((unsigned char *)(uintptr_t)data)[bytes / 2] ^= 1;
  const unsigned char *received = data;
  size_t whole = bytes / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) {
    uint64_t expected = next_word(&contents), word;
    memcpy(&word, received + at, 8);
    if (word != expected) report_difference(received, at, bytes, expected, what);
  }
  uint64_t expected = next_word(&contents);
  if (memcmp(received + whole, &expected, bytes - whole)) report_difference(received, whole, bytes, expected, what);
}
