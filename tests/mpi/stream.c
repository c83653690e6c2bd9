// SPDX-License-Identifier: Apache-2.0 OR MIT
// stream [WINDOWS [SIZE …]]: rank 0 sends windows of 64 messages to the last, which confirms each window; every message
// of the first and the last window is checked. One line of JSON for each size: messages and bytes a second. Long
// messages of a window are the same one, from and into one place, so that the network is measured and not the memory.
#include "check.h"

enum {
  WINDOW = 64
};

// Where a message of a window lies, counted in messages.
static size_t place_of(int at, size_t size) { return size > 65536 ? 0 : (size_t)at; }

static double send_windows(unsigned char *data, size_t size, int windows) {
  MPI_Request requests[WINDOW];
  int last = ranks - 1, number = 0;
  double start = 0, end = 0;
  for (int window = 0; window < windows; window++) {
    // The first is not timed, as it opens connections, nor the last: both are filled and checked.
    if (window == 1) start = MPI_Wtime();
    if (window == windows - 1) end = MPI_Wtime();
    if (window == 0 || window == windows - 1)
      for (int at = 0; at < WINDOW; at++) {
        size_t place = place_of(at, size);
        fill(data + place * size, size, key_of(0, window, (int)place));
      }
    for (int at = 0; at < WINDOW; at++)
      MPI_Isend(data + place_of(at, size) * size, (int)size, MPI_BYTE, last, 1, MPI_COMM_WORLD, &requests[at]);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    MPI_Recv(&number, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (number != window) fail("window %d was confirmed as %d", window, number);
  }
  return end - start;
}

static void receive_windows(unsigned char *data, size_t size, int windows) {
  MPI_Request requests[WINDOW];
  for (int window = 0; window < windows; window++) {
    for (int at = 0; at < WINDOW; at++)
      MPI_Irecv(data + place_of(at, size) * size, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[at]);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    if (window == 0 || window == windows - 1)
      for (int at = 0; at < WINDOW; at++) {
        size_t place = place_of(at, size);
        check(data + place * size, size, key_of(0, window, (int)place), "message");
      }
    MPI_Send(&window, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
  }
}

static void measure(size_t size, int windows) {
  unsigned char *data = allocate(WINDOW * size);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == ranks - 1) receive_windows(data, size, windows);
  if (rank == 0) {
    double seconds = send_windows(data, size, windows), messages = (double)WINDOW * (windows - 2);
    printf("{\"test\": \"stream\", \"bytes\": %zu, \"messages_per_s\": %.0f, \"goodput_bit_s\": %.0f}\n", size,
           messages / seconds, 8 * messages * (double)size / seconds);
    fflush(stdout);
  }
  free(data);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  int windows = (int)argument(argc, argv, 1, 20);
  if (windows < 3) fail("3 windows at least: the first and the last are not timed");
  for (int number = 2; number < argc; number++) measure(argument(argc, argv, number, 0), windows);
  if (argc <= 2) {
    measure(8, windows);
    measure(65536, windows);
  }
  MPI_Finalize();
}
