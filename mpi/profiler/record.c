// SPDX-License-Identifier: Apache-2.0 OR MIT
// Records the calls of a thread: the hot path. No lock, no allocation, no system call: the clock is read in user space,
// and all data is in the thread's own block.
#include <time.h>

#include "profiler.h"

#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
// Positions count from 1, as `struct call` has them.
#define ARGUMENT(position) arguments[(position)-1]
#define ADD(field, value) STORE(field, LOAD(field) + (uint64_t)(value))

static _Thread_local struct block *own __attribute__((tls_model("initial-exec")));
static _Thread_local bool has_no_block __attribute__((tls_model("initial-exec")));
static _Thread_local bool in_call __attribute__((tls_model("initial-exec")));

uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int64_t integer(slot argument, enum language language, bool wide) {
  if (language == FORTRAN) return *(const int32_t *)argument;
  return wide ? (int64_t)argument : (int32_t)argument;
}

static int64_t size_of_type(slot type, enum language language) {
  static int (*in_c)(slot, int *);
  static void (*in_fortran)(slot, int32_t *, int32_t *);
  int32_t size = -1, error = 0;
  if (language == C) {
    if (!in_c) in_c = (int (*)(slot, int *))library_function("MPI_Type_size");
    error = in_c(type, &size);
  } else {
    if (!in_fortran) in_fortran = (void (*)(slot, int32_t *, int32_t *))library_function("mpi_type_size_");
    in_fortran(type, &size, &error);
  }
  return error ? -1 : size;
}

// MPI_IN_PLACE is 1 or -1 in C, and the address of a common block variable in Fortran.
static bool in_place(slot buffer, enum language language) {
  static slot of_fortran;
  if (language == C) return buffer == 1 || buffer == (slot)-1;
  if (!of_fortran) of_fortran = (slot)find_variable("mpi_fortran_in_place_");
  return buffer == of_fortran;
}

static int64_t ranks_of(slot comm, enum language language) {
  int32_t inter = 0, size = 0, error = 0;
  if (language == C) {
    static int (*test)(slot, int *), (*remote)(slot, int *), (*local)(slot, int *);
    if (!test) {
      remote = (int (*)(slot, int *))library_function("MPI_Comm_remote_size");
      local = (int (*)(slot, int *))library_function("MPI_Comm_size");
      test = (int (*)(slot, int *))library_function("MPI_Comm_test_inter");
    }
    error = test(comm, &inter) || (inter ? remote : local)(comm, &size);
  } else {
    static void (*test)(slot, int32_t *, int32_t *), (*local)(slot, int32_t *, int32_t *);
    if (!test) {
      local = (void (*)(slot, int32_t *, int32_t *))library_function("mpi_comm_size_");
      test = (void (*)(slot, int32_t *, int32_t *))library_function("mpi_comm_test_inter_");
    }
    test(comm, &inter, &error);
    if (!error && !inter) local(comm, &size, &error);
  }
  return error ? 0 : size;
}

// Bytes of the message of a successful call, from its arguments; -1 if unknown.
static int64_t bytes_of(const struct call *call, enum language language, const slot *arguments) {
  if (!call->type) return -1;
  slot type = ARGUMENT(call->type);
  int64_t count = 1;
  if (call->counts) {
    if (call->buffer && in_place(ARGUMENT(call->buffer), language)) return -1;
    count = 0;
    const void *counts = (const void *)ARGUMENT(call->counts);
    for (int64_t at = ranks_of(ARGUMENT(call->comm), language) - 1; at >= 0; at--)
      count += call->wide ? ((const int64_t *)counts)[at] : ((const int32_t *)counts)[at];
  } else if (call->count) {
    unsigned char which = call->count;
    if (call->buffer && in_place(ARGUMENT(call->buffer), language)) {
      if (!call->count_2) return -1;
      which = call->count_2;
      type = ARGUMENT(call->type_2);
    }
    count = integer(ARGUMENT(which), language, call->wide);
    if (call->partitions) count *= integer(ARGUMENT(call->partitions), language, false);
  }
  // With a count of 0 the type may be invalid. A negative root means that the caller does not take part in a rooted
  // collective.
  if (count <= 0) return 0;
  if (call->kind == COLLECTIVE && call->peer && integer(ARGUMENT(call->peer), language, false) < 0) return -1;
  int64_t size = size_of_type(type, language);
  return size < 0 ? -1 : count * size;
}

