// SPDX-License-Identifier: Apache-2.0 OR MIT
// What goes into a transform, and what must come out.
//
// Up to order SERIAL_ORDER_MAX the elements are random, and rank 0 has FFTW transform them all, serially. Beyond, where
// one rank may not have the memory, the input is a chirp, whose transform is known: with s drawn from the seed,
//
//   x[j] = exp(πi (j² + 2 s j) / N)   →   X[k] = √N · exp(πi / 4) · exp(−πi (k − s)² / N)       (N even)
//
// and besides, the energies must agree (Parseval), and the inverse transform must give the input again.
#pragma once
#include <complex.h>
#include <stddef.h>

enum {
  SERIAL_ORDER_MAX = 22
};

enum answer_kind {
  SERIAL,
  CLOSED_FORM
};

struct answer {
  enum answer_kind kind;
  int order;
  size_t first, count;        // this rank's elements, of input and result
  double complex *reference;  // the result's
  double largest;             // error seen so far, relative to the elements' root mean square
};

// Collective.
struct answer answer_for(int order, enum answer_kind kind, size_t first, size_t count);
void free_answer(struct answer *answer);
void fill_input(const struct answer *answer, double complex *input);
// All of these end the job by wrong_result, with the first wrong element. Of result number `settings.corrupt` the last
// rank spoils the element in the middle of its share first.
void check_result(struct answer *answer, double complex *result);
void check_energy(const struct answer *answer, const double complex *input, const double complex *result);
// `output` is the transform of the result's conjugates.
void check_inverse(const struct answer *answer, const double complex *output);
