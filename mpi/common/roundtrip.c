// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "roundtrip.h"

#include "compute.h"

static void send(struct ends *ends, const unsigned char *data) {
  ends->mode->send(data, (int)ends->bytes, MPI_BYTE, other_rank(), MESSAGE, MPI_COMM_WORLD);
}

static void start(struct ends *ends, const unsigned char *data, MPI_Request *request) {
  ends->mode->start(data, (int)ends->bytes, MPI_BYTE, other_rank(), MESSAGE, MPI_COMM_WORLD, request);
}

struct stretch roundtrip(struct ends *ends, int inner, uint64_t operations) {
  int count = (int)ends->bytes, last = ranks - 1;
  uint64_t start_ns = now_ns();
  for (int number = 0; rank == 0 && number < inner; number++) {
    send(ends, next_buffer(&ends->out));
    compute(operations);
    MPI_Recv(next_buffer(&ends->in), count, MPI_BYTE, last, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  for (int number = 0; rank != 0 && number < inner; number++) {
    unsigned char *data = next_buffer(&ends->in);
    MPI_Recv(data, count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    send(ends, data);
  }
  return (struct stretch){.total_ns = (double)(now_ns() - start_ns), .received = inner};
}

static void ask(struct ends *ends, uint64_t operations) {
  send(ends, next_buffer(&ends->out));
  compute(operations);
}

static void ask_nonblocking(struct ends *ends, uint64_t operations) {
  MPI_Request sent;
  start(ends, next_buffer(&ends->out), &sent);
  compute(operations);
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
}

static void answer_nonblocking(struct ends *ends, const unsigned char *data) {
  MPI_Request sent;
  start(ends, data, &sent);
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
}

static inline __attribute__((always_inline)) struct stretch posted(struct ends *ends, int inner, uint64_t operations,
                                                                   void (*ask_one)(struct ends *, uint64_t),
                                                                   void (*answer)(struct ends *,
                                                                                  const unsigned char *)) {
  struct receives receives = begin_receiving(ends, inner);
  uint64_t start_ns = now_ns();
  for (int number = 0; rank == 0 && number < inner; number++) {
    MPI_Request answered;
    MPI_Irecv(next_buffer(&ends->in), (int)ends->bytes, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD, &answered);
    ask_one(ends, operations);
    MPI_Wait(&answered, MPI_STATUS_IGNORE);
  }
  for (int number = 0; rank != 0 && number < inner; number++) answer(ends, receive_next(ends, &receives));
  return (struct stretch){.total_ns = (double)(now_ns() - start_ns), .received = inner};
}

struct stretch roundtrip_irecv(struct ends *ends, int inner, uint64_t operations) {
  return posted(ends, inner, operations, ask, send);
}

struct stretch roundtrip_isend(struct ends *ends, int inner, uint64_t operations) {
  return posted(ends, inner, operations, ask_nonblocking, answer_nonblocking);
}
