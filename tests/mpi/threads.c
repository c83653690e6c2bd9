// SPDX-License-Identifier: Apache-2.0 OR MIT
// threads [SEED [MESSAGES [THREADS]]]: each thread of each rank exchanges checked messages with the thread of its
// number on the next rank, all at once: half of them on a communicator of their own, half by tag on the same one.
#include <pthread.h>

#include "check.h"

static int messages = 50;
static MPI_Comm communicators[64];

static void *work(void *number) {
  int thread = (int)(intptr_t)number, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  MPI_Comm communicator = communicators[thread];
  uint64_t sizes = seed + (uint64_t)thread;
  for (int at = 0; at < messages; at++) {
    size_t size = draw_size(&sizes, 64 << 10);
    int tag = 1000 * thread + at % 7;
    unsigned char *out = allocate(size), *in = allocate(size);
    fill(out, size, key_of(rank, thread, at));
    MPI_Request requests[2];
    MPI_Irecv(in, (int)size, MPI_BYTE, from, tag, communicator, &requests[0]);
    MPI_Isend(out, (int)size, MPI_BYTE, to, tag, communicator, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check(in, size, key_of(from, thread, at), "thread's message");
    free(out), free(in);
  }
  return NULL;
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_MULTIPLE, argc, argv);
  seed = argument(argc, argv, 1, 1);
  messages = (int)argument(argc, argv, 2, 50);
  int threads = (int)argument(argc, argv, 3, 4);
  if (threads < 1 || threads > 64) fail("1 to 64 threads");
  pthread_t started[64];
  for (int at = 0; at < threads; at++) {
    communicators[at] = MPI_COMM_WORLD;
    if (at % 2) MPI_Comm_dup(MPI_COMM_WORLD, &communicators[at]);
  }
  for (int at = 0; at < threads; at++)
    if (pthread_create(&started[at], NULL, work, (void *)(intptr_t)at)) fail("no thread %d", at);
  for (int at = 0; at < threads; at++) pthread_join(started[at], NULL);
  for (int at = 1; at < threads; at += 2) MPI_Comm_free(&communicators[at]);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    printf("{\"test\": \"threads\", \"seed\": %" PRIu64 ", \"ranks\": %d, \"right\": true}\n", seed, ranks);
  MPI_Finalize();
}
