// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "carry.h"

#include <stdlib.h>

#include "inbox.h"

const char *const algorithm_names[] = {"original", "non-blocking", "multi-threaded", NULL};

enum {
  DEPTH = 4  // receives that stand for each rank: for its two buffers under way, and the two after them
};

static void receive_all(void *given) {
  struct carrier *carrier = given;
  while (carrier->inbox.left > 0)
    if (!inbox_look(carrier) && carrier->yields) sched_yield();
}

void carrier_begin(struct carrier *carrier, enum algorithm algorithm, struct sort *sort, size_t capacity) {
  *carrier = (struct carrier){
      .algorithm = algorithm, .sort = sort, .capacity = capacity, .slots = algorithm == ORIGINAL ? 1 : 2};
  size_t buffers = (size_t)(ranks * carrier->slots);
  carrier->memory = allocate(buffers * capacity * sizeof(uint32_t));
  carrier->outgoing = allocate((size_t)ranks * sizeof(struct outgoing));
  carrier->sends = allocate(buffers * sizeof(MPI_Request));
  carrier->turns = allocate((size_t)ranks * sizeof(int));
  for (size_t number = 0; number < buffers; number++) carrier->sends[number] = MPI_REQUEST_NULL;
  for (int to = 0; to < ranks; to++)
    carrier->outgoing[to].keys = carrier->memory + (size_t)(to * carrier->slots) * capacity;
  inbox_begin(carrier, algorithm == ORIGINAL ? 0 : DEPTH);
  sort->carrier = carrier;
  if (algorithm == MULTI_THREADED) {
    int level;
    MPI_Query_thread(&level);
    carrier->calls.serialized = level < MPI_THREAD_MULTIPLE;
    pthread_mutex_init(&carrier->calls.lock, NULL);
    carrier->yields = one_core();
    worker_begin(&carrier->worker, receive_all, carrier);
  }
}

void carrier_end(struct carrier *carrier) {
  if (carrier->algorithm == MULTI_THREADED) {
    worker_end(&carrier->worker);
    pthread_mutex_destroy(&carrier->calls.lock);
  }
  inbox_end(carrier);
  free(carrier->memory);
  free(carrier->outgoing);
  free(carrier->sends);
  free(carrier->turns);
}

void carry_begin(struct carrier *carrier) {
  inbox_open(carrier);
  if (carrier->algorithm == MULTI_THREADED) worker_go(&carrier->worker);
}

// What the sender does while it waits.
static void look(struct carrier *carrier) {
  if (carrier->algorithm != MULTI_THREADED) {
    inbox_look(carrier);
  } else if (carrier->yields) {
    sched_yield();
  }
}

void carry(struct carrier *carrier, int to) {
  struct outgoing *outgoing = &carrier->outgoing[to];
  if (to == rank) {
    place(carrier->sort, rank, outgoing->keys, outgoing->count);
    outgoing->count = 0;
    return;
  }
  MPI_Request *sends = carrier->sends + to * carrier->slots;
  int sent = carrier->turns[to], slot = (sent + 1) % carrier->slots, done = 0;
  enter_calls_first(&carrier->calls);
  MPI_Isend(outgoing->keys, (int)outgoing->count, MPI_UINT32_T, to, 0, MPI_COMM_WORLD, &sends[sent]);
  while (MPI_Test(&sends[slot], &done, MPI_STATUS_IGNORE), !done) {
    leave_calls(&carrier->calls);
    look(carrier);
    enter_calls_first(&carrier->calls);
  }
  leave_calls(&carrier->calls);
  if (carrier->algorithm != MULTI_THREADED) inbox_look(carrier);
  carrier->turns[to] = slot;
  outgoing->keys = carrier->memory + (size_t)(to * carrier->slots + slot) * carrier->capacity;
  outgoing->count = 0;
}

void carry_end(struct carrier *carrier) {
  for (int step = 0; step < ranks; step++) {
    int to = (rank + step) % ranks;
    if (carrier->outgoing[to].count > 0) carry(carrier, to);
  }
  if (carrier->algorithm == MULTI_THREADED) {
    worker_wait(&carrier->worker);
  } else {
    while (carrier->inbox.left > 0) inbox_look(carrier);
  }
  MPI_Waitall(ranks * carrier->slots, carrier->sends, MPI_STATUSES_IGNORE);
}
