// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "sort.h"

#include <stdlib.h>
#include <string.h>

#include "../shared/large.h"
#include "exchange.h"

enum {
  ARRAYS = 3  // the input, and two halves
};

const char *const sort_quantities[] = {"total", "histogram", "global_histogram", "permutation", NULL};

struct sort sort_for(size_t keys, int bits) {
  struct sort made = {.keys = keys, .bits = bits};
  size_t count = (size_t)ranks, digits = digits_of(&made);
  require_memory(ARRAYS * keys * sizeof(uint32_t));
  made.input = allocate_large(keys * sizeof(uint32_t));
  for (int half = 0; half < 2; half++) made.halves[half] = allocate_large(keys * sizeof(uint32_t));
  made.counts = allocate(count * digits * sizeof(uint32_t));
  made.offsets = allocate(count * digits * sizeof(uint32_t));
  made.runs = allocate(digits * sizeof(struct run));
  made.expected = allocate(count * sizeof(size_t));
  return made;
}

void free_sort(struct sort *sort) {
  free(sort->input);
  for (int half = 0; half < 2; half++) free(sort->halves[half]);
  free(sort->counts);
  free(sort->offsets);
  free(sort->runs);
  free(sort->expected);
}

static void count_digits(struct sort *sort, const uint32_t *from) {
  uint32_t *counts = sort->counts + (size_t)rank * digits_of(sort);
  memset(counts, 0, digits_of(sort) * sizeof *counts);
  for (size_t at = 0; at < sort->keys; at++) counts[digit_of(sort, from[at])]++;
}

// Keys of one rank with one digit go to positions [first, first + count) of all keys.
static void plan_run(struct sort *sort, int other, size_t digit, uint64_t first, uint64_t count) {
  uint64_t mine = (uint64_t)rank * sort->keys, end = first + count;
  if (other == rank)
    sort->runs[digit] =
        (struct run){.owner = (int)(first / sort->keys), .left = (uint32_t)(sort->keys - first % sort->keys)};
  if (first < mine) first = mine;
  if (end > mine + sort->keys) end = mine + sort->keys;
  if (first >= end) return;
  sort->offsets[(size_t)other * digits_of(sort) + digit] = (uint32_t)(first - mine);
  sort->expected[other] += end - first;
}

static void plan_runs(struct sort *sort) {
  memset(sort->expected, 0, (size_t)ranks * sizeof(size_t));
  uint64_t first = 0;
  for (size_t digit = 0; digit < digits_of(sort); digit++) {
    for (int other = 0; other < ranks; other++) {
      uint32_t count = sort->counts[(size_t)other * digits_of(sort) + digit];
      plan_run(sort, other, digit, first, count);
      first += count;
    }
  }
}

static void permute(struct sort *sort, const uint32_t *from) {
  struct exchange *exchange = sort->exchange;
  struct outgoing *outgoing = exchange->outgoing;
  struct run *runs = sort->runs;
  size_t capacity = exchange->capacity, keys = sort->keys;
  int shift = sort->shift;
  uint32_t mask = (uint32_t)(digits_of(sort) - 1);
  pass_begin(exchange);
  for (size_t at = 0; at < keys; at++) {
    uint32_t key = from[at];
    struct run *run = &runs[key >> shift & mask];
    struct outgoing *to = &outgoing[run->owner];
    to->keys[to->count++] = key;
    if (to->count == capacity) send_keys(exchange, run->owner);
    if (--run->left == 0) *run = (struct run){.owner = run->owner + 1, .left = (uint32_t)keys};
  }
  pass_end(exchange);
}

void execute_sort(struct sort *sort, double *times) {
  struct stopwatch watch = stopwatch_for(times);
  const uint32_t *from = sort->input;
  int half = 0;
  for (sort->shift = 0; sort->shift < KEY_BITS; sort->shift += sort->bits, half ^= 1) {
    count_digits(sort, from);
    lap(&watch, HISTOGRAM);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sort->counts, (int)digits_of(sort), MPI_UINT32_T, MPI_COMM_WORLD);
    plan_runs(sort);
    lap(&watch, GLOBAL);
    sort->to = sort->halves[half];
    permute(sort, from);
    lap(&watch, PERMUTATION);
    from = sort->to;
  }
  sort->result = sort->to;
}
