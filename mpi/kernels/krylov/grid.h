// SPDX-License-Identifier: Apache-2.0 OR MIT
// A grid of points divided among the ranks: each rank's part, its neighbours, and the exchange of borders.
//
// The ranks form a grid of as many dimensions as the points have, as cubic as possible. Each has a box of points and
// around it a layer of ghosts, which receive the neighbours' nearest points. At the rim of the whole grid ghosts stay 0
// (Dirichlet). A grid of two dimensions is one of three whose first has one point and no ghosts:
//
//   g g g g g g
//   g . . . . g      g: ghost, .: point; a row of points is contiguous. A vector has points[1] + 2 rows of points[2] +
//   2 g . . . . g      elements, and in three dimensions points[0] + 2 planes of these. g g g g g g
#pragma once
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

enum {
  AXES = 3,
  FACES = 2 * AXES,  // low and high of the first axis, then of the second and third
  SIDE_MAX = 1 << 15
};

struct grid {
  int dimensions;          // 2 or 3
  MPI_Comm neighbourhood;  // the ranks as a grid
  int64_t all[AXES];       // points of the whole grid
  int64_t first[AXES];     // position of this rank's first point in it
  int points[AXES];        // of this rank
  int padded[AXES];        // the same with ghosts
  int neighbours[FACES];   // MPI_PROC_NULL at the rim, and for faces of an axis that the grid lacks
  MPI_Datatype sent[FACES], received[FACES];
  size_t length;      // elements of a vector, with ghosts
  size_t face_bytes;  // the largest message of any rank; 0 without neighbours
};

// `side` points along each dimension, of the whole grid or of each rank. A usage error if a rank would have no point.
// Collective.
struct grid grid_for(int dimensions, int64_t side, int per_rank);
void free_grid(struct grid *grid);

// Points along the last axis are a row.
static inline int rows_of(const struct grid *grid) { return grid->points[0] * grid->points[1]; }
// Position of the first point of a row in a vector.
static inline size_t row_start(const struct grid *grid, int row) {
  int plane = row / grid->points[1] + (grid->dimensions == AXES), line = row % grid->points[1] + 1;
  return ((size_t)plane * (size_t)grid->padded[1] + (size_t)line) * (size_t)grid->padded[2] + 1;
}

// Fills the ghosts of a vector: one axis and direction after another.
void exchange_in_turn(const struct grid *grid, double *vector);
// The same with all neighbours at once, in two steps.
void exchange_start(const struct grid *grid, double *vector, MPI_Request requests[2 * FACES]);
void exchange_finish(MPI_Request requests[2 * FACES]);
