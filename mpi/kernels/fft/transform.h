// SPDX-License-Identifier: Apache-2.0 OR MIT
// One distributed Fourier transform in six steps (Bailey 1990): what a rank has of it, and what it does with it alone.
//
// N = n1 · n2 elements, element j1 · n2 + j2 in row j1 and column j2 of a matrix; each rank has as many rows as
// another, so its share is contiguous. X[k2 · n1 + k1] = Σ_j2 w(n2)^(j2 k2) · w(N)^(j2 k1) · Σ_j1 x[j1 · n2 + j2]
// w(n1)^(j1 k1):
//
//   stage 0   transpose to n2 rows j2 of n1; transform each over j1; multiply by w(N)^(j2 k1)
//   stage 1   transpose to n1 rows k1 of n2; transform each over j2
//   stage 2   transpose to n2 rows k2 of n1: the result in its natural order
//
// A transposition sends each rank a block: `rows` rows of the transposed matrix, `piece` elements of each. The sender
// has turned the block already, so that any number of its rows are one message, and are received where they stay:
//
//   send[half]     block for rank 0 | block for rank 1 | …      a block: row 0's piece | row 1's piece | …
//   receive[half]  block of rank 0 | block of rank 1 | …        the own block is put here at once
//
// Stages use the two halves in turns, since the rows of one stage are packed for the next while others still arrive.
#pragma once
#include <complex.h>
#include <fftw3.h>
#include <stddef.h>

#include "../shared/kernel.h"

enum {
  ORDER_MIN = 2,
  ORDER_MAX = 30,  // 16 GiB an array, over all ranks; an element's number squared fits 64 bits
  STAGES = 3
};

// Quantities of an execution. A transposition's time in MPI calls, and that of packing and gathering; these and the
// rest add up to the total, but where a second thread computes meanwhile.
enum quantity {
  TOTAL,
  CALLS,                     // of stage 0 … 2
  PACKING = CALLS + STAGES,  // of stage 0 … 2
  ROWS = PACKING + STAGES,   // of stage 0 and 1
  TWIDDLE = ROWS + 2
};
extern const char *const fft_quantities[];

struct stage {
  size_t rows;      // of the transposed matrix, on each rank
  size_t piece;     // elements of a row that come from each rank
  size_t exchange;  // rows that are exchanged at a time; divides `rows`
};

// The rows that stage 0 or 1 transforms.
struct lines {
  size_t length, stride;  // elements; rows are apart by more than their length, against conflicts in the cache
  size_t batch;           // rows that are packed together, in `work`; divides `rows` of the stage
  size_t group;           // rows that are transformed together; divides `batch` and `exchange`
  fftw_plan plan;
};

struct transform {
  int order;
  size_t local;  // elements on each rank
  struct stage stages[STAGES];
  struct lines lines[2];
  double complex *input, *result;  // this rank's shares; the result's memory is that of send[1]
  double complex *send[2], *receive[2], *work;
  // w(N)^(j2 k1) = coarse[k1 / FINE] · fine[k1 mod FINE], for each of this rank's rows j2.
  double complex *fine, *coarse;
  size_t fine_length, coarse_length;
};

// Ends with wrong_use where the ranks do not divide the matrix's shorter side. Collective.
void check_ranks(int order);
// The input is zero.
struct transform transform_for(int order);
void free_transform(struct transform *transform);
// Plans to exchange so many rows at a time: 0 means such that a message has about so many bytes; `whole` all. Destroys
// the plans before; the input stays.
enum {
  WHOLE = -1,
  BY_BYTES = 0
};
void plan_rows(struct transform *transform, int64_t rows, unsigned fftw_flags);

// Turns and packs so many rows of stage 0 for the exchange, the own ones to where they stay.
void pack_input(struct transform *transform, size_t first, size_t rows);
// Does what a stage does with rows that have arrived. Rows come in order, in multiples of `group`.
void process(struct transform *transform, int stage, size_t first, size_t rows, struct stopwatch *watch);

static inline size_t block_of(const struct transform *transform) { return transform->local / (size_t)ranks; }
