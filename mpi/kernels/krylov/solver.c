// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "solver.h"

#include <stdlib.h>
#include <string.h>

#include "../shared/large.h"

const char *const krylov_quantities[] = {"total", "halo_communication", "reduction_communication", "stencil", "vectors",
                                         NULL};

struct solver solver_for(const struct grid *grid, double tolerance) {
  struct solver made = {.grid = grid, .tolerance = tolerance};
  require_memory(VECTORS_COUNT * grid->length * sizeof(double));
  for (int number = 0; number < VECTORS_COUNT; number++)
    made.vectors[number] = allocate_large(grid->length * sizeof(double));
  return made;
}

void free_solver(struct solver *solver) {
  for (int number = 0; number < VECTORS_COUNT; number++) free(solver->vectors[number]);
}

double dot(const struct grid *grid, const double *first, const double *second) {
  double sum = 0;
  for (int row = 0; row < rows_of(grid); row++) {
    size_t start = row_start(grid, row), end = start + (size_t)grid->points[2];
#pragma omp simd reduction(+ : sum)
    for (size_t at = start; at < end; at++) sum += first[at] * second[at];
  }
  return sum;
}

// Points [from, to) of the row that begins at `start`.
static void apply_to_row(const struct grid *grid, const double *restrict in, double *restrict out, size_t start,
                         int from, int to) {
  ptrdiff_t line = grid->padded[2], plane = line * grid->padded[1];
  in += start;
  out += start;
  if (grid->dimensions == 2) {
    for (int at = from; at < to; at++) out[at] = 4 * in[at] - in[at - 1] - in[at + 1] - in[at - line] - in[at + line];
  } else {
    for (int at = from; at < to; at++)
      out[at] = 6 * in[at] - in[at - 1] - in[at + 1] - in[at - line] - in[at + line] - in[at - plane] - in[at + plane];
  }
}

void apply_stencil(const struct grid *grid, const double *in, double *out) {
  for (int row = 0; row < rows_of(grid); row++) apply_to_row(grid, in, out, row_start(grid, row), 0, grid->points[2]);
}

static int has(const struct grid *grid, int face) { return grid->neighbours[face] != MPI_PROC_NULL; }

// Whether all points of a row need ghosts that an exchange fills.
static int is_beside_neighbour(const struct grid *grid, int row) {
  int plane = row / grid->points[1], line = row % grid->points[1];
  return (has(grid, 0) && plane == 0) || (has(grid, 1) && plane == grid->points[0] - 1) ||
         (has(grid, 2) && line == 0) || (has(grid, 3) && line == grid->points[1] - 1);
}

// Points that need no such ghosts; points() − interior are the border.
static void apply_to_interior(const struct grid *grid, const double *in, double *out) {
  for (int row = 0; row < rows_of(grid); row++)
    if (!is_beside_neighbour(grid, row))
      apply_to_row(grid, in, out, row_start(grid, row), has(grid, 4), grid->points[2] - has(grid, 5));
}

static void apply_to_border(const struct grid *grid, const double *in, double *out) {
  int columns = grid->points[2];
  for (int row = 0; row < rows_of(grid); row++) {
    size_t start = row_start(grid, row);
    if (is_beside_neighbour(grid, row)) {
      apply_to_row(grid, in, out, start, 0, columns);
      continue;
    }
    if (has(grid, 4)) apply_to_row(grid, in, out, start, 0, 1);
    if (has(grid, 5)) apply_to_row(grid, in, out, start, columns - 1, columns);
  }
}

static void multiply(const struct grid *grid, double *in, double *out, struct stopwatch *watch) {
  exchange_in_turn(grid, in);
  lap(watch, HALO);
  apply_stencil(grid, in, out);
  lap(watch, STENCIL);
}

static void multiply_overlapped(const struct grid *grid, double *in, double *out, struct stopwatch *watch) {
  MPI_Request requests[2 * FACES];
  exchange_start(grid, in, requests);
  lap(watch, HALO);
  apply_to_interior(grid, in, out);
  lap(watch, STENCIL);
  exchange_finish(requests);
  lap(watch, HALO);
  apply_to_border(grid, in, out);
  lap(watch, STENCIL);
}

static double add_over_ranks(double mine, struct stopwatch *watch) {
  double sum;
  lap(watch, VECTORS);
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  lap(watch, REDUCTION);
  return sum;
}

static void start_from_zero(struct solver *solver) {
  size_t bytes = solver->grid->length * sizeof(double);
  for (int number = SOLUTION; number < VECTORS_COUNT; number++) memset(solver->vectors[number], 0, bytes);
  memcpy(solver->vectors[RESIDUAL], solver->vectors[RIGHT], bytes);
  solver->iterations = 0;
}

// Whether to go on; `square` is |r|², `limit` that at which to end. The negated condition also ends at NaN, some time.
static int goes_on(const struct solver *solver, double square, double limit) {
  return !(square <= limit) && solver->iterations < solver->iterations_max;
}

// x += alpha · p, r −= alpha · A p; returns this rank's |r|².
static double step(const struct solver *solver, double alpha) {
  const struct grid *grid = solver->grid;
  double *restrict x = solver->vectors[SOLUTION], *restrict r = solver->vectors[RESIDUAL], sum = 0;
  const double *restrict p = solver->vectors[DIRECTION], *restrict ap = solver->vectors[A_DIRECTION];
  for (int row = 0; row < rows_of(grid); row++) {
    size_t start = row_start(grid, row), end = start + (size_t)grid->points[2];
#pragma omp simd reduction(+ : sum)
    for (size_t at = start; at < end; at++) {
      x[at] += alpha * p[at];
      r[at] -= alpha * ap[at];
      sum += r[at] * r[at];
    }
  }
  return sum;
}

