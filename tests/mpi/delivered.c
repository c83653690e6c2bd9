// SPDX-License-Identifier: Apache-2.0 OR MIT
// delivered ROUNDS MICROSECONDS [RANK]: a message of 100 kB to 1 MB goes from rank 0 to rank 1, on the same machine.
// RANK, or 0, starts to send or receive it and computes for so long of its thread's time without a call of MPI; the
// other waits. Reports in how many rounds the other was done by then.
#include "check.h"

static const int sizes[] = {100000, 300000, 1000000};

static void compute(double seconds) {
  double end_s = seconds_of(CLOCK_THREAD_CPUTIME_ID) + seconds;
  volatile double sum = 0;
  while (seconds_of(CLOCK_THREAD_CPUTIME_ID) < end_s) sum = sum + 1;
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  int rounds = (int)argument(argc, argv, 1, 60);
  double computation_s = 1e-6 * (double)argument(argc, argv, 2, 3000);
  if (ranks != 2) fail("needs 2 ranks");
  int computing = (int)argument(argc, argv, 3, 0), delivered = 0;
  char *message = allocate((size_t)sizes[2]);
  for (int number = 0; number < rounds; number++) {
    int bytes = sizes[number % 3];
    if (rank == 0) fill(message, (size_t)bytes, key_of(0, 1, number));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request request;
    if (rank == 0) MPI_Isend(message, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
    else MPI_Irecv(message, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
    if (rank == computing) compute(computation_s);
    double computed = seconds_of(CLOCK_MONOTONIC);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    double done = seconds_of(CLOCK_MONOTONIC), computed_by_other;
    if (rank == 1) check(message, (size_t)bytes, key_of(0, 1, number), "a message");
    MPI_Sendrecv(&computed, 1, MPI_DOUBLE, 1 - rank, 2, &computed_by_other, 1, MPI_DOUBLE, 1 - rank, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (rank != computing) delivered += done < computed_by_other;
  }
  MPI_Allreduce(MPI_IN_PLACE, &delivered, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("{\"test\": \"delivered\", \"rounds\": %d, \"delivered\": %d}\n", rounds, delivered);
  MPI_Finalize();
}
