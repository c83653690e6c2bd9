// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "choose.h"

#include <stdio.h>
#include <stdlib.h>

enum {
  ROUNDS_MAX = 5
};
#define DROP_ABOVE 1.25

struct candidate {
  struct exchange exchange;
  double times[ROUNDS_MAX];
  int count, dropped;
};

static double slowest_ns(struct sort *sort, struct candidate *candidate) {
  double unused[QUANTITIES_MAX] = {0}, slowest;
  sort->exchange = &candidate->exchange;
  MPI_Barrier(MPI_COMM_WORLD);
  uint64_t start = now_ns();
  execute_sort(sort, unused);
  double here = (double)(now_ns() - start);
  MPI_Allreduce(&here, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static int by_value(const void *left_key, const void *right_key) {
  double first = *(const double *)left_key, second = *(const double *)right_key;
  return (first > second) - (first < second);
}

static double best_of(const struct candidate *candidate) {
  double best = candidate->times[0];
  for (int round = 1; round < candidate->count; round++)
    if (candidate->times[round] < best) best = candidate->times[round];
  return best;
}

static double median_of(const struct candidate *candidate) {
  double sorted[ROUNDS_MAX];
  for (int round = 0; round < candidate->count; round++) sorted[round] = candidate->times[round];
  qsort(sorted, (size_t)candidate->count, sizeof *sorted, by_value);
  return sorted[candidate->count / 2];
}

// Returns the number of remaining candidates.
static int drop_slow(struct candidate *candidates, int count) {
  double best = best_of(&candidates[0]);
  int left = 0;
  for (int algorithm = 1; algorithm < count; algorithm++)
    if (best_of(&candidates[algorithm]) < best) best = best_of(&candidates[algorithm]);
  for (int algorithm = 0; algorithm < count; algorithm++) {
    candidates[algorithm].dropped |= best_of(&candidates[algorithm]) > DROP_ABOVE * best;
    left += !candidates[algorithm].dropped;
  }
  return left;
}

static void run_rounds(struct sort *sort, struct candidate *candidates, int count) {
  for (int round = 0, left = count; round < ROUNDS_MAX && left > 1; round++) {
    for (int number = 0; number < count; number++) {
      struct candidate *candidate = &candidates[(round + number) % count];
      if (!candidate->dropped) candidate->times[candidate->count++] = slowest_ns(sort, candidate);
    }
    left = drop_slow(candidates, count);
  }
}

static void write_reason(struct choice *choice, const struct candidate *candidates, int count) {
  size_t size = sizeof choice->reason;
  int at = snprintf(choice->reason, size, "fastest by the median of its trials:");
  for (int algorithm = 0; algorithm < count && (size_t)at < size; algorithm++) {
    const struct candidate *candidate = &candidates[algorithm];
    at += snprintf(choice->reason + at, size - (size_t)at, "%s %s %.3f ms of %d%s", algorithm ? "," : "",
                   algorithm_names[algorithm], median_of(candidate) / 1e6, candidate->count,
                   candidate->dropped ? " (dropped)" : "");
  }
  if (count < ALGORITHMS && (size_t)at < size)
    snprintf(choice->reason + at, size - (size_t)at,
             "; multi-threaded not tried, because the library does not provide %s", "MPI_THREAD_SERIALIZED");
}

struct choice choose_algorithm(struct sort *sort, size_t capacity) {
  int level;
  MPI_Query_thread(&level);
  // The multi-threaded algorithm needs a higher thread level than the others.
  int count = level >= MPI_THREAD_SERIALIZED ? ALGORITHMS : MULTI_THREADED;
  struct candidate candidates[ALGORITHMS] = {0};
  uint64_t start = now_ns();
  for (int algorithm = 0; algorithm < count; algorithm++) {
    exchange_create(&candidates[algorithm].exchange, (enum algorithm)algorithm, sort, capacity);
    slowest_ns(sort, &candidates[algorithm]);
  }
  run_rounds(sort, candidates, count);
  struct choice choice = {.algorithm = ORIGINAL};
  while (candidates[choice.algorithm].dropped) choice.algorithm++;
  for (int algorithm = 0; algorithm < count; algorithm++)
    if (!candidates[algorithm].dropped && median_of(&candidates[algorithm]) < median_of(&candidates[choice.algorithm]))
      choice.algorithm = (enum algorithm)algorithm;
  choice.trial_ns = (double)(now_ns() - start);
  write_reason(&choice, candidates, count);
  for (int algorithm = 0; algorithm < count; algorithm++) exchange_destroy(&candidates[algorithm].exchange);
  return choice;
}
