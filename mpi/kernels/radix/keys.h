// SPDX-License-Identifier: Apache-2.0 OR MIT
// Keys to sort, and whether they are sorted. Any rank can make any key again.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum distribution {
  UNIFORM,
  GAUSSIAN,  // mean of four uniform ones
  SKEWED,    // fourth power of uniform: half of all keys in the smallest sixteenth of the range
  SORTED,    // ascending already
  EQUAL      // all the same
};
// Ends with NULL.
extern const char *const distributions[];

// What stays the same whatever the order of keys is.
struct checksum {
  uint64_t sum, mixed, parity;
};

struct drawing {
  enum distribution distribution;
  size_t keys;  // on each rank
  struct checksum checksum;
};

// Fills this rank's keys. Collective.
struct drawing draw_keys(enum distribution distribution, uint32_t *keys, size_t count);
// Ends the job by wrong_result, with the first wrong key, unless the keys are the drawn ones in ascending order, over
// all ranks. Of result number `settings.corrupt` the last rank spoils the key in the middle of its share first.
// Collective.
void check_keys(const struct drawing *drawing, uint32_t *keys);
