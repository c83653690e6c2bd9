// SPDX-License-Identifier: Apache-2.0 OR MIT
// The processor time of sending (Os) and receiving (Or), by two methods.
// gap-send, gap-isend, gap-receive (Stival 2006): consecutive messages with a growing computation between them; if C'
// is the largest computation that does not lengthen the gap g, the overhead is g - C'. call-send, call-receive
// (Kielmann, Bal, Verstoep 2000): "time" is that of the call itself; of Recv for a message that has arrived long
// before.
#include "common/compute.h"
#include "common/gap.h"

static struct stretch call_send(struct ends *ends, int inner, uint64_t operations) {
  struct stretch stretch = {.received = rank == 0 ? 0 : inner};
  unsigned char answer = 0;
  int count = (int)ends->bytes, last = ranks - 1;
  for (int number = 0; rank == 0 && number < inner; number++) {
    unsigned char *data = next_buffer(&ends->out);
    uint64_t start = now_ns();
    MPI_Send(data, count, MPI_BYTE, last, MESSAGE, MPI_COMM_WORLD);
    stretch.total_ns += (double)(now_ns() - start);
    MPI_Recv(&answer, 1, MPI_BYTE, last, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  for (int number = 0; rank != 0 && number < inner; number++) {
    MPI_Recv(next_buffer(&ends->in), count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&answer, 1, MPI_BYTE, 0, ANSWER, MPI_COMM_WORLD);
  }
  return stretch;
}

// Between requesting and receiving the message the receiver computes for twice the time of the message.
static struct stretch call_receive(struct ends *ends, int inner, uint64_t operations) {
  struct stretch stretch = {.received = rank == 0 ? 0 : inner};
  int count = (int)ends->bytes;
  for (int number = 0; rank == 0 && number < inner; number++) {
    await_ready();
    MPI_Send(next_buffer(&ends->out), count, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD);
  }
  for (int number = 0; rank != 0 && number < inner; number++) {
    unsigned char *data = next_buffer(&ends->in);
    send_ready();
    compute(operations);
    uint64_t start = now_ns();
    MPI_Recv(data, count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    stretch.total_ns += (double)(now_ns() - start);
  }
  return stretch;
}

static const struct swept tests[] = {
    {.variant = "gap-send", .stretch = gap_send, .part = "single", .part_inner = ANSWERED, .train = 1},
    {.variant = "gap-isend", .stretch = gap_isend, .part = "single", .part_inner = ANSWERED, .train = 1},
    {.variant = "gap-receive", .stretch = gap_receive, .computing = LAST, .train = 1},
    {.variant = "call-send", .stretch = call_send, .grid = NEVER},
    {.variant = "call-receive", .stretch = call_receive, .computing = LAST, .grid = TWICE},
};

int main(int argc, char **argv) {
  static const char *const variants[] = {"gap-send", "gap-isend", "gap-receive", "call-send", "call-receive", NULL};
  static const struct extra extras[] = {SWEEP_OPTIONS, {0}};
  begin(argc, argv,
        &(struct program){.name = "overhead",
                          .summary = "processor time of sending and receiving, by hidden computation and by call",
                          .variants = variants,
                          .extras = extras,
                          .ranks_min = 2});
  sweep_all(tests, sizeof tests / sizeof *tests);
  finish();
}
