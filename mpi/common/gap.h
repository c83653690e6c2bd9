// SPDX-License-Identifier: Apache-2.0 OR MIT
// Consecutive messages with a computation between any two. The interval between messages is the gap g while the
// computation is hidden, and overhead + computation beyond that. The test determines the mode of the sends, and whether
// receives are blocking or posted in advance.
#pragma once
#include "sweep.h"

// A train of inner + 1 messages, ended by an answer and timed by the sender. The time of a single message with its
// answer is subtracted (the mean of ANSWERED, measured right before; `part_ns` is their sum). This leaves `inner`
// intervals, without the answer and the latency of the last message.
enum {
  ANSWERED = 4
};
#define SENT_TRAIN .part = "single", .part_inner = ANSWERED, .train = 1
struct stretch gap_send(struct ends *ends, int inner, uint64_t operations);
// The same with a non-blocking send, computation, Wait.
struct stretch gap_isend(struct ends *ends, int inner, uint64_t operations);
// Timed by the receiver, from the arrival of the first of inner + 1 messages to that of the last. With posted receives
// the computation is before Wait, and the next receive is posted after it.
#define RECEIVED_TRAIN .computing = LAST, .train = 1
struct stretch gap_receive(struct ends *ends, int inner, uint64_t operations);
