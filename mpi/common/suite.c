// SPDX-License-Identifier: Apache-2.0 OR MIT
// Start, end and options of every program.
#include "suite.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

enum {
  WRONG_RESULT = 1,
  USAGE_ERROR = 2,
  UNSUPPORTED = 3,
  SAMPLES_MIN = 5,  // measured even if the point's time is exceeded
  VARIANTS_MAX = 64,
  GIVEN_MAX = 32  // options of its own that a program is given
};

int rank, ranks, programs_left;
struct settings settings;
uint64_t clock_resolution_ns;
int64_t memory_limit = INT64_C(512) << 20;

static const struct settings defaults = {
    .sizes = {8, 1024, 65536, 1048576}, .size_count = 4, .samples = 200, .seconds = 0.5, .warmup = 5, .seed = 1};
static const struct program *program;
static const char *selected[VARIANTS_MAX];
static int selected_count;
// The program's own options that were given, with their defaults, for another program in the same MPI job.
union option {
  int64_t count;
  double real;
  const char *text;
};
static struct {
  void *value;
  union option before;
  size_t size;
} given[GIVEN_MAX];
static int given_count;

// In one write, so that lines of several ranks do not mix.
static void print_error(const char *prefix, const char *format, va_list values) {
  char text[512], line[1024];
  vsnprintf(text, sizeof text, format, values);
  snprintf(line, sizeof line, "%s: %s%s\n", program->name, prefix, text);
  fputs(line, stderr);
  fflush(stderr);
}

// Collective.
__attribute__((noreturn)) static void finalize_and_exit(int code) {
  MPI_Finalize();
  exit(code);
}

void usage_error(const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (rank == 0) print_error("", format, values);
  va_end(values);
  finalize_and_exit(USAGE_ERROR);
}

void unsupported(const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (rank == 0) print_error("", format, values);
  va_end(values);
  finalize_and_exit(UNSUPPORTED);
}

// MPICH's launcher loses output that it has not forwarded yet when a rank aborts.
__attribute__((noreturn)) static void abort_all(int code) {
  nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
  MPI_Abort(MPI_COMM_WORLD, code);
  abort();
}

void unsupported_here(const char *format, ...) {
  char prefix[64];
  va_list values;
  va_start(values, format);
  snprintf(prefix, sizeof prefix, "rank %d: ", rank);
  print_error(prefix, format, values);
  va_end(values);
  abort_all(UNSUPPORTED);
}

void wrong_result(const char *format, ...) {
  char prefix[96];
  va_list values;
  va_start(values, format);
  snprintf(prefix, sizeof prefix, "rank %d, seed %" PRIu64 ": WRONG RESULT: ", rank, settings.seed);
  print_error(prefix, format, values);
  va_end(values);
  abort_all(WRONG_RESULT);
}

static void help(void) {
  if (rank == 0) {
    printf("%s: %s\nvariants:", program->name, program->summary);
    for (const char *const *variant = program->variants; *variant; variant++) printf(" %s", *variant);
    puts("\n  --variants A,B    variants to measure (all)");
    if (!program->has_no_sizes)
      puts(
          "  --sizes B,B       message sizes in bytes (8,1024,65536,1048576)\n"
          "  --walk-bytes N    cycle messages through a buffer of this size, to defeat the cache (0: one message)");
    puts(
        "  --samples N       maximum values of each point (200)\n"
        "  --seconds S       approximate time for each point (0.5)\n"
        "  --warmup N        warm-up values before the samples (5)\n"
        "  --seed N          seed of contents and orders (1)\n"
        "  --corrupt N       corrupt the N-th message or result that each rank checks, to test the check (0: none)\n"
        "  --output FILE     JSON Lines (standard output)");
    for (const struct extra *extra = program->extras; extra && extra->name; extra++)
      printf("  --%-15s %s\n", extra->name, extra->help);
    fflush(stdout);
  }
  finalize_and_exit(0);
}

static int64_t count_of(const char *name, const char *text, int64_t max) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno || number < 0 || number > max)
    usage_error("--%s must be a number from 0 to %" PRId64 ", not '%s'", name, max, text);
  return number;
}

