// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/large.h"

enum {
  CACHED_BYTES = 256 << 10,  // rows transformed and packed together stay in the second-level cache
  BATCH_MIN = 4,             // elements of a cache line
  BATCH_MAX = 16,            // more give no gain, and exceed the associativity of the first-level cache
  PAD = 4,                   // a cache line
  FINE = 64,                 // maximum, so that the table fits the first-level cache
  MESSAGE_BYTES = 8 << 10,   // measured: docs/performance.md
  ARRAYS = 6,                // input, two send and two receive buffers, and the expected result
  TILE_ROWS = 8              // rows of the input per tile, since the input cannot be padded
};

const char *const fft_quantities[] = {
    "total",
    "transpose1_communication",
    "transpose2_communication",
    "transpose3_communication",
    "transpose1_packing",
    "transpose2_packing",
    "transpose3_packing",
    "rows1",
    "rows2",
    "twiddle",
    NULL,
};

static size_t smaller(size_t left, size_t right) { return left < right ? left : right; }

static void fill_twiddle(struct transform *transform) {
  size_t rows = transform->stages[0].rows, length = transform->lines[0].length;
  uint64_t mask = (UINT64_C(1) << transform->order) - 1;
  long double step = -2 * acosl(-1) / (long double)(mask + 1);
  transform->fine_length = smaller(FINE, length);
  transform->coarse_length = length / transform->fine_length;
  transform->fine = allocate(rows * transform->fine_length * sizeof(double complex));
  transform->coarse = allocate(rows * transform->coarse_length * sizeof(double complex));
  for (size_t row = 0; row < rows; row++) {
    uint64_t j2 = (uint64_t)rank * rows + row;
    for (size_t at = 0; at < transform->fine_length; at++) {
      long double angle = step * (long double)(j2 * at & mask);
      transform->fine[row * transform->fine_length + at] = CMPLX((double)cosl(angle), (double)sinl(angle));
    }
    for (size_t at = 0; at < transform->coarse_length; at++) {
      long double angle = step * (long double)(j2 * (at * transform->fine_length) & mask);
      transform->coarse[row * transform->coarse_length + at] = CMPLX((double)cosl(angle), (double)sinl(angle));
    }
  }
}

void check_ranks(int order) {
  int longer = 1 << (order + 1) / 2, shorter = 1 << order / 2;
  if (shorter % ranks)
    usage_error("2^%d elements are a matrix of %d x %d, and %d ranks do not divide %d: use 1, 2, 4 … %d ranks", order,
                longer, shorter, ranks, shorter, shorter);
}

struct transform transform_for(int order) {
  size_t count = (size_t)ranks, elements = (size_t)1 << order;
  size_t n1 = (size_t)1 << (order + 1) / 2, n2 = (size_t)1 << order / 2;
  struct transform made = {.order = order, .local = elements / count};
  made.stages[0] = made.stages[2] = (struct stage){.rows = n2 / count, .piece = n1 / count};
  made.stages[1] = (struct stage){.rows = n1 / count, .piece = n2 / count};
  for (int stage = 0; stage < 2; stage++) {
    size_t length = made.stages[stage].piece * count, fit = CACHED_BYTES / sizeof(double complex) / length;
    fit = fit < BATCH_MIN ? BATCH_MIN : smaller(fit, BATCH_MAX);
    made.lines[stage] =
        (struct lines){.length = length, .stride = length + PAD, .batch = smaller(fit, made.stages[stage].rows)};
  }
  size_t bytes = made.local * sizeof(double complex);
  require_memory(ARRAYS * bytes);
  made.input = allocate_large(bytes);
  for (int half = 0; half < 2; half++) {
    made.send[half] = allocate_large(bytes);
    made.receive[half] = allocate_large(bytes);
  }
  made.result = made.send[1];
  // Stage 0 has the longer rows.
  made.work = allocate(made.lines[0].stride * BATCH_MAX * sizeof(double complex));
  fill_twiddle(&made);
  return made;
}

static void destroy_plans(struct transform *transform) {
  for (int stage = 0; stage < 2; stage++)
    if (transform->lines[stage].plan) fftw_destroy_plan(transform->lines[stage].plan);
}

void free_transform(struct transform *transform) {
  destroy_plans(transform);
  free(transform->input);
  for (int half = 0; half < 2; half++) {
    free(transform->send[half]);
    free(transform->receive[half]);
  }
  free(transform->work);
  free(transform->fine);
  free(transform->coarse);
}

