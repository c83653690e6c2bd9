// SPDX-License-Identifier: Apache-2.0 OR MIT
// A distributed Fourier transform in six steps (Bailey 1990): a rank's data and local computation.
//
// N = n1 · n2 elements, element j1 · n2 + j2 in row j1 and column j2 of a matrix; all ranks have the same number of
// rows, so a rank's share is contiguous. X[k2 · n1 + k1] = Σ_j2 w(n2)^(j2 k2) · w(N)^(j2 k1) · Σ_j1 x[j1 · n2 + j2]
// w(n1)^(j1 k1):
//
//   stage 0   transpose to n2 rows j2 of n1; transform each over j1; multiply by w(N)^(j2 k1)
//   stage 1   transpose to n1 rows k1 of n2; transform each over j2
//   stage 2   transpose to n2 rows k2 of n1: the result in its natural order
//
// A transposition sends each rank a block: `rows` rows of the transposed matrix, `piece` elements of each. The sender
// has transposed the block already, so that any number of its rows form one message and are received in place:
//
//   send[half]     block for rank 0 | block for rank 1 | …      a block: row 0's piece | row 1's piece | …
//   receive[half]  block of rank 0 | block of rank 1 | …        a rank's own block is packed here directly
//
// Stages alternate between the two halves, because rows are packed for the next stage while others still arrive.
#pragma once
#include <complex.h>
#include <fftw3.h>
#include <stddef.h>

#include "../shared/kernel.h"

enum {
  ORDER_MIN = 2,
  ORDER_MAX = 30,  // 16 GiB per array, over all ranks; the square of an element's index fits 64 bits
  STAGES = 3
};

// Quantities of an execution: for each transposition the time in MPI calls and of packing and gathering, and the time
// of each computation. They add up to the total unless a second thread computes concurrently.
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
  size_t piece;     // elements of a row received from each rank
  size_t exchange;  // rows exchanged at a time; divides `rows`
};

// The rows that stage 0 or 1 transforms.
struct lines {
  size_t length, stride;  // elements; the stride exceeds the length, against cache conflicts
  size_t batch;           // rows packed together, in `work`; divides `rows` of the stage
  size_t group;           // rows transformed together; divides `batch` and `exchange`
  fftw_plan plan;
};

struct transform {
  int order;
  size_t local;  // elements on each rank
  struct stage stages[STAGES];
  struct lines lines[2];
  double complex *input, *result;  // this rank's shares; the result shares its memory with send[1]
  double complex *send[2], *receive[2], *work;
  // w(N)^(j2 k1) = coarse[k1 / FINE] · fine[k1 mod FINE], for each of this rank's rows j2.
  double complex *fine, *coarse;
  size_t fine_length, coarse_length;
};

// A usage error if the number of ranks does not divide the matrix's shorter side. Collective.
void check_ranks(int order);
// Allocates a transform with a zero input.
struct transform transform_for(int order);
void free_transform(struct transform *transform);
enum {
  WHOLE = -1,   // all rows
  BY_BYTES = 0  // as many as fit in a message of about MESSAGE_BYTES
};
// Sets the number of rows exchanged at a time, WHOLE, BY_BYTES or a power of two, and plans FFTW transforms of groups
// of rows. May be called again; the input is kept.
void plan_rows(struct transform *transform, int64_t rows, unsigned fftw_flags);

// Transposes and packs rows of stage 0 for the exchange; this rank's own rows go to the receive buffer.
void pack_input(struct transform *transform, size_t first, size_t rows);
// Processes received rows of a stage. Rows must be passed in order, in multiples of `group`.
void process(struct transform *transform, int stage, size_t first, size_t rows, struct stopwatch *watch);

static inline size_t block_of(const struct transform *transform) { return transform->local / (size_t)ranks; }
