// SPDX-License-Identifier: Apache-2.0 OR MIT
// Stretches, their length and number, and the checks of their messages.
#include "measure.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statistic.h"

enum {
  TRIALS = 3,       // stretches for each count tried
  GROWTH_MAX = 16,  // of the count between tries, because the first stretches are slow
  COUNT_MAX = INT_MAX / (2 * GROWTH_MAX)
};

int64_t pairs_requested = PAIRS_NOT_GIVEN;

// The measuring ranks.
static MPI_Comm measuring;
static int measuring_count;

// Incremented with each filling of the buffers on the measuring ranks, so that no contents repeat.
static uint64_t epoch;
// Operations since the last filling.
static uint64_t operations_done;

void set_measuring_ranks(int participates) {
  if (measuring_count) MPI_Comm_free(&measuring);
  measuring_count = 0;
  MPI_Comm_split(MPI_COMM_WORLD, participates ? 0 : MPI_UNDEFINED, rank, &measuring);
  if (participates) MPI_Comm_size(measuring, &measuring_count);
}

struct pair join_pairs(void) {
  int half = ranks / 2;
  if (pairs_requested > half)
    usage_error("--pairs %" PRId64 " needs twice as many ranks; there are %d", pairs_requested, ranks);
  struct pair pair = {.first = rank < half, .count = 1, .steady = pairs_requested >= 0};
  if (pair.steady) pair.count = pairs_requested ? (int)pairs_requested : half;
  pair.partner = pair.first ? rank + half : rank - half;
  pair.idle = rank % half >= pair.count;
  set_measuring_ranks(!pair.idle);
  return pair;
}

void reset_measuring_ranks(void) {
  static uint64_t resets;
  if (measuring_count) MPI_Comm_free(&measuring);
  measuring_count = 0;
  // Equal on all ranks again, although some were idle.
  epoch = ++resets << 24;
}

struct messages messages_for(size_t bytes, int blocks, const int *peers, size_t least) {
  return (struct messages){
      .buffers = buffers_at_least(least, bytes * (size_t)blocks), .bytes = bytes, .blocks = blocks, .peers = peers};
}

void free_messages(struct messages *messages) { free_buffers(&messages->buffers); }

void match_buffers(struct messages *out, struct messages *in) {
  size_t count = out->buffers.count < in->buffers.count ? out->buffers.count : in->buffers.count;
  out->buffers.count = in->buffers.count = count;
}

static uint64_t key_in(const struct messages *messages, size_t buffer, int block, int from, int to) {
  uint64_t number = epoch * messages->buffers.count + buffer;
  int block_number = messages->numbers ? messages->numbers[block] : 0;
  return key_of(from, to, number << 8 | (uint64_t)block_number);
}

static unsigned char *block_of(const struct messages *messages, size_t buffer, int block) {
  size_t offset = messages->offsets ? (size_t)messages->offsets[block] : (size_t)block * messages->bytes;
  return messages->buffers.memory + buffer * messages->buffers.stride + offset;
}

static size_t length_of(const struct messages *messages, int block) {
  return messages->lengths ? (size_t)messages->lengths[block] : messages->bytes;
}

// Expected contents of a block; valid until the next call.
static struct contents contents_of(const struct messages *messages, size_t buffer, int block, int from, int to) {
  static uint64_t *keys;
  if (!keys) keys = allocate((size_t)ranks * sizeof *keys);
  struct contents contents = {
      .keys = keys, .count = messages->summed ? messages->summed : 1, .bytewise = messages->bytewise};
  int is_reversed = messages->summed && block > 0;
  if (is_reversed) contents.count = ranks - rank;
  for (int number = 0; number < contents.count; number++) {
    int source = messages->summed ? number + (is_reversed ? rank : 0) : from;
    keys[number] = key_in(messages, buffer, block, source, messages->to_all ? ranks : to);
    skip(&keys[number], messages->skipped_words);
  }
  return contents;
}

