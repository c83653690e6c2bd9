// SPDX-License-Identifier: Apache-2.0 OR MIT
// pairs [MILLISECONDS [SIZE]]: each rank of the first half exchanges messages of one size with one of the second half,
// for a time; every byte is checked. One line of JSON: the number of round trips of the pair that had the fewest.
#include "check.h"

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  double seconds = (double)argument(argc, argv, 1, 1000) / 1e3;
  size_t size = argument(argc, argv, 2, 8);
  if (ranks % 2) fail("needs an even number of ranks");
  int half = ranks / 2, asks = rank < half, peer = asks ? rank + half : rank - half, trips = 0, goes_on = 1;
  unsigned char *data = allocate(size);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  while (goes_on) {
    if (asks) {
      goes_on = MPI_Wtime() - start < seconds;
      fill(data, size, key_of(rank, peer, trips));
      MPI_Send(data, (int)size, MPI_BYTE, peer, goes_on, MPI_COMM_WORLD);
      MPI_Recv(data, (int)size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(data, size, key_of(peer, rank, trips), "answer");
    } else {
      MPI_Status status;
      MPI_Recv(data, (int)size, MPI_BYTE, peer, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      check(data, size, key_of(peer, rank, trips), "question");
      goes_on = status.MPI_TAG;
      fill(data, size, key_of(rank, peer, trips));
      MPI_Send(data, (int)size, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    }
    trips++;
  }
  int fewest = 0;
  MPI_Reduce(&trips, &fewest, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("{\"test\": \"pairs\", \"round_trips\": %d}\n", fewest);
  }
  MPI_Finalize();
}
