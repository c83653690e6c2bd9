// SPDX-License-Identifier: Apache-2.0 OR MIT
// Least-significant-digit radix sort of keys that are spread evenly over ranks.
//
// Each pass: count digits here; gather all ranks' counts, from which every rank knows where each key of each rank goes;
// send the keys there. A message holds keys and nothing else: keys of one rank with one digit arrive in the order in
// which they left, so the receiver knows their places, and the sort is stable:
//
//   places of all keys    digit 0: rank 0's | rank 1's | …    digit 1: rank 0's | …
//   this rank's share     [keys · rank, keys · rank + keys): of every such run the first place in it, or none
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

// This rank's keys with one digit: whose share the next of them belongs to, and how many fit that.
struct run {
  int owner;
  uint32_t left;
};

struct carrier;

struct sort {
  size_t keys;  // on each rank
  int bits;     // of a digit
  uint32_t *input, *result;
  uint32_t *halves[2];  // passes go from the input to one, from there to the other, and back
  uint32_t *counts;     // of keys: [rank][digit]
  struct run *runs;     // [digit]
  uint32_t *places;     // in this rank's share, of the next key that comes: [rank][digit]
  size_t *expected;     // keys that come from each rank
  int shift;            // of the pass's digit
  uint32_t *to;         // the pass's half
  struct carrier *carrier;
};

struct sort sort_for(size_t keys, int bits);
void free_sort(struct sort *sort);
// One sort of the input, by the carrier.
void execute_sort(struct sort *sort, double *times);

static inline size_t digits_of(const struct sort *sort) { return (size_t)1 << sort->bits; }

static inline uint32_t digit_of(const struct sort *sort, uint32_t key) {
  return key >> sort->shift & (uint32_t)(digits_of(sort) - 1);
}

// Puts keys that have come from a rank where they belong.
static inline void place(const struct sort *sort, int from, const uint32_t *keys, size_t count) {
  uint32_t *places = sort->places + (size_t)from * digits_of(sort), *to = sort->to;
  int shift = sort->shift;
  uint32_t mask = (uint32_t)(digits_of(sort) - 1);
  for (size_t at = 0; at < count; at++) to[places[keys[at] >> shift & mask]++] = keys[at];
}
