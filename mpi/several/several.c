// SPDX-License-Identifier: Apache-2.0 OR MIT
// Several measurements one after another in one MPI job, because starting MPI takes longer than most measurements:
//   several pingpong --sizes 8 --output FILE + exchange --sizes 8 --output FILE
// Each is the program of that name with its options, built with its `main` renamed (Makefile: PROGRAMS), and appends
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
  PROGRAM_COUNT = sizeof programs / sizeof *programs,
  USAGE_ERROR = 2
};

static int number_of(const char *name) {
  int number = 0;
  while (number < PROGRAM_COUNT && strcmp(programs[number].name, name)) number++;
  return number;
}

// Called before MPI is initialised, so every rank prints it.
static int print_usage(const char *name) {
  fprintf(stderr, "several: '%s' is no measurement; there are:", name);
  for (int number = 0; number < PROGRAM_COUNT; number++) fprintf(stderr, " %s", programs[number].name);
  fputs("\nseveral: MEASUREMENT OPTIONS… + MEASUREMENT OPTIONS…\n", stderr);
  return USAGE_ERROR;
}

static int length_of_part(char **argv) {
  int length = 0;
  while (argv[length] && strcmp(argv[length], "+")) length++;
  return length;
}

int main(int argc, char **argv) {
  if (argc < 2) return print_usage("");
  for (int at = 1; at <= argc;) {
    int length = length_of_part(argv + at);
    const char *name = length ? argv[at] : "";
    if (number_of(name) == PROGRAM_COUNT) return print_usage(name);
    programs_left++;
    at += length + 1;
  }
  for (int at = 1; programs_left--;) {
    int length = length_of_part(argv + at), last = at + length;
    const char *name = argv[at];
    argv[last] = NULL;
    programs[number_of(name)].run(length, argv + at);
    if (programs_left) reset_measuring_ranks();
    at = last + 1;
  }
  return 0;
}
