// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "keys.h"

#include <stdlib.h>

#include "../shared/large.h"
#include "common/suite.h"

const char *const distributions[] = {"uniform", "gaussian", "skewed", "sorted", "equal", NULL};

static uint64_t everywhere(const struct drawing *drawing) { return (uint64_t)drawing->keys * (uint64_t)ranks; }

static uint32_t key_at(const struct drawing *drawing, uint64_t number) {
  enum {
    DRAWS = 4
  };
  uint64_t state = settings.seed, first = draw(&state);
  if (drawing->distribution == EQUAL) return (uint32_t)first;
  if (drawing->distribution == SORTED) return (uint32_t)((double)number / (double)everywhere(drawing) * 0x1p32);
  // Apart by as many draws as a key may take.
  state = first + number * DRAWS * 0x9e3779b97f4a7c15u;
  uint64_t drawn = draw(&state) >> 32;
  if (drawing->distribution == GAUSSIAN) {
    for (int more = 1; more < DRAWS; more++) drawn += draw(&state) >> 32;
    return (uint32_t)(drawn / DRAWS);
  }
  if (drawing->distribution == UNIFORM) return (uint32_t)drawn;
  double part = (double)drawn * 0x1p-32;
  return (uint32_t)(part * part * part * part * 0x1p32);
}

static struct checksum checksum_of(const uint32_t *keys, size_t count) {
  struct checksum here = {0}, all;
  for (size_t at = 0; at < count; at++) {
    uint64_t state = keys[at];
    here.sum += keys[at];
    here.mixed += draw(&state);
    here.parity ^= keys[at];
  }
  MPI_Allreduce(&here.sum, &all.sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(&here.mixed, &all.mixed, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(&here.parity, &all.parity, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
  return all;
}

struct drawing draw_keys(enum distribution distribution, uint32_t *keys, size_t count) {
  struct drawing drawing = {.distribution = distribution, .keys = count};
  uint64_t first = (uint64_t)rank * count;
  for (size_t at = 0; at < count; at++) keys[at] = key_at(&drawing, first + at);
  drawing.checksum = checksum_of(keys, count);
  return drawing;
}

static int ascending(const uint32_t *keys, size_t count) {
  uint32_t *lasts = allocate((size_t)ranks * sizeof *lasts);
  MPI_Allgather(&keys[count - 1], 1, MPI_UINT32_T, lasts, 1, MPI_UINT32_T, MPI_COMM_WORLD);
  int here = rank == 0 || lasts[rank - 1] <= keys[0], all;
  free(lasts);
  for (size_t at = 1; at < count; at++) here &= keys[at - 1] <= keys[at];
  MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  return all;
}

static int by_value(const void *one, const void *other) {
  uint32_t first = *(const uint32_t *)one, second = *(const uint32_t *)other;
  return (first > second) - (first < second);
}

// The keys that belong here, sorted by the C library: of all keys those whose upper halves come into question.
static uint32_t *sort_serially(const struct drawing *drawing) {
  enum {
    BINS = 1 << 16
  };
  uint64_t first = (uint64_t)rank * drawing->keys, end = first + drawing->keys, before = 0, skipped = 0;
  uint64_t *bins = allocate(BINS * sizeof *bins);
  for (uint64_t number = 0; number < everywhere(drawing); number++) bins[key_at(drawing, number) >> 16]++;
  uint32_t low = 0, high = 0;
  size_t count = 0, taken = 0;
  for (uint32_t bin = 0; bin < BINS; before += bins[bin++]) {
    if (before >= end || before + bins[bin] <= first) continue;
    if (count == 0) low = bin, skipped = first - before;
    high = bin;
    count += bins[bin];
  }
  free(bins);
  uint32_t *keys = allocate_large(count * sizeof *keys);
  for (uint64_t number = 0; number < everywhere(drawing); number++) {
    uint32_t key = key_at(drawing, number);
    if (key >> 16 >= low && key >> 16 <= high) keys[taken++] = key;
  }
  qsort(keys, count, sizeof *keys, by_value);
  for (size_t at = 0; at < drawing->keys; at++) keys[at] = keys[at + skipped];
  return keys;
}

__attribute__((noreturn)) static void name_first_wrong(const struct drawing *drawing, const uint32_t *keys) {
  uint32_t *right = sort_serially(drawing);
  size_t at = 0;
  while (at < drawing->keys && keys[at] == right[at]) at++;
  int wrong = at < drawing->keys ? rank : ranks, first;
  MPI_Allreduce(&wrong, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == rank)
    wrong_result("key %" PRIu64 " of all is %" PRIu32 ", not %" PRIu32, (uint64_t)rank * drawing->keys + at, keys[at],
                 right[at]);
  if (first == ranks) wrong_result("every key is right, and yet the checks failed");
  // Until the one that is wrong has ended the job.
  MPI_Barrier(MPI_COMM_WORLD);
  abort();
}

void check_keys(const struct drawing *drawing, uint32_t *keys) {
  static uint64_t checked;
  if (++checked == settings.corrupt && rank == ranks - 1) keys[drawing->keys / 2] ^= 1;
  struct checksum checksum = checksum_of(keys, drawing->keys), drawn = drawing->checksum;
  int kept = checksum.sum == drawn.sum && checksum.mixed == drawn.mixed && checksum.parity == drawn.parity;
  if (!ascending(keys, drawing->keys) || !kept) name_first_wrong(drawing, keys);
}
