// SPDX-License-Identifier: Apache-2.0 OR MIT
// Messages of one size between the first rank and the last: contents, buffers, checks. Other ranks have nothing to do.
#pragma once
#include "suite.h"

enum {
  MESSAGE = 1,  // tags
  ANSWER,       // one byte back
  READY         // nothing in it: the other side may begin
};

struct ends {
  size_t bytes;
  struct buffers out, in;  // with contents to send; to receive into
};

static inline int takes_part(void) { return rank == 0 || rank == ranks - 1; }
static inline int other_rank(void) { return rank == 0 ? ranks - 1 : 0; }

struct ends open_ends(size_t bytes);
void close_ends(struct ends *ends);
// Checks the messages that came since the last check, or as many of the latest as there are buffers, and clears these
// so that no message passes for the next one. Outside any timed stretch; a wrong one is named by its `variant`.
void check_received(struct ends *ends, const char *variant, int received);

static inline void send_ready(void) { MPI_Send(NULL, 0, MPI_BYTE, other_rank(), READY, MPI_COMM_WORLD); }
static inline void await_ready(void) {
  MPI_Recv(NULL, 0, MPI_BYTE, other_rank(), READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
