// SPDX-License-Identifier: Apache-2.0 OR MIT
// Consecutive messages with a computation between any two: the time between them is the gap g as long as the
// computation hides, and overhead + computation as soon as it does not.
#pragma once
#include "sweep.h"

// Trains of messages, each train ended by an answer: the sender has the clock. T(n) is the time of a train of n with
// its answer; `part_ns` is that of ANSWERED trains of a single message, so that (T(n) - T(1)) / (n - 1) is free of the
// answer and of the last message's way.
enum {
  ANSWERED = 8
};
struct stretch gap_send(struct channel *channel, int inner, uint64_t operations);
// The same with Isend, computation, Wait.
struct stretch gap_isend(struct channel *channel, int inner, uint64_t operations);
// The receiver has the clock, from the first message's arrival to the last of `inner` more.
struct stretch gap_receive(struct channel *channel, int inner, uint64_t operations);
