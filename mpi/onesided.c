// SPDX-License-Identifier: Apache-2.0 OR MIT
// One-sided operations of the first rank on the last rank's memory, each with its synchronisation:
// fence: operation, then MPI_Win_fence by both. pscw: MPI_Win_start, operation, MPI_Win_complete against MPI_Win_post,
// MPI_Win_wait. lock: MPI_Win_lock, operation, MPI_Win_unlock. flush: operation, MPI_Win_flush, within one
// MPI_Win_lock_all. burst: the same with BURST operations before each MPI_Win_flush, all on the same memory of the
// target; not of single words. For lock, flush and burst the target is inside MPI_Recv meanwhile. The origin's time is
// recorded.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/measure.h"

enum {
  WORD = 8,    // of fetch-and-op and compare-and-swap
  TARGET = 1,  // rank in `window_ranks`
  BURST = 16
};

static size_t bytes;
static unsigned char *local, *fetched, *window_memory;
static MPI_Win window;
static int is_target, is_origin;  // roles of this rank
static uint64_t epoch, done;      // number of the contents; operations in this series
static MPI_Comm window_ranks;
static MPI_Group peer_group;  // the peer, for pscw

static void put(void) { MPI_Put(local, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, window); }

// Each operation of a burst has a buffer of its own.
static void get(void) {
  unsigned char *into = local + done % BURST * bytes;
  MPI_Get(into, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, window);
}

static void accumulate(void) {
  MPI_Datatype type = bytes % WORD ? MPI_UINT8_T : MPI_UINT64_T;
  int count = (int)(bytes % WORD ? bytes : bytes / WORD);
  MPI_Accumulate(local, count, type, TARGET, 0, count, type, bytes % WORD ? MPI_BXOR : MPI_SUM, window);
}

static void fetch_and_op(void) { MPI_Fetch_and_op(local, fetched, MPI_UINT64_T, TARGET, 0, MPI_SUM, window); }

// Each operation replaces the number of the previous operation by its own.
static void compare_and_swap(void) {
  static uint64_t expected, next;
  expected = epoch << 32 | done, next = expected + 1;
  MPI_Compare_and_swap(&next, &expected, fetched, MPI_UINT64_T, TARGET, 0, window);
}

static const struct access {
  const char *name;
  void (*start)(void);
  int is_word_operation;
} accesses[] = {{"put", put, 0},
                {"get", get, 0},
                {"accumulate", accumulate, 0},
                {"fetch-and-op", fetch_and_op, 1},
                {"compare-and-swap", compare_and_swap, 1}};
static const struct access *access;

static void fence(int count) {
  for (int number = 0; number < count; number++) {
    if (is_origin) access->start();
    MPI_Win_fence(0, window);
    done++;
  }
}

static void pscw(int count) {
  for (int number = 0; number < count && is_origin; number++) {
    MPI_Win_start(peer_group, 0, window);
    access->start();
    MPI_Win_complete(window);
    done++;
  }
  for (int number = 0; number < count && is_target; number++) {
    MPI_Win_post(peer_group, 0, window);
    MPI_Win_wait(window);
    done++;
  }
}

static void lock(int count) {
  for (int number = 0; number < count && is_origin; number++) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, window);
    access->start();
    MPI_Win_unlock(TARGET, window);
    done++;
  }
  if (is_target) done += (uint64_t)count;
}

static void flush(int count) {
  for (int number = 0; number < count && is_origin; number++) {
    access->start();
    MPI_Win_flush(TARGET, window);
    done++;
  }
  if (is_target) done += (uint64_t)count;
}

static void burst(int count) {
  for (int number = 0; number < count && is_origin; number++) {
    for (int each = 0; each < BURST; each++, done++) access->start();
    MPI_Win_flush(TARGET, window);
  }
  if (is_target) done += (uint64_t)count * BURST;
}

static const struct {
  const char *name;
  void (*run)(int);
} methods[] = {{"fence", fence}, {"pscw", pscw}, {"lock", lock}, {"flush", flush}, {"burst", burst}};
enum {
  ACCESSES = sizeof accesses / sizeof *accesses,
  METHODS = sizeof methods / sizeof *methods
};
static char names[ACCESSES * METHODS][32];

static int is_offered(int index) {
  return !accesses[index / METHODS].is_word_operation || methods[index % METHODS].run != burst;
}

static void (*method)(int);

