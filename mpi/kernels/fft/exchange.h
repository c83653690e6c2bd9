// SPDX-License-Identifier: Apache-2.0 OR MIT
// The communication of a transposition: so many rows of every block, with every other rank.
#pragma once
#include "transform.h"

// By Sendrecv with one rank after the other, or by separate calls with all at once.
enum calls {
  SENDRECV,
  SEPARATE
};

struct exchange {
  MPI_Request *requests;
  int count;
};
struct exchange exchange_for(void);
void free_exchange(struct exchange *exchange);

// Posts all receives, then all sends.
void exchange_start(const struct transform *transform, int stage, size_t first, size_t rows, struct exchange *exchange);
// Lets it go on; it may have ended before.
void exchange_push(struct exchange *exchange);
void exchange_finish(struct exchange *exchange);
// The same, giving the core away between looks.
void exchange_finish_yielding(struct exchange *exchange);
void exchange_sendrecv(const struct transform *transform, int stage, size_t first, size_t rows);
