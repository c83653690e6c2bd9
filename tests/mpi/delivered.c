// SPDX-License-Identifier: Apache-2.0 OR MIT
// delivered ROUNDS MICROSECONDS: rank 0 starts to send a message of 100 kB to 1 MB and computes for so long of its
// thread's time without a call of MPI. Reports in how many rounds rank 1, on the same machine, had received it by then.
#include "check.h"

static const int sizes[] = {100000, 300000, 1000000};

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  int rounds = (int)argument(argc, argv, 1, 60);
  double computation_s = 1e-6 * (double)argument(argc, argv, 2, 3000);
  if (ranks != 2) fail("needs 2 ranks");
  int delivered = 0;
  char *message = allocate((size_t)sizes[2]);
  for (int number = 0; number < rounds; number++) {
    int bytes = sizes[number % 3];
    if (rank == 0) fill(message, (size_t)bytes, key_of(0, 1, number));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
      MPI_Recv(message, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      double received = seconds_of(CLOCK_MONOTONIC);
      check(message, (size_t)bytes, key_of(0, 1, number), "a message");
      MPI_Send(&received, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
    } else {
      MPI_Request request;
      MPI_Isend(message, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
      double end_s = seconds_of(CLOCK_THREAD_CPUTIME_ID) + computation_s, received;
      volatile double sum = 0;
      while (seconds_of(CLOCK_THREAD_CPUTIME_ID) < end_s) sum = sum + 1;
      double computed = seconds_of(CLOCK_MONOTONIC);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Recv(&received, 1, MPI_DOUBLE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      delivered += received < computed;
    }
  }
  if (rank == 0) printf("{\"test\": \"delivered\", \"rounds\": %d, \"delivered\": %d}\n", rounds, delivered);
  MPI_Finalize();
}
