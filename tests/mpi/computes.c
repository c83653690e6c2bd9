// SPDX-License-Identifier: Apache-2.0 OR MIT
// computes SECONDS: rank 0 computes for so long without a call of MPI, while all others wait for what it sends then,
// and the last two have sent to it; once before anybody has spoken to anybody, and once afterwards. The last one's
// message is behind many of the other's, for all of which there are receives.
#include "check.h"

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  double seconds = (double)argument(argc, argv, 1, 5);
  if (ranks < 3) fail("needs 3 ranks or more");
  enum {
    MANY = 60
  };
  int last = ranks - 1;
  unsigned char data[64];
  static unsigned char many[MANY][64];
  MPI_Request requests[MANY];
  for (int turn = 0; turn < 2; turn++) {
    if (rank == 0) {
      for (int at = 0; at < MANY; at++)
        MPI_Irecv(many[at], sizeof many[at], MPI_BYTE, last - 1, 3, MPI_COMM_WORLD, &requests[at]);
      volatile double sum = 0;
      for (double until = MPI_Wtime() + seconds; MPI_Wtime() < until;) sum = sum + 1;
      for (int to = 1; to < ranks; to++) {
        fill(data, sizeof data, key_of(0, to, turn));
        MPI_Send(data, sizeof data, MPI_BYTE, to, 1, MPI_COMM_WORLD);
      }
      MPI_Recv(data, sizeof data, MPI_BYTE, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(data, sizeof data, key_of(last, 0, turn), "what was sent meanwhile");
      MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
      for (int at = 0; at < MANY; at++)
        check(many[at], sizeof many[at], key_of(last - 1, 0, MANY * turn + at), "one of many");
    } else {
      for (int at = 0; rank == last - 1 && at < MANY; at++) {
        fill(data, sizeof data, key_of(rank, 0, MANY * turn + at));
        MPI_Send(data, sizeof data, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
      }
      if (rank == last - 1) MPI_Send(NULL, 0, MPI_BYTE, last, 4, MPI_COMM_WORLD);
      if (rank == last) {
        MPI_Recv(NULL, 0, MPI_BYTE, last - 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
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
