// SPDX-License-Identifier: Apache-2.0 OR MIT
// Processor time left to the program during messages: post, work, wait, after the host processor overhead method of
// Sandia's micro-benchmarks (Doerfler, Brightwell 2006). "time" is that of a whole iteration against growing work
// ("computation"); with work longer than the message, time - computation is the overhead, and
// 1 - overhead / (time without work) the availability.
// send: Isend, work, Wait, once the receiver has notified that its receive is posted. receive: Irecv, notification,
// work, Wait. Everything in an iteration is timed.
#include "common/compute.h"
#include "common/sweep.h"

static void send(struct ends *ends, uint64_t operations) {
  MPI_Request request;
  int count = (int)ends->bytes;
  if (rank == 0) {
    await_ready();
    MPI_Isend(next_buffer(&ends->out), count, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD, &request);
    compute(operations);
  } else {
    MPI_Irecv(next_buffer(&ends->in), count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, &request);
    send_ready();
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void receive(struct ends *ends, uint64_t operations) {
  MPI_Request request;
  int count = (int)ends->bytes;
  if (rank == 0) {
    await_ready();
    MPI_Send(next_buffer(&ends->out), count, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD);
  } else {
    MPI_Irecv(next_buffer(&ends->in), count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, &request);
    send_ready();
    compute(operations);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

// Time from the end of one iteration to the end of the `inner`-th after it.
static inline __attribute__((always_inline)) struct stretch iterations(struct ends *ends, int inner,
                                                                       uint64_t operations,
                                                                       void (*iteration)(struct ends *, uint64_t)) {
  iteration(ends, operations);
  uint64_t start = now_ns();
  for (int number = 0; number < inner; number++) iteration(ends, operations);
  return (struct stretch){.total_ns = (double)(now_ns() - start), .received = rank == 0 ? 0 : inner + 1};
}

static struct stretch sends(struct ends *ends, int inner, uint64_t operations) {
  return iterations(ends, inner, operations, send);
}

static struct stretch receives(struct ends *ends, int inner, uint64_t operations) {
  return iterations(ends, inner, operations, receive);
}

static const struct swept tests[] = {
    {.variant = "send", .stretch = sends},
    {.variant = "receive", .stretch = receives, .computing = LAST},
};

int main(int argc, char **argv) {
  sweep(argc, argv, "availability", "time of iterations of post, work, wait, against growing work", tests,
        sizeof tests / sizeof *tests);
}
