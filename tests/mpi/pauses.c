// SPDX-License-Identifier: Apache-2.0 OR MIT
// pauses EXCHANGES MILLISECONDS: two ranks of one machine exchange messages of 100 kB to 2 MB, and after each compute
// for so long without a call of MPI. Reports how many exchanges kept a rank polling for half as long after the other
// had left: it waited for the other's next call. A rank without its core does not count as polling.
#include "check.h"

static const int sizes[] = {2000000, 1000000, 300000, 100000};

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  int exchanges = (int)argument(argc, argv, 1, 80);
  double pause_s = 1e-3 * (double)argument(argc, argv, 2, 40);
  if (ranks != 2) fail("needs 2 ranks");
  int other = 1 - rank, late = 0, all = 0;
  char *out = allocate((size_t)sizes[0]), *in = allocate((size_t)sizes[0]);
  for (int number = 0; number < exchanges; number++) {
    int bytes = sizes[number % 4];
    fill(out, (size_t)bytes, key_of(rank, other, number));
    MPI_Barrier(MPI_COMM_WORLD);
    double used_s = -seconds_of(CLOCK_THREAD_CPUTIME_ID);
    MPI_Sendrecv(out, bytes, MPI_BYTE, other, 1, in, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    used_s += seconds_of(CLOCK_THREAD_CPUTIME_ID);
    double left = seconds_of(CLOCK_MONOTONIC), other_left;
    volatile double sum = 0;
    while (seconds_of(CLOCK_MONOTONIC) < left + pause_s) sum = sum + 1;
    check(in, (size_t)bytes, key_of(other, rank, number), "an exchange");
    MPI_Sendrecv(&left, 1, MPI_DOUBLE, other, 2, &other_left, 1, MPI_DOUBLE, other, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    late += used_s > pause_s / 2 && left - other_left > pause_s / 2;
  }
  MPI_Reduce(&late, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("{\"test\": \"pauses\", \"exchanges\": %d, \"late\": %d}\n", 2 * exchanges, all);
  MPI_Finalize();
}
