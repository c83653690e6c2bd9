// SPDX-License-Identifier: Apache-2.0 OR MIT
// Consecutive messages with a computation between any two: the time between them is the gap g as long as the
// computation hides, and overhead + computation as soon as it does not.
#pragma once
#include "sweep.h"

// A train of inner + 1 messages, ended by an answer; the sender has the clock. What a single message with its answer
// takes is subtracted (the mean of ANSWERED, measured right before; `part_ns` is their sum), so that `inner` intervals
// are left, free of the answer and of the last message's way.
enum {
  ANSWERED = 4
};
struct stretch gap_send(struct ends *ends, int inner, uint64_t operations);
// The same with Isend, computation, Wait.
struct stretch gap_isend(struct ends *ends, int inner, uint64_t operations);
// The receiver has the clock, from the arrival of the first of inner + 1 messages to that of the last.
struct stretch gap_receive(struct ends *ends, int inner, uint64_t operations);
