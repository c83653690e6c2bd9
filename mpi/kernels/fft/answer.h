// SPDX-License-Identifier: Apache-2.0 OR MIT
// Input and expected result of a transform.
//
// Up to order SERIAL_ORDER_MAX the elements are random, and rank 0 transforms them serially with FFTW. Above it, where
// one rank may lack the memory, the input is a chirp, whose transform is known: with s drawn from the seed,
//
//   x[j] = exp(πi (j² + 2 s j) / N)   →   X[k] = √N · exp(πi / 4) · exp(−πi (k − s)² / N)       (N even)
//
// In addition the energies must agree (Parseval), and the inverse transform must return the input.
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
  double complex *reference;  // expected result
  double largest;             // largest error so far, relative to the elements' root mean square
};

// Collective.
struct answer answer_for(int order, enum answer_kind kind, size_t first, size_t count);
void free_answer(struct answer *answer);
void fill_input(const struct answer *answer, double complex *input);
// These functions call wrong_result, with the first wrong element if it is known. In check number `settings.corrupt`
// the last rank first corrupts the element in the middle of its share.
void check_result(struct answer *answer, double complex *result);
void check_energy(const struct answer *answer, const double complex *input, double complex *result);
// `output` is the transform of the result's conjugates.
void check_inverse(const struct answer *answer, double complex *output);
