// SPDX-License-Identifier: Apache-2.0 OR MIT
// Overlap of computation and messages, after Stival 2006: the time of messages against a growing computation
// (common/sweep.h). The hidden computation follows from the end of the curve's flat part.
// pingpong: one side computes between Send and Recv. pingpong-irecv, by send mode: between Send and Wait, with receives
// posted in advance. pingpong-isend: the same with non-blocking sends, so the computation is beside both requests.
// local-standard, local-synchronous: Isend or Issend, computation, Wait, one message at a time, its receive posted
// in advance; "wait" is the time inside Wait. local-receive: the same on the receiver.
#include "common/compute.h"
#include "common/roundtrip.h"

// Adds the time since `start`, and the part in Wait, since `computed`.
static void add(struct stretch *stretch, uint64_t start, uint64_t computed) {
  uint64_t end = now_ns();
  stretch->total_ns += (double)(end - start);
  stretch->part_ns += (double)(end - computed);
}

static struct stretch local_send(struct ends *ends, int inner, uint64_t operations) {
  struct stretch stretch = {0};
  MPI_Request request;
  int count = (int)ends->bytes;
  for (int number = 0; rank == 0 && number < inner; number++) {
    unsigned char *data = next_buffer(&ends->out);
    await_ready();
    uint64_t start = now_ns();
    ends->mode->start(data, count, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD, &request);
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

#define IRECV .stretch = roundtrip_irecv, .posted = 1
#define ISEND .stretch = roundtrip_isend, .posted = 1
#define LOCAL .part = "wait"

static const struct swept tests[] = {
    {.variant = "pingpong", .stretch = roundtrip},
    {.variant = "pingpong-irecv-standard", IRECV},
    {.variant = "pingpong-irecv-synchronous", IRECV, .mode = &synchronous_mode},
    {.variant = "pingpong-irecv-buffered", IRECV, .mode = &buffered_mode},
    {.variant = "pingpong-irecv-ready", IRECV, .mode = &ready_mode},
    {.variant = "pingpong-isend-standard", ISEND},
    {.variant = "pingpong-isend-synchronous", ISEND, .mode = &synchronous_mode},
    {.variant = "pingpong-isend-buffered", ISEND, .mode = &buffered_mode},
    {.variant = "pingpong-isend-ready", ISEND, .mode = &ready_mode},
    {.variant = "local-standard", .stretch = local_send, LOCAL},
    {.variant = "local-synchronous", .stretch = local_send, LOCAL, .mode = &synchronous_mode},
    {.variant = "local-receive", .stretch = local_receive, LOCAL, .computing = LAST},
};

int main(int argc, char **argv) {
  sweep(argc, argv, "overlap", "time of messages against a computation that they can hide", tests,
        sizeof tests / sizeof *tests);
}