static int64_t count_of_requests(const struct call *call, enum language language, const slot *arguments) {
  return call->request_count ? integer(ARGUMENT(call->request_count), language, false) : 1;
}

// Bytes of the messages that a call on requests has completed, -1 if none or unknown; `before`: of all its requests.
static int64_t completed_bytes(const struct call *call, enum language language, const slot *arguments, int64_t before) {
  if (before < 0 || (call->flag && !*(const int32_t *)ARGUMENT(call->flag))) return -1;
  if (!call->completed) return before;
  const int32_t *indices = (const int32_t *)ARGUMENT(call->completed);
  int64_t completed = call->completed_count ? *(const int32_t *)ARGUMENT(call->completed_count) : 1;
  // MPI_UNDEFINED, which is negative, if no request was active.
  if (completed <= 0 || indices[0] < 0) return -1;
  return bytes_of_completed((const void *)ARGUMENT(call->requests), count_of_requests(call, language, arguments),
                            indices, completed, language, before);
}

static unsigned class_of(int64_t bytes) {
  if (bytes < 0) return UNKNOWN_CLASS;
  return bytes == 0 ? 1 : 65 - (unsigned)__builtin_clzll((unsigned long long)bytes);
}

static struct entry *entry_of(struct block *block, uint64_t key) {
  uint64_t at = key * 0x9E3779B97F4A7C15u >> 32;
  for (unsigned probe = 0; probe < ENTRIES - 1; probe++, at++) {
    struct entry *entry = &block->entries[at % (ENTRIES - 1)];
    uint64_t found_key = LOAD(entry->key);
    if (found_key == key) return entry;
    if (!found_key) {
      STORE(entry->shortest, UINT64_MAX);
      STORE(entry->key, key);
      return entry;
    }
  }
  struct entry *rest = &block->entries[ENTRIES - 1];
  if (!LOAD(rest->key)) {
    STORE(rest->shortest, UINT64_MAX);
    STORE(rest->key, (uint64_t)OTHER_CALL << 8);
  }
  return rest;
}

static void keep_longest(struct block *block, uint64_t key, uint64_t begin, uint64_t time, int64_t bytes,
                         int32_t peer) {
  struct longest *least = &block->longest[0];
  for (unsigned at = 1; at < LONGEST; at++)
    if (LOAD(block->longest[at].time) < LOAD(least->time)) least = &block->longest[at];
  STORE(least->key, 0);
  STORE(least->time, time);
  STORE(least->begin, begin);
  STORE(least->bytes, bytes < 0 ? UINT64_MAX : (uint64_t)bytes);
  STORE(least->peer, peer);
  STORE(least->key, key);
  uint64_t shortest = UINT64_MAX;
  for (unsigned at = 0; at < LONGEST; at++)
    if (LOAD(block->longest[at].time) < shortest) shortest = LOAD(block->longest[at].time);
  STORE(block->shortest_kept, shortest);
}

// Bins double in width until the last reaches the end, so that their number is fixed for any run time.
static void add_to_bins(struct block *block, uint64_t origin, uint64_t begin, uint64_t end) {
  uint64_t shift = LOAD(block->bin_shift);
  while ((end - origin) >> shift >= BINS) {
    for (unsigned at = 0; at < BINS; at++)
      STORE(block->bins[at], at < BINS / 2 ? LOAD(block->bins[2 * at]) + LOAD(block->bins[2 * at + 1]) : 0);
    STORE(block->bin_shift, ++shift);
  }
  while (begin < end) {
    uint64_t at = (begin - origin) >> shift, next = origin + ((at + 1) << shift);
    uint64_t until = next < end ? next : end;
    ADD(block->bins[at], until - begin);
    begin = until;
  }
}

