// SPDX-License-Identifier: Apache-2.0 OR MIT
// Keys to sort, and the check that they are sorted. Any rank can generate any key again.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum distribution {
  UNIFORM,
  GAUSSIAN,  // mean of four uniform keys
  SKEWED,    // fourth power of uniform: half of all keys in the smallest sixteenth of the range
  SORTED,    // ascending already
  EQUAL      // all the same
};
// Ends with NULL.
extern const char *const distributions[];

// Checksums that do not depend on the order of keys.
struct checksum {
  uint64_t sum, mixed, parity;
};

struct key_set {
  enum distribution distribution;
  size_t keys;  // on each rank
  struct checksum checksum;
};

// Fills this rank's keys. Collective.
struct key_set draw_keys(enum distribution distribution, uint32_t *keys, size_t count);
// Calls wrong_result, with the first wrong key, unless the keys are the drawn ones in ascending order, over all
// ranks. In result number `settings.corrupt` the last rank first corrupts the key in the middle of its share.
// Collective.
void check_keys(const struct key_set *key_set, uint32_t *keys);
