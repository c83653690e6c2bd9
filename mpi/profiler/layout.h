// SPDX-License-Identifier: Apache-2.0 OR MIT
// The profile of one process: a mapped file, so that the record survives any end of the process.
// python/barewire/results/profile.py reads it.
//
//   0            header
//   sizeof       names: one struct name for each call
//   block_offset block of the first thread, block_bytes long
//   + block_bytes, … blocks of further threads, `threads` in all
//
// Numbers are in native byte order. Times are nanoseconds of CLOCK_MONOTONIC, 0 for events that have not occurred.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define PROFILE_MAGIC "bwprof3"
#define NAME_BYTES 52
#define TEXT_BYTES 256
// Different (call, size class) pairs of a thread; a program uses some dozens. Further pairs share the last entry.
#define ENTRIES 512
#define LONGEST 16
#define BINS 256
// More than the cores of a rank. Further threads are counted, not recorded.
#define THREADS_MAX 128
// Size classes: 0 no size, 1 empty, k + 1 from 2^(k-1) bytes to below 2^k.
#define UNKNOWN_CLASS 0
#define OTHER_CALL 0xFFFF

// Written by one thread only; may be read at any time.
typedef _Atomic uint64_t number;

enum kind {
  SEND,
  RECEIVE,
  PROBE,
  START,
  WAIT,
  TEST,
  COLLECTIVE,
  ONE_SIDED,
  SYNCHRONISE,
  FILE_IO,
  LOCAL,
  SET_UP,
  KINDS,
};

enum state {
  RUNNING,
  FINALISED,
  ABORTED,
};

struct name {
  char kind[12];
  char text[NAME_BYTES - 12];
};

struct header {
  char magic[8];
  uint32_t names, block_offset, block_bytes, entries, longest, bins;
  // In MPI_COMM_WORLD; before the end of MPI_Init from the launcher's environment, -1 if unknown.
  int32_t rank, size;
  int32_t pid, thread_level, spawned, abort_code;
  // Cost of recording one call, measured before MPI_Init.
  uint32_t cost_ps;
  uint32_t light;
  number state, threads, threads_unrecorded;
  number loaded, init_begin, init_end, finalize_begin, finalize_end, left;
  char host[TEXT_BYTES], program[TEXT_BYTES], library[TEXT_BYTES], job[TEXT_BYTES];
};

struct entry {
  // Key 0: free; else (call + 1) << 8 | size class.
  number key, calls, bytes, time, shortest, longest;
};

struct longest {
  number key, time, begin, bytes;
  // Rank in the call's communicator; negative: any source, or none.
  _Atomic int64_t peer;
};

struct block {
  number first, last, calls, time;
  // The current call of the thread: call + 1, and its start.
  number inside, since;
  number bin_shift, shortest_kept;
  struct entry entries[ENTRIES];
  struct longest longest[LONGEST];
  // Time in calls over the run: bins of 2^bin_shift ns from init_begin.
  number bins[BINS];
};
