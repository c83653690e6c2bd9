// SPDX-License-Identifier: Apache-2.0 OR MIT
// Halo exchange: ranks form a periodic grid of two dimensions, as square as possible. Each sends a message to each of
// its four neighbours and receives one from each. In a dimension of one or two ranks both neighbours are the same rank;
// the collective may then swap their messages, since the editions of MPI differ there.
#include "common/measure.h"

enum {
  DIMENSIONS = 2,
  NEIGHBOURS = 2 * DIMENSIONS
};

static const char *const variants[] = {"irecv-isend", "neighbor-collective", NULL};

static MPI_Comm grid;
static int neighbours[NEIGHBOURS];  // below and above in the first dimension, then in the second
static struct messages out, in;
static int bytes;

static void irecv_isend(int count) {
  for (int number = 0; number < count; number++) {
    unsigned char *from = next_buffer(&out.buffers), *to = next_buffer(&in.buffers);
    MPI_Request requests[2 * NEIGHBOURS];
    // The tag is the direction of the message, which arrives from the opposite direction.
    for (int side = 0; side < NEIGHBOURS; side++)
      MPI_Irecv(to + (size_t)side * (size_t)bytes, bytes, MPI_BYTE, neighbours[side], side ^ 1, grid, &requests[side]);
    for (int side = 0; side < NEIGHBOURS; side++)
      MPI_Isend(from + (size_t)side * (size_t)bytes, bytes, MPI_BYTE, neighbours[side], side, grid,
                &requests[NEIGHBOURS + side]);
    MPI_Waitall(2 * NEIGHBOURS, requests, MPI_STATUSES_IGNORE);
  }
}

static void neighbor_collective(int count) {
  for (int number = 0; number < count; number++)
    MPI_Neighbor_alltoall(next_buffer(&out.buffers), bytes, MPI_BYTE, next_buffer(&in.buffers), bytes, MPI_BYTE, grid);
}

static void measure_size(size_t size) {
  // The dimension distinguishes messages between the same two ranks.
  static const int dimensions[NEIGHBOURS] = {0, 0, 1, 1};
  bytes = (int)size;
  out = messages_for(size, NEIGHBOURS, neighbours, 1);
  in = messages_for(size, NEIGHBOURS, neighbours, 1);
  out.numbers = in.numbers = dimensions;
  for (int variant = 0; variants[variant]; variant++)
    if (is_selected(variants[variant]))
      measure(&(struct pattern){.point = {.variant = variants[variant], .quantity = "halo", .message_bytes = size},
                                .timed = 1,
                                .divide_by = 1,
                                .unit = 1,
                                .run = variant ? neighbor_collective : irecv_isend,
                                .out = &out,
                                .in = &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  begin(argc, argv,
        &(struct program){.name = "halo",
                          .summary = "a message to each of four neighbours on a periodic grid, and one from each",
                          .variants = variants,
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2});
  int lengths[DIMENSIONS] = {0}, periodic[DIMENSIONS] = {1, 1};
  MPI_Dims_create(ranks, DIMENSIONS, lengths);
  MPI_Cart_create(MPI_COMM_WORLD, DIMENSIONS, lengths, periodic, 0, &grid);
  for (int dimension = 0; dimension < DIMENSIONS; dimension++)
    MPI_Cart_shift(grid, dimension, 1, &neighbours[2 * dimension], &neighbours[2 * dimension + 1]);
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  MPI_Comm_free(&grid);
  finish();
}
