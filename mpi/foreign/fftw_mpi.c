// SPDX-License-Identifier: Apache-2.0 OR MIT
// FFTW's own distributed transform, to compare kernels/fft.c with: the same elements on the same ranks before and
// after, the same planning, the same checks. Needs a libfftw3_mpi that was built with the same MPI library.
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
    {"planning", TEXT, &planning, "estimate, measure or patient: how FFTW plans, outside the clock (measure)"},
    {0},
};
static const struct program program = {
    .name = "fftw-mpi",
    .summary = "FFTW's own transform over MPI",
    .variants = names,
    .extras = extras,
    .threads = MPI_THREAD_FUNNELED,
    .sizeless = 1,
    .ranks_min = 1,
};

struct own {
  struct answer answer;
  double complex *input, *result;
  fftw_plan plan;
  int in_place;
};

static void execute(void *state, double *times) { fftw_execute(((struct own *)state)->plan); }

static void check_one(void *state) {
  struct own *own = state;
  check_result(&own->answer, own->result);
  // It was overwritten.
  if (own->in_place) fill_input(&own->answer, own->input);
}

static void measure_variant(const char *name, unsigned flags) {
  ptrdiff_t in, first, out, first_out, elements = (ptrdiff_t)1 << order;
  ptrdiff_t memory =
      fftw_mpi_local_size_1d(elements, MPI_COMM_WORLD, FFTW_FORWARD, flags, &in, &first, &out, &first_out);
  if (in != out || first != first_out || in != elements / ranks)
    wrong_use("FFTW spreads 2^%d elements unevenly over %d ranks: take a power of two", (int)order, ranks);
  struct own own = {.in_place = !strcmp(name, "in-place")};
  own.input = allocate_large((size_t)memory * sizeof *own.input);
  own.result = own.in_place ? own.input : allocate_large((size_t)memory * sizeof *own.input);
  // It overwrites both.
  own.plan = fftw_mpi_plan_dft_1d(elements, own.input, own.result, MPI_COMM_WORLD, FFTW_FORWARD,
                                  own.in_place ? flags : flags | FFTW_PRESERVE_INPUT);
  if (!own.plan) cannot("FFTW has no plan for %d ranks", ranks);
  own.answer = answer_for((int)order, order > SERIAL_ORDER_MAX ? CLOSED_FORM : SERIAL, (size_t)first, (size_t)in);
  fill_input(&own.answer, own.input);
  struct kernel kernel = {.quantities = quantities, .state = &own, .execute = execute, .check = check_one};
  size_t message = (size_t)(elements / ranks / ranks) * sizeof *own.input;
  measure_kernel(
      &kernel, (struct point){
                   .variant = name, .message_bytes = message, .parameter = "order", .parameter_value = (double)order});
  fftw_destroy_plan(own.plan);
  free_answer(&own.answer);
  free(own.input);
  if (!own.in_place) free(own.result);
}

int main(int argc, char **argv) {
  begin(argc, argv, &program);
  if (order < 2 || order > 30) wrong_use("--order takes numbers from 2 to 30");
  unsigned flags = !strcmp(planning, "patient")    ? FFTW_PATIENT
                   : !strcmp(planning, "estimate") ? FFTW_ESTIMATE
                                                   : FFTW_MEASURE;
  fftw_mpi_init();
  for (const char *const *name = names; *name; name++)
    if (wanted(*name)) measure_variant(*name, flags);
  fftw_mpi_cleanup();
  finish();
  return 0;
}
