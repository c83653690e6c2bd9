// SPDX-License-Identifier: Apache-2.0 OR MIT
// A rank that sends and then computes, without a call of MPI: what it has sent arrives meanwhile.
#include <time.h>

#include "check.h"

static const struct {
  int messages, bytes;
} bursts[] = {{1, 8}, {64, 8}, {200, 1000}, {1000, 8}, {100, 12000}, {1, 12000}};

enum {
  BURSTS = sizeof bursts / sizeof *bursts
};

// From the last message on.
static double computes_s;

// One clock for all ranks of this machine.
static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void burst(int number) {
  int messages = bursts[number].messages, bytes = bursts[number].bytes;
  char *memory = allocate((size_t)bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    for (int message = 0; message < messages; message++) {
      fill(memory, (size_t)bytes, key_of(0, 1, message));
      MPI_Send(memory, bytes, MPI_BYTE, 1, number, MPI_COMM_WORLD);
    }
    double sent_s = now_s();
    while (now_s() < sent_s + computes_s) {
    }
    MPI_Send(&sent_s, 1, MPI_DOUBLE, 1, BURSTS, MPI_COMM_WORLD);
  } else {
    for (int message = 0; message < messages; message++) {
      MPI_Recv(memory, bytes, MPI_BYTE, 0, number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(memory, (size_t)bytes, key_of(0, 1, message), "a message");
    }
    double here_s = now_s(), sent_s;
    MPI_Recv(&sent_s, 1, MPI_DOUBLE, 0, BURSTS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double late_s = here_s - sent_s;
    printf("{\"test\": \"busy_sender\", \"messages\": %d, \"bytes\": %d, \"late_s\": %.4f}\n", messages, bytes, late_s);
    if (late_s > computes_s * 2 / 3) fail("%d messages of %d bytes came %.3f s late", messages, bytes, late_s);
  }
  free(memory);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  computes_s = (double)argument(argc, argv, 1, 600) / 1000;
  for (int number = 0; number < BURSTS; number++) burst(number);
  MPI_Finalize();
  return 0;
}
