// SPDX-License-Identifier: Apache-2.0 OR MIT
// The only statistic computed by the programs, to choose amounts of computation and numbers of repetitions. Reported
// statistics are computed elsewhere.
#pragma once

// Median of count >= 1 values, which are not modified; for an even count the upper of the two middle values.
double median(const double *values, int count);