void plan_rows(struct transform *transform, int64_t rows, unsigned fftw_flags) {
  destroy_plans(transform);
  for (int number = 0; number < STAGES; number++) {
    struct stage *stage = &transform->stages[number];
    // All are powers of two.
    size_t requested = rows != BY_BYTES ? (size_t)rows : MESSAGE_BYTES / sizeof(double complex) / stage->piece;
    if (requested == 0) requested = 1;
    stage->exchange = rows == WHOLE ? stage->rows : smaller(requested, stage->rows);
  }
  for (int number = 0; number < 2; number++) {
    struct lines *lines = &transform->lines[number];
    lines->group = smaller(lines->batch, transform->stages[number].exchange);
    int length = (int)lines->length, stride = (int)lines->stride;
    lines->plan = fftw_plan_many_dft(1, &length, (int)lines->group, transform->work, NULL, 1, stride, transform->work,
                                     NULL, 1, stride, FFTW_FORWARD, fftw_flags);
    if (!lines->plan)
      unsupported_here("FFTW has no plan for rows of %d elements: is its installation complete?", length);
  }
}

// to[column * to_stride + row] = from[row * from_stride + column], for few rows at a time, so that their cache lines
// stay in the cache until all columns are read.
static void transpose_block(const double complex *restrict from, size_t from_stride, size_t rows, size_t columns,
                            double complex *restrict to, size_t to_stride) {
  for (size_t column = 0; column < columns; column++)
    for (size_t row = 0; row < rows; row++) to[column * to_stride + row] = from[row * from_stride + column];
}

// Destination of packed rows for a rank.
static double complex *packing_for(const struct transform *transform, int stage, int to) {
  double complex *const *half = to == rank ? transform->receive : transform->send;
  return half[stage % 2] + (size_t)to * block_of(transform);
}

void pack_input(struct transform *transform, size_t first, size_t rows) {
  const struct stage *stage = &transform->stages[0];
  size_t columns = stage->rows * (size_t)ranks, tile = smaller(TILE_ROWS, stage->piece);
  for (int to = 0; to < ranks; to++) {
    const double complex *from = transform->input + (size_t)to * stage->rows + first;
    double complex *packed = packing_for(transform, 0, to) + first * stage->piece;
    for (size_t row = 0; row < stage->piece; row += tile)
      transpose_block(from + row * columns, columns, tile, rows, packed + row, stage->piece);
  }
}

// Packs the batch in `work`: rows `first` … of this stage, which are columns of the next stage.
static void pack_batch(struct transform *transform, int stage, size_t first) {
  const struct lines *lines = &transform->lines[stage];
  const struct stage *next = &transform->stages[stage + 1];
  for (int to = 0; to < ranks; to++)
    transpose_block(transform->work + (size_t)to * next->rows, lines->stride, lines->batch, next->rows,
                    packing_for(transform, stage + 1, to) + first, next->piece);
}

static void gather(const struct transform *transform, int stage, size_t row, double complex *to) {
  size_t piece = transform->stages[stage].piece;
  const double complex *from = transform->receive[stage % 2] + row * piece;
  for (int source = 0; source < ranks; source++, from += block_of(transform), to += piece)
    memcpy(to, from, piece * sizeof *to);
}

// In real arithmetic, because complex multiplication includes checks for infinities.
static void twiddle(const struct transform *transform, size_t row, double complex *line) {
  const double *fine = (const double *)(transform->fine + row * transform->fine_length);
  const double complex *coarse = transform->coarse + row * transform->coarse_length;
  double *values = (double *)line;
  for (size_t part = 0; part < transform->coarse_length; part++, values += 2 * transform->fine_length) {
    double real = creal(coarse[part]), imaginary = cimag(coarse[part]);
    for (size_t at = 0; at < 2 * transform->fine_length; at += 2) {
      double factor = fine[at] * real - fine[at + 1] * imaginary, turned = fine[at] * imaginary + fine[at + 1] * real;
      double value_real = values[at], value_imaginary = values[at + 1];
      values[at] = value_real * factor - value_imaginary * turned;
      values[at + 1] = value_real * turned + value_imaginary * factor;
    }
  }
}

static void transform_rows(struct transform *transform, int stage, size_t first, size_t rows, struct stopwatch *watch) {
  const struct lines *lines = &transform->lines[stage];
  for (size_t row = first; row < first + rows; row += lines->group) {
    size_t slot = row % lines->batch;
    double complex *group = transform->work + slot * lines->stride;
    for (size_t each = 0; each < lines->group; each++)
      gather(transform, stage, row + each, group + each * lines->stride);
    lap(watch, PACKING + stage);
    fftw_execute_dft(lines->plan, group, group);
    lap(watch, ROWS + stage);
    if (stage == 0) {
      for (size_t each = 0; each < lines->group; each++) twiddle(transform, row + each, group + each * lines->stride);
      lap(watch, TWIDDLE);
    }
    if (slot + lines->group == lines->batch) {
      pack_batch(transform, stage, row + lines->group - lines->batch);
      lap(watch, PACKING + stage + 1);
    }
  }
}

void process(struct transform *transform, int stage, size_t first, size_t rows, struct stopwatch *watch) {
  if (stage < 2) {
    transform_rows(transform, stage, first, rows, watch);
    return;
  }
  size_t length = transform->stages[2].piece * (size_t)ranks;
  for (size_t row = first; row < first + rows; row++) gather(transform, 2, row, transform->result + row * length);
  lap(watch, PACKING + 2);
}
