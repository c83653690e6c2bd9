// SPDX-License-Identifier: Apache-2.0 OR MIT
// Neighbourhood collectives, on a periodic Cartesian grid of two dimensions and on a graph in which rank r sends to
// r + 1, r + 2, r + 4, … In allgather all neighbours get the same block, in alltoall different ones, in alltoallv with
// unequal lengths, m on average. Each rank records its own time.
#include <limits.h>

#include "common/measure.h"

enum {
  DEGREE_MAX = 32,  // 2 to this power exceeds the number of ranks
  DIMENSIONS = 2
};

struct topology {
  MPI_Comm ranks;
  int degree;  // number of destinations, and of sources
  int to[DEGREE_MAX], from[DEGREE_MAX];
  // Distinguishes blocks between the same two ranks. In a dimension of one or two ranks both neighbours are the same
  // rank, and editions of MPI differ in the order of their blocks: so number and length follow from the dimension.
  int numbers[DEGREE_MAX];
  int classes;  // different numbers
};

static struct topology cartesian, graph;
static const struct topology *topology;
static struct messages out, in;
static int bytes, lengths[DEGREE_MAX], offsets[DEGREE_MAX];

static void allgather(int count) {
  for (int number = 0; number < count; number++)
    MPI_Neighbor_allgather(next_buffer(&out.buffers), bytes, MPI_BYTE, next_buffer(&in.buffers), bytes, MPI_BYTE,
                           topology->ranks);
}

static void alltoall(int count) {
  for (int number = 0; number < count; number++)
    MPI_Neighbor_alltoall(next_buffer(&out.buffers), bytes, MPI_BYTE, next_buffer(&in.buffers), bytes, MPI_BYTE,
                          topology->ranks);
}

static void alltoallv(int count) {
  for (int number = 0; number < count; number++)
    MPI_Neighbor_alltoallv(next_buffer(&out.buffers), lengths, offsets, MPI_BYTE, next_buffer(&in.buffers), lengths,
                           offsets, MPI_BYTE, topology->ranks);
}

static const struct kind {
  const char *variant;
  struct topology *topology;
  void (*run)(int);
} kinds[] = {{"cartesian-allgather", &cartesian, allgather}, {"cartesian-alltoall", &cartesian, alltoall},
             {"cartesian-alltoallv", &cartesian, alltoallv}, {"graph-allgather", &graph, allgather},
             {"graph-alltoall", &graph, alltoall},           {"graph-alltoallv", &graph, alltoallv}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static void make_cartesian(void) {
  int sides[DIMENSIONS] = {0}, periodic[DIMENSIONS] = {1, 1};
  MPI_Dims_create(ranks, DIMENSIONS, sides);
  MPI_Cart_create(MPI_COMM_WORLD, DIMENSIONS, sides, periodic, 0, &cartesian.ranks);
  for (int dimension = 0; dimension < DIMENSIONS; dimension++) {
    int *below = &cartesian.to[2 * dimension];
    MPI_Cart_shift(cartesian.ranks, dimension, 1, below, below + 1);
    for (int side = 0; side < 2; side++) {
      cartesian.from[2 * dimension + side] = below[side];
      cartesian.numbers[2 * dimension + side] = dimension;
    }
  }
  cartesian.degree = 2 * DIMENSIONS;
  cartesian.classes = DIMENSIONS;
}

static void make_graph(void) {
  // Not MPI_UNWEIGHTED: the compiler takes its declaration in Debian's Open MPI for an empty array.
  int weights[DEGREE_MAX];
  graph.degree = 0;
  for (int distance = 1; distance < ranks; distance *= 2) {
    graph.to[graph.degree] = (rank + distance) % ranks;
    graph.from[graph.degree] = (rank + ranks - distance) % ranks;
    graph.numbers[graph.degree] = graph.degree;
    weights[graph.degree] = 1;
    graph.degree++;
  }
  graph.classes = graph.degree;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, graph.degree, graph.from, weights, graph.degree, graph.to, weights,
                                 MPI_INFO_NULL, 0, &graph.ranks);
}

// Lengths from m / 2 to 3 m / 2, m on average.
static void set_lengths(void) {
  int offset = 0, steps = topology->classes - 1;
  for (int block = 0; block < topology->degree; block++) {
    lengths[block] = steps ? bytes / 2 + (int)((int64_t)bytes * topology->numbers[block] / steps) : bytes;
    offsets[block] = offset;
    offset += lengths[block];
  }
}

static void measure_one(const struct kind *kind, size_t size) {
  topology = kind->topology;
  size_t longest = size + size / 2, degree = (size_t)topology->degree;
  if (!is_selected(kind->variant) || !fits(kind->variant, size, 2 * longest * degree)) return;
  if (longest * degree > INT_MAX) {
    leave_out(kind->variant, size, "its displacements exceed the range of int");
    return;
  }
  bytes = (int)size;
  set_lengths();
  int gathers = kind->run == allgather, are_unequal = kind->run == alltoallv;
  out = messages_for(are_unequal ? longest : size, gathers ? 1 : topology->degree, topology->to, 1);
  in = messages_for(are_unequal ? longest : size, topology->degree, topology->from, 1);
  match_buffers(&out, &in);
  out.to_all = in.to_all = gathers;
  if (!gathers) out.numbers = in.numbers = topology->numbers;
  if (are_unequal) {
    out.lengths = in.lengths = lengths;
    out.offsets = in.offsets = offsets;
  }
  measure(&(struct pattern){.point = {.variant = kind->variant, .quantity = "time", .message_bytes = size},
                            .timed = 1,
                            .divide_by = 1,
                            .unit = 1,
                            .run = kind->run,
                            .out = &out,
                            .in = &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int kind = 0; kind < KINDS; kind++) variants[kind] = kinds[kind].variant;
  begin(argc, argv,
        &(struct program){.name = "neighbourhood",
                          .summary = "neighbourhood collectives on a Cartesian grid and on a graph",
                          .variants = variants,
                          .extras = (struct extra[]){MEMORY_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2});
  make_cartesian();
  make_graph();
  for (int kind = 0; kind < KINDS; kind++)
    for (int size = 0; size < settings.size_count; size++) measure_one(&kinds[kind], settings.sizes[size]);
  MPI_Comm_free(&cartesian.ranks);
  MPI_Comm_free(&graph.ranks);
  finish();
}
