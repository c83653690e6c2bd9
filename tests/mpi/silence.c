// SPDX-License-Identifier: Apache-2.0 OR MIT
// silence [MILLISECONDS [SIZE]]: rank 0 and the last exchange messages of one size for a time; every byte is checked.
// One line of JSON: the number of round trips, and the median and the longest of them, checking included.
#include "check.h"

enum {
  TRIPS_MAX = 1 << 20
};

static int by_value(const void *one, const void *other) {
  double first = *(const double *)one, second = *(const double *)other;
  return (first > second) - (first < second);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  double seconds = (double)argument(argc, argv, 1, 1000) / 1e3;
  size_t size = argument(argc, argv, 2, 20000);
  int last = ranks - 1, trips = 0, goes_on = 1;
  unsigned char *data = allocate(size);
  double *times_s = allocate(TRIPS_MAX * sizeof(double));
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  while (goes_on && (rank == 0 || rank == last)) {
    if (rank == 0) {
      double sent = MPI_Wtime();
      goes_on = sent - start < seconds && trips < TRIPS_MAX - 1;
      fill(data, size, key_of(0, last, trips));
      MPI_Send(data, (int)size, MPI_BYTE, last, goes_on, MPI_COMM_WORLD);
      MPI_Recv(data, (int)size, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(data, size, key_of(last, 0, trips), "answer");
      times_s[trips] = MPI_Wtime() - sent;
    } else {
      MPI_Status status;
      MPI_Recv(data, (int)size, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      check(data, size, key_of(0, last, trips), "question");
      goes_on = status.MPI_TAG;
      fill(data, size, key_of(last, 0, trips));
      MPI_Send(data, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    trips++;
  }
  if (rank == 0) {
    qsort(times_s, (size_t)trips, sizeof(double), by_value);
    printf("{\"test\": \"silence\", \"round_trips\": %d, \"median_ms\": %.3f, \"longest_ms\": %.3f}\n", trips,
           1e3 * times_s[trips / 2], 1e3 * times_s[trips - 1]);
  }
  MPI_Finalize();
}
