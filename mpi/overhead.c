// SPDX-License-Identifier: Apache-2.0 OR MIT
// The processor time of sending (Os) and receiving (Or), by two methods.
// gap-send, gap-isend, gap-receive (Stival 2006): consecutive messages with a growing computation between them; if C'
// is the largest computation that does not lengthen the gap g, the overhead is g - C'. call-send, call-receive
// (Kielmann, Bal, Verstoep 2000): "time" is that of the call itself; of Recv for a message that has arrived long
// before. -synchronous: the sends are in synchronous mode. -irecv: receives are posted in advance.
#include "common/compute.h"
#include "common/gap.h"

static struct stretch call_send(struct ends *ends, int inner, uint64_t operations) {
  struct stretch stretch = {.received = rank == 0 ? 0 : inner};
  unsigned char answer = 0;
  int count = (int)ends->bytes, last = ranks - 1;
  for (int number = 0; rank == 0 && number < inner; number++) {
    unsigned char *data = next_buffer(&ends->out);
    uint64_t start = now_ns();
    ends->mode->send(data, count, MPI_BYTE, last, MESSAGE, MPI_COMM_WORLD);
    stretch.total_ns += (double)(now_ns() - start);
    MPI_Recv(&answer, 1, MPI_BYTE, last, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  for (int number = 0; rank != 0 && number < inner; number++) {
    MPI_Recv(next_buffer(&ends->in), count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&answer, 1, MPI_BYTE, 0, ANSWER, MPI_COMM_WORLD);
  }
  return stretch;
}

static void serve(struct ends *ends, int inner) {
  for (int number = 0; number < inner; number++) {
    await_ready();
    MPI_Send(next_buffer(&ends->out), (int)ends->bytes, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD);
  }
}

// Between requesting and receiving the message the receiver computes for twice the time of the message.
static struct stretch call_receive(struct ends *ends, int inner, uint64_t operations) {
  struct stretch stretch = {.received = rank == 0 ? 0 : inner};
  if (rank == 0) serve(ends, inner);
  for (int number = 0; rank != 0 && number < inner; number++) {
    unsigned char *data = next_buffer(&ends->in);
    send_ready();
    compute(operations);
    uint64_t start = now_ns();
    MPI_Recv(data, (int)ends->bytes, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    stretch.total_ns += (double)(now_ns() - start);
  }
  return stretch;
}

// Both calls count: the posting, before the message is requested, and Wait.
static struct stretch call_receive_irecv(struct ends *ends, int inner, uint64_t operations) {
  struct stretch stretch = {.received = rank == 0 ? 0 : inner};
  if (rank == 0) serve(ends, inner);
  for (int number = 0; rank != 0 && number < inner; number++) {
    MPI_Request request;
    unsigned char *data = next_buffer(&ends->in);
    uint64_t start = now_ns();
    MPI_Irecv(data, (int)ends->bytes, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, &request);
    uint64_t posted = now_ns();
    send_ready();
    compute(operations);
    uint64_t computed = now_ns();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    stretch.total_ns += (double)(now_ns() - computed + posted - start);
  }
  return stretch;
}

#define SYNCHRONOUS .mode = &synchronous_mode
#define IRECV .posted = POSTED_MAX

static const struct swept tests[] = {
    {.variant = "gap-send", .stretch = gap_send, SENT_TRAIN},
    {.variant = "gap-send-synchronous", .stretch = gap_send, SENT_TRAIN, SYNCHRONOUS},
    {.variant = "gap-isend", .stretch = gap_isend, SENT_TRAIN},
    {.variant = "gap-isend-synchronous", .stretch = gap_isend, SENT_TRAIN, SYNCHRONOUS},
    {.variant = "gap-receive", .stretch = gap_receive, RECEIVED_TRAIN},
    {.variant = "gap-receive-synchronous", .stretch = gap_receive, RECEIVED_TRAIN, SYNCHRONOUS},
    {.variant = "gap-receive-irecv", .stretch = gap_receive, RECEIVED_TRAIN, IRECV},
    {.variant = "gap-receive-irecv-synchronous", .stretch = gap_receive, RECEIVED_TRAIN, SYNCHRONOUS, IRECV},
    {.variant = "call-send", .stretch = call_send, .grid = NEVER},
    {.variant = "call-send-synchronous", .stretch = call_send, .grid = NEVER, SYNCHRONOUS},
    {.variant = "call-receive", .stretch = call_receive, .computing = LAST, .grid = TWICE},
    {.variant = "call-receive-irecv", .stretch = call_receive_irecv, .computing = LAST, .grid = TWICE},
};

int main(int argc, char **argv) {
  sweep(argc, argv, "overhead", "processor time of sending and receiving, by hidden computation and by call", tests,
        sizeof tests / sizeof *tests);
}
