// SPDX-License-Identifier: Apache-2.0 OR MIT
// The measurement of a kernel: executions after a barrier, the times of their phases, every result checked.
#pragma once
#include "common/suite.h"

enum {
  QUANTITIES_MAX = 16
};

struct kernel {
  const char *const *quantities;  // ends with NULL; the first is the whole execution, timed by `measure_kernel`
  void *state;
  // One execution. Adds the times of its phases in nanoseconds to times[1 …]. May be called several times in a row.
  void (*execute)(void *state, double *times);
  // Calls wrong_result if the last execution's result is wrong. Not timed.
  void (*check)(void *state);
  int once;  // an execution needs the check before the next one, so each is timed by itself
  // Number of operations of the last execution, if times are those of one operation; NULL: of an execution.
  const int *operations;
};

// Measures one point. The first execution, which connects ranks, counts as warm-up. Collective.
void measure_kernel(const struct kernel *kernel, struct point point);

// Divides time among quantities without gaps: each lap ends where the next begins.
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

// Restarts the lap; the time since the last lap is not counted.
static inline void resume(struct stopwatch *watch) { watch->last_ns = now_ns(); }