// Every byte differs from that of the message, so that none can pass for received.
static void fill_complement(unsigned char *data, size_t bytes, struct contents contents) {
  fill_with(data, bytes, contents);
  for (size_t at = 0; at < bytes; at++) data[at] = (unsigned char)~data[at];
}

static void fill_messages(struct messages *messages, int outgoing) {
  for (size_t buffer = 0; buffer < messages->buffers.count; buffer++)
    for (int block = 0; block < messages->blocks; block++) {
      unsigned char *data = block_of(messages, buffer, block);
      int peer = messages->peers[block];
      if (peer == NOBODY) continue;
      if (outgoing) {
        fill_with(data, length_of(messages, block), contents_of(messages, buffer, block, rank, peer));
      } else {
        fill_complement(data, length_of(messages, block), contents_of(messages, buffer, block, peer, rank));
      }
    }
  messages->buffers.next = 0;
}

static void prepare(const struct pattern *pattern) {
  epoch++;
  operations_done = 0;
  if (pattern->out) fill_messages(pattern->out, 1);
  if (pattern->in && pattern->in != pattern->out) fill_messages(pattern->in, 0);
  if (pattern->open) pattern->open();
  MPI_Barrier(measuring);
}

static void check_messages(const struct pattern *pattern) {
  if (pattern->close) pattern->close();
  const struct messages *in = pattern->in;
  for (size_t buffer = 0; in && buffer < in->buffers.count && buffer < operations_done; buffer++) {
    uint64_t times = operations_done / in->buffers.count + (buffer < operations_done % in->buffers.count);
    for (int block = 0; block < in->blocks; block++) {
      int peer = in->peers[block];
      if (peer == NOBODY) continue;
      // After an even number of exchanges in place the data is back at its origin.
      int back = in == pattern->out && times % 2 == 0;
      struct contents contents = contents_of(in, buffer, block, back ? rank : peer, back ? peer : rank);
      char what[128];
      if (in->summed) snprintf(what, sizeof what, "%s, sum of %d ranks", pattern->point.variant, contents.count);
      else snprintf(what, sizeof what, "%s, message from rank %d", pattern->point.variant, peer);
      check_for(block_of(in, buffer, block), length_of(in, block), contents, what);
    }
  }
}

static int lead_in(const struct pattern *pattern, int count) {
  int units = pattern->steady ? (count / pattern->unit + 3) / 4 : measuring_count > 2;
  return units * pattern->unit;
}

// Two ranks synchronise by their messages. More ranks start together after a barrier, and an operation outside the
// timed region absorbs the skew of leaving it.
static double stretch(const struct pattern *pattern, int count) {
  int before = lead_in(pattern, count);
  if (measuring_count > 2) MPI_Barrier(measuring);
  uint64_t first_ns = now_ns();
  pattern->run(before);
  uint64_t start_ns = now_ns();
  pattern->run(count);
  uint64_t end_ns = now_ns();
  if (pattern->drain) pattern->drain();
  operations_done += (uint64_t)before + (uint64_t)count;
  double timed_ns = (double)(end_ns - start_ns);
  double mean_ns = (double)(end_ns - first_ns) * count / (before + count);
  return pattern->arriving && mean_ns > timed_ns ? mean_ns : timed_ns;
}

// Idle ranks sleep between polls: they may share a core with measuring ranks.
static void wait_for_all_ranks(int sleeps) {
  MPI_Request barrier;
  MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
  int done = 0;
  while (sleeps && !done) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
  }
  MPI_Wait(&barrier, MPI_STATUS_IGNORE);
}

// Measures `number` stretches with new contents, in nanoseconds. Collective over all ranks.
static void series(const struct pattern *pattern, int count, double *stretches_ns, int number) {
  if (!pattern->idle) {
    prepare(pattern);
    for (int done = 0; done < number; done++) stretches_ns[done] = stretch(pattern, count);
    check_messages(pattern);
  }
  wait_for_all_ranks(pattern->idle);
}