// to = from + beta · to
static void turn(const struct grid *grid, double *restrict to, const double *restrict from, double beta) {
  for (int row = 0; row < rows_of(grid); row++) {
    size_t start = row_start(grid, row), end = start + (size_t)grid->points[2];
    for (size_t at = start; at < end; at++) to[at] = from[at] + beta * to[at];
  }
}

typedef void product(const struct grid *grid, double *in, double *out, struct stopwatch *watch);

// Hestenes and Stiefel 1952: two reductions in an iteration.
static void classic(struct solver *solver, double *times, product *multiply_by) {
  const struct grid *grid = solver->grid;
  double *r = solver->vectors[RESIDUAL], *p = solver->vectors[DIRECTION], *ap = solver->vectors[A_DIRECTION];
  struct stopwatch watch = stopwatch_for(times);
  start_from_zero(solver);
  double square = add_over_ranks(dot(grid, r, r), &watch), limit = square * solver->tolerance * solver->tolerance;
  for (double beta = 0; goes_on(solver, square, limit); solver->iterations++) {
    turn(grid, p, r, beta);
    lap(&watch, VECTORS);
    multiply_by(grid, p, ap, &watch);
    double alpha = square / add_over_ranks(dot(grid, p, ap), &watch);
    double next = add_over_ranks(step(solver, alpha), &watch);
    beta = next / square;
    square = next;
  }
}

static void blocking(struct solver *solver, double *times) { classic(solver, times, multiply); }

static void overlapped(struct solver *solver, double *times) { classic(solver, times, multiply_overlapped); }

// The two numbers from which an iteration with a single reduction has its coefficients: |r|² and r · A r.
struct sums {
  double square, curvature;
};

struct coefficients {
  double alpha, beta;
};

// `last` is of the iteration before, with alpha 0 at the first.
static struct coefficients next_coefficients(struct sums sums, double last_square, struct coefficients last) {
  if (last.alpha == 0) return (struct coefficients){.alpha = sums.square / sums.curvature};
  double beta = sums.square / last_square;
  return (struct coefficients){sums.square / (sums.curvature - beta * sums.square / last.alpha), beta};
}

// Chronopoulos and Gear 1989: A p follows from A r, so that both sums are known at once.
static void one_reduction(struct solver *solver, double *times) {
  const struct grid *grid = solver->grid;
  double *r = solver->vectors[RESIDUAL], *p = solver->vectors[DIRECTION], *ap = solver->vectors[A_DIRECTION];
  double *ar = solver->vectors[A_RESIDUAL], limit = -1, last_square = 0;
  struct coefficients now = {0};
  struct stopwatch watch = stopwatch_for(times);
  start_from_zero(solver);
  for (double square = dot(grid, r, r);; solver->iterations++) {
    lap(&watch, VECTORS);
    multiply_overlapped(grid, r, ar, &watch);
    struct sums mine = {square, dot(grid, r, ar)}, all;
    lap(&watch, VECTORS);
    MPI_Allreduce(&mine, &all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    lap(&watch, REDUCTION);
    if (limit < 0) limit = all.square * solver->tolerance * solver->tolerance;
    if (!goes_on(solver, all.square, limit)) return;
    now = next_coefficients(all, last_square, now);
    last_square = all.square;
    turn(grid, p, r, now.beta);
    turn(grid, ap, ar, now.beta);
    square = step(solver, now.alpha);
  }
}

// A r −= alpha · A A p
static void step_product(const struct solver *solver, double alpha) {
  const struct grid *grid = solver->grid;
  double *restrict ar = solver->vectors[A_RESIDUAL];
  const double *restrict aap = solver->vectors[AA_DIRECTION];
  for (int row = 0; row < rows_of(grid); row++) {
    size_t start = row_start(grid, row), end = start + (size_t)grid->points[2];
    for (size_t at = start; at < end; at++) ar[at] -= alpha * aap[at];
  }
}

// Ghysels and Vanroose 2014: the reduction is under way during the product A · A r.
static void pipelined(struct solver *solver, double *times) {
  const struct grid *grid = solver->grid;
  double *r = solver->vectors[RESIDUAL], *p = solver->vectors[DIRECTION], *ap = solver->vectors[A_DIRECTION];
  double *ar = solver->vectors[A_RESIDUAL], *aap = solver->vectors[AA_DIRECTION], *aar = solver->vectors[AA_RESIDUAL];
  double limit = -1, last_square = 0;
  struct coefficients now = {0};
  struct stopwatch watch = stopwatch_for(times);
  start_from_zero(solver);
  double square = dot(grid, r, r);
  lap(&watch, VECTORS);
  for (multiply_overlapped(grid, r, ar, &watch);; solver->iterations++) {
    struct sums mine = {square, dot(grid, r, ar)}, all;
    MPI_Request request;
    lap(&watch, VECTORS);
    MPI_Iallreduce(&mine, &all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    lap(&watch, REDUCTION);
    multiply_overlapped(grid, ar, aar, &watch);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    lap(&watch, REDUCTION);
    if (limit < 0) limit = all.square * solver->tolerance * solver->tolerance;
    if (!goes_on(solver, all.square, limit)) return;
    now = next_coefficients(all, last_square, now);
    last_square = all.square;
    turn(grid, p, r, now.beta);
    turn(grid, ap, ar, now.beta);
    turn(grid, aap, aar, now.beta);
    square = step(solver, now.alpha);
    step_product(solver, now.alpha);
  }
}

const struct variant krylov_variants[] = {
    {"blocking", blocking}, {"overlapped", overlapped}, {"one-reduction", one_reduction}, {"pipelined", pipelined}, {0},
};
