// SPDX-License-Identifier: Apache-2.0 OR MIT
// The time of messages against a growing computation beside them. Of each computation are recorded, by the rank that
// computes: "time", the messages' with it; "computation", that of the computation alone, measured after each stretch of
// messages; and what else the test measures. The coordinate "computation_ns" is the median of the computation alone.
#pragma once
#include "ends.h"

// What one timed stretch gave on the rank that computes; of the other only `received` counts.
struct stretch {
  double total_ns;
  double part_ns;  // what `part` of the test says; of the whole stretch
  int received;    // messages, on this rank
};

struct swept {
  const char *variant;
  // Does `inner` operations, with a computation of so many operations in each; the two ranks call it at once, when both
  // have nothing else to do.
  struct stretch (*stretch)(struct ends *ends, int inner, uint64_t operations);
  const char *part;  // the quantity of part_ns, or NULL
  int part_inner;    // of how many operations part_ns is the sum; 0: inner
  enum {
    FIRST,
    LAST
  } computing;  // the rank that computes, and has the clock
  enum {
    SWEEP,  // computations from 0 to --reach times the uncomputed time
    NEVER,  // none, and no coordinate
    TWICE   // one, twice as long as the uncomputed time
  } grid;
  int train;  // whether a stretch is a train of up to --train operations; else it is as short as the clock allows
};

extern int64_t sweep_points, sweep_train;
extern double sweep_reach;
#define SWEEP_OPTIONS                                                                           \
  {"points", COUNT, &sweep_points, "computations of different length for each size (11)"},      \
      {"reach", REAL, &sweep_reach, "the longest, as a multiple of the uncomputed time (2)"}, { \
    "train", COUNT, &sweep_train, "consecutive messages, at most (64)"                          \
  }

// Checks those options, calibrates the computation, then measures all sizes in all wanted ones of `count` tests.
// Collective.
void sweep_all(const struct swept *tests, int count);