// Returns the median of this rank's values.
static double write_series(const struct pattern *pattern, enum phase phase, int count, const double *stretches_ns,
                           int number) {
  struct point point = pattern->point;
  point.inner = count;
  int count_here = pattern->timed && !pattern->idle ? number : 0;
  double *values = allocate((size_t)count_here * sizeof *values);
  for (int done = 0; done < count_here; done++) values[done] = stretches_ns[done] / count / pattern->divide_by;
  record(&point, phase, values, count_here);
  double middle_ns = count_here ? median(values, count_here) : 0;
  free(values);
  return middle_ns;
}

static double smallest_of_all(const struct pattern *pattern, double local_ns) {
  double smallest_ns;
  if (pattern->idle || !pattern->timed) local_ns = DBL_MAX;
  MPI_Allreduce(&local_ns, &smallest_ns, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  return smallest_ns;
}

// The median of three: the first may be long, because it connects, and another too short, because of messages that
// arrived while the rank was preempted.
static double median_of_three(const double *values) {
  double first = values[0], second = values[1], third = values[2];
  double low = first < second ? first : second, high = first < second ? second : first;
  return third < low ? low : third > high ? high : third;
}

static int grown_count(const struct pattern *pattern, int count, double growth) {
  growth = growth < 2 ? 2 : growth > GROWTH_MAX ? GROWTH_MAX : growth;
  return ((int)(count * growth) / pattern->unit + 1) * pattern->unit;
}

// Number of operations that last long enough on every rank, and their time.
static int find_count(const struct pattern *pattern, double *stretch_ns) {
  // Twice the required time: later stretches may be shorter.
  double trials_ns[TRIALS] = {0}, enough_ns = 2.0 * RESOLUTIONS_MIN * (double)clock_resolution_ns;
  if (pattern->steady && enough_ns < STEADY_NS) enough_ns = STEADY_NS;
  for (int count = pattern->steady ? 4 * pattern->unit : pattern->unit;;) {
    series(pattern, count, trials_ns, TRIALS);
    write_series(pattern, WARMUP, count, trials_ns, TRIALS);
    *stretch_ns = smallest_of_all(pattern, median_of_three(trials_ns));
    if (*stretch_ns >= enough_ns || count > COUNT_MAX) return count;
    count = grown_count(pattern, count, *stretch_ns > 0 ? 1.25 * enough_ns / *stretch_ns : GROWTH_MAX);
  }
}

double measure(const struct pattern *pattern) {
  if (!measuring_count && !pattern->idle) set_measuring_ranks(1);
  double stretch_ns;
  int count = find_count(pattern, &stretch_ns), warmup = settings.warmup;
  for (;;) {
    int number = samples_within(stretch_ns * (1 + (double)lead_in(pattern, count) / count));
    double *stretches_ns = allocate((size_t)(warmup + number) * sizeof *stretches_ns), shortest_ns = DBL_MAX;
    series(pattern, count, stretches_ns, warmup + number);
    for (int done = 0; done < warmup + number; done++)
      if (stretches_ns[done] < shortest_ns) shortest_ns = stretches_ns[done];
    shortest_ns = smallest_of_all(pattern, shortest_ns);
    // A disturbance during the search can make the count too small. Such stretches are recorded as warm-up.
    int again = shortest_ns < (double)(RESOLUTIONS_MIN * clock_resolution_ns) && count <= COUNT_MAX;
    write_series(pattern, WARMUP, count, stretches_ns, again ? warmup + number : warmup);
    double middle_ns = again ? 0 : write_series(pattern, MEASURE, count, stretches_ns + warmup, number);
    free(stretches_ns);
    if (!again) return middle_ns;
    count = grown_count(pattern, count, 2);
    stretch_ns *= 2;
  }
}