static void record(struct header *header, struct block *block, uint64_t key, bool waits, uint64_t begin, uint64_t end,
                   int64_t bytes, int32_t peer) {
  struct entry *entry = entry_of(block, key);
  uint64_t time = end - begin;
  ADD(entry->calls, 1);
  ADD(entry->time, time);
  if (bytes > 0) ADD(entry->bytes, bytes);
  if (time < LOAD(entry->shortest)) STORE(entry->shortest, time);
  if (time > LOAD(entry->longest)) STORE(entry->longest, time);
  if (waits && time > LOAD(block->shortest_kept)) keep_longest(block, key, begin, time, bytes, peer);
  add_to_bins(block, LOAD(header->init_begin), begin, end);
  ADD(block->calls, 1);
  ADD(block->time, time);
  STORE(block->last, end);
}

static struct block *current_block(void) {
  if (!own && !has_no_block) {
    own = new_block();
    has_no_block = !own;
  }
  return own;
}

struct span enter(int call, enum language language, const slot *arguments) {
  struct span span = {.peer = -1, .expected_bytes = -1};
  // Libraries call their own functions, and Fortran functions may call C functions: only calls of the program count.
  if (in_call && language == C) return span;
  struct block *block = span.block = current_block();
  if (!block) return span;
  const struct call *of = &calls[call];
  if (of->requests) {
    // Before the call, because completed requests become MPI_REQUEST_NULL.
    span.expected_bytes = bytes_of_requests((const void *)ARGUMENT(of->requests),
                                            count_of_requests(of, language, arguments), language, &span.peer);
  } else if (of->peer) {
    span.peer = (int32_t)integer(ARGUMENT(of->peer), language, false);
  }
  span.calls_before = LOAD(block->calls);
  if (language == C) {
    span.outermost = in_call = true;
    span.begin = now();
    STORE(block->since, span.begin);
    STORE(block->inside, (uint64_t)call + 1);
    if (!LOAD(block->first)) STORE(block->first, span.begin);
  } else {
    // MPICH's Fortran functions call the C functions, which are then recorded instead; Open MPI's do not.
    span.outermost = !in_call;
    span.begin = now();
    if (span.outermost) {
      STORE(block->since, span.begin);
      STORE(block->inside, (uint64_t)call + 1);
    }
    if (!LOAD(block->first)) STORE(block->first, span.begin);
  }
  return span;
}

void leave(struct span *span, int call, enum language language, const slot *arguments, bool succeeded) {
  struct block *block = span->block;
  if (!span->outermost) return;
  span->outermost = false;
  uint64_t end = now();
  if (language == C) in_call = false;
  STORE(block->inside, 0);
  struct header *header = recording;
  if (!header || LOAD(block->calls) != span->calls_before) return;
  const struct call *of = &calls[call];
  int64_t bytes = -1;
  if (succeeded && of->requests) bytes = completed_bytes(of, language, arguments, span->expected_bytes);
  else if (succeeded) bytes = bytes_of(of, language, arguments);
  bool waits = of->kind == SEND || of->kind == RECEIVE || of->kind == PROBE || of->kind == WAIT ||
               of->kind == COLLECTIVE || of->kind == SYNCHRONISE;
  record(header, block, ((uint64_t)call + 1) << 8 | class_of(bytes), waits, span->begin, end, bytes, span->peer);
  if (of->request && succeeded) {
    slot request = request_at((const void *)ARGUMENT(of->request), 0, language);
    remember_request(request, language, bytes, span->peer);
  }
}

// Called when an exception of an error handler, or the end of the thread, unwinds a call.
void leave_unwound(struct span *span) {
  if (!span->outermost) return;
  in_call = false;
  STORE(span->block->inside, 0);
}

uint32_t cost_of_recording_ps(struct header *header, struct block *scratch) {
  enum {
    BATCHES = 10,
    CALLS_EACH = 200
  };
  uint64_t best = UINT64_MAX;
  // The fastest batch: during others the thread may have been preempted.
  for (unsigned batch = 0; batch < BATCHES; batch++) {
    uint64_t begin = now();
    for (unsigned trial = 0; trial < CALLS_EACH; trial++) {
      uint64_t start = now();
      uint64_t key = (uint64_t)(trial % 8 + 1) << 8 | class_of((int64_t)trial * 8);
      record(header, scratch, key, true, start, now(), trial * 8, -1);
    }
    uint64_t taken = now() - begin;
    if (taken < best) best = taken;
  }
  return (uint32_t)(best * 1000 / CALLS_EACH);
}
