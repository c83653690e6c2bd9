// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "variants.h"

#include "../shared/worker.h"

static void pack(struct transform *transform, int stage, size_t first, struct stopwatch *watch) {
  if (stage > 0) return;
  pack_input(transform, first, transform->stages[0].exchange);
  lap(watch, PACKING);
}

void exchange_rows(struct plan *plan, int stage, size_t first, struct stopwatch *watch) {
  struct transform *transform = plan->transform;
  size_t rows = transform->stages[stage].exchange;
  pack(transform, stage, first, watch);
  if (plan->calls == SENDRECV) {
    exchange_sendrecv(transform, stage, first, rows);
  } else {
    exchange_start(transform, stage, first, rows, &plan->exchanges[0]);
    if (plan->yields) exchange_finish_yielding(&plan->exchanges[0]);
    exchange_finish(&plan->exchanges[0]);
  }
  lap(watch, CALLS + stage);
}

// Also for whole transpositions, which exchange all rows at once.
static void by_rows(void *given, double *times) {
  struct plan *plan = given;
  struct transform *transform = plan->transform;
  struct stopwatch watch = stopwatch_for(times);
  for (int stage = 0; stage < STAGES; stage++) {
    size_t rows = transform->stages[stage].exchange;
    for (size_t first = 0; first < transform->stages[stage].rows; first += rows) {
      exchange_rows(plan, stage, first, &watch);
      process(transform, stage, first, rows, &watch);
    }
  }
}

static void start(struct plan *plan, int stage, size_t first, struct exchange *exchange, struct stopwatch *watch) {
  pack(plan->transform, stage, first, watch);
  exchange_start(plan->transform, stage, first, plan->transform->stages[stage].exchange, exchange);
  lap(watch, CALLS + stage);
}

// Processes rows in small parts, and makes progress on the exchange of the next rows in between.
static void process_with_progress(struct transform *transform, int stage, size_t first, struct exchange *next,
                                  struct stopwatch *watch) {
  size_t rows = transform->stages[stage].exchange, part = stage < 2 ? transform->lines[stage].group : rows;
  for (size_t row = first; row < first + rows; row += part) {
    process(transform, stage, row, part, watch);
    exchange_progress(next);
    lap(watch, CALLS + stage);
  }
}

static void non_blocking(void *given, double *times) {
  struct plan *plan = given;
  struct transform *transform = plan->transform;
  struct stopwatch watch = stopwatch_for(times);
  for (int stage = 0; stage < STAGES; stage++) {
    size_t rows = transform->stages[stage].exchange, all = transform->stages[stage].rows;
    start(plan, stage, 0, &plan->exchanges[0], &watch);
    for (size_t first = 0; first < all; first += rows) {
      struct exchange *now = &plan->exchanges[first / rows % EXCHANGES];
      struct exchange *next = &plan->exchanges[(first / rows + 1) % EXCHANGES];
      if (first + rows < all) start(plan, stage, first + rows, next, &watch);
      exchange_finish(now);
      lap(&watch, CALLS + stage);
      process_with_progress(transform, stage, first, next, &watch);
    }
  }
}

const struct variant fft_variants[] = {
    {"original", 1, by_rows},
    {"row-by-row", 0, by_rows},
    {"non-blocking", 0, non_blocking},
    {"multi-threaded", 0, execute_with_threads},
    {0},
};

struct plan plan_for(struct transform *transform, const struct variant *variant, enum calls calls) {
  struct plan made = {.transform = transform, .calls = calls};
  for (int number = 0; number < EXCHANGES; number++) made.exchanges[number] = exchange_for();
  if (variant->execute == execute_with_threads) {
    made.team = team_for(transform);
    made.yields = shares_one_core();
  }
  return made;
}

void free_plan(struct plan *plan) {
  if (plan->team) free_team(plan->team);
  for (int number = 0; number < EXCHANGES; number++) free_exchange(&plan->exchanges[number]);
}
