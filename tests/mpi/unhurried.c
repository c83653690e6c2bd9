// SPDX-License-Identifier: Apache-2.0 OR MIT
// What is left out of a job's start and end is not left out for the program itself: it reads the kernel's symbols, and
// sleeps for as long as it says.
#include <time.h>
#include <unistd.h>

#include "check.h"

static int is_loaded(const char *library) {
  char line[4096];
  int found = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, library) != NULL;
  if (maps) fclose(maps);
  return found;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  FILE *symbols = fopen("/proc/kallsyms", "r");
  double before = MPI_Wtime();
  sleep(1);
  double slept_s = MPI_Wtime() - before;
  if (!symbols || slept_s < 0.9) fail("fopen gave %p, sleep took %g s", (void *)symbols, slept_s);
  if (symbols) fclose(symbols);
  int loaded = is_loaded("libbarewire-start.so"), cards = is_loaded("/libinfinipath.so") + is_loaded("/libpsm2.so");
  struct timespec begun, ended;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  MPI_Finalize();
  clock_gettime(CLOCK_MONOTONIC, &ended);
  double finalize_s = (double)(ended.tv_sec - begun.tv_sec) + 1e-9 * (double)(ended.tv_nsec - begun.tv_nsec);
  if (rank == 0) printf("{\"preloaded\": %d, \"cards\": %d, \"finalize_s\": %g}\n", loaded, cards, finalize_s);
  return 0;
}
