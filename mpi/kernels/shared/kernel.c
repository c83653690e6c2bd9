// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

static int operations_of(const struct kernel *kernel) { return kernel->operations ? *kernel->operations : 1; }

static void sample(const struct kernel *kernel, int inner, double *times) {
  memset(times, 0, QUANTITIES_MAX * sizeof(double));
  MPI_Barrier(MPI_COMM_WORLD);
  uint64_t start = now_ns();
  for (int number = 0; number < inner; number++) kernel->execute(kernel->state, times);
  times[0] = (double)(now_ns() - start);
  for (int quantity = 0; quantity < QUANTITIES_MAX; quantity++) times[quantity] /= inner * operations_of(kernel);
  kernel->check(kernel->state);
}

// `samples` holds a row of QUANTITIES_MAX times for each of `count` executions.
static void record_all(const struct kernel *kernel, struct point *point, enum phase phase, const double *samples,
                       int count) {
  double *values = allocate((size_t)count * sizeof(double));
  for (int quantity = 0; kernel->quantities[quantity]; quantity++) {
    for (int number = 0; number < count; number++) values[number] = samples[number * QUANTITIES_MAX + quantity];
    point->quantity = kernel->quantities[quantity];
    record(point, phase, values, count);
  }
  free(values);
}

void measure_kernel(const struct kernel *kernel, struct point point) {
  double first[QUANTITIES_MAX];
  sample(kernel, 1, first);
  // The first execution is slower than the others; the second determines the number of repetitions.
  double second[QUANTITIES_MAX];
  sample(kernel, 1, second);
  struct repetitions agreed = agree_repetitions(second[0] * operations_of(kernel));
  if (kernel->once) agreed.inner = 1;
  int warmup = 2 + agreed.warmup, count = warmup > agreed.outer ? warmup : agreed.outer;
  double(*samples)[QUANTITIES_MAX] = allocate((size_t)count * sizeof *samples);
  memcpy(samples[0], first, sizeof first);
  memcpy(samples[1], second, sizeof second);
  for (int number = 2; number < warmup; number++) sample(kernel, agreed.inner, samples[number]);
  point.inner = agreed.inner * operations_of(kernel);
  record_all(kernel, &point, WARMUP, samples[0], warmup);
  for (int number = 0; number < agreed.outer; number++) sample(kernel, agreed.inner, samples[number]);
  record_all(kernel, &point, MEASURE, samples[0], agreed.outer);
  free(samples);
}
