// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "inbox.h"

#include <stdlib.h>

void inbox_begin(struct carrier *carrier, int depth) {
  struct inbox *inbox = &carrier->inbox;
  size_t count = (size_t)ranks, receives = depth ? count * (size_t)depth : 1;
  *inbox = (struct inbox){.depth = depth};
  inbox->memory = allocate(receives * carrier->capacity * sizeof(uint32_t));
  inbox->requests = allocate(receives * sizeof(MPI_Request));
  inbox->heads = allocate(count * sizeof(MPI_Request));
  inbox->turns = allocate(count * sizeof(int));
  inbox->unposted = allocate(count * sizeof(size_t));
  inbox->indices = allocate(count * sizeof(int));
  inbox->statuses = allocate(count * sizeof(MPI_Status));
}

void inbox_end(struct carrier *carrier) {
  struct inbox *inbox = &carrier->inbox;
  free(inbox->memory);
  free(inbox->requests);
  free(inbox->heads);
  free(inbox->turns);
  free(inbox->unposted);
  free(inbox->indices);
  free(inbox->statuses);
}

static uint32_t *memory_of(const struct carrier *carrier, int from, int turn) {
  return carrier->inbox.memory + (size_t)(from * carrier->inbox.depth + turn) * carrier->capacity;
}

static void post(struct carrier *carrier, int from, int turn) {
  struct inbox *inbox = &carrier->inbox;
  inbox->unposted[from]--;
  MPI_Irecv(memory_of(carrier, from, turn), (int)carrier->capacity, MPI_UINT32_T, from, 0, MPI_COMM_WORLD,
            &inbox->requests[from * inbox->depth + turn]);
}

static void post_any(struct carrier *carrier) {
  MPI_Irecv(carrier->inbox.memory, (int)carrier->capacity, MPI_UINT32_T, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD,
            &carrier->inbox.requests[0]);
}

void inbox_open(struct carrier *carrier) {
  struct inbox *inbox = &carrier->inbox;
  inbox->left = 0;
  for (int from = 0; from < ranks; from++) {
    size_t messages = (carrier->sort->expected[from] + carrier->capacity - 1) / carrier->capacity;
    inbox->heads[from] = MPI_REQUEST_NULL;
    if (from == rank || messages == 0) continue;
    inbox->left += messages;
    inbox->unposted[from] = messages;
    inbox->turns[from] = 0;
    for (int turn = 0; turn < inbox->depth && inbox->unposted[from] > 0; turn++) post(carrier, from, turn);
    if (inbox->depth) inbox->heads[from] = inbox->requests[from * inbox->depth];
  }
  if (inbox->depth == 0 && inbox->left > 0) post_any(carrier);
}

static size_t keys_in(const MPI_Status *status) {
  int count;
  MPI_Get_count(status, MPI_UINT32_T, &count);
  return (size_t)count;
}

static int look_for_any(struct carrier *carrier) {
  struct inbox *inbox = &carrier->inbox;
  MPI_Status status;
  int arrived;
  MPI_Test(&inbox->requests[0], &arrived, &status);
  if (!arrived) return 0;
  place(carrier->sort, status.MPI_SOURCE, inbox->memory, keys_in(&status));
  if (--inbox->left > 0) post_any(carrier);
  return 1;
}

// The head of a rank's receives has ended: the next one is the head, and this one stands again behind the others.
static void take(struct carrier *carrier, int from, const MPI_Status *status) {
  struct inbox *inbox = &carrier->inbox;
  int turn = inbox->turns[from];
  place(carrier->sort, from, memory_of(carrier, from, turn), keys_in(status));
  inbox->left--;
  inbox->requests[from * inbox->depth + turn] = MPI_REQUEST_NULL;
  if (inbox->unposted[from] > 0) post(carrier, from, turn);
  inbox->turns[from] = (turn + 1) % inbox->depth;
  inbox->heads[from] = inbox->requests[from * inbox->depth + inbox->turns[from]];
}

int inbox_look(struct carrier *carrier) {
  struct inbox *inbox = &carrier->inbox;
  if (inbox->left == 0) return 0;
  if (inbox->depth == 0) return look_for_any(carrier);
  int count;
  MPI_Testsome(ranks, inbox->heads, &count, inbox->indices, inbox->statuses);
  if (count == MPI_UNDEFINED) return 0;
  for (int number = 0; number < count; number++) take(carrier, inbox->indices[number], &inbox->statuses[number]);
  return count > 0;
}
