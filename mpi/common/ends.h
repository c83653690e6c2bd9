// SPDX-License-Identifier: Apache-2.0 OR MIT
// Messages of one size between the first rank and the last: contents, buffers, checks. Other ranks are idle.
#pragma once
#include "suite.h"

enum {
  MESSAGE = 1,  // tags
  ANSWER,       // one-byte reply
  READY         // empty: the peer may begin
};

struct ends {
  size_t bytes;
  struct buffers out, in;  // with contents to send; to receive into
};

static inline int participates(void) { return rank == 0 || rank == ranks - 1; }
static inline int other_rank(void) { return rank == 0 ? ranks - 1 : 0; }

struct ends open_ends(size_t bytes);
void close_ends(struct ends *ends);
// Checks the messages received since the last check (at most the latest one in each buffer) and clears the buffers, so
// that an old message cannot pass for a new one. Outside any timed stretch; `variant` appears in the error message.
void check_received(struct ends *ends, const char *variant, int received);

static inline void send_ready(void) { MPI_Send(NULL, 0, MPI_BYTE, other_rank(), READY, MPI_COMM_WORLD); }
static inline void await_ready(void) {
  MPI_Recv(NULL, 0, MPI_BYTE, other_rank(), READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
