// SPDX-License-Identifier: Apache-2.0 OR MIT
// Several measurements one after the other in one start of MPI, which takes longer than many a measurement:
//   several pingpong --sizes 8 --output FILE + exchange --sizes 8 --output FILE
// Each is the program of its name with its own options, built with its `main` renamed (Makefile: PROGRAMS), and appends
// its records, from "start" to "end", to the file.
#include <stdio.h>
#include <string.h>

#include "common/measure.h"

#define X(name) int name##_main(int argc, char **argv);
PROGRAMS
#undef X

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
} programs[] = {
#define X(name) {#name, name##_main},
    PROGRAMS
#undef X
};
enum {
  KNOWN = sizeof programs / sizeof *programs,
  WRONG_USE = 2
};

static int number_of(const char *name) {
  int number = 0;
  while (number < KNOWN && strcmp(programs[number].name, name)) number++;
  return number;
}

// Before MPI is there, so every rank says so.
static int refuse(const char *name) {
  fprintf(stderr, "several: '%s' is no measurement; there are:", name);
  for (int number = 0; number < KNOWN; number++) fprintf(stderr, " %s", programs[number].name);
  fputs("\nseveral: MEASUREMENT OPTIONS… + MEASUREMENT OPTIONS…\n", stderr);
  return WRONG_USE;
}

static int length_of_part(char **argv) {
  int length = 0;
  while (argv[length] && strcmp(argv[length], "+")) length++;
  return length;
}

int main(int argc, char **argv) {
  if (argc < 2) return refuse("");
  for (int at = 1; at <= argc;) {
    int length = length_of_part(argv + at);
    const char *name = length ? argv[at] : "";
    if (number_of(name) == KNOWN) return refuse(name);
    programs_to_come++;
    at += length + 1;
  }
  for (int at = 1; programs_to_come--;) {
    int length = length_of_part(argv + at), last = at + length;
    const char *name = argv[at];
    argv[last] = NULL;
    programs[number_of(name)].run(length, argv + at);
    if (programs_to_come) disband();
    at = last + 1;
  }
  return 0;
}
