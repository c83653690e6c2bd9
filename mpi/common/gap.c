// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "gap.h"

#include "compute.h"

static void send(struct ends *ends) {
  ends->mode->send(next_buffer(&ends->out), (int)ends->bytes, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD);
}

static void send_computed(struct ends *ends, uint64_t operations) {
  send(ends);
  compute(operations);
}

static void isend_computed(struct ends *ends, uint64_t operations) {
  MPI_Request request;
  ends->mode->start(next_buffer(&ends->out), (int)ends->bytes, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD, &request);
  compute(operations);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static inline __attribute__((always_inline)) double train(struct ends *ends, struct receives *receives, int number,
                                                          uint64_t operations,
                                                          void (*send_one)(struct ends *, uint64_t)) {
  unsigned char answer = 0;
  uint64_t start = now_ns();
  if (rank == 0) {
    for (int at = 1; at < number; at++) send_one(ends, operations);
    // No computation beside the last message: it would overlap with the answer.
    send_one(ends, 0);
    MPI_Recv(&answer, 1, MPI_BYTE, ranks - 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    for (int at = 0; at < number; at++) receive_next(ends, receives);
    MPI_Send(&answer, 1, MPI_BYTE, 0, ANSWER, MPI_COMM_WORLD);
  }
  return (double)(now_ns() - start);
}

static inline __attribute__((always_inline)) struct stretch trains(struct ends *ends, int inner, uint64_t operations,
                                                                   void (*send_one)(struct ends *, uint64_t)) {
  struct stretch stretch = {.received = rank == 0 ? 0 : ANSWERED + inner + 1};
  struct receives receives = begin_receiving(ends, stretch.received);
  for (int number = 0; number < ANSWERED; number++) stretch.part_ns += train(ends, &receives, 1, 0, send_one);
  stretch.total_ns = train(ends, &receives, inner + 1, operations, send_one) - stretch.part_ns / ANSWERED;
  return stretch;
}

struct stretch gap_send(struct ends *ends, int inner, uint64_t operations) {
  return trains(ends, inner, operations, send_computed);
}

struct stretch gap_isend(struct ends *ends, int inner, uint64_t operations) {
  return trains(ends, inner, operations, isend_computed);
}

struct stretch gap_receive(struct ends *ends, int inner, uint64_t operations) {
  struct stretch stretch = {.received = rank == 0 ? 0 : inner + 1};
  struct receives receives = begin_receiving(ends, stretch.received);
  for (int number = 0; rank == 0 && number <= inner; number++) send(ends);
  if (rank == 0) return stretch;
  receive_next(ends, &receives);
  uint64_t start = now_ns();
  for (int number = 0; number < inner; number++) {
    compute(operations);
    receive_next(ends, &receives);
  }
  stretch.total_ns = (double)(now_ns() - start);
  return stretch;
}