static double real_of(const char *name, const char *text) {
  char *end;
  double number = strtod(text, &end);
  if (end == text || *end || !(number >= 0 && number < 1e18))
    usage_error("--%s must be a number, 0 or more, not '%s'", name, text);
  return number;
}

static void read_sizes(const char *text) {
  settings.size_count = 0;
  char *copy = strdup(text), *rest = copy;
  for (char *part; (part = strsep(&rest, ","));) {
    if (settings.size_count == SIZES_MAX) usage_error("--sizes takes %d sizes at most", SIZES_MAX);
    settings.sizes[settings.size_count++] = (size_t)count_of("sizes", part, INT32_MAX);
  }
  free(copy);
}

static void read_variants(const char *text) {
  // Never freed: `selected` points into it.
  char *rest = strdup(text);
  for (char *part; (part = strsep(&rest, ","));) {
    int known = 0;
    for (const char *const *variant = program->variants; *variant; variant++) known |= !strcmp(*variant, part);
    if (!known || selected_count == VARIANTS_MAX) usage_error("no variant '%s'; --help lists them", part);
    selected[selected_count++] = part;
  }
}

static void set_option(const struct extra *extra, const char *text) {
  if (given_count == GIVEN_MAX) usage_error("at most %d options of this test can be given", GIVEN_MAX);
  union option wanted = {0};
  size_t size = 0;
  if (extra->kind == COUNT) wanted.count = count_of(extra->name, text, INT64_MAX), size = sizeof wanted.count;
  if (extra->kind == REAL) wanted.real = real_of(extra->name, text), size = sizeof wanted.real;
  if (extra->kind == TEXT) wanted.text = text, size = sizeof wanted.text;
  given[given_count].value = extra->value;
  given[given_count].size = size;
  memcpy(&given[given_count++].before, extra->value, size);
  memcpy(extra->value, &wanted, size);
}

static void reset_options(void) {
  while (given_count) {
    given_count--;
    memcpy(given[given_count].value, &given[given_count].before, given[given_count].size);
  }
}

static const char *read_options(int argc, char **argv) {
  const char *output = "-";
  for (int number = 1; number < argc; number++) {
    const char *name = argv[number];
    if (!strcmp(name, "--help")) help();
    if (strncmp(name, "--", 2)) usage_error("'%s' is no option; --help lists them", name);
    name += 2;
    if (++number == argc) usage_error("--%s needs a value, or is unknown; --help lists the options", name);
    const char *value = argv[number];
    if (program->has_no_sizes && (!strcmp(name, "sizes") || !strcmp(name, "walk-bytes")))
      usage_error("--%s does not apply to this test; --help lists the options", name);
    const struct extra *extra = program->extras;
    while (extra && extra->name && strcmp(extra->name, name)) extra++;
    if (extra && extra->name) {
      set_option(extra, value);
    } else if (!strcmp(name, "variants")) {
      read_variants(value);
    } else if (!strcmp(name, "sizes")) {
      read_sizes(value);
    } else if (!strcmp(name, "samples")) {
      settings.samples = (int)count_of(name, value, SAMPLES_MAX);
    } else if (!strcmp(name, "seconds")) {
      settings.seconds = real_of(name, value);
    } else if (!strcmp(name, "warmup")) {
      settings.warmup = (int)count_of(name, value, SAMPLES_MAX);
    } else if (!strcmp(name, "walk-bytes")) {
      settings.walk_bytes = (size_t)count_of(name, value, INT64_C(1) << 40);
    } else if (!strcmp(name, "seed")) {
      settings.seed = (uint64_t)count_of(name, value, INT64_MAX);
    } else if (!strcmp(name, "corrupt")) {
      settings.corrupt = (uint64_t)count_of("corrupt", value, INT64_MAX);
    } else if (!strcmp(name, "output")) {
      output = value;
    } else {
      usage_error("unknown option --%s; --help lists them", name);
    }
  }
  if (settings.samples == 0) usage_error("--samples must be 1 or more");
  return output;
}

