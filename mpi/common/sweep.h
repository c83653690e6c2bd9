// SPDX-License-Identifier: Apache-2.0 OR MIT
// The time of messages against a growing concurrent computation. For each length of computation the computing rank
// records: "time", of messages with the computation; "computation", of the computation alone, measured after each
// stretch of messages; and further quantities of the test. The coordinate "computation_ns" is the median of the
// computation alone.
#pragma once
#include "ends.h"

// Result of one timed stretch on the computing rank; on the other rank only `received` is used.
struct stretch {
  double total_ns;
  double part_ns;  // time of the test's `part`, over the whole stretch
  int received;    // messages, on this rank
};

struct swept {
  const char *variant;
  const struct mode *mode;  // of the sends; NULL: standard
  int posted;               // receives posted in advance; 0: blocking receives
  // Executes `inner` operations, with a computation of `operations` in each. The two ranks call it at the same time.
  struct stretch (*stretch)(struct ends *ends, int inner, uint64_t operations);
  const char *part;  // the quantity of part_ns, or NULL
  int part_inner;    // number of operations in part_ns; 0: inner
  enum {
    FIRST,
    LAST
  } computing;  // the rank that computes and measures the time
  enum {
    SWEEP,  // computations from 0 to --reach times the uncomputed time
    NEVER,  // none, and no coordinate
    TWICE   // one, twice as long as the uncomputed time
  } grid;
  int train;  // a stretch is a train of up to --train operations; else as short as the clock allows
};

// A whole program, from begin to finish: measures all sizes in all selected tests. Collective.
void sweep(int argc, char **argv, const char *name, const char *summary, const struct swept *tests, int count);
