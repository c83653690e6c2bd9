// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "grid.h"

#include "common/suite.h"

// A face of this rank's box: the points next to it, or its ghosts.
static MPI_Datatype face_type(const struct grid *grid, int face, int ghosts) {
  int lengths[AXES], starts[AXES], axis = face / 2, is_high = face % 2;
  for (int number = 0; number < AXES; number++) {
    lengths[number] = grid->points[number];
    starts[number] = grid->padded[number] > grid->points[number];
  }
  lengths[axis] = 1;
  starts[axis] = is_high ? grid->points[axis] + ghosts : 1 - ghosts;
  MPI_Datatype type;
  MPI_Type_create_subarray(AXES, grid->padded, lengths, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
  MPI_Type_commit(&type);
  return type;
}

// The points of an axis are divided as evenly as possible.
static int64_t first_of(int64_t points, int parts, int part) { return points * part / parts; }

static size_t largest_face(const struct grid *grid, const int parts[AXES]) {
  size_t largest = 0;
  for (int axis = 0; axis < AXES; axis++) {
    size_t bytes = sizeof(double);
    for (int other = 0; other < AXES; other++)
      if (other != axis) bytes *= (size_t)((grid->all[other] + parts[other] - 1) / parts[other]);
    if (parts[axis] > 1 && bytes > largest) largest = bytes;
  }
  return largest;
}

struct grid grid_for(int dimensions, int64_t side, int per_rank) {
  struct grid grid = {.dimensions = dimensions, .length = 1};
  int parts[AXES] = {1, 1, 1}, mine[AXES] = {0}, periodic[AXES] = {0}, unused = AXES - dimensions;
  for (int axis = unused; axis < AXES; axis++) parts[axis] = 0;
  MPI_Dims_create(ranks, dimensions, parts + unused);
  if (!per_rank && side < parts[unused])
    usage_error("%d ranks divide a side into %d parts: use a --side of %d points or more, not %" PRId64, ranks,
                parts[unused], parts[unused], side);
  MPI_Cart_create(MPI_COMM_WORLD, dimensions, parts + unused, periodic, 0, &grid.neighbourhood);
  MPI_Cart_coords(grid.neighbourhood, rank, dimensions, mine + unused);
  for (int axis = 0; axis < AXES; axis++) {
    int is_used = axis >= unused;
    grid.all[axis] = !is_used ? 1 : per_rank ? side * parts[axis] : side;
    grid.first[axis] = first_of(grid.all[axis], parts[axis], mine[axis]);
    grid.points[axis] = (int)(first_of(grid.all[axis], parts[axis], mine[axis] + 1) - grid.first[axis]);
    grid.padded[axis] = grid.points[axis] + (is_used ? 2 : 0);
    grid.length *= (size_t)grid.padded[axis];
  }
  for (int face = 0; face < FACES; face += 2) {
    grid.neighbours[face] = grid.neighbours[face + 1] = MPI_PROC_NULL;
    if (face / 2 < unused) continue;
    MPI_Cart_shift(grid.neighbourhood, face / 2 - unused, 1, &grid.neighbours[face], &grid.neighbours[face + 1]);
    for (int each = face; each < face + 2; each++) {
      grid.sent[each] = face_type(&grid, each, 0);
      grid.received[each] = face_type(&grid, each, 1);
    }
  }
  grid.face_bytes = largest_face(&grid, parts);
  return grid;
}

void free_grid(struct grid *grid) {
  for (int face = 2 * (AXES - grid->dimensions); face < FACES; face++) {
    MPI_Type_free(&grid->sent[face]);
    MPI_Type_free(&grid->received[face]);
  }
  MPI_Comm_free(&grid->neighbourhood);
}

// The tag is the face through which a message leaves; it arrives through the opposite one.
void exchange_in_turn(const struct grid *grid, double *vector) {
  for (int face = 2 * (AXES - grid->dimensions); face < FACES; face++)
    MPI_Sendrecv(vector, 1, grid->sent[face], grid->neighbours[face], face, vector, 1, grid->received[face ^ 1],
                 grid->neighbours[face ^ 1], face, grid->neighbourhood, MPI_STATUS_IGNORE);
}

void exchange_start(const struct grid *grid, double *vector, MPI_Request requests[2 * FACES]) {
  for (int number = 0; number < 2 * FACES; number++) requests[number] = MPI_REQUEST_NULL;
  for (int face = 0; face < FACES; face++)
    if (grid->neighbours[face] != MPI_PROC_NULL)
      MPI_Irecv(vector, 1, grid->received[face], grid->neighbours[face], face ^ 1, grid->neighbourhood,
                &requests[face]);
  for (int face = 0; face < FACES; face++)
    if (grid->neighbours[face] != MPI_PROC_NULL)
      MPI_Isend(vector, 1, grid->sent[face], grid->neighbours[face], face, grid->neighbourhood,
                &requests[FACES + face]);
}

void exchange_finish(MPI_Request requests[2 * FACES]) { MPI_Waitall(2 * FACES, requests, MPI_STATUSES_IGNORE); }
