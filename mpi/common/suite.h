// SPDX-License-Identifier: Apache-2.0 OR MIT
// What all measurements and kernels share: a beginning and an end, options, a clock, records, data that is checked.
// A program declares what it is, and calls begin; then, for each point that it measures, record; then finish. Programs
// record and do not judge: all statistics are made by whoever reads the records.
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

// One option besides the common ones, for a table that ends with an empty name. `value` is the default before begin,
// and what was given after it.
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

struct program {
  const char *name;             // the test's, in every record
  const char *summary;          // one line for --help
  const char *const *variants;  // ends with NULL; the first ones named by --variants are measured, all without it
  const struct extra *extras;   // or NULL
  int threads;                  // MPI_THREAD_SINGLE … MULTIPLE: what the program cannot do without
  int threads_liked;            // asked of the library if that is more; the start record says what it gave
  int sizeless;                 // its messages follow from other options: --sizes and --walk are wrong use
  int ranks_min;
  int ranks_even;  // whether the number of ranks must be even
  // Called with the time right before MPI was started, before anything else is done with MPI; or NULL.
  void (*started)(uint64_t start_ns);
};

// What the common options say.
struct settings {
  size_t sizes[SIZES_MAX];  // bytes, ascending as given
  int size_count;
  int samples;     // outer repetitions of a point, at most
  double seconds;  // of a point, about
  int warmup;      // outer repetitions before those, recorded as such
  uint64_t seed;
  size_t walk_bytes;  // message buffers walk through so much memory; 0: the same buffer each time
  uint64_t corrupt;   // number of the message of which `check` flips a byte, from 1; 0: none
};

extern int rank, ranks;  // in MPI_COMM_WORLD
extern struct settings settings;
// Programs that follow in the same start of MPI (several/several.c): `begin` finds MPI started, `finish` leaves it so.
extern int programs_to_come;
extern uint64_t clock_resolution_ns;  // smallest step seen, the same on all ranks: the largest of theirs

// Starts MPI, reads options, writes the start record. Wrong use: rank 0 says what to do, all ranks exit with 2. A
// thread level that the library does not give, an output that cannot be written: exit code 3, likewise.
void begin(int argc, char **argv, const struct program *program);
// Whether `variant` was asked for.
int wanted(const char *variant);
// The same, before begin: for programs that need the more of the library the more variants they measure.
int names_variant(int argc, char **argv, const char *variant);
// Writes the end record and ends MPI; the program then returns 0. Collective.
void finish(void);
// Ends all ranks with 2 because of what the user asked, with what to do instead; collective, rank 0 prints.
__attribute__((noreturn, format(printf, 1, 2))) void wrong_use(const char *format, ...);
// Ends all ranks with 3 because this machine or library cannot; collective, rank 0 prints.
__attribute__((noreturn, format(printf, 1, 2))) void cannot(const char *format, ...);
// Ends the whole job with 3 because this rank's machine cannot; any rank, names itself.
__attribute__((noreturn, format(printf, 1, 2))) void cannot_here(const char *format, ...);
// Ends the whole job with 1: a result is wrong. Any rank; names itself.
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
// Agrees on repetitions from what one operation takes on rank 0, in nanoseconds; the others' value is not looked at.
// An operation that turns out to take half as long still fills RESOLUTIONS_MIN. Collective.
struct repetitions agree_repetitions(double operation_ns);
// How many stretches of so many nanoseconds the options allow a point. Not collective.
int samples_within(double stretch_ns);

// What a record is about. `quantity` says what its values are, in `unit` ("ns" unless set).
struct point {
  const char *variant;
  const char *quantity;
  const char *unit;
  size_t message_bytes;
  int pairs;              // that measured at once; 0 is written as 1
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

// Writes what a variant that chooses between others has chosen for a point, and why. Only rank 0's is written.
void record_choice(const struct point *point, const char *chosen, const char *reason);

// Writes that a variant is not measured, with messages of this size, and why. Only rank 0's is written.
__attribute__((format(printf, 3, 4))) void leave_out(const char *variant, size_t message_bytes, const char *format,
                                                     ...);

// The most that a rank's messages of one point may take: points that need more are left out.
extern int64_t memory_most;
#define MEMORY_OPTION                                                                        \
  {                                                                                          \
    "memory", COUNT, &memory_most,                                                           \
        "bytes of messages of a rank, at most; points that need more are left out (512 MiB)" \
  }
// Whether so many bytes are allowed; if not, the point is left out. The same on all ranks.
int fits(const char *variant, size_t message_bytes, uint64_t needed_bytes);

// Memory, aligned to a page, touched; ends the job when there is none.
void *allocate(size_t bytes);

// Buffers for messages of one size: always the same one, or one after the other through `settings.walk_bytes`, so that
// each is cold when its turn comes (cache avoidance, after mpptest).
struct buffers {
  unsigned char *memory;
  size_t stride, count, next;
};
struct buffers buffers_for(size_t bytes);
// The same, but never fewer than `least`: for as many messages that are under way at once.
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
// As if so many numbers had been drawn.
static inline void skip(uint64_t *state, uint64_t numbers) { *state += numbers * 0x9e3779b97f4a7c15u; }
// Fixes the contents of message `number` from one rank to another.
uint64_t key_of(int from, int to, uint64_t number);
void fill(void *data, size_t bytes, uint64_t key);
// The sum of the contents of `count` keys: of their 64-bit words or, bytewise, the exclusive or of their bytes (Open
// MPI 4.1 sums bytes with saturation).
struct contents {
  uint64_t *keys;  // used up by whoever reads the contents
  int count;
  int bytewise;
};
void fill_with(void *data, size_t bytes, struct contents contents);
// Ends the job by wrong_result, with the first byte that differs. Each rank counts the messages it checks that are not
// empty; of number `settings.corrupt` it flips a byte first.
void check(const void *data, size_t bytes, uint64_t key, const char *what);
void check_for(const void *data, size_t bytes, struct contents contents, const char *what);
