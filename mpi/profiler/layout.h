// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the profiler leaves of one process: a file that the process has mapped, so that whatever ends it, what was
// recorded stays. python/barewire/mpi/profile_file.py reads it.
//
//   0            header
//   sizeof       names: one struct name for each call
//   block_offset block of the first thread, block_bytes long
//   + block_bytes, … blocks of further threads, `threads` in all
//
// Numbers are the machine's own. Times are nanoseconds of CLOCK_MONOTONIC, 0 for what has not happened.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define PROFILE_MAGIC "bwprof2"
#define NAME_BYTES 40
#define TEXT_BYTES 256
// One thread has so many different (call, size class); a program uses some dozens. What comes beyond goes to one entry.
#define ENTRIES 512
#define LONGEST 16
#define BINS 256
// More than a rank has cores. Further threads are counted, not recorded.
#define THREADS_MAX 128
// Size classes: 0 without a size, 1 nothing, k + 1 from 2^(k-1) bytes to below 2^k.
#define UNKNOWN_CLASS 0
#define OTHER_CALL 0xFFFF

// One writer, the thread itself; a reader may come at any time.
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
  // Of MPI_COMM_WORLD; before MPI_Init has ended what the launcher says, -1 if nothing.
  int32_t rank, size;
  int32_t pid, thread_level, spawned, abort_code;
  // Of recording one call, measured before MPI_Init.
  uint32_t cost_ps;
  uint32_t light;
  number state, threads, threads_unrecorded;
  number loaded, init_begin, init_end, finalize_begin, finalize_end, left;
  char host[TEXT_BYTES], program[TEXT_BYTES], library[TEXT_BYTES], job[TEXT_BYTES];
};

struct entry {
  // 0 is free; else call + 1 << 8 | size class.
  number key, calls, bytes, time, shortest, longest;
};

struct longest {
  number key, time, begin, bytes;
  // Rank in the call's communicator; below 0 any, or none.
  _Atomic int64_t peer;
};

struct block {
  number first, last, calls, time;
  // The call that the thread is in: call + 1, and since when.
  number inside, since;
  number bin_shift, shortest_kept;
  struct entry entries[ENTRIES];
  struct longest longest[LONGEST];
  // Time in calls by when it was: bins of 2^bin_shift ns from init_begin.
  number bins[BINS];
};
