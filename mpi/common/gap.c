// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "gap.h"

#include "compute.h"

static void receive(struct channel *channel, int number) {
  for (int at = 0; at < number; at++)
    MPI_Recv(next_buffer(&channel->in), (int)channel->bytes, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send(struct channel *channel) {
  MPI_Send(next_buffer(&channel->out), (int)channel->bytes, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD);
}

static void send_computed(struct channel *channel, uint64_t operations) {
  compute(operations);
  send(channel);
}

static void isend_computed(struct channel *channel, uint64_t operations) {
  MPI_Request request;
  MPI_Isend(next_buffer(&channel->out), (int)channel->bytes, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD, &request);
  compute(operations);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static inline __attribute__((always_inline)) double train(struct channel *channel, int number, uint64_t operations,
                                                          void (*one)(struct channel *, uint64_t)) {
  unsigned char answer = 0;
  uint64_t start = now_ns();
  if (rank == 0) {
    for (int at = 0; at < number; at++) one(channel, at ? operations : 0);
    MPI_Recv(&answer, 1, MPI_BYTE, ranks - 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    receive(channel, number);
    MPI_Send(&answer, 1, MPI_BYTE, 0, ANSWER, MPI_COMM_WORLD);
  }
  return (double)(now_ns() - start);
}

static inline __attribute__((always_inline)) struct stretch trains(struct channel *channel, int inner,
                                                                   uint64_t operations,
                                                                   void (*one)(struct channel *, uint64_t)) {
  struct stretch stretch = {.received = rank == 0 ? 0 : ANSWERED + inner};
  for (int number = 0; number < ANSWERED; number++) stretch.part_ns += train(channel, 1, 0, one);
  stretch.total_ns = train(channel, inner, operations, one);
  return stretch;
}

struct stretch gap_send(struct channel *channel, int inner, uint64_t operations) {
  return trains(channel, inner, operations, send_computed);
}

struct stretch gap_isend(struct channel *channel, int inner, uint64_t operations) {
  return trains(channel, inner, operations, isend_computed);
}

struct stretch gap_receive(struct channel *channel, int inner, uint64_t operations) {
  struct stretch stretch = {.received = rank == 0 ? 0 : inner + 1};
  if (rank == 0) {
    await_ready();
    for (int number = 0; number <= inner; number++) send(channel);
    return stretch;
  }
  send_ready();
  receive(channel, 1);
  uint64_t start = now_ns();
  for (int number = 0; number < inner; number++) {
    compute(operations);
    receive(channel, 1);
  }
  stretch.total_ns = (double)(now_ns() - start);
  return stretch;
}
