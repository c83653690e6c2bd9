// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the MPI test programs share: who they are, numbers by seed, and an end as soon as a result is wrong.
#pragma once
#include <inttypes.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, ranks;
static uint64_t seed = 1;

__attribute__((format(printf, 1, 2))) static inline void fail(const char *format, ...) {
  va_list values;
  va_start(values, format);
  fprintf(stderr, "rank %d, seed %" PRIu64 ": WRONG: ", rank, seed);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

static inline double seconds_of(clockid_t clock) {
  struct timespec now;
  if (clock_gettime(clock, &now)) fail("no clock %d", (int)clock);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The same numbers on all ranks for the same state. (SplitMix64)
static inline uint64_t draw(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static inline uint64_t key_of(int from, int to, int number) {
  uint64_t state = seed ^ (uint64_t)from << 40 ^ (uint64_t)to << 20 ^ (uint64_t)number;
  return draw(&state);
}

static inline void fill(void *data, size_t bytes, uint64_t key) {
  unsigned char *to = data;
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = draw(&key);
    memcpy(to + at, &word, bytes - at < 8 ? bytes - at : 8);
  }
}

static inline void check(const void *data, size_t bytes, uint64_t key, const char *what) {
  const unsigned char *from = data;
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = draw(&key);
    if (memcmp(from + at, &word, bytes - at < 8 ? bytes - at : 8))
      fail("%s: byte %zu of %zu or one of the next 7 differs", what, at, bytes);
  }
}

static inline void *allocate(size_t bytes) {
  void *memory = malloc(bytes ? bytes : 1);
  if (!memory) fail("no memory for %zu bytes", bytes);
  return memory;
}

// Most messages are short, as in programs; each power of two up to `most` is as likely.
static inline size_t draw_size(uint64_t *state, size_t most) {
  int powers = 1;
  while ((size_t)1 << powers < most) powers++;
  size_t below = (size_t)1 << draw(state) % (uint64_t)(powers + 1);
  size_t size = draw(state) % (below + 1);
  return size < most ? size : most;
}

static inline void begin(int threading, int argc, char **argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, threading, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (provided < threading) fail("the library gives thread level %d, not %d", provided, threading);
  if (ranks < 2) fail("needs 2 ranks or more");
}

static inline uint64_t argument(int argc, char **argv, int number, uint64_t otherwise) {
  return argc > number ? strtoull(argv[number], NULL, 0) : otherwise;
}
