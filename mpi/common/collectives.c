// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "collectives.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "compute.h"

#define WORLD MPI_COMM_WORLD
// A non-blocking function has the arguments of the blocking one, followed by a request.
#define CALL(blocking, nonblocking, ...) \
  (request ? nonblocking(__VA_ARGS__, WORLD, request) : blocking(__VA_ARGS__, WORLD))

static unsigned char *block(const struct layout *layout, unsigned char *buffer, int number) {
  return buffer + (size_t)number * (size_t)layout->bytes;
}

static void barrier(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                    MPI_Request *request) {
  if (request) MPI_Ibarrier(WORLD, request);
  else MPI_Barrier(WORLD);
}

static void bcast(const struct layout *layout, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  void *data = rank == root ? out : block(layout, in, root);
  CALL(MPI_Bcast, MPI_Ibcast, data, layout->bytes, MPI_BYTE, root);
}

static void reduce(const struct layout *layout, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  CALL(MPI_Reduce, MPI_Ireduce, out, in, layout->count, layout->type, layout->operation, root);
}

static void allreduce(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                      MPI_Request *request) {
  CALL(MPI_Allreduce, MPI_Iallreduce, out, in, layout->count, layout->type, layout->operation);
}

static void reduce_scatter(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                           MPI_Request *request) {
  CALL(MPI_Reduce_scatter, MPI_Ireduce_scatter, out, in, layout->counts, layout->type, layout->operation);
}

static void gather(const struct layout *layout, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  CALL(MPI_Gather, MPI_Igather, out, layout->bytes, MPI_BYTE, in, layout->bytes, MPI_BYTE, root);
}

static void gatherv(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                    MPI_Request *request) {
  CALL(MPI_Gatherv, MPI_Igatherv, out, layout->lengths[rank], MPI_BYTE, in, layout->lengths, layout->offsets, MPI_BYTE,
       root);
}

static void scatter(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                    MPI_Request *request) {
  CALL(MPI_Scatter, MPI_Iscatter, out, layout->bytes, MPI_BYTE, block(layout, in, root), layout->bytes, MPI_BYTE, root);
}

static void scatterv(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                     MPI_Request *request) {
  unsigned char *to = in + (size_t)root * (size_t)layout->lengths[rank];
  CALL(MPI_Scatterv, MPI_Iscatterv, out, layout->lengths, layout->offsets, MPI_BYTE, to, layout->lengths[rank],
       MPI_BYTE, root);
}

static void allgather(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                      MPI_Request *request) {
  CALL(MPI_Allgather, MPI_Iallgather, out, layout->bytes, MPI_BYTE, in, layout->bytes, MPI_BYTE);
}

static void allgatherv(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                       MPI_Request *request) {
  CALL(MPI_Allgatherv, MPI_Iallgatherv, out, layout->lengths[rank], MPI_BYTE, in, layout->lengths, layout->offsets,
       MPI_BYTE);
}

static void alltoall(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                     MPI_Request *request) {
  CALL(MPI_Alltoall, MPI_Ialltoall, out, layout->bytes, MPI_BYTE, in, layout->bytes, MPI_BYTE);
}

static void alltoallv(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                      MPI_Request *request) {
  CALL(MPI_Alltoallv, MPI_Ialltoallv, out, layout->lengths, layout->offsets, MPI_BYTE, in, layout->lengths,
       layout->offsets, MPI_BYTE);
}

// The ranks of MPI_COMM_WORLD in reverse order, for the second scan of a pair.
static MPI_Comm reversed = MPI_COMM_NULL;

static void scan(const struct layout *layout, int is_second, unsigned char *out, unsigned char *in,
                 MPI_Request *request) {
  MPI_Comm comm = is_second ? reversed : WORLD;
  void *from = block(layout, out, is_second), *to = block(layout, in, is_second);
  if (request) MPI_Iscan(from, to, layout->count, layout->type, layout->operation, comm, request);
  else MPI_Scan(from, to, layout->count, layout->type, layout->operation, comm);
}

