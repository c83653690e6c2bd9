// SPDX-License-Identifier: Apache-2.0 OR MIT
// The MPI functions called by the program, in C and in Fortran: each calls the library's function and records its time.
#include "profiler.h"

// A thousand functions of two calls each: -O2 takes twice as long to compile them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O1")
#endif

// Runs leave_unwound on any exit from the function.
#define GUARDED __attribute__((cleanup(leave_unwound))) struct span

// Parameters a1 … an, and the same as arguments of a call or elements of an array.
#define PARAMETERS_1 slot a1
#define PARAMETERS_2 PARAMETERS_1, slot a2
#define PARAMETERS_3 PARAMETERS_2, slot a3
#define PARAMETERS_4 PARAMETERS_3, slot a4
#define PARAMETERS_5 PARAMETERS_4, slot a5
#define PARAMETERS_6 PARAMETERS_5, slot a6
#define PARAMETERS_7 PARAMETERS_6, slot a7
#define PARAMETERS_8 PARAMETERS_7, slot a8
#define PARAMETERS_9 PARAMETERS_8, slot a9
#define PARAMETERS_10 PARAMETERS_9, slot a10
#define PARAMETERS_11 PARAMETERS_10, slot a11
#define PARAMETERS_12 PARAMETERS_11, slot a12
#define PARAMETERS_13 PARAMETERS_12, slot a13
#define PARAMETERS_14 PARAMETERS_13, slot a14
#define PASSED_1 a1
#define PASSED_2 PASSED_1, a2
#define PASSED_3 PASSED_2, a3
#define PASSED_4 PASSED_3, a4
#define PASSED_5 PASSED_4, a5
#define PASSED_6 PASSED_5, a6
#define PASSED_7 PASSED_6, a7
#define PASSED_8 PASSED_7, a8
#define PASSED_9 PASSED_8, a9
#define PASSED_10 PASSED_9, a10
#define PASSED_11 PASSED_10, a11
#define PASSED_12 PASSED_11, a12
#define PASSED_13 PASSED_12, a13
#define PASSED_14 PASSED_13, a14

#define IN_C(name, slots)                                                                \
  EXPORTED int MPI_##name(PARAMETERS_##slots);                                           \
  EXPORTED int MPI_##name(PARAMETERS_##slots) {                                          \
    static int (*library)(PARAMETERS_##slots);                                           \
    if (!library) library = (int (*)(PARAMETERS_##slots))library_function("MPI_" #name); \
    if (!recording) return library(PASSED_##slots);                                      \
    const slot arguments[] = {PASSED_##slots};                                           \
    GUARDED span = enter(CALL_##name, C, arguments);                                     \
    int result = library(PASSED_##slots);                                                \
    leave(&span, CALL_##name, C, arguments, result == 0);                                \
    return result;                                                                       \
  }

#define IN_FORTRAN(name, symbol, position, slots)                                    \
  EXPORTED void symbol(PARAMETERS_##slots);                                          \
  EXPORTED void symbol(PARAMETERS_##slots) {                                         \
    static void (*library)(PARAMETERS_##slots);                                      \
    if (!library) library = (void (*)(PARAMETERS_##slots))library_function(#symbol); \
    if (!recording) {                                                                \
      library(PASSED_##slots);                                                       \
      return;                                                                        \
    }                                                                                \
    const slot arguments[] = {PASSED_##slots};                                       \
    GUARDED span = enter(CALL_##name, FORTRAN, arguments);                           \
    library(PASSED_##slots);                                                         \
    const int32_t *error = (const int32_t *)arguments[position];                     \
    leave(&span, CALL_##name, FORTRAN, arguments, !error || *error == 0);            \
  }

// ierror, after the arguments, may be absent in mpi_f08.
#define CALL(name, slots, ...) IN_C(name, slots)
#define CALL_BOTH(name, lower, slots, fortran, ...) \
  IN_C(name, slots)                                 \
  IN_FORTRAN(name, mpi_##lower##_, slots, fortran)  \
  IN_FORTRAN(name, mpi_##lower##_f08_, slots, fortran)
#include "present.def"
