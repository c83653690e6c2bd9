// SPDX-License-Identifier: Apache-2.0 OR MIT
// The transfer of keys to their destination ranks: gathered in buffers, each sent when it is full.
//
//   original        one buffer per rank, the sender waits for each send; one receive is posted and polled in between
//   non-blocking    two buffers per rank, one is filled while the other is in flight; receives are always posted
//   multi-threaded  the same, but a second thread receives
//
// A rank that waits for a send continues to receive, because its peer may wait for a send, too.
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

// The buffer being filled for one rank.
struct outgoing {
  uint32_t *keys;
  size_t count;
};

// The posted receives: `depth` from each rank, or one from any rank if `depth` is 0. Messages of one rank are processed
// in order.
struct inbox {
  int depth;
  uint32_t *memory;
  MPI_Request *requests;  // [rank][depth]
  MPI_Request *heads;     // the oldest receive of each rank
  int *turns;             // index of that receive
  size_t *unposted;       // messages without a posted receive
  size_t left;            // messages not yet received
  int *indices;           // for MPI_Testsome
  MPI_Status *statuses;
};

// Serialises the MPI calls of two threads if the library does not provide MPI_THREAD_MULTIPLE.
struct mpi_lock {
  int serialized;
  pthread_mutex_t lock;
  atomic_int waiting;  // by the first thread, which has priority over the polling thread
};

struct exchange {
  enum algorithm algorithm;
  struct sort *sort;
  size_t capacity;  // keys of a buffer
  int slots;        // buffers for each rank
  int yields;       // whether threads share one core, and therefore yield it
  uint32_t *memory;
  struct outgoing *outgoing;
  MPI_Request *sends;  // [rank][slot]
  int *turns;          // slot being filled, per rank
  struct inbox inbox;
  struct worker worker;
  struct mpi_lock mpi_lock;
};

static inline void lock_mpi_first(struct mpi_lock *lock) {
  if (!lock->serialized) return;
  atomic_fetch_add(&lock->waiting, 1);
  pthread_mutex_lock(&lock->lock);
  atomic_fetch_sub(&lock->waiting, 1);
}

// Also used by a single thread.
static inline void lock_mpi(struct mpi_lock *lock) {
  if (!lock->serialized) return;
  while (atomic_load(&lock->waiting)) sched_yield();
  pthread_mutex_lock(&lock->lock);
}

static inline void unlock_mpi(struct mpi_lock *lock) {
  if (lock->serialized) pthread_mutex_unlock(&lock->lock);
}

// The multi-threaded algorithm needs at least MPI_THREAD_SERIALIZED. `exchange` must not be moved.
void exchange_create(struct exchange *exchange, enum algorithm algorithm, struct sort *sort, size_t capacity);
void exchange_destroy(struct exchange *exchange);

// A pass: begin; send each full buffer; end, which returns when all keys are stored and all buffers free.
void pass_begin(struct exchange *exchange);
void send_keys(struct exchange *exchange, int to);
void pass_end(struct exchange *exchange);
