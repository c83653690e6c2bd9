// SPDX-License-Identifier: Apache-2.0 OR MIT
// The one statistic that programs need themselves: to choose how much to compute and how often to repeat. What is
// reported of samples is not made here.
#pragma once

// Of count values, 1 or more; leaves them as they are. Of an even number, the upper of the two in the middle.
double median(const double *values, int count);
