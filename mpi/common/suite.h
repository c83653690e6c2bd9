// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by all measurements and kernels: start and end, options, clock, records, checked data. A program describes
// itself, calls begin, then record for each point that it measures, then finish. Programs only record; statistics are
// computed by the readers of the records.
#pragma once
#include <inttypes.h>
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum {
  SIZES_MAX = 256,        // message sizes of a run
  SAMPLES_MAX = 1000000,  // values of one point and rank: 8 MB
  RESOLUTIONS_MIN = 100   // clock resolutions in each timed stretch; Stival 2006
};

// An option of one program, in a table that ends with an empty name. `value` points to the default before begin, and to
// the given value after it.
struct extra {
  const char *name;  // without --
  enum {
    COUNT,  // int64_t, 0 or more
    REAL,   // double, 0 or more
    TEXT    // const char *
  } kind;
  void *value;
  const char *help;
};

// Values of the common options.
struct settings {
  size_t sizes[SIZES_MAX];  // bytes, ascending as given
  int size_count;
  int samples;     // outer repetitions of a point, maximum
  double seconds;  // approximate time of a point
  int warmup;      // outer repetitions before the samples, recorded as warm-up
  uint64_t seed;
  size_t walk_bytes;  // message buffers cycle through this much memory; 0: the same buffer each time
  uint64_t corrupt;   // number, from 1, of the message in which `check` flips a bit; 0: none
};

struct program {
  const char *name;             // of the test, in every record
  const char *summary;          // one line for --help
  const char *const *variants;  // ends with NULL; all are measured unless --variants selects some
  const struct extra *extras;   // or NULL
  // Of the common options, if they differ from those of other programs; or NULL.
  const struct settings *defaults;
  int threads;            // required level: MPI_THREAD_SINGLE … MULTIPLE
  int threads_preferred;  // requested if higher; the start record has the provided level
  int has_no_sizes;       // message sizes follow from other options: --sizes and --walk-bytes are rejected
  int ranks_min;
  int needs_even_ranks;  // whether the number of ranks must be even
  // Called right after MPI_Init with the time right before it, before any other MPI call; or NULL.
  void (*started)(uint64_t start_ns);
};

extern int rank, ranks;  // in MPI_COMM_WORLD
extern struct settings settings;
// Number of programs that follow in the same MPI job (several/several.c): `finish` finalises MPI only after the last.
extern int programs_left;
extern uint64_t clock_resolution_ns;  // smallest observed step of the coarsest clock, the same on all ranks

// Initialises MPI, reads options, writes the start record. After a usage error rank 0 prints the remedy and all ranks
// exit with 2; likewise with 3 if the library lacks the thread level or the output cannot be written.
void begin(int argc, char **argv, const struct program *program);
// Whether `variant` is to be measured.
int is_selected(const char *variant);
// The same before begin, for programs whose required thread level depends on the variants.
int selects_variant(int argc, char **argv, const char *variant);
// Writes the end record, gives the program's own options their defaults back, and ends MPI; the program then returns 0.
// Collective.
void finish(void);
// Ends all ranks with exit code 2 after a usage error; collective, rank 0 prints the message.
__attribute__((noreturn, format(printf, 1, 2))) void usage_error(const char *format, ...);
// Ends all ranks with exit code 3 if the machine or library lacks a feature; collective, rank 0 prints the message.
__attribute__((noreturn, format(printf, 1, 2))) void unsupported(const char *format, ...);
// Aborts the job with exit code 3 because of this rank's machine; any rank, the message names it.
__attribute__((noreturn, format(printf, 1, 2))) void unsupported_here(const char *format, ...);
// Aborts the job with exit code 1 because of a wrong result; any rank, the message names it.
__attribute__((noreturn, format(printf, 1, 2))) void wrong_result(const char *format, ...);

static inline uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// How often a point is repeated: `outer` values, each the mean of `inner` operations.
struct repetitions {
  int inner, outer, warmup;
};
// Determines repetitions from the time of one operation on rank 0, in nanoseconds; values of other ranks are ignored.
// Operations that later take half as long still fill RESOLUTIONS_MIN. Collective.
struct repetitions agree_repetitions(double operation_ns);
// Number of stretches of this length that the options allow for a point. Not collective.
int samples_within(double stretch_ns);

// The point that a record belongs to. Its values are `quantity` in `unit` ("ns" unless set).
struct point {
  const char *variant;
  const char *quantity;
  const char *unit;
  size_t message_bytes;
  int pairs;              // concurrent; 0 is written as 1
  int inner;              // operations of which each value is the mean
  const char *parameter;  // name of one more coordinate, or NULL
  double parameter_value;
};

enum phase {
  WARMUP,
  MEASURE
};

// Writes one record for each rank that has values (count > 0). Collective over all ranks; outside any timed stretch.
void record(const struct point *point, enum phase phase, const double *values, int count);

// Writes which variant `auto` has chosen for a point, and the reason. Only rank 0 writes.
void record_choice(const struct point *point, const char *chosen, const char *reason);

// Writes that a variant is not measured with messages of this size, and the reason. Only rank 0 writes.
__attribute__((format(printf, 3, 4))) void leave_out(const char *variant, size_t message_bytes, const char *format,
                                                     ...);

// Memory limit of a rank's messages for one point: points that need more are left out.
extern int64_t memory_limit;
#define MEMORY_OPTION                                                                       \
  {                                                                                         \
    "memory", COUNT, &memory_limit,                                                         \
        "maximum bytes of messages of a rank; points that need more are left out (512 MiB)" \
  }
// Whether this many bytes are allowed; if not, the point is left out. The same on all ranks.
int fits(const char *variant, size_t message_bytes, uint64_t needed_bytes);

// Zeroed memory aligned to a page; aborts the job if there is none.
void *allocate(size_t bytes);

// Buffers for messages of one size: a single one, or successive ones through `settings.walk_bytes`, so that each is
// cold when used (cache avoidance, after mpptest).
struct buffers {
  unsigned char *memory;
  size_t stride, count, next;
};
// At least `least` of them: for this many messages in flight at once.
struct buffers buffers_at_least(size_t least, size_t bytes);
void free_buffers(struct buffers *buffers);
static inline unsigned char *next_buffer(struct buffers *buffers) {
  unsigned char *taken = buffers->memory + buffers->next * buffers->stride;
  if (++buffers->next == buffers->count) buffers->next = 0;
  return taken;
}

// The same numbers on all ranks for the same state. (SplitMix64)
static inline uint64_t draw(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
// Advances the state as `numbers` draws would.
static inline void skip(uint64_t *state, uint64_t numbers) { *state += numbers * 0x9e3779b97f4a7c15u; }
// Key of the contents of message `number` from one rank to another.
uint64_t key_of(int from, int to, uint64_t number);
void fill(void *data, size_t bytes, uint64_t key);
// The sum of the contents of `count` keys: of their 64-bit words or, bytewise, the exclusive or of their bytes (Open
// MPI 4.1 sums bytes with saturation).
struct contents {
  uint64_t *keys;  // consumed by reading the contents
  int count;
  int bytewise;
};
void fill_with(void *data, size_t bytes, struct contents contents);
// Calls wrong_result with the first byte that differs. Each rank counts the non-empty messages that it checks, and
// flips a bit in message number `settings.corrupt` first.
void check(const void *data, size_t bytes, uint64_t key, const char *what);
void check_for(const void *data, size_t bytes, struct contents contents, const char *what);
