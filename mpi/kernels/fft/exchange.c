// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "exchange.h"

#include <sched.h>
#include <stdlib.h>

struct exchange exchange_for(void) {
  return (struct exchange){.requests = allocate(2 * (size_t)ranks * sizeof(MPI_Request))};
}

void free_exchange(struct exchange *exchange) { free(exchange->requests); }

struct message {
  double complex *sent, *received;
  int elements;
};

static struct message message_with(const struct transform *transform, int stage, size_t first, size_t rows, int other) {
  size_t piece = transform->stages[stage].piece, at = (size_t)other * block_of(transform) + first * piece;
  return (struct message){.sent = transform->send[stage % 2] + at,
                          .received = transform->receive[stage % 2] + at,
                          .elements = (int)(rows * piece)};
}

void exchange_start(const struct transform *transform, int stage, size_t first, size_t rows,
                    struct exchange *exchange) {
  exchange->count = 0;
  // The number of ranks is a power of two, so all ranks are paired in each step.
  for (int step = 1; step < ranks; step++) {
    struct message message = message_with(transform, stage, first, rows, rank ^ step);
    MPI_Irecv(message.received, message.elements, MPI_C_DOUBLE_COMPLEX, rank ^ step, stage, MPI_COMM_WORLD,
              &exchange->requests[exchange->count++]);
  }
  for (int step = 1; step < ranks; step++) {
    struct message message = message_with(transform, stage, first, rows, rank ^ step);
    MPI_Isend(message.sent, message.elements, MPI_C_DOUBLE_COMPLEX, rank ^ step, stage, MPI_COMM_WORLD,
              &exchange->requests[exchange->count++]);
  }
}

void exchange_progress(struct exchange *exchange) {
  int done;
  MPI_Testall(exchange->count, exchange->requests, &done, MPI_STATUSES_IGNORE);
}

void exchange_finish(struct exchange *exchange) {
  MPI_Waitall(exchange->count, exchange->requests, MPI_STATUSES_IGNORE);
}

void exchange_finish_yielding(struct exchange *exchange) {
  int done = 0;
  while (MPI_Testall(exchange->count, exchange->requests, &done, MPI_STATUSES_IGNORE), !done) sched_yield();
}

void exchange_sendrecv(const struct transform *transform, int stage, size_t first, size_t rows) {
  for (int step = 1; step < ranks; step++) {
    int other = rank ^ step;
    struct message message = message_with(transform, stage, first, rows, other);
    MPI_Sendrecv(message.sent, message.elements, MPI_C_DOUBLE_COMPLEX, other, stage, message.received, message.elements,
                 MPI_C_DOUBLE_COMPLEX, other, stage, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}
