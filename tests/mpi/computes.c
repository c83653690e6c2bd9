// SPDX-License-Identifier: Apache-2.0 OR MIT
// computes SECONDS: rank 0 computes for so long without a call of MPI, while all others wait for what it sends then,
// and the last has sent to it; once before anybody has spoken to anybody, and once afterwards.
#include "check.h"

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  double seconds = (double)argument(argc, argv, 1, 5);
  int last = ranks - 1;
  unsigned char data[64];
  for (int turn = 0; turn < 2; turn++) {
    if (rank == 0) {
      volatile double sum = 0;
      for (double until = MPI_Wtime() + seconds; MPI_Wtime() < until;) sum = sum + 1;
      for (int to = 1; to < ranks; to++) {
        fill(data, sizeof data, key_of(0, to, turn));
        MPI_Send(data, sizeof data, MPI_BYTE, to, 1, MPI_COMM_WORLD);
      }
      MPI_Recv(data, sizeof data, MPI_BYTE, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(data, sizeof data, key_of(last, 0, turn), "what was sent meanwhile");
    } else {
      if (rank == last) {
        fill(data, sizeof data, key_of(last, 0, turn));
        MPI_Send(data, sizeof data, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
      }
      MPI_Recv(data, sizeof data, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(data, sizeof data, key_of(0, rank, turn), "what was sent afterwards");
    }
  }
  if (rank == 0) printf("{\"test\": \"computes\", \"right\": true}\n");
  MPI_Finalize();
}
