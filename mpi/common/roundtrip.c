// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "roundtrip.h"

#include "compute.h"

struct stretch roundtrip(struct ends *ends, int inner, uint64_t operations) {
  int count = (int)ends->bytes, last = ranks - 1;
  uint64_t start = now_ns();
  for (int number = 0; rank == 0 && number < inner; number++) {
    MPI_Send(next_buffer(&ends->out), count, MPI_BYTE, last, MESSAGE, MPI_COMM_WORLD);
    compute(operations);
    MPI_Recv(next_buffer(&ends->in), count, MPI_BYTE, last, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  for (int number = 0; rank != 0 && number < inner; number++) {
    unsigned char *data = next_buffer(&ends->in);
    MPI_Recv(data, count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(data, count, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD);
  }
  return (struct stretch){.total_ns = (double)(now_ns() - start), .received = inner};
}
