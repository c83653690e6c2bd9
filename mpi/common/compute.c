// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "compute.h"

#include <stdlib.h>

#include "statistic.h"
#include "suite.h"

enum {
  CELLS = 131072,  // of each array: 1 MiB, more than the 64 kB of Stival 2006; both exceed most second-level caches
  BLOCKS = 31,     // of the calibration
  BLOCK_OPERATIONS = 20000,
  CLOCK_READINGS = 1000
};

static double *factors, *summands;
static uint64_t cell;
// Written at the end of each call, so that the compiler cannot remove the computation.
static volatile double result;
static double operation_ns;

void compute(uint64_t operations) {
  double sum = result;
  while (operations) {
    uint64_t left = CELLS - cell, part = operations < left ? operations : left;
    for (uint64_t at = cell; at < cell + part; at++) sum = sum * factors[at] + summands[at];
    cell = (cell + part) % CELLS;
    operations -= part;
  }
  result = sum;
}

double computation_alone_ns(uint64_t operations, int calls) {
  uint64_t start = now_ns();
  for (int call = 0; call < calls; call++) compute(operations);
  return (double)(now_ns() - start);
}

uint64_t operations_for(double computation_ns) { return (uint64_t)(computation_ns / operation_ns + 0.5); }

void calibrate_computation(void) {
  factors = allocate(CELLS * sizeof(double));
  summands = allocate(CELLS * sizeof(double));
  uint64_t state = settings.seed;
  for (int at = 0; at < CELLS; at++) {
    // Factors from 0.25 to 0.75 keep the sum between 1 and 8: never a denormal number, which takes longer.
    factors[at] = 0.25 + (double)(draw(&state) >> 11) * 0x1p-54;
    summands[at] = 1 + (double)(draw(&state) >> 11) * 0x1p-53;
  }
  double operation[BLOCKS], clock[BLOCKS];
  MPI_Barrier(MPI_COMM_WORLD);
  compute(CELLS);
  for (int block = 0; block < BLOCKS; block++) {
    operation[block] = computation_alone_ns(BLOCK_OPERATIONS, 1) / BLOCK_OPERATIONS;
    uint64_t start = now_ns();
    for (int reading = 1; reading < CLOCK_READINGS; reading++) now_ns();
    clock[block] = (double)(now_ns() - start) / CLOCK_READINGS;
  }
  struct point point = {.variant = "calibration", .quantity = "operation", .inner = BLOCK_OPERATIONS};
  record(&point, MEASURE, operation, BLOCKS);
  point.quantity = "clock";
  point.inner = CLOCK_READINGS;
  record(&point, MEASURE, clock, BLOCKS);
  // The median, not the smallest value, because it predicts the time during the run.
  operation_ns = median(operation, BLOCKS);
}
