// SPDX-License-Identifier: Apache-2.0 OR MIT
// The messages of requests: a lock-free table of fixed size for the whole process. A newer request in the same row
// replaces the older one, whose wait then has no size.
#include "profiler.h"

#define ROWS 4096
#define PEER_BITS 24
#define BYTES_MAX ((1LL << (64 - PEER_BITS - 1)) - 1)

static struct { number handle, message; } rows[ROWS];

static slot key_of_request(slot handle, enum language language) {
  // Handle 0 is invalid in every library. Open MPI numbers Fortran's requests separately, others do not.
  return handle + 1 + (language == FORTRAN && is_open_mpi() ? (slot)1 << 63 : 0);
}

static unsigned row_of(slot key) { return (unsigned)(key * 0x9E3779B97F4A7C15u >> 52) % ROWS; }

slot request_at(const void *requests, int64_t index, enum language language) {
  if (language == FORTRAN || !handles_are_pointers()) return ((const uint32_t *)requests)[index];
  return ((const slot *)requests)[index];
}

void remember_request(slot handle, enum language language, int64_t bytes, int32_t peer) {
  slot key = key_of_request(handle, language);
  unsigned row = row_of(key);
  // Of an unknown size: its wait has none. An earlier request may have had the same handle.
  if (bytes < 0) {
    if (atomic_load_explicit(&rows[row].handle, memory_order_relaxed) == key)
      atomic_store_explicit(&rows[row].handle, 0, memory_order_relaxed);
    return;
  }
  uint64_t kept = (uint64_t)(bytes > BYTES_MAX ? BYTES_MAX : bytes) << PEER_BITS | ((uint32_t)peer & 0xFFFFFF);
  atomic_store_explicit(&rows[row].handle, 0, memory_order_relaxed);
  atomic_store_explicit(&rows[row].message, kept, memory_order_release);
  atomic_store_explicit(&rows[row].handle, key, memory_order_release);
}

static bool find_request(slot handle, enum language language, int64_t *bytes, int32_t *peer) {
  slot key = key_of_request(handle, language);
  unsigned row = row_of(key);
  if (atomic_load_explicit(&rows[row].handle, memory_order_acquire) != key) return false;
  uint64_t kept = atomic_load_explicit(&rows[row].message, memory_order_relaxed);
  *bytes = (int64_t)(kept >> PEER_BITS);
  *peer = (int32_t)((uint32_t)kept << 8) >> 8;
  return true;
}

int64_t bytes_of_requests(const void *requests, int64_t count, enum language language, int32_t *peer) {
  int64_t sum = 0, bytes = 0;
  bool any = false;
  for (int64_t at = 0; at < count; at++) {
    if (!find_request(request_at(requests, at, language), language, &bytes, peer)) continue;
    any = true;
    sum += bytes;
  }
  if (count != 1) *peer = -1;
  return any ? sum : -1;
}

int64_t bytes_of_completed(const void *requests, int64_t count, const int32_t *indices, int64_t completed,
                           enum language language, int64_t before) {
  int32_t peer;
  // A completed request is MPI_REQUEST_NULL now, so what is missing is its message; unless it is persistent.
  int64_t left = bytes_of_requests(requests, count, language, &peer), bytes;
  int64_t sum = left < 0 ? before : before - left;
  for (int64_t at = 0; at < completed; at++) {
    int64_t index = indices[at] - (language == FORTRAN);
    if (index >= 0 && index < count && find_request(request_at(requests, index, language), language, &bytes, &peer))
      sum += bytes;
  }
  return sum < 0 ? -1 : sum;
}
