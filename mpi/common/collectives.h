// SPDX-License-Identifier: Apache-2.0 OR MIT
// MPI's collectives, blocking and non-blocking, with the data that each sends and receives. An operation of a rooted
// collective is a round in which each rank is the root once, and one of scan is a scan and another in reverse order of
// the ranks, so that no rank can run ahead of the others.
#pragma once
#include "measure.h"

// Layout of the buffers for one message size.
struct layout {
  int bytes;          // m
  int *lengths;       // of blocks of unequal length, m on average
  int *offsets;       // of these blocks
  int count;          // elements of `type` in m bytes
  MPI_Datatype type;  // of the reduction
  MPI_Op operation;
  int *counts;  // elements of `type` in each rank's part of m bytes
};

// Starts a collective; if `request` is NULL, calls the blocking function. `round` counts the calls of one operation:
// the root, or 1 for the scan in reverse order.
typedef void collective_function(const struct layout *layout, int round, unsigned char *out, unsigned char *in,
                                 MPI_Request *request);

struct collective {
  const char *name;
  collective_function *function;
  int rooted;
  enum {
    SEND_NOTHING,
    SEND_SAME,           // the same block to all ranks
    SEND_EQUAL_BLOCKS,   // a block to each rank, of equal lengths
    SEND_UNEQUAL_BLOCKS  // a block to each rank, of unequal lengths
  } sends;
  enum {
    RECEIVE_NOTHING,
    RECEIVE_EQUAL_BLOCKS,    // a block from each rank, of equal lengths
    RECEIVE_UNEQUAL_BLOCKS,  // a block from each rank, of unequal lengths
    RECEIVE_OWN_LENGTH,      // a block from each rank, each of this rank's length
    RECEIVE_FROM_OTHERS,     // a block from each other rank, of equal lengths
    RECEIVE_SUM,             // over all ranks
    RECEIVE_PREFIX_SUMS,     // two: over the ranks up to this one, and over those from this one on
    RECEIVE_SUM_PART         // this rank's part of the sum of all ranks
  } receives;
};

enum {
  COLLECTIVES = 14
};
extern const struct collective collectives[COLLECTIVES];

// Allocates buffers for a size; the previous ones must have been freed. Returns 0 if the collective is left out for
// this size.
int open_collective(const struct collective *collective, size_t bytes);
void close_collective(void);
// Executes `count` operations of the open collective, one after another.
void run_blocking(int count);
// Likewise with non-blocking calls, and `collective_operations` of computation between each call and its wait.
void run_nonblocking(int count);
extern uint64_t collective_operations;
// The measurement of the open collective, without `run` and the point's quantity.
struct pattern collective_pattern(void);
