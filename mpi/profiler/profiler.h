// SPDX-License-Identifier: Apache-2.0 OR MIT
// The parts of the profiler: lookup of the library's functions (resolve), the file of a process (process), the record
// of a thread (record), the messages of requests (requests).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#define EXPORTED __attribute__((visibility("default")))

// An argument of any MPI function: an integer, a handle or a pointer. In 64-bit Linux ABIs each takes a register or
// eight bytes of stack, and the upper 32 bits of an int are ignored. So one wrapper passes on the arguments of every
// MPI library, whether its handles are integers or pointers.
typedef uintptr_t slot;
_Static_assert(sizeof(slot) == 8, "arguments are passed on as slots of 64 bits");

// Roles of a call's arguments; positions count from 1, 0 is none.
struct call {
  const char *name;
  enum kind kind;
  unsigned char arguments;
  unsigned char count, type, partitions;
  unsigned char buffer, count_2, type_2;  // if `buffer` is MPI_IN_PLACE the second pair applies
  unsigned char counts, comm;             // array of one count per rank of the communicator
  unsigned char peer;
  unsigned char request;                  // the request that the call creates
  unsigned char requests, request_count;  // the requests passed in, and their number: one if 0
  // Which of them the call has completed: indices and their number, one if 0; all without indices. None unless the
  // flag, if there is one, is set.
  unsigned char completed, completed_count, flag;
  bool wide;  // counts are MPI_Count
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
// The library's function; exits the process, as the dynamic linker would, if there is none.
void *library_function(const char *name);
// Address of a function or a variable, NULL if there is none.
void *find(const char *name);
void *find_variable(const char *name);
bool is_open_mpi(void);
bool handles_are_pointers(void);
slot comm_world(void);

// process.c
// The file's header while calls are recorded in full, else NULL.
extern struct header *recording;
void begin_process(void);
// The world, or a session, has begun.
void initialised(void);
void session_begun(void);
// One of them ends; `finalised` follows if it is the last, for which this returns true.
bool before_finalize(void);
void finalised(void);
void aborting(int code);
// Returns a block for a new thread, NULL if all are in use.
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
void leave_unwound(struct span *span);
uint32_t cost_of_recording_ps(struct header *header, struct block *scratch);

// requests.c
void remember_request(slot handle, enum language language, int64_t bytes, int32_t peer);
// Total bytes of the messages of the requests, -1 if unknown; sets the peer of a single request.
int64_t bytes_of_requests(const void *requests, int64_t count, enum language language, int32_t *peer);
// The same for the requests that a call has completed: `indices` as it returned them, `before` the total of all passed
// in.
int64_t bytes_of_completed(const void *requests, int64_t count, const int32_t *indices, int64_t completed,
                           enum language language, int64_t before);
slot request_at(const void *requests, int64_t index, enum language language);
