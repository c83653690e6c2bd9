// SPDX-License-Identifier: Apache-2.0 OR MIT
// Overlap of computation and messages, after Stival 2006: the time of messages against a growing computation
// (common/sweep.h). The hidden computation follows from the end of the curve's flat part.
// pingpong: one side computes between Send and Recv.
// local-standard, local-synchronous: Isend or Issend, computation, Wait, one message at a time, its receive posted
// in advance; "wait" is the time inside Wait. local-receive: the same on the receiver.
#include "common/compute.h"
#include "common/roundtrip.h"

typedef int post_send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm where,
                      MPI_Request *request);

// Adds the time since `start`, and the part in Wait, since `computed`.
static void add(struct stretch *stretch, uint64_t start, uint64_t computed) {
  uint64_t end = now_ns();
  stretch->total_ns += (double)(end - start);
  stretch->part_ns += (double)(end - computed);
}

static struct stretch local_send(struct ends *ends, int inner, uint64_t operations, post_send *post) {
  struct stretch stretch = {0};
  MPI_Request request;
  int count = (int)ends->bytes;
  for (int number = 0; rank == 0 && number < inner; number++) {
    unsigned char *data = next_buffer(&ends->out);
    await_ready();
    uint64_t start = now_ns();
    post(data, count, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD, &request);
    compute(operations);
    uint64_t computed = now_ns();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    add(&stretch, start, computed);
  }
  for (int number = 0; rank != 0 && number < inner; number++) {
    MPI_Irecv(next_buffer(&ends->in), count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, &request);
    send_ready();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    stretch.received++;
  }
  return stretch;
}

static struct stretch local_standard(struct ends *ends, int inner, uint64_t operations) {
  return local_send(ends, inner, operations, MPI_Isend);
}

static struct stretch local_synchronous(struct ends *ends, int inner, uint64_t operations) {
  return local_send(ends, inner, operations, MPI_Issend);
}

static struct stretch local_receive(struct ends *ends, int inner, uint64_t operations) {
  struct stretch stretch = {0};
  MPI_Request request;
  int count = (int)ends->bytes;
  for (int number = 0; rank == 0 && number < inner; number++) {
    await_ready();
    MPI_Send(next_buffer(&ends->out), count, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD);
  }
  for (int number = 0; rank != 0 && number < inner; number++) {
    MPI_Irecv(next_buffer(&ends->in), count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, &request);
    send_ready();
    uint64_t start = now_ns();
    compute(operations);
    uint64_t computed = now_ns();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    add(&stretch, start, computed);
    stretch.received++;
  }
  return stretch;
}

static const struct swept tests[] = {
    {.variant = "pingpong", .stretch = roundtrip},
    {.variant = "local-standard", .stretch = local_standard, .part = "wait"},
    {.variant = "local-synchronous", .stretch = local_synchronous, .part = "wait"},
    {.variant = "local-receive", .stretch = local_receive, .part = "wait", .computing = LAST},
};

int main(int argc, char **argv) {
  static const char *const variants[] = {"pingpong", "local-standard", "local-synchronous", "local-receive", NULL};
  static const struct extra extras[] = {SWEEP_OPTIONS, {0}};
  begin(argc, argv,
        &(struct program){.name = "overlap",
                          .summary = "time of messages against a computation that they can hide",
                          .variants = variants,
                          .extras = extras,
                          .ranks_min = 2});
  sweep_all(tests, sizeof tests / sizeof *tests);
  finish();
}
