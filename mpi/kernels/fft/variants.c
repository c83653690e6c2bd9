// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "variants.h"

#include "../shared/worker.h"

static void pack(struct transform *transform, int stage, size_t first, struct stopwatch *watch) {
  if (stage > 0) return;
  pack_input(transform, first, transform->stages[0].exchange);
  lap(watch, PACKING);
}

void exchange_rows(struct way *way, int stage, size_t first, struct stopwatch *watch) {
  struct transform *transform = way->transform;
  size_t rows = transform->stages[stage].exchange;
  pack(transform, stage, first, watch);
  if (way->calls == SENDRECV) {
    exchange_sendrecv(transform, stage, first, rows);
  } else {
    exchange_start(transform, stage, first, rows, &way->exchanges[0]);
    if (way->yields) exchange_finish_yielding(&way->exchanges[0]);
    exchange_finish(&way->exchanges[0]);
  }
  lap(watch, CALLS + stage);
}

// Whole transpositions are rows whose number is all.
static void by_rows(void *given, double *times) {
  struct way *way = given;
  struct transform *transform = way->transform;
  struct stopwatch watch = stopwatch_for(times);
  for (int stage = 0; stage < STAGES; stage++) {
    size_t rows = transform->stages[stage].exchange;
    for (size_t first = 0; first < transform->stages[stage].rows; first += rows) {
      exchange_rows(way, stage, first, &watch);
      process(transform, stage, first, rows, &watch);
    }
  }
}

// Processes rows in small parts, and lets the exchange of the next ones go on in between.
static void process_pushing(struct transform *transform, int stage, size_t first, struct exchange *next,
                            struct stopwatch *watch) {
  size_t rows = transform->stages[stage].exchange, part = stage < 2 ? transform->lines[stage].group : rows;
  for (size_t row = first; row < first + rows; row += part) {
    process(transform, stage, row, part, watch);
    if (next) exchange_push(next);
    lap(watch, CALLS + stage);
  }
}

static void non_blocking(void *given, double *times) {
  struct way *way = given;
  struct transform *transform = way->transform;
  struct stopwatch watch = stopwatch_for(times);
  for (int number = 0; number < STAGES; number++) {
    const struct stage *stage = &transform->stages[number];
    struct exchange *now = &way->exchanges[0], *next = &way->exchanges[1];
    pack(transform, number, 0, &watch);
    exchange_start(transform, number, 0, stage->exchange, now);
    lap(&watch, CALLS + number);
    for (size_t first = 0; first < stage->rows; first += stage->exchange) {
      size_t following = first + stage->exchange;
      if (following < stage->rows) {
        pack(transform, number, following, &watch);
        exchange_start(transform, number, following, stage->exchange, next);
      }
      exchange_finish(now);
      lap(&watch, CALLS + number);
      process_pushing(transform, number, first, following < stage->rows ? next : NULL, &watch);
      struct exchange *ended = now;
      now = next;
      next = ended;
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

struct way way_for(struct transform *transform, const struct variant *variant, enum calls calls) {
  struct way made = {.transform = transform, .calls = calls, .exchanges = {exchange_for(), exchange_for()}};
  if (variant->execute == execute_with_threads) {
    made.team = team_for(transform);
    made.yields = one_core();
  }
  return made;
}

void free_way(struct way *way) {
  if (way->team) free_team(way->team);
  for (int number = 0; number < 2; number++) free_exchange(&way->exchanges[number]);
}
