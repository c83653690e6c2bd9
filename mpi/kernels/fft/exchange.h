// SPDX-License-Identifier: Apache-2.0 OR MIT
// The communication of a transposition: a number of rows of every block, with every other rank.
#pragma once
#include "transform.h"

// Sendrecv with one rank after another, or separate calls with all ranks at once.
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
// Makes progress; the exchange may be complete already.
void exchange_progress(struct exchange *exchange);
void exchange_finish(struct exchange *exchange);
// The same, yielding the core between polls.
void exchange_finish_yielding(struct exchange *exchange);
void exchange_sendrecv(const struct transform *transform, int stage, size_t first, size_t rows);
