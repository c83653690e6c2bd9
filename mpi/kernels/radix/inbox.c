// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "inbox.h"

#include <stdlib.h>

void inbox_create(struct exchange *exchange, int depth) {
  struct inbox *inbox = &exchange->inbox;
  size_t count = (size_t)ranks, receives = depth ? count * (size_t)depth : 1;
  *inbox = (struct inbox){.depth = depth};
  inbox->memory = allocate(receives * exchange->capacity * sizeof(uint32_t));
  inbox->requests = allocate(receives * sizeof(MPI_Request));
  for (size_t number = 0; number < receives; number++) inbox->requests[number] = MPI_REQUEST_NULL;
  inbox->heads = allocate(count * sizeof(MPI_Request));
  inbox->turns = allocate(count * sizeof(int));
  inbox->unposted = allocate(count * sizeof(size_t));
  inbox->indices = allocate(count * sizeof(int));
  inbox->statuses = allocate(count * sizeof(MPI_Status));
}

void inbox_destroy(struct exchange *exchange) {
  struct inbox *inbox = &exchange->inbox;
  free(inbox->memory);
  free(inbox->requests);
  free(inbox->heads);
  free(inbox->turns);
  free(inbox->unposted);
  free(inbox->indices);
  free(inbox->statuses);
}

static uint32_t *memory_of(const struct exchange *exchange, int from, int turn) {
  return exchange->inbox.memory + (size_t)(from * exchange->inbox.depth + turn) * exchange->capacity;
}

static void post(struct exchange *exchange, int from, int turn) {
  struct inbox *inbox = &exchange->inbox;
  inbox->unposted[from]--;
  MPI_Irecv(memory_of(exchange, from, turn), (int)exchange->capacity, MPI_UINT32_T, from, 0, MPI_COMM_WORLD,
            &inbox->requests[from * inbox->depth + turn]);
}

static void post_any(struct exchange *exchange) {
  MPI_Irecv(exchange->inbox.memory, (int)exchange->capacity, MPI_UINT32_T, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD,
            &exchange->inbox.requests[0]);
}

void inbox_start_pass(struct exchange *exchange) {
  struct inbox *inbox = &exchange->inbox;
  inbox->left = 0;
  for (int from = 0; from < ranks; from++) {
    size_t messages = (exchange->sort->expected[from] + exchange->capacity - 1) / exchange->capacity;
    inbox->heads[from] = MPI_REQUEST_NULL;
    if (from == rank || messages == 0) continue;
    inbox->left += messages;
    inbox->unposted[from] = messages;
    inbox->turns[from] = 0;
    for (int turn = 0; turn < inbox->depth && inbox->unposted[from] > 0; turn++) post(exchange, from, turn);
    if (inbox->depth) inbox->heads[from] = inbox->requests[from * inbox->depth];
  }
  if (inbox->depth == 0 && inbox->left > 0) post_any(exchange);
}

static size_t keys_in(const MPI_Status *status) {
  int count;
  MPI_Get_count(status, MPI_UINT32_T, &count);
  return (size_t)count;
}

static int poll_any_source(struct exchange *exchange) {
  struct inbox *inbox = &exchange->inbox;
  MPI_Status status;
  int arrived;
  MPI_Test(&inbox->requests[0], &arrived, &status);
  if (!arrived) return 0;
  store_keys(exchange->sort, status.MPI_SOURCE, inbox->memory, keys_in(&status));
  if (--inbox->left > 0) post_any(exchange);
  return 1;
}

// The oldest receive of a rank is complete: stores its keys, posts it again, and advances the head.
static void receive_head(struct exchange *exchange, int from, const MPI_Status *status) {
  struct inbox *inbox = &exchange->inbox;
  int turn = inbox->turns[from];
  store_keys(exchange->sort, from, memory_of(exchange, from, turn), keys_in(status));
  inbox->left--;
  inbox->requests[from * inbox->depth + turn] = MPI_REQUEST_NULL;
  if (inbox->unposted[from] > 0) {
    lock_mpi(&exchange->mpi_lock);
    post(exchange, from, turn);
    unlock_mpi(&exchange->mpi_lock);
  }
  inbox->turns[from] = (turn + 1) % inbox->depth;
  inbox->heads[from] = inbox->requests[from * inbox->depth + inbox->turns[from]];
}

int inbox_poll(struct exchange *exchange) {
  struct inbox *inbox = &exchange->inbox;
  if (inbox->left == 0) return 0;
  if (inbox->depth == 0) return poll_any_source(exchange);
  int count;
  lock_mpi(&exchange->mpi_lock);
  MPI_Testsome(ranks, inbox->heads, &count, inbox->indices, inbox->statuses);
  unlock_mpi(&exchange->mpi_lock);
  if (count == MPI_UNDEFINED) return 0;
  for (int number = 0; number < count; number++)
    receive_head(exchange, inbox->indices[number], &inbox->statuses[number]);
  return count > 0;
}
