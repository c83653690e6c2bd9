// SPDX-License-Identifier: Apache-2.0 OR MIT
// The calls that start and end recording, in C and in Fortran.
#include "profiler.h"

#define REAL(type, name)           \
  static __typeof__(type) library; \
  if (!library) library = (__typeof__(type))library_function(name)

// MPICH's Fortran functions call the C functions: only the outermost call counts.
static _Thread_local unsigned depth __attribute__((tls_model("initial-exec")));

EXPORTED int MPI_Init(int *, char ***);
EXPORTED int MPI_Init(int *argc, char ***argv) {
  REAL(int (*)(int *, char ***), "MPI_Init");
  begin_process();
  depth++;
  int result = library(argc, argv);
  if (--depth == 0 && result == 0) initialised();
  return result;
}

EXPORTED int MPI_Init_thread(int *, char ***, int, int *);
EXPORTED int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  REAL(int (*)(int *, char ***, int, int *), "MPI_Init_thread");
  begin_process();
  depth++;
  int result = library(argc, argv, required, provided);
  if (--depth == 0 && result == 0) initialised();
  return result;
}

EXPORTED int MPI_Finalize(void);
EXPORTED int MPI_Finalize(void) {
  REAL(int (*)(void), "MPI_Finalize");
  bool is_last = depth++ == 0 && before_finalize();
  int result = library();
  if (--depth == 0 && result == 0 && is_last) finalised();
  return result;
}

EXPORTED int MPI_Abort(slot, int);
EXPORTED int MPI_Abort(slot comm, int code) {
  REAL(int (*)(slot, int), "MPI_Abort");
  aborting(code);
  return library(comm, code);
}

#ifdef SESSIONS
// Without MPI_Init there is no MPI_COMM_WORLD: the rank is taken from the launcher's environment.
EXPORTED int MPI_Session_init(slot, slot, slot);
EXPORTED int MPI_Session_init(slot info, slot errhandler, slot session) {
  REAL(int (*)(slot, slot, slot), "MPI_Session_init");
  begin_process();
  int result = library(info, errhandler, session);
  if (result == 0) session_begun();
  return result;
}

EXPORTED int MPI_Session_finalize(slot);
EXPORTED int MPI_Session_finalize(slot session) {
  REAL(int (*)(slot), "MPI_Session_finalize");
  bool is_last = before_finalize();
  int result = library(session);
  if (is_last && result == 0) finalised();
  return result;
}

#endif

#define FORTRAN_INIT(symbol)                                    \
  EXPORTED void symbol(int32_t *);                              \
  EXPORTED void symbol(int32_t *error) {                        \
    REAL(void (*)(int32_t *), #symbol);                         \
    begin_process();                                            \
    depth++;                                                    \
    library(error);                                             \
    if (--depth == 0 && (!error || *error == 0)) initialised(); \
  }

#define FORTRAN_INIT_THREAD(symbol)                                            \
  EXPORTED void symbol(int32_t *, int32_t *, int32_t *);                       \
  EXPORTED void symbol(int32_t *required, int32_t *provided, int32_t *error) { \
    REAL(void (*)(int32_t *, int32_t *, int32_t *), #symbol);                  \
    begin_process();                                                           \
    depth++;                                                                   \
    library(required, provided, error);                                        \
    if (--depth == 0 && (!error || *error == 0)) initialised();                \
  }

#define FORTRAN_FINALIZE(symbol)                                         \
  EXPORTED void symbol(int32_t *);                                       \
  EXPORTED void symbol(int32_t *error) {                                 \
    REAL(void (*)(int32_t *), #symbol);                                  \
    bool is_last = depth++ == 0 && before_finalize();                    \
    library(error);                                                      \
    if (--depth == 0 && (!error || *error == 0) && is_last) finalised(); \
  }

#define FORTRAN_ABORT(symbol)                                          \
  EXPORTED void symbol(int32_t *, int32_t *, int32_t *);               \
  EXPORTED void symbol(int32_t *comm, int32_t *code, int32_t *error) { \
    REAL(void (*)(int32_t *, int32_t *, int32_t *), #symbol);          \
    aborting(*code);                                                   \
    library(comm, code, error);                                        \
  }

FORTRAN_INIT(mpi_init_)
FORTRAN_INIT(mpi_init_f08_)
FORTRAN_INIT_THREAD(mpi_init_thread_)
FORTRAN_INIT_THREAD(mpi_init_thread_f08_)
FORTRAN_FINALIZE(mpi_finalize_)
FORTRAN_FINALIZE(mpi_finalize_f08_)
FORTRAN_ABORT(mpi_abort_)
FORTRAN_ABORT(mpi_abort_f08_)
