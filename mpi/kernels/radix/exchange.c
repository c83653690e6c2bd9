// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "exchange.h"

#include <stdlib.h>

#include "inbox.h"

const char *const algorithm_names[] = {"original", "non-blocking", "multi-threaded", NULL};

enum {
  DEPTH = 4  // posted receives per rank: for the two buffers in flight, and the two after them
};

static void receive_all(void *given) {
  struct exchange *exchange = given;
  while (exchange->inbox.left > 0)
    if (!inbox_poll(exchange) && exchange->yields) sched_yield();
}

void exchange_create(struct exchange *exchange, enum algorithm algorithm, struct sort *sort, size_t capacity) {
  *exchange = (struct exchange){
      .algorithm = algorithm, .sort = sort, .capacity = capacity, .slots = algorithm == ORIGINAL ? 1 : 2};
  size_t buffers = (size_t)(ranks * exchange->slots);
  exchange->memory = allocate(buffers * capacity * sizeof(uint32_t));
  exchange->outgoing = allocate((size_t)ranks * sizeof(struct outgoing));
  exchange->sends = allocate(buffers * sizeof(MPI_Request));
  exchange->turns = allocate((size_t)ranks * sizeof(int));
  for (size_t number = 0; number < buffers; number++) exchange->sends[number] = MPI_REQUEST_NULL;
  for (int to = 0; to < ranks; to++)
    exchange->outgoing[to].keys = exchange->memory + (size_t)(to * exchange->slots) * capacity;
  inbox_create(exchange, algorithm == ORIGINAL ? 0 : DEPTH);
  sort->exchange = exchange;
  if (algorithm == MULTI_THREADED) {
    int level;
    MPI_Query_thread(&level);
    exchange->mpi_lock.serialized = level < MPI_THREAD_MULTIPLE;
    pthread_mutex_init(&exchange->mpi_lock.lock, NULL);
    exchange->yields = shares_one_core();
    worker_begin(&exchange->worker, receive_all, exchange);
  }
}

void exchange_destroy(struct exchange *exchange) {
  if (exchange->algorithm == MULTI_THREADED) {
    worker_end(&exchange->worker);
    pthread_mutex_destroy(&exchange->mpi_lock.lock);
  }
  inbox_destroy(exchange);
  free(exchange->memory);
  free(exchange->outgoing);
  free(exchange->sends);
  free(exchange->turns);
}

void pass_begin(struct exchange *exchange) {
  inbox_start_pass(exchange);
  if (exchange->algorithm == MULTI_THREADED) worker_start(&exchange->worker);
}

// Called by the sender while it waits.
static void poll_while_waiting(struct exchange *exchange) {
  if (exchange->algorithm != MULTI_THREADED) {
    inbox_poll(exchange);
  } else if (exchange->yields) {
    sched_yield();
  }
}

void send_keys(struct exchange *exchange, int to) {
  struct outgoing *outgoing = &exchange->outgoing[to];
  if (to == rank) {
    store_keys(exchange->sort, rank, outgoing->keys, outgoing->count);
    outgoing->count = 0;
    return;
  }
  MPI_Request *sends = exchange->sends + to * exchange->slots;
  int sent = exchange->turns[to], slot = (sent + 1) % exchange->slots, done = 0;
  lock_mpi_first(&exchange->mpi_lock);
  MPI_Isend(outgoing->keys, (int)outgoing->count, MPI_UINT32_T, to, 0, MPI_COMM_WORLD, &sends[sent]);
  while (MPI_Test(&sends[slot], &done, MPI_STATUS_IGNORE), !done) {
    unlock_mpi(&exchange->mpi_lock);
    poll_while_waiting(exchange);
    lock_mpi_first(&exchange->mpi_lock);
  }
  unlock_mpi(&exchange->mpi_lock);
  if (exchange->algorithm != MULTI_THREADED) inbox_poll(exchange);
  exchange->turns[to] = slot;
  outgoing->keys = exchange->memory + (size_t)(to * exchange->slots + slot) * exchange->capacity;
  outgoing->count = 0;
}

void pass_end(struct exchange *exchange) {
  for (int step = 0; step < ranks; step++) {
    int to = (rank + step) % ranks;
    if (exchange->outgoing[to].count > 0) send_keys(exchange, to);
  }
  if (exchange->algorithm == MULTI_THREADED) {
    worker_wait(&exchange->worker);
  } else {
    while (exchange->inbox.left > 0) inbox_poll(exchange);
  }
  MPI_Waitall(ranks * exchange->slots, exchange->sends, MPI_STATUSES_IGNORE);
}
