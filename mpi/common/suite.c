// SPDX-License-Identifier: Apache-2.0 OR MIT
// Beginning, end and options of every program.
#include "suite.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

enum {
  WRONG_RESULT = 1,
  WRONG_USE = 2,
  CANNOT = 3,
  SAMPLES_MIN = 5,  // a point too slow for its time is measured so often all the same
  VARIANTS_MAX = 64
};

int rank, ranks, programs_to_come;
struct settings settings;
uint64_t clock_resolution_ns;
int64_t memory_most = INT64_C(512) << 20;

static const struct settings usual = {
    .sizes = {8, 1024, 65536, 1048576}, .size_count = 4, .samples = 200, .seconds = 0.5, .warmup = 5, .seed = 1};
static const struct program *program;
static const char *chosen[VARIANTS_MAX];
static int chosen_count;

// In one piece, so that lines of several ranks do not mix.
static void say(const char *who, const char *format, va_list values) {
  char text[512], line[1024];
  vsnprintf(text, sizeof text, format, values);
  snprintf(line, sizeof line, "%s: %s%s\n", program->name, who, text);
  fputs(line, stderr);
  fflush(stderr);
}

// All ranks are here.
__attribute__((noreturn)) static void leave(int code) {
  MPI_Finalize();
  exit(code);
}

void wrong_use(const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (rank == 0) say("", format, values);
  va_end(values);
  leave(WRONG_USE);
}

void cannot(const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (rank == 0) say("", format, values);
  va_end(values);
  leave(CANNOT);
}

// MPICH's launcher loses what it has not passed on when a rank aborts.
__attribute__((noreturn)) static void abort_all(int code) {
  nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
  MPI_Abort(MPI_COMM_WORLD, code);
  abort();
}

void cannot_here(const char *format, ...) {
  char who[64];
  va_list values;
  va_start(values, format);
  snprintf(who, sizeof who, "rank %d: ", rank);
  say(who, format, values);
  va_end(values);
  abort_all(CANNOT);
}

void wrong_result(const char *format, ...) {
  char who[96];
  va_list values;
  va_start(values, format);
  snprintf(who, sizeof who, "rank %d, seed %" PRIu64 ": WRONG RESULT: ", rank, settings.seed);
  say(who, format, values);
  va_end(values);
  abort_all(WRONG_RESULT);
}

static void help(void) {
  if (rank == 0) {
    printf("%s: %s\nvariants:", program->name, program->summary);
    for (const char *const *variant = program->variants; *variant; variant++) printf(" %s", *variant);
    puts("\n  --variants A,B    which of them (all)");
    if (!program->sizeless)
      puts(
          "  --sizes B,B       message sizes in bytes (8,1024,65536,1048576)\n"
          "  --walk BYTES      message buffers walk through so much memory, against the cache (0: one buffer)");
    puts(
        "  --samples N       values of each point, at most (200)\n"
        "  --seconds S       for each point, about (0.5)\n"
        "  --warmup N        values before those (5)\n"
        "  --seed N          of contents and orders (1)\n"
        "  --corrupt N       spoil the N-th message or result that each rank checks, to see the check fail (0: none)\n"
        "  --output FILE     JSON Lines (standard output)");
    for (const struct extra *extra = program->extras; extra && extra->name; extra++)
      printf("  --%-15s %s\n", extra->name, extra->help);
    fflush(stdout);
  }
  leave(0);
}

static int64_t count_of(const char *name, const char *text, int64_t most) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno || number < 0 || number > most)
    wrong_use("--%s must be a number from 0 to %" PRId64 ", not '%s'", name, most, text);
  return number;
}

static double real_of(const char *name, const char *text) {
  char *end;
  double number = strtod(text, &end);
  if (end == text || *end || !(number >= 0 && number < 1e18))
    wrong_use("--%s must be a number, 0 or more, not '%s'", name, text);
  return number;
}

static void read_sizes(const char *text) {
  settings.size_count = 0;
  char *copy = strdup(text), *rest = copy;
  for (char *part; (part = strsep(&rest, ","));) {
    if (settings.size_count == SIZES_MAX) wrong_use("--sizes takes %d sizes at most", SIZES_MAX);
    settings.sizes[settings.size_count++] = (size_t)count_of("sizes", part, INT32_MAX);
  }
  free(copy);
}

static void read_variants(const char *text) {
  // Kept for the program's lifetime: `chosen` points into it.
  char *rest = strdup(text);
  for (char *part; (part = strsep(&rest, ","));) {
    int known = 0;
    for (const char *const *variant = program->variants; *variant; variant++) known |= !strcmp(*variant, part);
    if (!known || chosen_count == VARIANTS_MAX) wrong_use("no variant '%s'; --help lists them", part);
    chosen[chosen_count++] = part;
  }
}

