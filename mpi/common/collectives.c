// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "collectives.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "compute.h"

#define WORLD MPI_COMM_WORLD
// The non-blocking function has the blocking one's arguments, and a request behind them.
#define EITHER(blocking, nonblocking, ...) \
  (request ? nonblocking(__VA_ARGS__, WORLD, request) : blocking(__VA_ARGS__, WORLD))

static unsigned char *block(const struct layout *at, unsigned char *buffer, int number) {
  return buffer + (size_t)number * (size_t)at->bytes;
}

static void barrier(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  if (request) MPI_Ibarrier(WORLD, request);
  else MPI_Barrier(WORLD);
}

static void bcast(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  void *data = rank == root ? out : block(at, in, root);
  EITHER(MPI_Bcast, MPI_Ibcast, data, at->bytes, MPI_BYTE, root);
}

static void reduce(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Reduce, MPI_Ireduce, out, in, at->count, at->type, at->operation, root);
}

static void allreduce(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Allreduce, MPI_Iallreduce, out, in, at->count, at->type, at->operation);
}

static void reduce_scatter(const struct layout *at, int root, unsigned char *out, unsigned char *in,
                           MPI_Request *request) {
  EITHER(MPI_Reduce_scatter, MPI_Ireduce_scatter, out, in, at->counts, at->type, at->operation);
}

static void gather(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Gather, MPI_Igather, out, at->bytes, MPI_BYTE, in, at->bytes, MPI_BYTE, root);
}

static void gatherv(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Gatherv, MPI_Igatherv, out, at->lengths[rank], MPI_BYTE, in, at->lengths, at->offsets, MPI_BYTE, root);
}

static void scatter(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Scatter, MPI_Iscatter, out, at->bytes, MPI_BYTE, block(at, in, root), at->bytes, MPI_BYTE, root);
}

static void scatterv(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  unsigned char *to = in + (size_t)root * (size_t)at->lengths[rank];
  EITHER(MPI_Scatterv, MPI_Iscatterv, out, at->lengths, at->offsets, MPI_BYTE, to, at->lengths[rank], MPI_BYTE, root);
}

static void allgather(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Allgather, MPI_Iallgather, out, at->bytes, MPI_BYTE, in, at->bytes, MPI_BYTE);
}

static void allgatherv(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Allgatherv, MPI_Iallgatherv, out, at->lengths[rank], MPI_BYTE, in, at->lengths, at->offsets, MPI_BYTE);
}

static void alltoall(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Alltoall, MPI_Ialltoall, out, at->bytes, MPI_BYTE, in, at->bytes, MPI_BYTE);
}

static void alltoallv(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Alltoallv, MPI_Ialltoallv, out, at->lengths, at->offsets, MPI_BYTE, in, at->lengths, at->offsets,
         MPI_BYTE);
}

static void scan(const struct layout *at, int root, unsigned char *out, unsigned char *in, MPI_Request *request) {
  EITHER(MPI_Scan, MPI_Iscan, out, in, at->count, at->type, at->operation);
}

const struct collective collectives[COLLECTIVES] = {
    {"barrier", barrier, 0, NOTHING, NONE},
    {"bcast", bcast, 1, ALL, OTHERS},
    {"reduce", reduce, 1, ALL, SUM},
    {"allreduce", allreduce, 0, ALL, SUM},
    {"reduce-scatter", reduce_scatter, 0, ALL, SUM_PART},
    {"gather", gather, 1, ALL, BLOCKS},
    {"gatherv", gatherv, 1, ALL, BLOCKS_DIFFER},
    {"scatter", scatter, 1, SAME, BLOCKS},
    {"scatterv", scatterv, 1, DIFFERENT, BLOCKS_AS_MINE},
    {"allgather", allgather, 0, ALL, BLOCKS},
    {"allgatherv", allgatherv, 0, ALL, BLOCKS_DIFFER},
    {"alltoall", alltoall, 0, SAME, BLOCKS},
    {"alltoallv", alltoallv, 0, DIFFERENT, BLOCKS_DIFFER},
    {"scan", scan, 0, ALL, SUM_TO_HERE},
};

uint64_t collective_operations;
static const struct collective *current;
static struct layout layout;
static struct messages out, in;
static int *all, *others;  // peers of each block

// From half of m to one and a half; in an all-to-all a pair's length is the same both ways.
static void arrange_lengths(size_t bytes) {
  int shift = current->function == alltoallv ? rank : 0, offset = 0;
  for (int number = 0; number < ranks; number++) {
    size_t step = ranks > 1 ? bytes * (size_t)((number + shift) % ranks) / (size_t)(ranks - 1) : bytes / 2;
    layout.lengths[number] = (int)(bytes / 2 + step);
    layout.offsets[number] = offset;
    offset += layout.lengths[number];
  }
}

