// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory for each peer: rank 0 exchanges one message of each size with one rank after the other. Recorded is its own
// resident memory, in KiB, with the number of peers it has had by then ("resident"), and how much it has grown for each
// of them since it had none ("growth"). Memory that is shared with another process counts as soon as it is touched.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/suite.h"

static unsigned char *out, *in;

static double resident_kib(void) {
  long whole, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &whole, &resident) != 2)
    cannot_here("/proc/self/statm, which says how much memory a process has, cannot be read");
  fclose(file);
  return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static void exchange(int peer, uint64_t number, size_t bytes) {
  char what[64];
  snprintf(what, sizeof what, "exchange, message from rank %d", peer);
  fill(out, bytes, key_of(rank, peer, number));
  MPI_Sendrecv(out, (int)bytes, MPI_BYTE, peer, 0, in, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  check(in, bytes, key_of(peer, rank, number), what);
}

static void meet(int peer) {
  for (int size = 0; size < settings.size_count; size++) exchange(peer, (uint64_t)size, settings.sizes[size]);
}

int main(int argc, char **argv) {
  static const char *const variants[] = {"exchange", NULL};
  begin(argc, argv,
        &(struct program){.name = "footprint",
                          .summary = "resident memory of rank 0 after a message of each size with each peer",
                          .variants = variants,
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2});
  if (settings.walk_bytes) wrong_use("--walk is not for this test: it is about memory of the library");
  size_t longest = 0;
  for (int size = 0; size < settings.size_count; size++)
    if (settings.sizes[size] > longest) longest = settings.sizes[size];
  out = allocate(longest), in = allocate(longest);
  double *resident = allocate((size_t)ranks * sizeof *resident);
  // The program's own first use of what it reads and writes by comes before.
  resident_kib();
  fill(out, longest, 0);
  resident[0] = resident_kib();
  for (int peer = 1; peer < ranks && rank == 0; peer++) {
    meet(peer);
    resident[peer] = resident_kib();
  }
  if (rank) meet(0);
  for (int peers = 0; peers < ranks; peers++) {
    struct point point = {.variant = variants[0],
                          .quantity = "resident",
                          .unit = "KiB",
                          .message_bytes = longest,
                          .inner = 1,
                          .parameter = "peers",
                          .parameter_value = peers};
    record(&point, MEASURE, &resident[peers], rank == 0);
    double growth = peers ? (resident[peers] - resident[0]) / peers : 0;
    point.quantity = "growth";
    record(&point, MEASURE, &growth, rank == 0 && peers);
  }
  free(resident);
  free(out);
  free(in);
  finish();
}