static const char *read_options(int argc, char **argv) {
  const char *output = "-";
  for (int number = 1; number < argc; number++) {
    const char *name = argv[number];
    if (!strcmp(name, "--help")) help();
    if (strncmp(name, "--", 2)) wrong_use("'%s' is no option; --help lists them", name);
    name += 2;
    if (++number == argc) wrong_use("--%s needs a value, or is unknown; --help lists the options", name);
    const char *value = argv[number];
    if (program->sizeless && (!strcmp(name, "sizes") || !strcmp(name, "walk")))
      wrong_use("--%s is not for this test; --help lists what is", name);
    const struct extra *extra = program->extras;
    while (extra && extra->name && strcmp(extra->name, name)) extra++;
    if (extra && extra->name) {
      if (extra->kind == COUNT) *(int64_t *)extra->value = count_of(name, value, INT64_MAX);
      if (extra->kind == REAL) *(double *)extra->value = real_of(name, value);
      if (extra->kind == TEXT) *(const char **)extra->value = value;
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
    } else if (!strcmp(name, "walk")) {
      settings.walk_bytes = (size_t)count_of(name, value, INT64_C(1) << 40);
    } else if (!strcmp(name, "seed")) {
      settings.seed = (uint64_t)count_of(name, value, INT64_MAX);
    } else if (!strcmp(name, "corrupt")) {
      settings.corrupt = (uint64_t)count_of("corrupt", value, INT64_MAX);
    } else if (!strcmp(name, "output")) {
      output = value;
    } else {
      wrong_use("unknown option --%s; --help lists them", name);
    }
  }
  if (settings.samples == 0) wrong_use("--samples must be 1 or more");
  return output;
}

// The smallest step of the clock that a program sees: what clock_getres says is the hardware's, not the call's.
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

void begin(int argc, char **argv, const struct program *described) {
  program = described;
  settings = usual;
  chosen_count = 0;
  int provided, is_later;
  MPI_Initialized(&is_later);
  int asked = program->threads_liked > program->threads ? program->threads_liked : program->threads;
  if (is_later) {
    MPI_Query_thread(&provided);
  } else {
    uint64_t start_ns = now_ns();
    MPI_Init_thread(&argc, &argv, asked, &provided);
    if (program->started) program->started(start_ns);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char *output = read_options(argc, argv);
  if (ranks < program->ranks_min) wrong_use("needs %d ranks or more, not %d", program->ranks_min, ranks);
  if (program->ranks_even && ranks % 2) wrong_use("needs an even number of ranks, not %d", ranks);
  if (provided < program->threads) {
    static const char *const levels[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    int level = program->threads == MPI_THREAD_MULTIPLE     ? 3
                : program->threads == MPI_THREAD_SERIALIZED ? 2
                                                            : program->threads == MPI_THREAD_FUNNELED;
    cannot(
        "this MPI library does not give MPI_THREAD_%s: build it with that level, or leave out the variants that "
        "use threads",
        levels[level]);
  }
  clock_resolution_ns = measure_resolution();
  int reason = rank == 0 ? open_output(output, is_later) : 0;
  MPI_Bcast(&reason, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (reason) cannot("cannot write %s: %s; name another file by --output", output, strerror(reason));
  write_start(program->name, argc, argv);
}

static int lists(const char *names, const char *name) {
  size_t length = strlen(name);
  for (const char *at = names; (at = strstr(at, name)); at += length)
    if ((at == names || at[-1] == ',') && (!at[length] || at[length] == ',')) return 1;
  return 0;
}

int names_variant(int argc, char **argv, const char *variant) {
  int any = 0;
  for (int number = 1; number + 1 < argc; number++) {
    if (strcmp(argv[number], "--variants")) continue;
    if (lists(argv[number + 1], variant)) return 1;
    any = 1;
  }
  return !any;
}

int wanted(const char *variant) {
  for (int number = 0; number < chosen_count; number++)
    if (!strcmp(chosen[number], variant)) return 1;
  return chosen_count == 0;
}

int fits(const char *variant, size_t message_bytes, uint64_t needed_bytes) {
  if (needed_bytes <= (uint64_t)memory_most) return 1;
  leave_out(variant, message_bytes, "needs %" PRIu64 " MiB on each rank, and --memory allows %" PRId64,
            needed_bytes >> 20, memory_most >> 20);
  return 0;
}

void finish(void) {
  MPI_Barrier(MPI_COMM_WORLD);
  int written = write_end();
  MPI_Bcast(&written, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (!written) cannot("the records could not be written to their end: is the disk full?");
  if (!programs_to_come) MPI_Finalize();
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
