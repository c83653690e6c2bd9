// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "answer.h"

#include <fftw3.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "../shared/large.h"
#include "common/suite.h"

// Largest error of an element, relative to the root mean square, per factor of two. Observed were at most 0.4 epsilon,
// at orders from 2 to 24; a good transform's errors grow like √order on average, the largest somewhat faster.
#define ERROR_BOUND (4 * DBL_EPSILON)

// The root of unity at numerator / denominator of a turn; the denominator is a power of two, 8 or more. The angle is
// reduced to plus or minus an eighth of a turn, so that rounding errors of 2 π cancel: with positive angles only, the
// errors of a chirp's elements added up in one element of its transform, to 700 epsilon at order 24.
static double complex unit(uint64_t numerator, uint64_t denominator) {
  uint64_t quarter = (numerator + denominator / 8) / (denominator / 4);
  double angle = 2 * M_PI * ((double)(int64_t)(numerator - quarter * (denominator / 4)) / (double)denominator);
  double real = cos(angle), imaginary = sin(angle);
  switch (quarter % 4) {
    case 0: return CMPLX(real, imaginary);
    case 1: return CMPLX(-imaginary, real);
    case 2: return CMPLX(-real, -imaginary);
    default: return CMPLX(imaginary, -real);
  }
}

static double real_between(uint64_t bits) { return (double)(int64_t)bits * 0x1p-63; }

static double complex element_of(const struct answer *answer, size_t number) {
  uint64_t elements = UINT64_C(1) << answer->order, state = settings.seed;
  uint64_t drawn = draw(&state);
  if (answer->kind == CLOSED_FORM) {
    uint64_t shift = drawn & (elements - 1), phase = (uint64_t)number * number + 2 * shift * number;
    return unit(phase & (2 * elements - 1), 2 * elements);
  }
  state = drawn + 2 * number;
  uint64_t real_bits = draw(&state), imaginary_bits = draw(&state);
  return CMPLX(real_between(real_bits), real_between(imaginary_bits));
}

static double complex chirp_result(const struct answer *answer, size_t number) {
  uint64_t elements = UINT64_C(1) << answer->order, state = settings.seed;
  uint64_t shift = draw(&state) & (elements - 1), distance = (number - shift) & (elements - 1);
  // π/4 is N/4 of the 2 N parts of a turn.
  uint64_t phase = elements / 4 - distance * distance;
  return sqrt((double)elements) * unit(phase & (2 * elements - 1), 2 * elements);
}

static void transform_serially(struct answer *answer) {
  size_t elements = (size_t)1 << answer->order;
  double complex *all = rank == 0 ? allocate_large(elements * sizeof *all) : NULL;
  if (rank == 0) {
    fftw_plan plan = fftw_plan_dft_1d((int)elements, all, all, FFTW_FORWARD, FFTW_ESTIMATE);
    for (size_t number = 0; number < elements; number++) all[number] = element_of(answer, number);
    fftw_execute(plan);
    fftw_destroy_plan(plan);
  }
  MPI_Scatter(all, (int)answer->count, MPI_C_DOUBLE_COMPLEX, answer->reference, (int)answer->count,
              MPI_C_DOUBLE_COMPLEX, 0, MPI_COMM_WORLD);
  free(all);
}

struct answer answer_for(int order, enum answer_kind kind, size_t first, size_t count) {
  struct answer answer = {.kind = kind, .order = order, .first = first, .count = count};
  answer.reference = allocate_large(count * sizeof(double complex));
  if (kind == SERIAL) {
    transform_serially(&answer);
  } else {
    for (size_t at = 0; at < count; at++) answer.reference[at] = chirp_result(&answer, first + at);
  }
  return answer;
}

void free_answer(struct answer *answer) { free(answer->reference); }

void fill_input(const struct answer *answer, double complex *input) {
  for (size_t at = 0; at < answer->count; at++) input[at] = element_of(answer, answer->first + at);
}

static double bound_of(const struct answer *answer) { return ERROR_BOUND * answer->order; }

// Root mean square of the result's elements, from the known root mean square of the input.
static double rms_of(const struct answer *answer) {
  double elements = (double)(UINT64_C(1) << answer->order);
  // Real and imaginary part of a random element are uniform in [-1, 1].
  return sqrt(answer->kind == SERIAL ? elements * 2 / 3 : elements);
}

static double square(double complex value) { return creal(value) * creal(value) + cimag(value) * cimag(value); }

// Aborts the job if element `number` is wrong.
static void compare(size_t number, double complex value, double complex expected, double size, double bound,
                    const char *what) {
  // The negated condition also catches NaN.
  if (square(value - expected) <= bound * bound * size * size) return;
  wrong_result("%s: element %zu is %.17g%+.17gi, not %.17g%+.17gi: its error is %.2g of the mean size, the bound %.2g",
               what, number, creal(value), cimag(value), creal(expected), cimag(expected),
               sqrt(square(value - expected)) / size, bound);
}

static void corrupt_result(const struct answer *answer, double complex *result) {
  static uint64_t checked;
  if (++checked == settings.corrupt && rank == ranks - 1) result[answer->count / 2] += rms_of(answer) / 1000;
}

void check_result(struct answer *answer, double complex *result) {
  corrupt_result(answer, result);
  double size = rms_of(answer), bound = bound_of(answer), largest = 0;
  for (size_t at = 0; at < answer->count; at++) {
    compare(answer->first + at, result[at], answer->reference[at], size, bound, "result");
    largest = fmax(largest, square(result[at] - answer->reference[at]));
  }
  answer->largest = fmax(answer->largest, sqrt(largest) / size);
}

// Summed in parts, so that rounding errors do not grow with the number of elements.
static double energy_of(const double complex *values, size_t count) {
  enum {
    PART = 1024
  };
  double sum = 0, all;
  for (size_t first = 0; first < count; first += PART) {
    double part = 0;
    for (size_t at = first; at < first + PART && at < count; at++) part += square(values[at]);
    sum += part;
  }
  MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

void check_energy(const struct answer *answer, const double complex *input, double complex *result) {
  corrupt_result(answer, result);
  double elements = (double)(UINT64_C(1) << answer->order);
  double expected = elements * energy_of(input, answer->count), energy = energy_of(result, answer->count);
  if (!(fabs(energy / expected - 1) <= bound_of(answer)))
    wrong_result("the result's energy is %.17g, not %.17g (Parseval)", energy, expected);
}

void check_inverse(const struct answer *answer, double complex *output) {
  corrupt_result(answer, output);
  double elements = (double)(UINT64_C(1) << answer->order), size = rms_of(answer) / sqrt(elements);
  for (size_t at = 0; at < answer->count; at++)
    compare(answer->first + at, conj(output[at]) / elements, element_of(answer, answer->first + at), size,
            2 * bound_of(answer), "inverse transform");
}
