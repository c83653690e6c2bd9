// SPDX-License-Identifier: Apache-2.0 OR MIT
// MPI's collectives: what each sends and receives, blocking and non-blocking. An operation of one with a root is a
// round in which each rank is the root once: no rank can then run ahead of the others.
#pragma once
#include "measure.h"

// Of one size.
struct layout {
  int bytes;          // m
  int *lengths;       // of blocks that differ, m on average
  int *offsets;       // of those
  int count;          // of `type`, in m bytes
  MPI_Datatype type;  // that is summed
  MPI_Op operation;
  int *counts;  // of `type`, in each rank's part of m bytes
};

// Begins one collective, or does it at once if `request` is NULL.
typedef void collective_function(const struct layout *layout, int root, unsigned char *out, unsigned char *in,
                                 MPI_Request *request);

struct collective {
  const char *name;
  collective_function *function;
  int rooted;
  enum {
    NOTHING,
    ALL,       // the same for all
    SAME,      // a block for each rank, all as long
    DIFFERENT  // a block for each rank, of different lengths
  } sends;
  enum {
    NONE,
    BLOCKS,          // from each rank, all as long
    BLOCKS_DIFFER,   // from each rank, of different lengths
    BLOCKS_AS_MINE,  // from each rank, each as long as this rank's
    OTHERS,          // from each other rank, all as long
    SUM,             // of all ranks
    SUM_TO_HERE,     // of the ranks up to this one
    SUM_PART         // this rank's part of the sum of all ranks
  } receives;
};

enum {
  COLLECTIVES = 14
};
extern const struct collective collectives[COLLECTIVES];

// Buffers for a size, after the last ones were freed; returns 0 if the collective is left out with messages of this
// size.
int open_collective(const struct collective *collective, size_t bytes);
void close_collective(void);
// Of the collective that is open: does so many operations, one after the other.
void run_blocking(int count);
// The same by non-blocking calls, with so much computation between the call and the wait for it.
void run_nonblocking(int count);
extern uint64_t collective_operations;
// A pattern of it, but for `run` and the point's quantity.
struct pattern collective_pattern(void);
