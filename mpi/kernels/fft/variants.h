// SPDX-License-Identifier: Apache-2.0 OR MIT
// In which order transpositions and rows go.
#pragma once
#include "exchange.h"

enum {
  EXCHANGES = 2  // under way at once, at most; with more all took longer
};

// Two threads and what they share.
struct team;

// One plan to execute a transform.
struct plan {
  struct transform *transform;
  enum calls calls;
  int yields;  // whether waiting gives the core away between looks
  struct exchange exchanges[EXCHANGES];
  struct team *team;  // of the multi-threaded plan
};

struct variant {
  const char *name;
  int whole;  // whether it takes whole transpositions
  // Executions by this variant, for struct kernel.
  void (*execute)(void *plan, double *times);
};
// Ends with an empty name.
extern const struct variant fft_variants[];

struct plan plan_for(struct transform *transform, const struct variant *variant, enum calls calls);
void free_plan(struct plan *plan);

// Exchanges as many rows as go at a time, packed first if the stage is the first; all has ended on return.
void exchange_rows(struct plan *plan, int stage, size_t first, struct stopwatch *watch);

// The multi-threaded plan, in threads.c.
struct team *team_for(struct transform *transform);
void free_team(struct team *team);
void execute_with_threads(void *plan, double *times);
