// SPDX-License-Identifier: Apache-2.0 OR MIT
// Least-significant-digit radix sort of keys that are evenly distributed over ranks.
//
// Each pass: count local digits; gather all ranks' counts, from which every rank derives the destination of each key;
// send the keys there. A message contains only keys: keys of one rank with one digit arrive in the order in which they
// were sent, so the receiver can compute their positions, and the sort is stable:
//
//   positions of all keys   digit 0: rank 0's | rank 1's | …    digit 1: rank 0's | …
//   this rank's share       [keys · rank, keys · rank + keys): of every such run the first position in it, if any
#pragma once
#include "../shared/kernel.h"

enum {
  KEY_BITS = 32,
  BITS_MAX = 16
};

enum sort_quantity {
  SORTING,
  HISTOGRAM,
  GLOBAL,
  PERMUTATION
};
extern const char *const sort_quantities[];

// This rank's keys with one digit: the owner of the next key's position, and how many more keys fit its share.
struct run {
  int owner;
  uint32_t left;
};

struct exchange;

struct sort {
  size_t keys;  // on each rank
  int bits;     // of a digit
  uint32_t *input, *result;
  uint32_t *halves[2];  // destinations of passes: the first half, then the second, and so on
  uint32_t *counts;     // of keys: [rank][digit]
  struct run *runs;     // [digit]
  uint32_t *offsets;    // in this rank's share, of the next key to arrive: [rank][digit]
  size_t *expected;     // keys to receive from each rank
  int shift;            // of the pass's digit
  uint32_t *to;         // the pass's half
  struct exchange *exchange;
};

struct sort sort_for(size_t keys, int bits);
void free_sort(struct sort *sort);
// Sorts the input once, by `exchange`.
void execute_sort(struct sort *sort, double *times);

static inline size_t digits_of(const struct sort *sort) { return (size_t)1 << sort->bits; }

static inline uint32_t digit_of(const struct sort *sort, uint32_t key) {
  return key >> sort->shift & (uint32_t)(digits_of(sort) - 1);
}

// Stores keys received from a rank at their positions.
static inline void store_keys(const struct sort *sort, int from, const uint32_t *keys, size_t count) {
  uint32_t *offsets = sort->offsets + (size_t)from * digits_of(sort), *to = sort->to;
  int shift = sort->shift;
  uint32_t mask = (uint32_t)(digits_of(sort) - 1);
  for (size_t at = 0; at < count; at++) to[offsets[keys[at] >> shift & mask]++] = keys[at];
}
