// SPDX-License-Identifier: Apache-2.0 OR MIT
// Conjugate gradients for the Poisson problem A x = b, in variants that differ in when they communicate. A is the
// stencil of 5 or 7 points: 2 · dimensions at the point, −1 at each neighbour.
#pragma once
#include "../shared/kernel.h"
#include "grid.h"

// Times of an execution; they add up to the total.
enum quantity {
  TOTAL,
  HALO,       // inside MPI calls of exchanges with neighbours
  REDUCTION,  // inside MPI calls that add over all ranks
  STENCIL,    // products with A
  VECTORS     // everything else: updates and local sums
};
extern const char *const krylov_quantities[];

enum vector {
  RIGHT,      // b
  SOLUTION,   // x
  RESIDUAL,   // r
  DIRECTION,  // p
  A_DIRECTION,
  A_RESIDUAL,
  // Only of the pipelined variant.
  AA_DIRECTION,
  AA_RESIDUAL,
  VECTORS_COUNT
};

struct solver {
  const struct grid *grid;
  double *vectors[VECTORS_COUNT];  // with ghosts, grid->length elements each
  double tolerance;                // ends at |r| ≤ tolerance · |b|
  int iterations_max;              // ends anyway
  int iterations;                  // of the last execution
};

struct solver solver_for(const struct grid *grid, double tolerance);
void free_solver(struct solver *solver);

struct variant {
  const char *name;
  // Solves once, from x = 0. Adds the times of the whole solution to `times`.
  void (*execute)(struct solver *solver, double *times);
};
// Ends with an empty name.
extern const struct variant krylov_variants[];

// The sum of products of two vectors over this rank's points.
double dot(const struct grid *grid, const double *first, const double *second);
// out = A · in at all points of this rank; the ghosts of `in` are filled.
void apply_stencil(const struct grid *grid, const double *in, double *out);
