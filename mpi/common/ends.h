// SPDX-License-Identifier: Apache-2.0 OR MIT
// Messages of one size between the first rank and the last: contents, buffers, checks. Other ranks are idle.
#pragma once
#include "mode.h"
#include "suite.h"

enum {
  MESSAGE = 1,  // tags
  ANSWER,       // one-byte reply
  READY         // empty: the peer may begin
};

struct ends {
  size_t bytes;
  struct buffers out, in;  // with contents to send; to receive into
  const struct mode *mode;
  int posted;  // receives posted in advance, at most POSTED_MAX; 0: blocking receives
};

enum {
  POSTED_MAX = 2
};

// Consecutive messages on their way to this rank.
struct receives {
  MPI_Request requests[POSTED_MAX];
  unsigned char *data[POSTED_MAX];
  int left;  // messages whose receives are not posted yet
  int next;  // index of the receive to complete
};

static inline int participates(void) { return rank == 0 || rank == ranks - 1; }
static inline int other_rank(void) { return rank == 0 ? ranks - 1 : 0; }

// With a buffer for each posted receive, and one more.
struct ends open_ends(size_t bytes, const struct mode *mode, int posted);
void close_ends(struct ends *ends);
// Checks the messages received since the last check (at most the latest one in each buffer) and clears the buffers, so
// that an old message cannot pass for a new one. Outside any timed stretch; `variant` appears in the error message.
void check_received(struct ends *ends, const char *variant, int received);

static inline void send_ready(void) { MPI_Send(NULL, 0, MPI_BYTE, other_rank(), READY, MPI_COMM_WORLD); }
static inline void await_ready(void) {
  MPI_Recv(NULL, 0, MPI_BYTE, other_rank(), READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// The last rank posts the first of its receives of `number` messages, then the first rank continues.
struct receives begin_receiving(struct ends *ends, int number);
// Receives the next message, by Recv or by Wait, and posts another receive if there are messages left for it. Returns
// the message.
unsigned char *receive_next(struct ends *ends, struct receives *receives);
