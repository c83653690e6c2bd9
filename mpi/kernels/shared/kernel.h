// SPDX-License-Identifier: Apache-2.0 OR MIT
// The measurement of a kernel: executions after a barrier, the times of their phases, every result checked.
#pragma once
#include "common/suite.h"

enum {
  QUANTITIES_MAX = 16
};

struct kernel {
  const char *const
      *quantities;  // ends with NULL; the first is the whole execution, which `measure_kernel` times itself
  void *state;
  // One execution. Adds to times[1 …] what its phases took, in nanoseconds. May be called several times in a row.
  void (*execute)(void *state, double *times);
  // Ends the job by wrong_result if the last execution's result is wrong. Outside the clock.
  void (*check)(void *state);
};

// Measures one point. The first execution, which connects ranks, counts as warm-up. Collective.
void measure_kernel(const struct kernel *kernel, struct point point);

// Shares out time among quantities without a gap: each lap ends where the next begins.
struct stopwatch {
  double *times;
  uint64_t last_ns;
};

static inline struct stopwatch stopwatch_for(double *times) {
  return (struct stopwatch){.times = times, .last_ns = now_ns()};
}

static inline void lap(struct stopwatch *watch, int quantity) {
  uint64_t now = now_ns();
  watch->times[quantity] += (double)(now - watch->last_ns);
  watch->last_ns = now;
}

// What lay between is nobody's.
static inline void resume(struct stopwatch *watch) { watch->last_ns = now_ns(); }
