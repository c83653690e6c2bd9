// SPDX-License-Identifier: Apache-2.0 OR MIT
// The variants: different orders of transpositions and rows.
#pragma once
#include "exchange.h"

enum {
  EXCHANGES = 2  // maximum concurrent exchanges; more were slower
};

// State shared by the two threads.
struct team;

// A plan to execute a transform.
struct plan {
  struct transform *transform;
  enum calls calls;
  int yields;  // whether waiting yields the core between polls
  struct exchange exchanges[EXCHANGES];
  struct team *team;  // of the multi-threaded plan
};

struct variant {
  const char *name;
  int whole;  // whole transpositions
  // One execution by this variant, for struct kernel.
  void (*execute)(void *plan, double *times);
};
// Ends with an empty name.
extern const struct variant fft_variants[];

struct plan plan_for(struct transform *transform, const struct variant *variant, enum calls calls);
void free_plan(struct plan *plan);

// Exchanges the rows of one exchange, after packing them if the stage is the first. Complete on return.
void exchange_rows(struct plan *plan, int stage, size_t first, struct stopwatch *watch);

// The multi-threaded plan, in threads.c.
struct team *team_for(struct transform *transform);
void free_team(struct team *team);
void execute_with_threads(void *plan, double *times);
