// SPDX-License-Identifier: Apache-2.0 OR MIT
// Fourier transform of 2^order complex numbers in six steps (Bailey 1990), in the variants of Stival 2006.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fft/answer.h"
#include "fft/variants.h"

static const char *const names[] = {"original", "row-by-row", "non-blocking", "multi-threaded", NULL};
static const char *orders = "20", *transpose = "separate", *planning = "measure", *answers = "auto";
static int64_t rows;
static const struct extra extras[] = {
    {"order", TEXT, &orders, "E,E: transforms of 2^E elements (20)"},
    {"transpose", TEXT, &transpose, "separate or sendrecv: calls that transpositions use (separate)"},
    {"rows", COUNT, &rows, "rows per exchange, except in original; a power of two (0: messages of about 8 KiB)"},
    {"planning", TEXT, &planning, "estimate or measure: FFTW's planning of rows, not timed (measure)"},
    {"answer", TEXT, &answers, "serial, closed or auto: how results are checked (auto: serial up to order 22)"},
    {0},
};
static const struct program program = {
    .name = "fft",
    .summary = "Fourier transform in six steps (Bailey 1990)",
    .variants = names,
    .extras = extras,
    // Only the first thread calls MPI.
    .threads = MPI_THREAD_FUNNELED,
    .has_no_sizes = 1,
    .ranks_min = 1,
};

// A measured transform and its expected result.
struct checked {
  struct answer *answer;
  struct plan *plan;
  const struct variant *variant;
};

static void execute(void *state, double *times) {
  struct checked *checked = state;
  checked->variant->execute(checked->plan, times);
}

static void check_one(void *state) {
  struct checked *checked = state;
  check_result(checked->answer, checked->plan->transform->result);
}

// For results not compared with another program's: Parseval's theorem, and the inverse.
static void check_more(struct checked *checked) {
  struct transform *transform = checked->plan->transform;
  check_energy(checked->answer, transform->input, transform->result);
  for (size_t at = 0; at < transform->local; at++) transform->input[at] = conj(transform->result[at]);
  double unused[QUANTITIES_MAX] = {0};
  execute(checked, unused);
  check_inverse(checked->answer, transform->result);
  fill_input(checked->answer, transform->input);
}

static void measure_variant(struct transform *transform, const struct variant *variant, struct answer *answer) {
  unsigned flags = strcmp(planning, "measure") ? FFTW_ESTIMATE : FFTW_MEASURE;
  plan_rows(transform, variant->whole ? WHOLE : rows, flags);
  struct plan plan = plan_for(transform, variant, strcmp(transpose, "sendrecv") ? SEPARATE : SENDRECV);
  struct checked checked = {.answer = answer, .plan = &plan, .variant = variant};
  struct kernel kernel = {.quantities = fft_quantities, .state = &checked, .execute = execute, .check = check_one};
  char name[64];
  snprintf(name, sizeof name, "%s%s", variant->name, plan.calls == SENDRECV ? "/sendrecv" : "");
  const struct stage *stage = &transform->stages[0];
  struct point point = {.variant = name,
                        .message_bytes = stage->exchange * stage->piece * sizeof(double complex),
                        .parameter = "order",
                        .parameter_value = transform->order};
  answer->largest = 0;
  measure_kernel(&kernel, point);
  point.quantity = "error";
  point.unit = "of mean size";
  point.inner = 1;
  record(&point, MEASURE, &answer->largest, 1);
  if (answer->kind == CLOSED_FORM) check_more(&checked);
  free_plan(&plan);
}

static void measure_order(int order) {
  struct transform transform = transform_for(order);
  int closed = strcmp(answers, "auto") ? !strcmp(answers, "closed") : order > SERIAL_ORDER_MAX;
  struct answer answer =
      answer_for(order, closed ? CLOSED_FORM : SERIAL, (size_t)rank * transform.local, transform.local);
  fill_input(&answer, transform.input);
  for (const struct variant *variant = fft_variants; variant->name; variant++)
    if (is_selected(variant->name)) measure_variant(&transform, variant, &answer);
  free_answer(&answer);
  free_transform(&transform);
}

static void check_choice(const char *option, const char *given, const char *const *known, const char *choices) {
  while (*known && strcmp(given, *known)) known++;
  if (!*known) usage_error("--%s is %s, not '%s'", option, choices, given);
}

// Calls `act` for each requested order.
static void for_each_order(void (*act)(int order)) {
  char *copy = strdup(orders), *rest = copy, *end;
  for (char *part; (part = strsep(&rest, ","));) {
    long order = strtol(part, &end, 10);
    if (end == part || *end || order < ORDER_MIN || order > ORDER_MAX)
      usage_error("--order takes numbers from %d to %d, not '%s'", ORDER_MIN, ORDER_MAX, part);
    act((int)order);
  }
  free(copy);
}

int main(int argc, char **argv) {
  begin(argc, argv, &program);
  check_choice("transpose", transpose, (const char *[]){"separate", "sendrecv", NULL}, "separate or sendrecv");
  check_choice("planning", planning, (const char *[]){"estimate", "measure", NULL}, "estimate or measure");
  check_choice("answer", answers, (const char *[]){"serial", "closed", "auto", NULL}, "serial, closed or auto");
  if (rows & (rows - 1)) usage_error("--rows must be a power of two, not %" PRId64, rows);
  if (!strcmp(transpose, "sendrecv") && is_selected("non-blocking"))
    usage_error("non-blocking does not use Sendrecv: choose others with --variants original,row-by-row,multi-threaded");
  for_each_order(check_ranks);
  for_each_order(measure_order);
  finish();
  return 0;
}