const struct collective collectives[COLLECTIVES] = {
    {"barrier", barrier, 0, SEND_NOTHING, RECEIVE_NOTHING},
    {"bcast", bcast, 1, SEND_SAME, RECEIVE_FROM_OTHERS},
    {"reduce", reduce, 1, SEND_SAME, RECEIVE_SUM},
    {"allreduce", allreduce, 0, SEND_SAME, RECEIVE_SUM},
    {"reduce-scatter", reduce_scatter, 0, SEND_SAME, RECEIVE_SUM_PART},
    {"gather", gather, 1, SEND_SAME, RECEIVE_EQUAL_BLOCKS},
    {"gatherv", gatherv, 1, SEND_SAME, RECEIVE_UNEQUAL_BLOCKS},
    {"scatter", scatter, 1, SEND_EQUAL_BLOCKS, RECEIVE_EQUAL_BLOCKS},
    {"scatterv", scatterv, 1, SEND_UNEQUAL_BLOCKS, RECEIVE_OWN_LENGTH},
    {"allgather", allgather, 0, SEND_SAME, RECEIVE_EQUAL_BLOCKS},
    {"allgatherv", allgatherv, 0, SEND_SAME, RECEIVE_UNEQUAL_BLOCKS},
    {"alltoall", alltoall, 0, SEND_EQUAL_BLOCKS, RECEIVE_EQUAL_BLOCKS},
    {"alltoallv", alltoallv, 0, SEND_UNEQUAL_BLOCKS, RECEIVE_UNEQUAL_BLOCKS},
    {"scan", scan, 0, SEND_SAME, RECEIVE_PREFIX_SUMS},
};

uint64_t collective_operations;
static const struct collective *current;
static struct layout layout;
static struct messages out, in;
static int *all, *others;  // peers of each block

// Lengths from m / 2 to 3 m / 2; in an all-to-all the lengths of a pair are equal in both directions.
static void set_lengths(size_t bytes) {
  int shift = current->function == alltoallv ? rank : 0, offset = 0;
  for (int number = 0; number < ranks; number++) {
    size_t step = ranks > 1 ? bytes * (size_t)((number + shift) % ranks) / (size_t)(ranks - 1) : bytes / 2;
    layout.lengths[number] = (int)(bytes / 2 + step);
    layout.offsets[number] = offset;
    offset += layout.lengths[number];
  }
}

// Parts begin at whole words of the contents. Returns the first word of this rank's part.
static size_t set_parts(size_t bytes) {
  int words = (int)((bytes + 7) / 8), first = 0, here = 0, count_per_word = out.bytewise ? 8 : 1;
  for (int number = 0; number < ranks; number++) {
    int part = words / ranks + (number < words % ranks);
    layout.counts[number] = part * count_per_word;
    // The last word may not be whole.
    if (out.bytewise && part && first + part == words) layout.counts[number] -= words * 8 - (int)bytes;
    if (number == rank) here = first;
    first += part;
  }
  return (size_t)here;
}

static void allocate_layout(void) {
  if (all) return;
  size_t array_bytes = (size_t)ranks * sizeof(int);
  all = allocate(array_bytes), others = allocate(array_bytes);
  layout.lengths = allocate(array_bytes), layout.offsets = allocate(array_bytes), layout.counts = allocate(array_bytes);
  for (int number = 0; number < ranks; number++) {
    all[number] = number;
    others[number] = number == rank ? NOBODY : number;
  }
}

static void describe_received(size_t bytes, size_t first_word) {
  int receives_blocks = current->receives < RECEIVE_SUM;
  in.to_all = current->sends == SEND_SAME;
  if (current->receives == RECEIVE_UNEQUAL_BLOCKS) in.lengths = layout.lengths, in.offsets = layout.offsets;
  if (current->receives == RECEIVE_OWN_LENGTH) in.bytes = (size_t)layout.lengths[rank];
  if (receives_blocks) return;
  in.summed = current->receives == RECEIVE_PREFIX_SUMS ? rank + 1 : ranks;
  in.bytewise = out.bytewise;
  if (current->receives != RECEIVE_SUM_PART) return;
  in.bytes = (size_t)layout.counts[rank] * (out.bytewise ? 1 : 8);
  in.skipped_words = first_word;
}

