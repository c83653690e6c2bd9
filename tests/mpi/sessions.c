// SPDX-License-Identifier: Apache-2.0 OR MIT
// sessions world: a session begins and ends while MPI_COMM_WORLD exists, 0.2 s after the start and 0.2 s before the
// end; sessions leaves: likewise, but rank 1 leaves without MPI_Finalize; sessions twice: two sessions of 0.2 s one
// after the other, without MPI_Init.
#include <mpi.h>
#include <string.h>
#include <unistd.h>

static void session(unsigned microseconds) {
  MPI_Session opened;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &opened);
  usleep(microseconds);
  MPI_Session_finalize(&opened);
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "world";
  if (strcmp(mode, "twice") == 0) {
    session(200000);
    session(200000);
    return 0;
  }
  int rank;
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  usleep(200000);
  session(0);
  usleep(200000);
  if (strcmp(mode, "leaves") == 0 && rank == 1) _exit(7);
  MPI_Finalize();
  return 0;
}
