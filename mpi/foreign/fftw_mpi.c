// SPDX-License-Identifier: Apache-2.0 OR MIT
// FFTW's distributed transform, for comparison with kernels/fft.c: the same distribution of elements before and after,
// the same planning, the same checks. Needs a libfftw3_mpi built with the same MPI library.
#include <complex.h>
#include <fftw3-mpi.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fft/answer.h"
#include "kernels/shared/kernel.h"
#include "kernels/shared/large.h"

static const char *const names[] = {"out-of-place", "in-place", NULL};
static const char *const quantities[] = {"total", NULL};
static const char *planning = "measure";
static int64_t order = 20;
static const struct extra extras[] = {
    {"order", COUNT, &order, "a transform of 2^E elements (20)"},
    {"planning", TEXT, &planning, "estimate, measure or patient: FFTW's planning, not timed (measure)"},
    {0},
};
static const struct program program = {
    .name = "fftw-mpi",
    .summary = "FFTW's own transform over MPI",
    .variants = names,
    .extras = extras,
    .threads = MPI_THREAD_FUNNELED,
    .has_no_sizes = 1,
    .ranks_min = 1,
};

struct measured {
  struct answer answer;
  double complex *input, *result;
  fftw_plan plan;
  int in_place;
};

static void execute(void *state, double *times) { fftw_execute(((struct measured *)state)->plan); }

static void check_one(void *state) {
  struct measured *measured = state;
  check_result(&measured->answer, measured->result);
  // The transform has overwritten the input.
  if (measured->in_place) fill_input(&measured->answer, measured->input);
}

static void measure_variant(const char *name, unsigned flags) {
  ptrdiff_t in, first, out, first_out, elements = (ptrdiff_t)1 << order;
  ptrdiff_t memory =
      fftw_mpi_local_size_1d(elements, MPI_COMM_WORLD, FFTW_FORWARD, flags, &in, &first, &out, &first_out);
  if (in != out || first != first_out || in != elements / ranks)
    usage_error("FFTW distributes 2^%d elements unevenly over %d ranks: use a power of two", (int)order, ranks);
  struct measured measured = {.in_place = !strcmp(name, "in-place")};
  measured.input = allocate_large((size_t)memory * sizeof *measured.input);
  measured.result = measured.in_place ? measured.input : allocate_large((size_t)memory * sizeof *measured.input);
  // Planning overwrites both arrays.
  measured.plan = fftw_mpi_plan_dft_1d(elements, measured.input, measured.result, MPI_COMM_WORLD, FFTW_FORWARD,
                                       measured.in_place ? flags : flags | FFTW_PRESERVE_INPUT);
  if (!measured.plan) unsupported_here("FFTW has no plan for %d ranks", ranks);
  measured.answer = answer_for((int)order, order > SERIAL_ORDER_MAX ? CLOSED_FORM : SERIAL, (size_t)first, (size_t)in);
  fill_input(&measured.answer, measured.input);
  struct kernel kernel = {
      .quantities = quantities, .state = &measured, .execute = execute, .check = check_one, .once = measured.in_place};
  size_t message = (size_t)(elements / ranks / ranks) * sizeof *measured.input;
  measure_kernel(
      &kernel, (struct point){
                   .variant = name, .message_bytes = message, .parameter = "order", .parameter_value = (double)order});
  fftw_destroy_plan(measured.plan);
  free_answer(&measured.answer);
  free(measured.input);
  if (!measured.in_place) free(measured.result);
}

int main(int argc, char **argv) {
  begin(argc, argv, &program);
  if (order < 2 || order > 30) usage_error("--order takes numbers from 2 to 30");
  if (strcmp(planning, "estimate") && strcmp(planning, "measure") && strcmp(planning, "patient"))
    usage_error("--planning is estimate, measure or patient, not '%s'", planning);
  unsigned flags = !strcmp(planning, "patient")    ? FFTW_PATIENT
                   : !strcmp(planning, "estimate") ? FFTW_ESTIMATE
                                                   : FFTW_MEASURE;
  fftw_mpi_init();
  for (const char *const *name = names; *name; name++)
    if (is_selected(*name)) measure_variant(*name, flags);
  fftw_mpi_cleanup();
  finish();
  return 0;
}
