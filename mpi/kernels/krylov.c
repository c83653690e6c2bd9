// SPDX-License-Identifier: Apache-2.0 OR MIT
// Conjugate gradients for a Poisson problem: an exchange with neighbours and one or two small reductions in each
// iteration, so bound by latency.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "krylov/answer.h"

static const char *const names[] = {"blocking", "overlapped", "one-reduction", "pipelined", NULL};
static const char *sides = "128", *scaling = "strong";
static int64_t dimensions = 2;
static double tolerance = 1e-8;
static const struct extra extras[] = {
    {"side", TEXT, &sides, "N,N: points along each dimension, of the grid or of each rank's part (128)"},
    {"dimensions", COUNT, &dimensions, "2 or 3: a stencil of 5 or of 7 points (2)"},
    {"scaling", TEXT, &scaling, "strong: a grid of --side for all ranks; weak: for each rank (strong)"},
    {"tolerance", REAL, &tolerance, "ends at this residual, relative to the right-hand side (1e-8)"},
    {0},
};
static const struct program program = {
    .name = "krylov",
    .summary = "conjugate gradients for a Poisson problem; times are those of one iteration",
    .variants = names,
    .extras = extras,
    .has_no_sizes = 1,
    .ranks_min = 1,
};

// A measured solution and its problem.
struct checked {
  struct solver solver;
  struct answer answer;
  const struct variant *variant;
};

static void execute(void *state, double *times) {
  struct checked *checked = state;
  checked->variant->execute(&checked->solver, times);
}

static void check_one(void *state) {
  struct checked *checked = state;
  check_solution(&checked->answer, &checked->solver);
}

static void measure_variant(struct checked *checked, struct point point) {
  struct kernel kernel = {.quantities = krylov_quantities,
                          .state = checked,
                          .execute = execute,
                          .check = check_one,
                          .operations = &checked->solver.iterations};
  point.variant = checked->variant->name;
  measure_kernel(&kernel, point);
  point.quantity = "iterations";
  point.unit = "iterations";
  point.inner = 1;
  double iterations = checked->solver.iterations;
  record(&point, MEASURE, &iterations, 1);
}

static void measure_side(int64_t side) {
  static const char *const parameters[2][2] = {{"side_2d", "side_2d_per_rank"}, {"side_3d", "side_3d_per_rank"}};
  int per_rank = !strcmp(scaling, "weak");
  struct grid grid = grid_for((int)dimensions, side, per_rank);
  struct checked checked = {.solver = solver_for(&grid, tolerance)};
  checked.answer = answer_for(&checked.solver);
  struct point point = {.message_bytes = grid.face_bytes,
                        .parameter = parameters[dimensions == 3][per_rank],
                        .parameter_value = (double)side};
  for (checked.variant = krylov_variants; checked.variant->name; checked.variant++)
    if (is_selected(checked.variant->name)) measure_variant(&checked, point);
  free_solver(&checked.solver);
  free_grid(&grid);
}

static int64_t side_from(const char *text) {
  char *end;
  errno = 0;
  long long side = strtoll(text, &end, 10);
  if (end == text || *end || errno || side < 1 || side > SIDE_MAX)
    usage_error("--side takes points from 1 to %d, not '%s'", SIDE_MAX, text);
  return side;
}

int main(int argc, char **argv) {
  begin(argc, argv, &program);
  if (dimensions != 2 && dimensions != 3) usage_error("--dimensions is 2 or 3, not %" PRId64, dimensions);
  if (strcmp(scaling, "strong") && strcmp(scaling, "weak"))
    usage_error("--scaling is strong or weak, not '%s'", scaling);
  if (!(tolerance >= 1e-12 && tolerance < 1)) usage_error("--tolerance is from 1e-12 to below 1, not %g", tolerance);
  int64_t numbers[SIZES_MAX];
  int count = 0;
  char *copy = strdup(sides), *rest = copy;
  for (char *part; (part = strsep(&rest, ","));) {
    if (count == SIZES_MAX) usage_error("--side takes %d numbers at most", SIZES_MAX);
    numbers[count++] = side_from(part);
  }
  free(copy);
  for (int number = 0; number < count; number++) measure_side(numbers[number]);
  finish();
  return 0;
}