// The smallest step of the clock that a program observes; clock_getres reports the hardware's.
static uint64_t measure_resolution(void) {
  uint64_t smallest = UINT64_MAX, largest;
  for (int number = 0; number < 1000; number++) {
    uint64_t first = now_ns(), next;
    while ((next = now_ns()) == first) continue;
    if (next - first < smallest) smallest = next - first;
  }
  MPI_Allreduce(&smallest, &largest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  return largest;
}

void begin(int argc, char **argv, const struct program *description) {
  program = description;
  settings = program->defaults ? *program->defaults : defaults;
  selected_count = 0;
  int provided, is_initialized;
  MPI_Initialized(&is_initialized);
  int requested = program->threads_preferred > program->threads ? program->threads_preferred : program->threads;
  if (is_initialized) {
    MPI_Query_thread(&provided);
  } else {
    uint64_t start_ns = now_ns();
    MPI_Init_thread(&argc, &argv, requested, &provided);
    if (program->started) program->started(start_ns);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char *output = read_options(argc, argv);
  if (ranks < program->ranks_min) usage_error("needs %d ranks or more, not %d", program->ranks_min, ranks);
  if (program->needs_even_ranks && ranks % 2) usage_error("needs an even number of ranks, not %d", ranks);
  if (provided < program->threads) {
    static const char *const levels[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    int level = program->threads == MPI_THREAD_MULTIPLE     ? 3
                : program->threads == MPI_THREAD_SERIALIZED ? 2
                                                            : program->threads == MPI_THREAD_FUNNELED;
    unsupported(
        "this MPI library does not provide MPI_THREAD_%s: build it with that level, or omit the variants that "
        "use threads",
        levels[level]);
  }
  clock_resolution_ns = measure_resolution();
  int reason = rank == 0 ? open_output(output, is_initialized) : 0;
  MPI_Bcast(&reason, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (reason) unsupported("cannot write %s: %s; choose another file with --output", output, strerror(reason));
  write_start(program->name, argc, argv);
}

static int contains(const char *names, const char *name) {
  size_t length = strlen(name);
  for (const char *at = names; (at = strstr(at, name)); at += length)
    if ((at == names || at[-1] == ',') && (!at[length] || at[length] == ',')) return 1;
  return 0;
}

int selects_variant(int argc, char **argv, const char *variant) {
  int any = 0;
  for (int number = 1; number + 1 < argc; number++) {
    if (strcmp(argv[number], "--variants")) continue;
    if (contains(argv[number + 1], variant)) return 1;
    any = 1;
  }
  return !any;
}

int is_selected(const char *variant) {
  for (int number = 0; number < selected_count; number++)
    if (!strcmp(selected[number], variant)) return 1;
  return selected_count == 0;
}

int fits(const char *variant, size_t message_bytes, uint64_t needed_bytes) {
  if (needed_bytes <= (uint64_t)memory_limit) return 1;
  leave_out(variant, message_bytes, "needs %" PRIu64 " MiB on each rank, and --memory allows %" PRId64,
            needed_bytes >> 20, memory_limit >> 20);
  return 0;
}

void finish(void) {
  MPI_Barrier(MPI_COMM_WORLD);
  int written = write_end();
  MPI_Bcast(&written, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (!written) unsupported("the records could not be written completely: is the disk full?");
  reset_options();
  if (!programs_left) MPI_Finalize();
}

int samples_within(double stretch_ns) {
  double fit = settings.seconds * 1e9 / stretch_ns;
  int least = settings.samples < SAMPLES_MIN ? settings.samples : SAMPLES_MIN;
  if (fit >= settings.samples) return settings.samples;
  return fit > least ? (int)fit : least;
}

struct repetitions agree_repetitions(double operation_ns) {
  struct repetitions agreed = {.inner = 1, .warmup = settings.warmup};
  if (operation_ns < 1) operation_ns = 1;
  double stretch_ns = 2.0 * RESOLUTIONS_MIN * (double)clock_resolution_ns;
  if (operation_ns < stretch_ns) agreed.inner = (int)(stretch_ns / operation_ns) + 1;
  agreed.outer = samples_within(operation_ns * agreed.inner);
  MPI_Bcast(&agreed, sizeof agreed, MPI_BYTE, 0, MPI_COMM_WORLD);
  return agreed;
}
