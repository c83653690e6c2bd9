// SPDX-License-Identifier: Apache-2.0 OR MIT
// Selects the fastest algorithm by trials before the measurement, like FFTW.
//
// Each algorithm sorts the keys once, which connects ranks. Then follow up to five rounds, in which every remaining
// algorithm sorts once, in an order that rotates from round to round; its time is that of the slowest rank. An
// algorithm whose best time exceeds 1.25 times the overall best is dropped. The smallest median wins. Trials instead of
// a model, because the result depends on the library's locks and on the sharing of cores; they take at most
// eighteen sorts.
#pragma once
#include "exchange.h"

struct choice {
  enum algorithm algorithm;
  double trial_ns;
  char reason[512];
};

// Collective; the same on all ranks. The keys are sorted, by some algorithm, when it returns.
struct choice choose_algorithm(struct sort *sort, size_t capacity);
