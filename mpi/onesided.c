// SPDX-License-Identifier: Apache-2.0 OR MIT
// One-sided operations from the first rank on the last one's memory, each in a synchronisation of its own:
// fence: both call MPI_Win_fence after it. pscw: MPI_Win_start, it, MPI_Win_complete against MPI_Win_post,
// MPI_Win_wait. lock: MPI_Win_lock, it, MPI_Win_unlock. flush: it and MPI_Win_flush, under one MPI_Win_lock_all. In the
// last two the target waits for a message meanwhile, inside MPI_Recv. Recorded is the origin's time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/measure.h"

enum {
  WORD = 8,   // of fetch-and-op and compare-and-swap
  TARGET = 1  // in `both`
};

static size_t bytes;
static unsigned char *local, *fetched, *window_memory;
static MPI_Win window;
static int target, origin;    // whether this rank is
static uint64_t epoch, done;  // contents; operations of this series
static MPI_Comm both;
static MPI_Group other;  // the one other rank, for pscw

static void put(void) { MPI_Put(local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, window); }

static void get(void) { MPI_Get(local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, window); }

static void accumulate(void) {
  MPI_Datatype type = bytes % WORD ? MPI_UINT8_T : MPI_UINT64_T;
  int count = (int)(bytes % WORD ? bytes : bytes / WORD);
  MPI_Accumulate(local, count, type, TARGET, 0, count, type, bytes % WORD ? MPI_BXOR : MPI_SUM, window);
}

static void fetch_and_op(void) { MPI_Fetch_and_op(local, fetched, MPI_UINT64_T, TARGET, 0, MPI_SUM, window); }

// Each swaps in the number of its operation for that of the one before.
static void compare_and_swap(void) {
  static uint64_t expected, next;
  expected = epoch << 32 | done, next = expected + 1;
  MPI_Compare_and_swap(&next, &expected, fetched, MPI_UINT64_T, TARGET, 0, window);
}

static const struct access {
  const char *name;
  void (*begin)(void);
  int of_words;
} accesses[] = {{"put", put, 0},
                {"get", get, 0},
                {"accumulate", accumulate, 0},
                {"fetch-and-op", fetch_and_op, 1},
                {"compare-and-swap", compare_and_swap, 1}};
static const struct access *access;

static void fence(int count) {
  for (int number = 0; number < count; number++) {
    if (origin) access->begin();
    MPI_Win_fence(0, window);
    done++;
  }
}

static void pscw(int count) {
  for (int number = 0; number < count && origin; number++) {
    MPI_Win_start(other, 0, window);
    access->begin();
    MPI_Win_complete(window);
    done++;
  }
  for (int number = 0; number < count && target; number++) {
    MPI_Win_post(other, 0, window);
    MPI_Win_wait(window);
    done++;
  }
}

static void lock(int count) {
  for (int number = 0; number < count && origin; number++) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, window);
    access->begin();
    MPI_Win_unlock(TARGET, window);
    done++;
  }
  if (target) done += (uint64_t)count;
}

static void flush(int count) {
  for (int number = 0; number < count && origin; number++) {
    access->begin();
    MPI_Win_flush(TARGET, window);
    done++;
  }
  if (target) done += (uint64_t)count;
}

static const struct {
  const char *name;
  void (*run)(int);
} methods[] = {{"fence", fence}, {"pscw", pscw}, {"lock", lock}, {"flush", flush}};
enum {
  ACCESSES = sizeof accesses / sizeof *accesses,
  METHODS = sizeof methods / sizeof *methods
};
static char names[ACCESSES * METHODS][32];
static void (*method)(int);