// Keeps the target inside MPI until the origin's stretch has ended.
static void drain(void) {
  if (method == fence || method == pscw) return;
  if (is_origin) MPI_Send(NULL, 0, MPI_BYTE, ranks - 1, 0, MPI_COMM_WORLD);
  if (is_target) MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static uint64_t key(int of_rank) { return key_of(of_rank, ranks - 1, epoch); }

// Fills the target's and the origin's memory with different contents before the operations.
static void open_series(void) {
  epoch++, done = 0;
  if (is_origin) fill(local, bytes, key(0));
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, is_target, 0, window);
  uint64_t first = epoch << 32;
  if (access->start == compare_and_swap) memcpy(window_memory, &first, WORD);
  else fill(window_memory, bytes, key(ranks - 1));
  MPI_Win_unlock(is_target, window);
  MPI_Barrier(window_ranks);
  if (method == fence) MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
  if ((method == flush || method == burst) && is_origin) MPI_Win_lock_all(0, window);
}

// The target's word after this many operations: the initial value plus the sum of the operands.
static uint64_t word_after(uint64_t operations) {
  uint64_t initial = key(ranks - 1), operand = key(0), word = epoch << 32 | operations;
  if (access->start == fetch_and_op) word = draw(&initial) + operations * draw(&operand);
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
  if ((method == flush || method == burst) && is_origin) MPI_Win_unlock_all(window);
  MPI_Barrier(window_ranks);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, is_target, 0, window);
  char what[64];
  snprintf(what, sizeof what, "%s, message from rank %d", access->name, access->start == get ? ranks - 1 : 0);
  if (access->is_word_operation && is_target) check_word(window_memory, word_after(done), what);
  if (access->is_word_operation && is_origin && done) check_word(fetched, word_after(done - 1), what);
  if (access->start == put && is_target && done) check(window_memory, bytes, key(0), what);
  for (uint64_t each = 0; access->start == get && is_origin && each < BURST && each < done; each++)
    check(local + each * bytes, bytes, key(ranks - 1), what);
  if (access->start == accumulate && is_target) check_sum();
  MPI_Win_unlock(is_target, window);
}

static void measure_one(size_t size, const char *variant) {
  if (!is_selected(variant) || !fits(variant, size, (BURST + 1) * size)) return;
  int idle = !is_origin && !is_target;
  bytes = size;
  if (!idle) {
    local = allocate(BURST * (size > WORD ? size : WORD));
    fetched = allocate(WORD);
    MPI_Win_allocate((MPI_Aint)(size > WORD ? size : WORD), 1, MPI_INFO_NULL, window_ranks, &window_memory, &window);
  }
  measure(&(struct pattern){.point = {.variant = variant, .quantity = "time", .message_bytes = size},
                            .idle = idle,
                            .timed = is_origin,
                            .divide_by = 1,
                            .unit = 1,
                            .run = method,
                            .open = open_series,
                            .close = close_series,
                            .drain = drain});
  if (idle) return;
  MPI_Win_free(&window);
  free(local);
  free(fetched);
}

// Creates the communicator of the two ranks that have windows.
static void join(void) {
  is_origin = rank == 0, is_target = rank == ranks - 1;
  MPI_Comm_split(MPI_COMM_WORLD, is_origin || is_target ? 0 : MPI_UNDEFINED, rank, &window_ranks);
  set_measuring_ranks(is_origin || is_target);
  if (!is_origin && !is_target) return;
  MPI_Group group;
  MPI_Comm_group(window_ranks, &group);
  MPI_Group_incl(group, 1, &(int){is_origin ? TARGET : 0}, &peer_group);
  MPI_Group_free(&group);
}

static void leave(void) {
  if (!is_origin && !is_target) return;
  MPI_Group_free(&peer_group);
  MPI_Comm_free(&window_ranks);
}

int main(int argc, char **argv) {
  const char *variants[ACCESSES * METHODS + 1] = {NULL};
  for (int index = 0, offered = 0; index < ACCESSES * METHODS; index++) {
    snprintf(names[index], sizeof names[index], "%s-%s", accesses[index / METHODS].name, methods[index % METHODS].name);
    if (is_offered(index)) variants[offered++] = names[index];
  }
  begin(argc, argv,
        &(struct program){
            .name = "onesided",
            .summary = "one-sided operations, each with its synchronisation (word operations: 8 bytes only)",
            .variants = variants,
            .extras = (struct extra[]){MEMORY_OPTION, {0}},
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 2});
  if (settings.walk_bytes) usage_error("--walk-bytes does not apply to windows: all operations access the same memory");
  join();
  for (int index = 0; index < ACCESSES * METHODS; index++) {
    if (!is_offered(index)) continue;
    access = &accesses[index / METHODS], method = methods[index % METHODS].run;
    if (access->is_word_operation) measure_one(WORD, names[index]);
    for (int size = 0; !access->is_word_operation && size < settings.size_count; size++)
      measure_one(settings.sizes[size], names[index]);
  }
  leave();
  finish();
}