// Parts begin at whole words of the contents. Returns the first word of this rank's.
static size_t arrange_parts(size_t bytes) {
  int words = (int)((bytes + 7) / 8), first = 0, here = 0, bytes_of_word = out.bytewise ? 8 : 1;
  for (int number = 0; number < ranks; number++) {
    int part = words / ranks + (number < words % ranks);
    layout.counts[number] = part * bytes_of_word;
    // The last word may not be whole.
    if (out.bytewise && part && first + part == words) layout.counts[number] -= words * 8 - (int)bytes;
    if (number == rank) here = first;
    first += part;
  }
  return (size_t)here;
}

static void prepare_once(void) {
  if (all) return;
  size_t of_each = (size_t)ranks * sizeof(int);
  all = allocate(of_each), others = allocate(of_each);
  layout.lengths = allocate(of_each), layout.offsets = allocate(of_each), layout.counts = allocate(of_each);
  for (int number = 0; number < ranks; number++) {
    all[number] = number;
    others[number] = number == rank ? NOBODY : number;
  }
}

static void arrange_received(size_t bytes, size_t first_word) {
  int with_blocks = current->receives < SUM;
  in.to_all = current->sends == ALL;
  if (current->receives == BLOCKS_DIFFER) in.lengths = layout.lengths, in.offsets = layout.offsets;
  if (current->receives == BLOCKS_AS_MINE) in.bytes = (size_t)layout.lengths[rank];
  if (with_blocks) return;
  in.summed = current->receives == SUM_TO_HERE ? rank + 1 : ranks;
  in.bytewise = out.bytewise;
  if (current->receives != SUM_PART) return;
  in.bytes = (size_t)layout.counts[rank] * (out.bytewise ? 1 : 8);
  in.skipped_words = first_word;
}

int open_collective(const struct collective *collective, size_t bytes) {
  current = collective;
  prepare_once();
  int sent = current->sends == ALL ? 1 : current->sends == NOTHING ? 0 : ranks;
  int received = current->receives == NONE ? 0 : current->receives < SUM ? ranks : 1;
  // Blocks that differ are up to half as long again.
  int differ = current->sends == DIFFERENT || current->receives == BLOCKS_DIFFER;
  size_t longest = differ ? bytes + bytes / 2 : bytes;
  if (!fits(current->name, bytes, (uint64_t)longest * (uint64_t)(sent + received))) return 0;
  if (differ && (uint64_t)longest * (uint64_t)ranks > INT_MAX) {
    leave_out(current->name, bytes, "its displacements are above what an int holds");
    return 0;
  }
  layout.bytes = (int)bytes;
  arrange_lengths(bytes);
  out = in = (struct messages){0};
  if (sent) out = messages_for(sent == 1 ? longest : bytes, sent, all, 1);
  size_t room = current->receives == BLOCKS_AS_MINE ? longest : bytes;
  if (received) in = messages_for(room, received, current->receives == OTHERS ? others : all, 1);
  in.bytes = bytes;
  out.bytewise = bytes % 8 != 0;
  layout.type = out.bytewise ? MPI_UINT8_T : MPI_UINT64_T;
  layout.operation = out.bytewise ? MPI_BXOR : MPI_SUM;
  layout.count = out.bytewise ? (int)bytes : (int)(bytes / 8);
  out.to_all = current->sends == ALL;
  if (out.to_all) out.bytes = differ ? (size_t)layout.lengths[rank] : bytes;
  if (current->sends == DIFFERENT) out.lengths = layout.lengths, out.offsets = layout.offsets;
  arrange_received(bytes, arrange_parts(bytes));
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
  int rounds = current->rooted ? ranks : 1;
  for (int number = 0; number < count; number++) {
    unsigned char *from = next_of(&out), *to = next_of(&in);
    for (int root = 0; root < rounds; root++) current->function(&layout, root, from, to, NULL);
  }
}

void run_nonblocking(int count) {
  int rounds = current->rooted ? ranks : 1;
  for (int number = 0; number < count; number++) {
    unsigned char *from = next_of(&out), *to = next_of(&in);
    for (int root = 0; root < rounds; root++) {
      MPI_Request request;
      current->function(&layout, root, from, to, &request);
      compute(collective_operations);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
}

struct pattern collective_pattern(void) {
  return (struct pattern){.point = {.variant = current->name, .message_bytes = (size_t)layout.bytes},
                          .timed = 1,
                          .divide_by = current->rooted ? ranks : 1,
                          .unit = 1,
                          .out = out.blocks ? &out : NULL,
                          .in = in.blocks ? &in : NULL};
}