// The target is inside MPI until the origin's stretch has ended.
static void settle(void) {
  if (method == fence || method == pscw) return;
  if (origin) MPI_Send(NULL, 0, MPI_BYTE, ranks - 1, 0, MPI_COMM_WORLD);
  if (target) MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static uint64_t key(int of_rank) { return key_of(of_rank, ranks - 1, epoch); }

// The target's memory and the origin's have contents of their own. What is overwritten is there before.
static void open_series(void) {
  epoch++, done = 0;
  if (origin) fill(local, bytes, key(0));
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
  uint64_t first = epoch << 32;
  if (access->begin == compare_and_swap) memcpy(window_memory, &first, WORD);
  else fill(window_memory, bytes, key(ranks - 1));
  MPI_Win_unlock(target, window);
  MPI_Barrier(both);
  if (method == fence) MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
  if (method == flush && origin) MPI_Win_lock_all(0, window);
}

// The word that the target holds after so many operations: what was there, and the sum of what came.
static uint64_t word_after(uint64_t operations) {
  uint64_t there = key(ranks - 1), added = key(0), word = epoch << 32 | operations;
  if (access->begin == fetch_and_op) word = draw(&there) + operations * draw(&added);
  return word;
}

static void check_word(const void *word, uint64_t expected, const char *what) {
  uint64_t got;
  memcpy(&got, word, WORD);
  static uint64_t checked;
  if (++checked == settings.corrupt) got ^= 1;
  if (got != expected) wrong_result("%s: the word is 0x%016" PRIx64 ", not 0x%016" PRIx64, what, got, expected);
}

static void check_sum(void) {
  // The keys of the sum: the target's own and, once for each operation, the origin's.
  uint64_t *keys = allocate((done + 1) * sizeof *keys);
  for (uint64_t number = 0; number <= done; number++) keys[number] = number ? key(0) : key(ranks - 1);
  struct contents contents = {.keys = keys, .count = (int)done + 1, .bytewise = bytes % WORD != 0};
  check_for(window_memory, bytes, contents, "accumulate, message from rank 0");
  free(keys);
}

static void close_series(void) {
  if (method == fence) MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  if (method == flush && origin) MPI_Win_unlock_all(window);
  MPI_Barrier(both);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
  char what[64];
  snprintf(what, sizeof what, "%s, message from rank %d", access->name, access->begin == get ? ranks - 1 : 0);
  if (access->of_words && target) check_word(window_memory, word_after(done), what);
  if (access->of_words && origin && done) check_word(fetched, word_after(done - 1), what);
  if (access->begin == put && target && done) check(window_memory, bytes, key(0), what);
  if (access->begin == get && origin && done) check(local, bytes, key(ranks - 1), what);
  if (access->begin == accumulate && target) check_sum();
  MPI_Win_unlock(target, window);
}

static void measure_one(size_t size, const char *variant) {
  if (!wanted(variant) || !fits(variant, size, 2 * size)) return;
  int idle = !origin && !target;
  bytes = size;
  if (!idle) {
    local = allocate(size > WORD ? size : WORD);
    fetched = allocate(WORD);
    MPI_Win_allocate((MPI_Aint)(size > WORD ? size : WORD), 1, MPI_INFO_NULL, both, &window_memory, &window);
  }
  measure(&(struct pattern){.point = {.variant = variant, .quantity = "time", .message_bytes = size},
                            .idle = idle,
                            .timed = origin,
                            .divide_by = 1,
                            .unit = 1,
                            .run = method,
                            .open = open_series,
                            .close = close_series,
                            .settle = settle});
  if (idle) return;
  MPI_Win_free(&window);
  free(local);
  free(fetched);
}

// Of the two ranks that have windows.
static void join(void) {
  origin = rank == 0, target = rank == ranks - 1;
  MPI_Comm_split(MPI_COMM_WORLD, origin || target ? 0 : MPI_UNDEFINED, rank, &both);
  measure_among(origin || target);
  if (!origin && !target) return;
  MPI_Group group;
  MPI_Comm_group(both, &group);
  MPI_Group_incl(group, 1, &(int){origin ? TARGET : 0}, &other);
  MPI_Group_free(&group);
}

int main(int argc, char **argv) {
  const char *variants[ACCESSES * METHODS + 1] = {NULL};
  for (int one = 0; one < ACCESSES * METHODS; one++) {
    snprintf(names[one], sizeof names[one], "%s-%s", accesses[one / METHODS].name, methods[one % METHODS].name);
    variants[one] = names[one];
  }
  begin(argc, argv,
        &(struct program){
            .name = "onesided",
            .summary = "one-sided operations, each with its synchronisation (those of words: 8 bytes alone)",
            .variants = variants,
            .extras = (struct extra[]){MEMORY_OPTION, {0}},
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 2});
  if (settings.walk_bytes) wrong_use("--walk is not for windows: the operations are always on the same memory");
  join();
  for (int one = 0; one < ACCESSES * METHODS; one++) {
    access = &accesses[one / METHODS], method = methods[one % METHODS].run;
    if (access->of_words) measure_one(WORD, names[one]);
    for (int size = 0; !access->of_words && size < settings.size_count; size++)
      measure_one(settings.sizes[size], names[one]);
  }
  finish();
}
