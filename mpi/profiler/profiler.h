// SPDX-License-Identifier: Apache-2.0 OR MIT
// The parts of the profiler: where real functions are (resolve), what a process leaves (process), what a thread
// records (record), which messages a request stands for (requests).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#define EXPORTED __attribute__((visibility("default")))

// An argument of any MPI function: an integer, a handle or a pointer. In the ABIs of Linux on 64-bit machines each
// takes a register or eight bytes of the stack, whichever of them it is, and what is above 32 bits of an int means
// nothing: so one wrapper passes on the arguments of every MPI library, whose handles are integers in one and pointers
// in another.
typedef uintptr_t slot;
_Static_assert(sizeof(slot) == 8, "arguments are passed on as slots of 64 bits");

// What a call's arguments tell; positions count from 1, 0 is none.
struct call {
  const char *name;
  enum kind kind;
  unsigned char arguments;
  unsigned char count, type, partitions;
  unsigned char buffer, count_2, type_2;  // where `buffer` is MPI_IN_PLACE the second pair counts
  unsigned char counts, comm;             // one count for each rank of the communicator
  unsigned char peer;
  unsigned char request;         // a request that the call begins
  unsigned char requests, many;  // requests that it is given, and how many: one unless said
  bool wide;                     // counts are MPI_Count
};

enum language {
  C,
  FORTRAN,
};

enum {
#define CALL(name, ...) CALL_##name,
#define CALL_BOTH(name, ...) CALL_##name,
#include "present.def"
#undef CALL
#undef CALL_BOTH
  CALLS,
};
extern const struct call calls[CALLS];

// resolve.c
// The library's own function; ends the process, as the dynamic linker would, where there is none.
void *real(const char *name);
// The same for a function or a variable, NULL where there is none.
void *find(const char *name);
void *find_variable(const char *name);
bool is_open_mpi(void);
bool handles_are_pointers(void);
slot world(void);

// process.c
// The file's header while calls are recorded in full, else NULL.
extern struct header *recording;
void begin_process(void);
void initialised(void);
void session_begun(void);
void before_finalize(void);
void finalised(void);
void aborting(int code);
// The block of one more thread, NULL if there is no more.
struct block *new_block(void);

// record.c
struct span {
  struct block *block;
  uint64_t begin, calls_before;
  int64_t expected_bytes;
  int32_t peer;
  bool outermost;
};
uint64_t now(void);
struct span enter(int call, enum language language, const slot *arguments);
void leave(struct span *span, int call, enum language language, const slot *arguments, bool succeeded);
void left_early(struct span *span);
uint32_t cost_of_recording_ps(struct header *header, struct block *scratch);

// requests.c
void remember_request(slot handle, enum language language, int64_t bytes, int32_t peer);
// Bytes of the messages that the requests stand for, -1 if unknown; the peer where it is one request.
int64_t bytes_of_requests(const void *requests, int64_t count, enum language language, int32_t *peer);
slot request_at(const void *requests, int64_t index, enum language language);
