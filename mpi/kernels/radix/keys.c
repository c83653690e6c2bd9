// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "keys.h"

#include <stdlib.h>

#include "../shared/large.h"
#include "common/suite.h"

const char *const distributions[] = {"uniform", "gaussian", "skewed", "sorted", "equal", NULL};

static uint64_t total_keys(const struct key_set *key_set) { return (uint64_t)key_set->keys * (uint64_t)ranks; }

static uint32_t key_at(const struct key_set *key_set, uint64_t number) {
  enum {
    DRAWS = 4
  };
  uint64_t state = settings.seed, first = draw(&state);
  if (key_set->distribution == EQUAL) return (uint32_t)first;
  if (key_set->distribution == SORTED) return (uint32_t)((double)number / (double)total_keys(key_set) * 0x1p32);
  // Successive keys are DRAWS numbers apart in the sequence.
  state = first + number * DRAWS * 0x9e3779b97f4a7c15u;
  uint64_t drawn = draw(&state) >> 32;
  if (key_set->distribution == GAUSSIAN) {
    for (int more = 1; more < DRAWS; more++) drawn += draw(&state) >> 32;
    return (uint32_t)(drawn / DRAWS);
  }
  if (key_set->distribution == UNIFORM) return (uint32_t)drawn;
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

struct key_set draw_keys(enum distribution distribution, uint32_t *keys, size_t count) {
  struct key_set key_set = {.distribution = distribution, .keys = count};
  uint64_t first = (uint64_t)rank * count;
  for (size_t at = 0; at < count; at++) keys[at] = key_at(&key_set, first + at);
  key_set.checksum = checksum_of(keys, count);
  return key_set;
}

static int is_ascending(const uint32_t *keys, size_t count) {
  uint32_t *lasts = allocate((size_t)ranks * sizeof *lasts);
  MPI_Allgather(&keys[count - 1], 1, MPI_UINT32_T, lasts, 1, MPI_UINT32_T, MPI_COMM_WORLD);
  int here = rank == 0 || lasts[rank - 1] <= keys[0], all;
  free(lasts);
  for (size_t at = 1; at < count; at++) here &= keys[at - 1] <= keys[at];
  MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  return all;
}

static int by_value(const void *left_key, const void *right_key) {
  uint32_t first = *(const uint32_t *)left_key, second = *(const uint32_t *)right_key;
  return (first > second) - (first < second);
}

// This rank's share of the sorted keys, by the C library: sorts only keys whose upper halves can fall into it.
static uint32_t *sort_serially(const struct key_set *key_set) {
  enum {
    BINS = 1 << 16
  };
  uint64_t first = (uint64_t)rank * key_set->keys, end = first + key_set->keys, before = 0, skipped = 0;
  uint64_t *bins = allocate(BINS * sizeof *bins);
  for (uint64_t number = 0; number < total_keys(key_set); number++) bins[key_at(key_set, number) >> 16]++;
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
  for (uint64_t number = 0; number < total_keys(key_set); number++) {
    uint32_t key = key_at(key_set, number);
    if (key >> 16 >= low && key >> 16 <= high) keys[taken++] = key;
  }
  qsort(keys, count, sizeof *keys, by_value);
  for (size_t at = 0; at < key_set->keys; at++) keys[at] = keys[at + skipped];
  return keys;
}

__attribute__((noreturn)) static void report_first_wrong(const struct key_set *key_set, const uint32_t *keys) {
  uint32_t *expected = sort_serially(key_set);
  size_t at = 0;
  while (at < key_set->keys && keys[at] == expected[at]) at++;
  int wrong = at < key_set->keys ? rank : ranks, first;
  MPI_Allreduce(&wrong, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == rank)
    wrong_result("key %" PRIu64 " of all is %" PRIu32 ", not %" PRIu32, (uint64_t)rank * key_set->keys + at, keys[at],
                 expected[at]);
  if (first == ranks) wrong_result("every key is correct, but the checks failed");
  // Waits until the rank with the wrong key has aborted the job.
  MPI_Barrier(MPI_COMM_WORLD);
  abort();
}

void check_keys(const struct key_set *key_set, uint32_t *keys) {
  static uint64_t checked;
  if (++checked == settings.corrupt && rank == ranks - 1) keys[key_set->keys / 2] ^= 1;
  struct checksum checksum = checksum_of(keys, key_set->keys), drawn = key_set->checksum;
  int kept = checksum.sum == drawn.sum && checksum.mixed == drawn.mixed && checksum.parity == drawn.parity;
  if (!is_ascending(keys, key_set->keys) || !kept) report_first_wrong(key_set, keys);
}
