// SPDX-License-Identifier: Apache-2.0 OR MIT
// A peer that is outside MPI: what is sent to it meanwhile without blocking does not block, whatever its size, nor does
// it where both sides do so; and buffered sends have their memory back as soon as something shows that all were
// received.
#include <unistd.h>

#include "check.h"

enum {
  // As many as the provider advertises.
  MESSAGES = 4096,
  AWAY_S = 1,
  BUFFERED = 4
};

// Posts `MESSAGES` sends to rank 1 while that sleeps. Rank 0 must be back long before it wakes.
static void post_many(int bytes) {
  char *memory = allocate((size_t)MESSAGES * (size_t)bytes);
  MPI_Request *requests = allocate(MESSAGES * sizeof *requests);
  for (int number = 0; rank == 0 && number < MESSAGES; number++)
    fill(memory + (size_t)number * (size_t)bytes, (size_t)bytes, key_of(0, 1, number));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    double began = MPI_Wtime();
    for (int number = 0; number < MESSAGES; number++)
      MPI_Isend(memory + (size_t)number * (size_t)bytes, bytes, MPI_BYTE, 1, number, MPI_COMM_WORLD, &requests[number]);
    double took = MPI_Wtime() - began;
    printf("{\"test\": \"away\", \"bytes\": %d, \"messages\": %d, \"seconds\": %.3f}\n", bytes, MESSAGES, took);
    if (took > AWAY_S - 0.3) fail("%d sends of %d bytes took %.3f s", MESSAGES, bytes, took);
  } else {
    sleep(AWAY_S);
    for (int number = 0; number < MESSAGES; number++)
      MPI_Irecv(memory + (size_t)number * (size_t)bytes, bytes, MPI_BYTE, 0, number, MPI_COMM_WORLD, &requests[number]);
  }
  MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
  for (int number = 0; rank == 1 && number < MESSAGES; number++)
    check(memory + (size_t)number * (size_t)bytes, (size_t)bytes, key_of(0, 1, number), "a message from before");
  free(requests);
  free(memory);
}

// Both ranks post all of their sends before their first receive: whoever is refused there stands still for ever. All of
// one content, from one memory.
static void both_post(int messages, int bytes) {
  char *memory = allocate((size_t)bytes), *received = allocate((size_t)bytes);
  MPI_Request *requests = allocate((size_t)messages * sizeof *requests);
  fill(memory, (size_t)bytes, key_of(rank, 1 - rank, bytes));
  for (int number = 0; number < messages; number++)
    MPI_Isend(memory, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[number]);
  for (int number = 0; number < messages; number++) {
    MPI_Recv(received, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(received, (size_t)bytes, key_of(1 - rank, rank, bytes), "a message from before");
  }
  MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
  if (rank == 0) printf("{\"test\": \"away\", \"bytes\": %d, \"both\": %d}\n", bytes, messages);
  free(requests);
  free(received);
  free(memory);
}

// The attached memory holds one round of messages: the next one finds room once rank 1 has said that it has the last.
static void buffered(int bytes) {
  int attached_bytes = BUFFERED * (bytes + MPI_BSEND_OVERHEAD), size;
  void *attached = allocate((size_t)attached_bytes), *memory = allocate((size_t)bytes), *detached;
  MPI_Buffer_attach(attached, attached_bytes);
  for (int round = 0; round < 50; round++) {
    for (int number = 0; number < BUFFERED; number++) {
      uint64_t key = key_of(0, 1, round * BUFFERED + number);
      if (rank == 0) {
        fill(memory, (size_t)bytes, key);
        MPI_Bsend(memory, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
      } else {
        MPI_Recv(memory, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(memory, (size_t)bytes, key, "a buffered message");
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Buffer_detach(&detached, &size);
  if (rank == 0) printf("{\"test\": \"away\", \"bytes\": %d, \"buffered\": true}\n", bytes);
  free(attached);
  free(memory);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) fail("takes two ranks, not %d", ranks);
  static const int SIZES[] = {8, 4000, 20000, 70000, 200000};
  for (size_t size = 0; size < sizeof SIZES / sizeof *SIZES; size++) post_many(SIZES[size]);
  for (size_t size = 0; size < sizeof SIZES / sizeof *SIZES; size++) buffered(SIZES[size]);
  // More than fit an endpoint's tables by default, of early messages and of announced ones.
  both_post(70000, 8);
  both_post(5000, 20000);
  MPI_Finalize();
  return 0;
}