// Calls of one operation.
static int rounds(void) {
  if (current->rooted) return ranks;
  return current->receives == RECEIVE_PREFIX_SUMS ? 2 : 1;
}

int open_collective(const struct collective *collective, size_t bytes) {
  current = collective;
  allocate_layout();
  int sums = current->receives == RECEIVE_PREFIX_SUMS ? 2 : 1;
  int sent = current->sends == SEND_SAME ? sums : current->sends == SEND_NOTHING ? 0 : ranks;
  int received = current->receives == RECEIVE_NOTHING ? 0 : current->receives < RECEIVE_SUM ? ranks : sums;
  // Such a rank only sends, and runs ahead of the others.
  if (current->receives == RECEIVE_SUM_PART && (bytes + 7) / 8 < (size_t)ranks) {
    leave_out(current->name, bytes, "the sum has no part for some of the %d ranks, and they would not wait for it",
              ranks);
    return 0;
  }
  // Blocks of unequal length have up to 3 m / 2 bytes.
  int are_unequal = current->sends == SEND_UNEQUAL_BLOCKS || current->receives == RECEIVE_UNEQUAL_BLOCKS;
  size_t longest = are_unequal ? bytes + bytes / 2 : bytes;
  if (!fits(current->name, bytes, (uint64_t)longest * (uint64_t)(sent + received))) return 0;
  if (are_unequal && (uint64_t)longest * (uint64_t)ranks > INT_MAX) {
    leave_out(current->name, bytes, "its displacements exceed the range of int");
    return 0;
  }
  if (sums > 1 && reversed == MPI_COMM_NULL) MPI_Comm_split(WORLD, 0, ranks - rank, &reversed);
  layout.bytes = (int)bytes;
  set_lengths(bytes);
  out = in = (struct messages){0};
  if (sent) out = messages_for(sent == 1 ? longest : bytes, sent, all, 1);
  size_t received_bytes = current->receives == RECEIVE_OWN_LENGTH ? longest : bytes;
  if (received) in = messages_for(received_bytes, received, current->receives == RECEIVE_FROM_OTHERS ? others : all, 1);
  match_buffers(&out, &in);
  in.bytes = bytes;
  out.bytewise = bytes % 8 != 0;
  layout.type = out.bytewise ? MPI_UINT8_T : MPI_UINT64_T;
  layout.operation = out.bytewise ? MPI_BXOR : MPI_SUM;
  layout.count = out.bytewise ? (int)bytes : (int)(bytes / 8);
  out.to_all = current->sends == SEND_SAME;
  if (out.to_all) out.bytes = are_unequal ? (size_t)layout.lengths[rank] : bytes;
  if (current->sends == SEND_UNEQUAL_BLOCKS) out.lengths = layout.lengths, out.offsets = layout.offsets;
  describe_received(bytes, set_parts(bytes));
  return 1;
}

void close_collective(void) {
  free_messages(&out);
  free_messages(&in);
}

// A collective without data has no buffers.
static unsigned char *next_of(struct messages *messages) {
  return messages->blocks ? next_buffer(&messages->buffers) : NULL;
}

void run_blocking(int count) {
  int calls = rounds();
  for (int number = 0; number < count; number++) {
    unsigned char *from = next_of(&out), *to = next_of(&in);
    for (int round = 0; round < calls; round++) current->function(&layout, round, from, to, NULL);
  }
}

void run_nonblocking(int count) {
  int calls = rounds();
  for (int number = 0; number < count; number++) {
    unsigned char *from = next_of(&out), *to = next_of(&in);
    for (int round = 0; round < calls; round++) {
      MPI_Request request;
      current->function(&layout, round, from, to, &request);
      compute(collective_operations);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
}

struct pattern collective_pattern(void) {
  return (struct pattern){.point = {.variant = current->name, .message_bytes = (size_t)layout.bytes},
                          .timed = 1,
                          .divide_by = rounds(),
                          .unit = 1,
                          .out = out.blocks ? &out : NULL,
                          .in = in.blocks ? &in : NULL};
}
