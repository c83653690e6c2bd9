// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "sweep.h"

#include <stdlib.h>

#include "compute.h"
#include "statistic.h"

enum {
  TESTS_MAX = 32,
  POINTS_MAX = 1000,
  TRAIN_MIN = 16,
  TRAINS_MIN = 20,     // per point, if the messages are fast enough
  BASE_STRETCHES = 7,  // for the uncomputed time; the first ones also connect
};

static int64_t points = 11, train = 64;
static double reach = 2;
static const struct extra options[] = {
    {"points", COUNT, &points, "computations of different length for each size (11)"},
    {"reach", REAL, &reach, "the longest, as a multiple of the uncomputed time (2)"},
    {"train", COUNT, &train, "consecutive messages, at most (64)"},
    {0}};

// One test at one size.
struct measured {
  const struct swept *test;
  struct ends *ends;
  int computing;   // rank
  int inner;       // operations in a stretch
  double base_ns;  // of one operation without computation
};

// Both sides start together, because checking messages takes one side longer than the other.
static struct stretch run_stretch(const struct measured *measured, uint64_t operations) {
  if (rank == measured->computing) {
    await_ready();
  } else {
    send_ready();
  }
  struct stretch stretch = measured->test->stretch(measured->ends, measured->inner, operations);
  check_received(measured->ends, measured->test->variant, stretch.received);
  return stretch;
}

static double base_time_ns(const struct measured *measured) {
  double values[BASE_STRETCHES] = {0};
  for (int number = 0; number < BASE_STRETCHES && participates(); number++)
    values[number] = run_stretch(measured, 0).total_ns / measured->inner;
  double base_ns = median(values, BASE_STRETCHES);
  MPI_Bcast(&base_ns, 1, MPI_DOUBLE, measured->computing, MPI_COMM_WORLD);
  return base_ns > 1 ? base_ns : 1;
}

static void choose_inner(struct measured *measured) {
  measured->inner = measured->test->train ? TRAIN_MIN : 1;
  double base_ns = base_time_ns(measured);
  int least = agree_repetitions(base_ns).inner;
  if (measured->test->train) {
    double fit = settings.seconds * 1e9 / TRAINS_MIN / base_ns;
    measured->inner = fit < (double)train ? (int)fit : (int)train;
    if (measured->inner < TRAIN_MIN) measured->inner = TRAIN_MIN;
  }
  if (measured->inner < least) measured->inner = least;
  measured->base_ns = base_time_ns(measured);
}

static void record_both(struct point *point, const char *quantity, int inner, const struct repetitions *agreed,
                        const double *values, int computes) {
  point->quantity = quantity;
  point->inner = inner;
  record(point, WARMUP, values, computes ? agreed->warmup : 0);
  record(point, MEASURE, values + agreed->warmup, computes ? agreed->outer : 0);
}

static void measure_point(const struct measured *measured, double wanted_ns) {
  const struct swept *test = measured->test;
  int inner = measured->inner, computes = rank == measured->computing;
  uint64_t operations = operations_for(wanted_ns);
  // With messages and the computation alone. All ranks compute the same numbers.
  struct repetitions agreed = {.outer = samples_within((measured->base_ns + 2 * wanted_ns) * inner),
                               .warmup = settings.warmup};
  int count = agreed.warmup + agreed.outer;
  double *times = allocate((size_t)count * sizeof(double)), *parts = allocate((size_t)count * sizeof(double)),
         *alone = allocate((size_t)count * sizeof(double));
  int part_inner = test->part_inner ? test->part_inner : inner;
  for (int number = 0; number < count && participates(); number++) {
    struct stretch stretch = run_stretch(measured, operations);
    if (!computes) continue;
    times[number] = stretch.total_ns / inner;
    parts[number] = stretch.part_ns / part_inner;
    alone[number] = computation_alone_ns(operations, inner) / inner;
  }
  struct point point = {.variant = test->variant, .message_bytes = measured->ends->bytes};
  if (test->grid != NEVER) {
    point.parameter = "computation_ns";
    point.parameter_value = median(alone + agreed.warmup, agreed.outer);
    MPI_Bcast(&point.parameter_value, 1, MPI_DOUBLE, measured->computing, MPI_COMM_WORLD);
    record_both(&point, "computation", inner, &agreed, alone, computes);
  }
  record_both(&point, "time", inner, &agreed, times, computes);
  if (test->part) record_both(&point, test->part, part_inner, &agreed, parts, computes);
  free(times);
  free(parts);
  free(alone);
}

// In an order drawn from the seed, so that a change of the machine's speed does not distort the curve.
static void measure_grid(const struct measured *measured) {
  int count = (int)points, order[POINTS_MAX] = {0};
  uint64_t state = settings.seed;
  for (int point = 0; point < count; point++) {
    int swapped = (int)(draw(&state) % (uint64_t)(point + 1));
    order[point] = order[swapped];
    order[swapped] = point;
  }
  for (int point = 0; point < count; point++)
    measure_point(measured, measured->base_ns * reach * order[point] / (count - 1));
}

static void measure(const struct swept *test, size_t bytes) {
  struct ends ends = open_ends(bytes, test->mode ? test->mode : &standard_mode, test->posted);
  struct measured measured = {.test = test, .ends = &ends, .computing = test->computing == FIRST ? 0 : ranks - 1};
  choose_inner(&measured);
  if (test->grid == SWEEP) measure_grid(&measured);
  if (test->grid == NEVER) measure_point(&measured, 0);
  if (test->grid == TWICE) measure_point(&measured, 2 * measured.base_ns);
  close_ends(&ends);
}

void sweep(int argc, char **argv, const char *name, const char *summary, const struct swept *tests, int count) {
  const char *variants[TESTS_MAX + 1] = {NULL};
  for (int test = 0; test < count; test++) variants[test] = tests[test].variant;
  begin(argc, argv,
        &(struct program){.name = name, .summary = summary, .variants = variants, .extras = options, .ranks_min = 2});
  if (points < 4 || points > POINTS_MAX)
    usage_error("--points must be from 4 to %d, not %" PRId64 ": a flat part and a slope need two each", POINTS_MAX,
                points);
  if (!(reach > 0 && reach <= 100)) usage_error("--reach must be above 0, at most 100, not %g", reach);
  if (train < TRAIN_MIN || train > INT32_MAX) usage_error("--train must be %d or more, not %" PRId64, TRAIN_MIN, train);
  for (int test = 0; test < count; test++)
    if (tests[test].mode == &buffered_mode && is_selected(tests[test].variant)) check_buffered_sizes();
  calibrate_computation();
  for (int size = 0; size < settings.size_count; size++)
    for (int test = 0; test < count; test++)
      if (is_selected(tests[test].variant)) measure(&tests[test], settings.sizes[size]);
  finish();
}
