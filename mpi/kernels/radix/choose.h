// SPDX-License-Identifier: Apache-2.0 OR MIT
// Which algorithm is the fastest here: found out by trying, as FFTW does it, before anything is measured.
//
// Each algorithm sorts the keys once, which connects ranks. Then up to five rounds: every algorithm that is left sorts
// once, in an order that turns from round to round; its time is the slowest rank's. Who was at no time within a quarter
// of the best time of all is out. The smallest median wins. No model: what decides is how a library takes its locks and
// what shares a core with what, and all trials take no longer than eighteen sorts.
#pragma once
#include "carry.h"

struct choice {
  enum algorithm algorithm;
  double trial_ns;
  char reason[512];
};

// Collective; the same on all ranks. The keys are sorted, by some algorithm, when it returns.
struct choice choose_way(struct sort *sort, size_t capacity);
