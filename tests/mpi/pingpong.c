// SPDX-License-Identifier: Apache-2.0 OR MIT
// pingpong [ROUND TRIPS [SIZE MAX]]: rank 0 and the last exchange messages of each power of two; every byte is checked,
// outside the time taken. One line of JSON for each size: half of the median round trip, and what reading the clock
// twice adds to it.
#include "check.h"

static int by_value(const void *one, const void *other) {
  double first = *(const double *)one, second = *(const double *)other;
  return (first > second) - (first < second);
}

// The median of many, so that it is what a round trip without anything in it would show.
static double clock_us(double *times_us, int count) {
  for (int number = 0; number < count; number++) {
    double start = MPI_Wtime();
    times_us[number] = 1e6 * (MPI_Wtime() - start);
  }
  qsort(times_us, (size_t)count, sizeof(double), by_value);
  return times_us[count / 2];
}

static void exchange(unsigned char *data, size_t size, int number, int peer, int active) {
  uint64_t there = key_of(0, ranks - 1, number), back = key_of(ranks - 1, 0, number);
  if (active) {
    MPI_Send(data, (int)size, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    MPI_Recv(data, (int)size, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(data, size, back, "answer");
  } else {
    MPI_Recv(data, (int)size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(data, size, there, "question");
    fill(data, size, back);
    MPI_Send(data, (int)size, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
  }
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  int trips = (int)argument(argc, argv, 1, 1000), last = ranks - 1;
  size_t most = argument(argc, argv, 2, 1 << 20);
  unsigned char *data = allocate(most);
  double *times_us = allocate((size_t)trips * sizeof(double));
  for (size_t size = 0; size <= most; size = size ? 2 * size : 1) {
    int count = size > 16384 ? (trips + 9) / 10 : trips;
    MPI_Barrier(MPI_COMM_WORLD);
    // Contents are checked for some, and the times are of others, whose contents are those of the last checked one.
    for (int number = 0; number < 10 && (rank == 0 || rank == last); number++) {
      if (rank == 0) fill(data, size, key_of(0, last, number));
      exchange(data, size, number, rank == 0 ? last : 0, rank == 0);
    }
    for (int number = 0; number < count && rank == 0; number++) {
      double start = MPI_Wtime();
      MPI_Send(data, (int)size, MPI_BYTE, last, 3, MPI_COMM_WORLD);
      MPI_Recv(data, (int)size, MPI_BYTE, last, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      times_us[number] = 1e6 * (MPI_Wtime() - start);
    }
    for (int number = 0; number < count && rank == last; number++) {
      MPI_Recv(data, (int)size, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(data, (int)size, MPI_BYTE, 0, 4, MPI_COMM_WORLD);
    }
    if (rank == 0) {
      check(data, size, key_of(last, 0, 9), "last answer");
      qsort(times_us, (size_t)count, sizeof(double), by_value);
      double half_us = times_us[count / 2] / 2;
      printf("{\"test\": \"pingpong\", \"bytes\": %zu, \"half_round_trip_us\": %.3f, \"clock_us\": %.3f, ", size,
             half_us, clock_us(times_us, count) / 2);
      printf("\"round_trips\": %d}\n", count);
      fflush(stdout);
    }
  }
  MPI_Finalize();
}
