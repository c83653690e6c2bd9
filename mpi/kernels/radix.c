// SPDX-License-Identifier: Apache-2.0 OR MIT
// Parallel radix sort by the least significant digit, in the variants of Stival 2006.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "radix/choose.h"
#include "radix/keys.h"

enum {
  KEYS_MAX = 1 << 30,         // on each rank: an offset fits 32 bits
  BUFFER_MAX_BYTES = 1 << 24  // the study goes to 16 kB
};

static const char *const names[] = {"original", "non-blocking", "multi-threaded", "auto", NULL};
static const char *buffers = "16384", *distribution = "uniform";
static int64_t keys = 524288, bits = 8;
static const struct extra extras[] = {
    {"keys", COUNT, &keys, "keys of 4 bytes on each rank (524288)"},
    {"bits", COUNT, &bits, "bits of a digit, 1 to 16 (8)"},
    {"buffer", TEXT, &buffers, "B,B: bytes gathered for a rank, rounded down to whole keys (16384)"},
    {"distribution", TEXT, &distribution, "of keys: uniform, gaussian, skewed, sorted or equal (uniform)"},
    {0},
};
static struct program program = {
    .name = "radix",
    .summary = "parallel radix sort; auto tries the others first and uses the fastest",
    .variants = names,
    .extras = extras,
    .has_no_sizes = 1,
    .ranks_min = 1,
};

// A measured sort and its keys.
struct checked {
  struct sort sort;
  struct key_set key_set;
};

static void execute(void *state, double *times) { execute_sort(&((struct checked *)state)->sort, times); }

static void check_one(void *state) {
  struct checked *checked = state;
  check_keys(&checked->key_set, checked->sort.result);
}

static void measure_algorithm(struct checked *checked, enum algorithm algorithm, struct point point) {
  struct exchange exchange;
  exchange_create(&exchange, algorithm, &checked->sort, point.message_bytes / sizeof(uint32_t));
  struct kernel kernel = {.quantities = sort_quantities, .state = checked, .execute = execute, .check = check_one};
  measure_kernel(&kernel, point);
  exchange_destroy(&exchange);
}

static void measure_auto(struct checked *checked, struct point point) {
  struct choice choice = choose_algorithm(&checked->sort, point.message_bytes / sizeof(uint32_t));
  check_one(checked);
  record_choice(&point, algorithm_names[choice.algorithm], choice.reason);
  struct point trial = point;
  trial.quantity = "trial";
  trial.inner = 1;
  record(&trial, WARMUP, &choice.trial_ns, 1);
  measure_algorithm(checked, choice.algorithm, point);
}

static void measure_buffer(struct checked *checked, size_t bytes) {
  struct point point = {.message_bytes = bytes, .parameter = "keys", .parameter_value = (double)keys};
  for (int algorithm = 0; algorithm < ALGORITHMS; algorithm++) {
    point.variant = algorithm_names[algorithm];
    if (is_selected(point.variant)) measure_algorithm(checked, (enum algorithm)algorithm, point);
  }
  point.variant = "auto";
  if (is_selected(point.variant)) measure_auto(checked, point);
}

static size_t buffer_from(const char *text) {
  char *end;
  errno = 0;
  long long bytes = strtoll(text, &end, 10);
  if (end == text || *end || errno || bytes < (long long)sizeof(uint32_t) || bytes > BUFFER_MAX_BYTES)
    usage_error("--buffer takes bytes from %zu, which is one key, to %d, not '%s'", sizeof(uint32_t), BUFFER_MAX_BYTES,
                text);
  return (size_t)bytes / sizeof(uint32_t) * sizeof(uint32_t);
}

static enum distribution distribution_from(const char *text) {
  int number = 0;
  while (distributions[number] && strcmp(distributions[number], text)) number++;
  if (!distributions[number])
    usage_error("--distribution is uniform, gaussian, skewed, sorted or equal, not '%s'", text);
  return (enum distribution)number;
}

int main(int argc, char **argv) {
  // Thread safety of a library costs single-threaded variants time: 15 % with messages of 128 bytes in shared memory.
  // So it is requested only for the multi-threaded variant; under `auto` the kernel serialises its two threads itself.
  if (selects_variant(argc, argv, "multi-threaded")) program.threads = MPI_THREAD_MULTIPLE;
  if (selects_variant(argc, argv, "auto")) program.threads_preferred = MPI_THREAD_SERIALIZED;
  begin(argc, argv, &program);
  if (keys < 1 || keys > KEYS_MAX) usage_error("--keys must be from 1 to %d, not %" PRId64, KEYS_MAX, keys);
  if (bits < 1 || bits > BITS_MAX) usage_error("--bits must be from 1 to %d, not %" PRId64, BITS_MAX, bits);
  enum distribution drawn = distribution_from(distribution);
  size_t sizes[SIZES_MAX];
  int count = 0;
  char *copy = strdup(buffers), *rest = copy;
  for (char *part; (part = strsep(&rest, ","));) {
    if (count == SIZES_MAX) usage_error("--buffer takes %d sizes at most", SIZES_MAX);
    sizes[count++] = buffer_from(part);
  }
  free(copy);
  struct checked checked = {.sort = sort_for((size_t)keys, (int)bits)};
  checked.key_set = draw_keys(drawn, checked.sort.input, (size_t)keys);
  for (int number = 0; number < count; number++) measure_buffer(&checked, sizes[number]);
  free_sort(&checked.sort);
  finish();
  return 0;
}
