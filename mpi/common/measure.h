// SPDX-License-Identifier: Apache-2.0 OR MIT
// The measurement of all traffic patterns. A stretch gives one value: enough operations between two clock readings to
// last RESOLUTIONS_MIN clock steps. Series of stretches of growing length determine that number; the measured series
// follows. The others are recorded as warm-up. The messages of all series are checked.
#pragma once
#include "suite.h"

// The messages of one direction: each buffer holds `blocks` messages, one after another.
struct messages {
  struct buffers buffers;
  size_t bytes;        // of one message
  int blocks;          // messages of one operation in one buffer
  const int *peers;    // destination or source of each block; NOBODY: the block is not used
  const int *numbers;  // for each block: distinguishes blocks between the same two ranks; NULL: one block each
  // Offset of each block in its buffer and its length; NULL: at multiples of `bytes`, each `bytes` long.
  const int *offsets, *lengths;
  int to_all;  // a rank sends the same contents to all others
  // The received data is the sum of the contents of the ranks below this number: of 64-bit words or, if the message is
  // not a multiple of 8 bytes, the exclusive or of bytes. 0: no reduction. A second block is the sum over this rank and
  // those after it.
  int summed;
  int bytewise;
  size_t skipped_words;  // words of that sum before the received part
};
enum {
  NOBODY = -1
};
// Buffers for at least `least` messages in flight at once, for each block.
struct messages messages_for(size_t bytes, int blocks, const int *peers, size_t least);
void free_messages(struct messages *messages);
// As many buffers in both directions, if their numbers of blocks differ: the message from a buffer is in the buffer of
// the same number.
void match_buffers(struct messages *out, struct messages *in);

// One variant of one test with one message size, for this rank.
struct pattern {
  struct point point;  // everything except `inner`
  int idle;            // this rank does not participate
  int timed;           // this rank's times are recorded
  int divide_by;       // one-way messages per operation if the value is per message; else 1
  int unit;            // `run` is called with multiples of this number of operations; 1 or more
  // Stretches show sustained behaviour: each lasts at least STEADY_NS and four units, right after a lead-in of a
  // quarter as many operations.
  int steady;
  // Operations are messages that arrive, in steady stretches. A library may receive those of the stretch during the
  // lead-in, and then only copy them: a stretch counts as at least its share of the time from the lead-in's begin.
  int arriving;
  // Executes `count` operations, each with the next buffers of `out` and `in`.
  void (*run)(int count);
  // Called before and after each series of stretches: to post receives before the first stretch, and to match those
  // left over. May be NULL. A barrier follows `open`.
  void (*open)(void);
  void (*close)(void);
  // Called after each stretch, outside the timed region: waits until all messages have arrived. May be NULL.
  void (*drain)(void);
  // NULL if this rank sends or receives nothing; equal if each operation receives into its send buffer.
  struct messages *out, *in;
};

enum {
  STEADY_NS = 4000000  // with its lead-in, well above the burst of 0.5 ms that a shaped link allows
};

// Measures and records. Collective over all ranks. Returns the median of this rank's values; 0 if it has none.
double measure(const struct pattern *pattern);
// Sets the ranks that measure from now on; by default all. Collective.
void set_measuring_ranks(int participates);

// Pairs of ranks of the first and the second half; `count` pairs measure at once while the other ranks sleep.
struct pair {
  int partner, first, idle, count;
  // --pairs was given, even as 1: round trips and exchanges are then measured in steady stretches, so that stretches of
  // several pairs overlap and one pair is measured in the same way.
  int steady;
};
extern int64_t pairs_requested;
enum {
  PAIRS_NOT_GIVEN = -1
};
#define PAIRS_OPTION \
  { "pairs", COUNT, &pairs_requested, "concurrent pairs, rank r with r + ranks/2; 0: all, a bisection (one pair)" }
// Collective, after begin; a usage error if there are too few ranks.
struct pair join_pairs(void);
// Resets the measuring ranks, for the next program in the same MPI job.
void reset_measuring_ranks(void);
