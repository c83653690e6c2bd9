// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory per peer: rank 0 exchanges one message of each size with one rank after another. It records its resident
// memory in KiB for each number of peers ("resident"), and the growth per peer since there were none ("growth"). Memory
// shared with another process counts once it is touched. With no peers: right after MPI_Init, before the program's own
// collectives have connected any, plus the program's own buffers.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/suite.h"

static unsigned char *out, *in;

static double resident_kib(void) {
  long whole, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &whole, &resident) != 2)
    unsupported_here("/proc/self/statm cannot be read, which has the memory size of a process");
  fclose(file);
  return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1024;
}

// The first reading touches memory of its own.
static double settled_kib(void) {
  resident_kib();
  return resident_kib();
}

// 0 if MPI was initialised by an earlier program in the same job, which has already connected peers.
static double initial_kib;

static void started(uint64_t start_ns) { initial_kib = settled_kib(); }

static void exchange(int peer, uint64_t number, size_t bytes) {
  char what[64];
  snprintf(what, sizeof what, "exchange, message from rank %d", peer);
  fill(out, bytes, key_of(rank, peer, number));
  MPI_Sendrecv(out, (int)bytes, MPI_BYTE, peer, 0, in, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  check(in, bytes, key_of(peer, rank, number), what);
}

static void exchange_sizes(int peer) {
  for (int size = 0; size < settings.size_count; size++) exchange(peer, (uint64_t)size, settings.sizes[size]);
}

int main(int argc, char **argv) {
  static const char *const variants[] = {"exchange", NULL};
  begin(argc, argv,
        &(struct program){.name = "footprint",
                          .summary = "resident memory of rank 0 after a message of each size with each peer",
                          .variants = variants,
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .started = started});
  if (settings.walk_bytes) usage_error("--walk-bytes does not apply to this test, which measures the library's memory");
  size_t longest = 0;
  for (int size = 0; size < settings.size_count; size++)
    if (settings.sizes[size] > longest) longest = settings.sizes[size];
  double before_kib = settled_kib();
  out = allocate(longest), in = allocate(longest);
  double *resident = allocate((size_t)ranks * sizeof *resident);
  resident[0] = initial_kib > 0 ? initial_kib + resident_kib() - before_kib : resident_kib();
  for (int peer = 1; peer < ranks && rank == 0; peer++) {
    exchange_sizes(peer);
    resident[peer] = resident_kib();
  }
  if (rank) exchange_sizes(0);
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
