// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "statistic.h"

#include <stdlib.h>
#include <string.h>

#include "suite.h"

static int by_value(const void *left, const void *right) {
  double first = *(const double *)left, second = *(const double *)right;
  return (first > second) - (first < second);
}

double median(const double *values, int count) {
  double *sorted = allocate((size_t)count * sizeof(double));
  memcpy(sorted, values, (size_t)count * sizeof(double));
  qsort(sorted, (size_t)count, sizeof(double), by_value);
  double middle = sorted[count / 2];
  free(sorted);
  return middle;
}
