// SPDX-License-Identifier: Apache-2.0 OR MIT
// one_size TRIPS BYTES: rank 0 and the last exchange messages of one size, with tag 77 there and 78 back, and nothing
// else.
#include "check.h"

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  int trips = (int)argument(argc, argv, 1, 10), last = ranks - 1;
  size_t bytes = argument(argc, argv, 2, 1426);
  unsigned char *data = allocate(bytes);
  for (int number = 0; number < trips; number++) {
    uint64_t there = key_of(0, last, number), back = key_of(last, 0, number);
    if (rank == 0) {
      fill(data, bytes, there);
      MPI_Send(data, (int)bytes, MPI_BYTE, last, 77, MPI_COMM_WORLD);
      MPI_Recv(data, (int)bytes, MPI_BYTE, last, 78, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(data, bytes, back, "answer");
    } else if (rank == last) {
      MPI_Recv(data, (int)bytes, MPI_BYTE, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(data, bytes, there, "question");
      fill(data, bytes, back);
      MPI_Send(data, (int)bytes, MPI_BYTE, 0, 78, MPI_COMM_WORLD);
    }
  }
  free(data);
  MPI_Finalize();
  return 0;
}
