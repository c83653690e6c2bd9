// SPDX-License-Identifier: Apache-2.0 OR MIT
// The known solution of a problem, and the checks of a computed one.
//
// Each element of the solution u is drawn from the seed, and b = A u. Of a computed x
//   1. the error is at most |b − A x| / λmin ≤ 2 · tolerance · |b| / λmin, where λmin = Σ 4 sin²(π / (2 (n + 1))), over
//      the axes, is the smallest eigenvalue of A;
//   2. each element of b − A x is at most 2 · tolerance · |b|;
//   3. the number of iterations is that of a serial solver up to rounding, for problems of at most SERIAL_POINTS_MAX
//      points, and for all within Chebyshev's bound.
#pragma once
#include "solver.h"

enum {
  SERIAL_POINTS_MAX = 1 << 17
};

struct answer {
  double right_norm;        // |b|
  double smallest;          // eigenvalue
  int iterations_expected;  // of the serial solver; 0: not known
};

// Fills b, and sets the maximum of iterations. Collective.
struct answer answer_for(struct solver *solver);
// Calls wrong_result with the first wrong element. In check number `settings.corrupt` the last rank first corrupts the
// element in the middle of its part. Collective.
void check_solution(const struct answer *answer, struct solver *solver);
