// SPDX-License-Identifier: Apache-2.0 OR MIT
// In which order transpositions and rows go.
#pragma once
#include "exchange.h"

// Two threads and what they share.
struct team;

// One way to execute a transform.
struct way {
  struct transform *transform;
  enum calls calls;
  int yields;  // whether waiting gives the core away between looks
  struct exchange exchanges[2];
  struct team *team;  // of the multi-threaded way
};

struct variant {
  const char *name;
  int whole;  // whether it takes whole transpositions
  // Executions by this variant, for struct kernel.
  void (*execute)(void *way, double *times);
};
// Ends with an empty name.
extern const struct variant fft_variants[];

struct way way_for(struct transform *transform, const struct variant *variant, enum calls calls);
void free_way(struct way *way);

// Exchanges as many rows as go at a time, packed first if the stage is the first; all has ended on return.
void exchange_rows(struct way *way, int stage, size_t first, struct stopwatch *watch);

// The multi-threaded way, in threads.c.
struct team *team_for(struct transform *transform);
void free_team(struct team *team);
void execute_with_threads(void *way, double *times);
