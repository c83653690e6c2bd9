// SPDX-License-Identifier: Apache-2.0 OR MIT
// How all traffic patterns are measured. A stretch, which gives one value, is so many operations between two readings
// of the clock that it lasts RESOLUTIONS_MIN; how many is found out by series of stretches of growing length. Then
// comes the series that counts. All others are recorded as warm-up, and the messages of all are checked.
#pragma once
#include "suite.h"

// The messages of one direction: each buffer holds `blocks` of them, one after the other.
struct messages {
  struct buffers buffers;
  size_t bytes;        // of one message
  int blocks;          // messages of one operation that lie in one buffer
  const int *peers;    // for each block: to whom, or from whom; NOBODY: the block is not used
  const int *numbers;  // for each block: tells it from others between the same two ranks; NULL: there are none
  // Where each block lies in its buffer and how many bytes it has; NULL: at multiples of `bytes`, so many.
  const int *offsets, *lengths;
  int to_all;  // a rank sends all others the same contents
  // What is received is the sum of what the ranks below this number send to all: of 64-bit words or, where the message
  // of the operation is no whole number of them, the exclusive or of bytes; 0: neither.
  int summed;
  int bytewise;
  size_t skipped_words;  // what is received begins so many words into that sum
};
enum {
  NOBODY = -1
};
// Buffers for at least `least` messages that are under way at once, for each block.
struct messages messages_for(size_t bytes, int blocks, const int *peers, size_t least);
void free_messages(struct messages *messages);

// One variant of one test with one message size, as this rank sees it.
struct pattern {
  struct point point;  // all but `inner`
  int idle;            // this rank takes no part
  int timed;           // this rank's times are recorded
  int divide_by;       // one-way trips in an operation, if the value is the time of one; else 1
  int unit;            // `run` is called for multiples of so many operations; 1 or more
  // A stretch is to show what goes on and on, not a beginning: it lasts STEADY_NS and four units, and there is a
  // lead-in of a quarter as many operations right before it.
  int steady;
  // Does so many operations, each with the next buffers of `out` and `in`.
  void (*run)(int count);
  // Around each series of stretches: receives that stand before the first of them, and the messages for those that are
  // left. May be NULL. A barrier follows `open`.
  void (*open)(void);
  void (*close)(void);
  // After each stretch, outside the clock: until all messages have arrived. May be NULL.
  void (*settle)(void);
  // NULL where this rank sends or receives nothing; the same one twice if each operation receives into what it sends.
  struct messages *out, *in;
};

enum {
  STEADY_NS = 4000000  // with its lead-in, well above the 0.5 ms of burst that a shaped link lets through
};

// Measures and records. Collective over all ranks. Returns the median of this rank's values; 0 where it has none.
double measure(const struct pattern *pattern);
// Which ranks take part from now on, if not all. Collective.
void measure_among(int takes_part);

// Pairs of ranks: the first half with the second, `count` of which measure at once while the others sleep.
struct pair {
  int partner, first, idle, count;
  // A number was asked for, be it one: round trips and exchanges are then measured in steady stretches, which several
  // pairs need so that they meet, and one needs to be compared with them.
  int steady;
};
extern int64_t pairs_wanted;
enum {
  PAIRS_NOT_GIVEN = -1
};
#define PAIRS_OPTION \
  { "pairs", COUNT, &pairs_wanted, "so many pairs at once, rank r with r + ranks/2; 0: all, a bisection (one pair)" }
// Collective, after begin; wrong use if there are not so many.
struct pair join_pairs(void);
// Forgets the ranks and pairs that measured, for the next program of the same start of MPI.
void disband(void);
