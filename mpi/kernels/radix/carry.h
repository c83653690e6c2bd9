// SPDX-License-Identifier: Apache-2.0 OR MIT
// How keys get to the ranks that they go to: gathered in buffers, each sent when it is full.
//
//   original        one buffer for each rank, waited for when it is sent; one receive stands, looked after in between
//   non-blocking    two buffers for each rank, so that one is filled while the other is under way; receives always
//   stand multi-threaded  the same, but a second thread receives
//
// Whoever waits for a send goes on receiving, for the other side may wait for the same.
#pragma once
#include <sched.h>
#include <stdatomic.h>

#include "../shared/worker.h"
#include "sort.h"

enum algorithm {
  ORIGINAL,
  NON_BLOCKING,
  MULTI_THREADED,
  ALGORITHMS
};
// Ends with NULL.
extern const char *const algorithm_names[];

// The keys for one rank that are gathered now.
struct outgoing {
  uint32_t *keys;
  size_t count;
};

// The receives that stand: `depth` from each rank, or one from any rank if `depth` is 0. Messages of one rank are taken
// in their order.
struct inbox {
  int depth;
  uint32_t *memory;
  MPI_Request *requests;  // [rank][depth]
  MPI_Request *heads;     // the one of each rank that ends next
  int *turns;             // which of `depth` that is
  size_t *unposted;       // messages that no receive stands for yet
  size_t left;            // messages that have not arrived
  int *indices;           // for MPI_Testsome
  MPI_Status *statuses;
};

// Two threads' calls of MPI, one at a time where the library does not give MPI_THREAD_MULTIPLE.
struct calls {
  int serialized;
  pthread_mutex_t lock;
  atomic_int wanted;  // by the first thread, which goes before the one that asks in a loop
};

struct carrier {
  enum algorithm algorithm;
  struct sort *sort;
  size_t capacity;  // keys of a buffer
  int slots;        // buffers for each rank
  int yields;       // whether threads share one core, which they then give away
  uint32_t *memory;
  struct outgoing *outgoing;
  MPI_Request *sends;  // [rank][slot]
  int *turns;          // slot that is being filled
  struct inbox inbox;
  struct worker worker;
  struct calls calls;
};

static inline void enter_calls_first(struct calls *calls) {
  if (!calls->serialized) return;
  atomic_fetch_add(&calls->wanted, 1);
  pthread_mutex_lock(&calls->lock);
  atomic_fetch_sub(&calls->wanted, 1);
}

// Also where there is one thread.
static inline void enter_calls(struct calls *calls) {
  if (!calls->serialized) return;
  while (atomic_load(&calls->wanted)) sched_yield();
  pthread_mutex_lock(&calls->lock);
}

static inline void leave_calls(struct calls *calls) {
  if (calls->serialized) pthread_mutex_unlock(&calls->lock);
}

// The multi-threaded algorithm needs MPI_THREAD_SERIALIZED at least. `carrier` stays where it is.
void carrier_begin(struct carrier *carrier, enum algorithm algorithm, struct sort *sort, size_t capacity);
void carrier_end(struct carrier *carrier);

// A pass: begin; each buffer that is full; end, when all keys are in their places and all buffers free.
void carry_begin(struct carrier *carrier);
void carry(struct carrier *carrier, int to);
void carry_end(struct carrier *carrier);
