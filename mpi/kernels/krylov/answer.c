// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"

// A sum over the axes that the grid has, of an eigenvalue's part.
static double eigenvalue(const struct grid *grid, double (*part)(double)) {
  double sum = 0;
  for (int axis = AXES - grid->dimensions; axis < AXES; axis++) {
    double root = part(M_PI / (2 * ((double)grid->all[axis] + 1)));
    sum += 4 * root * root;
  }
  return sum;
}

// The solution at a position in the whole grid, uniform in [-1, 1]; 0 beyond its rim.
static double solution_at(const struct grid *grid, int64_t plane, int64_t line, int64_t column) {
  if (plane < 0 || line < 0 || column < 0 || plane >= grid->all[0] || line >= grid->all[1] || column >= grid->all[2])
    return 0;
  uint64_t state = settings.seed, number = (uint64_t)((plane * grid->all[1] + line) * grid->all[2] + column);
  state = draw(&state) + number;
  return (double)(int64_t)draw(&state) * 0x1p-63;
}

// b = A u at a position.
static double right_at(const struct grid *grid, int64_t plane, int64_t line, int64_t column) {
  double sum = 2 * grid->dimensions * solution_at(grid, plane, line, column);
  for (int side = -1; side <= 1; side += 2)
    sum -= solution_at(grid, plane + side, line, column) + solution_at(grid, plane, line + side, column) +
           solution_at(grid, plane, line, column + side);
  return sum;
}

// Hestenes and Stiefel's iterations for the whole problem on one rank. A vector has ghosts of 0 on all sides of each
// axis that the grid has.
static int iterations_alone(const struct solver *solver) {
  const struct grid *grid = solver->grid;
  struct grid whole = {.dimensions = grid->dimensions, .length = 1};
  for (int axis = 0; axis < AXES; axis++) {
    whole.all[axis] = whole.points[axis] = (int)grid->all[axis];
    whole.padded[axis] = whole.points[axis] + (axis >= AXES - grid->dimensions ? 2 : 0);
    whole.length *= (size_t)whole.padded[axis];
  }
  double *r = allocate(whole.length * sizeof *r), *p = allocate(whole.length * sizeof *p);
  double *ap = allocate(whole.length * sizeof *ap);
  for (int row = 0; row < rows_of(&whole); row++)
    for (int at = 0; at < whole.points[2]; at++)
      r[row_start(&whole, row) + (size_t)at] = right_at(&whole, row / whole.points[1], row % whole.points[1], at);
  memcpy(p, r, whole.length * sizeof *p);
  double square = dot(&whole, r, r), limit = square * solver->tolerance * solver->tolerance;
  int count = 0;
  while (square > limit && count < solver->iterations_max) {
    apply_stencil(&whole, p, ap);
    double alpha = square / dot(&whole, p, ap), last = square;
    // Ghosts are 0 in all vectors, so whole arrays may be updated.
    for (size_t at = 0; at < whole.length; at++) r[at] -= alpha * ap[at];
    square = dot(&whole, r, r);
    for (size_t at = 0; at < whole.length; at++) p[at] = r[at] + square / last * p[at];
    count++;
  }
  free(r);
  free(p);
  free(ap);
  return count;
}

struct answer answer_for(struct solver *solver) {
  const struct grid *grid = solver->grid;
  struct answer answer = {.smallest = eigenvalue(grid, sin)};
  double *b = solver->vectors[RIGHT];
  for (int row = 0; row < rows_of(grid); row++) {
    int64_t plane = grid->first[0] + row / grid->points[1], line = grid->first[1] + row % grid->points[1];
    for (int at = 0; at < grid->points[2]; at++)
      b[row_start(grid, row) + (size_t)at] = right_at(grid, plane, line, grid->first[2] + at);
  }
  double here = dot(grid, b, b), all;
  MPI_Allreduce(&here, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  answer.right_norm = sqrt(all);
  // |r_k| / |r_0| ≤ 2 √κ ((√κ − 1) / (√κ + 1))^k, with a tenth more for rounding.
  double root = sqrt(eigenvalue(grid, cos) / answer.smallest);
  double bound = log(2 * root / solver->tolerance) / log((root + 1) / (root - 1));
  solver->iterations_max = (int)fmin(1.1 * bound + 10, INT32_MAX);
  if (grid->all[0] * grid->all[1] * grid->all[2] <= SERIAL_POINTS_MAX && rank == 0)
    answer.iterations_expected = iterations_alone(solver);
  MPI_Bcast(&answer.iterations_expected, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return answer;
}

static double residual_bound(const struct answer *answer, const struct solver *solver) {
  return 2 * solver->tolerance * answer->right_norm;
}

static void check_iterations(const struct answer *answer, const struct solver *solver) {
  if (rank != 0) return;
  int expected = answer->iterations_expected, found = solver->iterations;
  if (found == solver->iterations_max)
    wrong_result("the residual is still too large after %d iterations, more than this problem can need", found);
  // Variants round differently, and so may end one iteration earlier or later, or a few of several hundred.
  if (expected && abs(found - expected) > 2 + expected / 50)
    wrong_result("%d iterations, and %d by a serial solver", found, expected);
}

// Calls `check_one` for each point of this rank: with its place in a vector, and its position in the whole grid.
static void for_each_point(const struct answer *answer, const struct solver *solver,
                           void (*check_one)(const struct answer *, const struct solver *, size_t, const int64_t *)) {
  const struct grid *grid = solver->grid;
  for (int row = 0; row < rows_of(grid); row++) {
    int64_t position[AXES] = {grid->first[0] + row / grid->points[1], grid->first[1] + row % grid->points[1]};
    for (int at = 0; at < grid->points[2]; at++) {
      position[2] = grid->first[2] + at;
      check_one(answer, solver, row_start(grid, row) + (size_t)at, position);
    }
  }
}

// The negated conditions also catch NaN.
static void check_error(const struct answer *answer, const struct solver *solver, size_t at, const int64_t *position) {
  double found = solver->vectors[SOLUTION][at], bound = residual_bound(answer, solver) / answer->smallest;
  double expected = solution_at(solver->grid, position[0], position[1], position[2]);
  if (!(fabs(found - expected) <= bound))
    wrong_result("element (%" PRId64 ", %" PRId64 ", %" PRId64
                 ") is %.17g, not %.17g: its error is %.2g, the bound %.2g",
                 position[0], position[1], position[2], found, expected, fabs(found - expected), bound);
}

static void check_residual(const struct answer *answer, const struct solver *solver, size_t at,
                           const int64_t *position) {
  double residual = solver->vectors[RIGHT][at] - solver->vectors[A_DIRECTION][at];
  if (!(fabs(residual) <= residual_bound(answer, solver)))
    wrong_result("the residual at (%" PRId64 ", %" PRId64 ", %" PRId64 ") is %.2g, the bound %.2g", position[0],
                 position[1], position[2], residual, residual_bound(answer, solver));
}

void check_solution(const struct answer *answer, struct solver *solver) {
  static uint64_t checked;
  const struct grid *grid = solver->grid;
  double *x = solver->vectors[SOLUTION];
  if (++checked == settings.corrupt && rank == ranks - 1)
    x[row_start(grid, rows_of(grid) / 2) + (size_t)grid->points[2] / 2] += 1;
  check_iterations(answer, solver);
  for_each_point(answer, solver, check_error);
  exchange_in_turn(grid, x);
  apply_stencil(grid, x, solver->vectors[A_DIRECTION]);
  for_each_point(answer, solver, check_residual);
}
