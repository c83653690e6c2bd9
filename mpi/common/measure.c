// SPDX-License-Identifier: Apache-2.0 OR MIT
// Stretches, their length and their number; messages that are checked on the way.
#include "measure.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statistic.h"

enum {
  TRIALS = 3,       // stretches of each count that is tried
  GROWTH_MAX = 16,  // of the count from one try to the next, because the first ones are slow
  COUNT_MAX = INT_MAX / (2 * GROWTH_MAX)
};

int64_t pairs_wanted = PAIRS_NOT_GIVEN;

// The ranks that measure.
static MPI_Comm together;
static int together_count;

// Counts up with each filling, on the ranks that measure, so that no message has the contents of an earlier one.
static uint64_t filling;
// Operations since the last filling.
static uint64_t used;

void measure_among(int takes_part) {
  if (together_count) MPI_Comm_free(&together);
  together_count = 0;
  MPI_Comm_split(MPI_COMM_WORLD, takes_part ? 0 : MPI_UNDEFINED, rank, &together);
  if (takes_part) MPI_Comm_size(together, &together_count);
}

struct pair join_pairs(void) {
  int half = ranks / 2;
  if (pairs_wanted > half)
    wrong_use("--pairs %" PRId64 " needs twice as many ranks; there are %d", pairs_wanted, ranks);
  struct pair pair = {.first = rank < half, .count = 1, .steady = pairs_wanted >= 0};
  if (pair.steady) pair.count = pairs_wanted ? (int)pairs_wanted : half;
  pair.partner = pair.first ? rank + half : rank - half;
  pair.idle = rank % half >= pair.count;
  measure_among(!pair.idle);
  return pair;
}

void disband(void) {
  static uint64_t disbanded;
  if (together_count) MPI_Comm_free(&together);
  together_count = 0;
  pairs_wanted = PAIRS_NOT_GIVEN;
  // The same on all ranks again, of which some were idle.
  filling = ++disbanded << 24;
}

struct messages messages_for(size_t bytes, int blocks, const int *peers, size_t least) {
  return (struct messages){
      .buffers = buffers_at_least(least, bytes * (size_t)blocks), .bytes = bytes, .blocks = blocks, .peers = peers};
}

void free_messages(struct messages *messages) { free_buffers(&messages->buffers); }

static uint64_t key_in(const struct messages *messages, size_t buffer, int block, int from, int to) {
  uint64_t number = filling * messages->buffers.count + buffer;
  int apart = messages->numbers ? messages->numbers[block] : 0;
  return key_of(from, to, number << 8 | (uint64_t)apart);
}

static unsigned char *block_of(const struct messages *messages, size_t buffer, int block) {
  size_t offset = messages->offsets ? (size_t)messages->offsets[block] : (size_t)block * messages->bytes;
  return messages->buffers.memory + buffer * messages->buffers.stride + offset;
}

static size_t length_of(const struct messages *messages, int block) {
  return messages->lengths ? (size_t)messages->lengths[block] : messages->bytes;
}

// What a block shall hold; valid until the next call.
static struct contents contents_of(const struct messages *messages, size_t buffer, int block, int from, int to) {
  static uint64_t *keys;
  if (!keys) keys = allocate((size_t)ranks * sizeof *keys);
  struct contents contents = {
      .keys = keys, .count = messages->summed ? messages->summed : 1, .bytewise = messages->bytewise};
  for (int number = 0; number < contents.count; number++) {
    keys[number] = key_in(messages, buffer, block, messages->summed ? number : from, messages->to_all ? ranks : to);
    skip(&keys[number], messages->skipped_words);
  }
  return contents;
}

// Every byte is another one than the message's, so that none can be taken for received.
static void spoil(unsigned char *data, size_t bytes, struct contents contents) {
  fill_with(data, bytes, contents);
  for (size_t at = 0; at < bytes; at++) data[at] = (unsigned char)~data[at];
}

static void prepare_one(struct messages *messages, int outgoing) {
  for (size_t buffer = 0; buffer < messages->buffers.count; buffer++)
    for (int block = 0; block < messages->blocks; block++) {
      unsigned char *data = block_of(messages, buffer, block);
      int peer = messages->peers[block];
      if (peer == NOBODY) continue;
      if (outgoing) {
        fill_with(data, length_of(messages, block), contents_of(messages, buffer, block, rank, peer));
      } else {
        spoil(data, length_of(messages, block), contents_of(messages, buffer, block, peer, rank));
      }
    }
  messages->buffers.next = 0;
}

static void prepare(const struct pattern *pattern) {
  filling++;
  used = 0;
  if (pattern->out) prepare_one(pattern->out, 1);
  if (pattern->in && pattern->in != pattern->out) prepare_one(pattern->in, 0);
  if (pattern->open) pattern->open();
  MPI_Barrier(together);
}

static void inspect(const struct pattern *pattern) {
  if (pattern->close) pattern->close();
  const struct messages *in = pattern->in;
  for (size_t buffer = 0; in && buffer < in->buffers.count && buffer < used; buffer++) {
    uint64_t times = used / in->buffers.count + (buffer < used % in->buffers.count);
    for (int block = 0; block < in->blocks; block++) {
      int peer = in->peers[block];
      if (peer == NOBODY) continue;
      // What was exchanged in place an even number of times is back where it came from.
      int back = in == pattern->out && times % 2 == 0;
      struct contents contents = contents_of(in, buffer, block, back ? rank : peer, back ? peer : rank);
      char what[128];
      if (in->summed) snprintf(what, sizeof what, "%s, sum of %d ranks", pattern->point.variant, in->summed);
      else snprintf(what, sizeof what, "%s, message from rank %d", pattern->point.variant, peer);
      check_for(block_of(in, buffer, block), length_of(in, block), contents, what);
    }
  }
}

static int lead_in(const struct pattern *pattern, int count) {
  int units = pattern->steady ? (count / pattern->unit + 3) / 4 : together_count > 2;
  return units * pattern->unit;
}

// Two ranks keep step by themselves. More are started together, and an operation outside the clock takes up the time
// between the first that leaves the barrier and the last.
static double stretch(const struct pattern *pattern, int count) {
  int before = lead_in(pattern, count);
  if (together_count > 2) MPI_Barrier(together);
  pattern->run(before);
  uint64_t start_ns = now_ns();
  pattern->run(count);
  uint64_t end_ns = now_ns();
  if (pattern->settle) pattern->settle();
  used += (uint64_t)before + (uint64_t)count;
  return (double)(end_ns - start_ns);
}

// Idle ranks sleep instead of asking on: they may share a core with those that measure.
static void wait_for_all(int asleep) {
  MPI_Request all_here;
  MPI_Ibarrier(MPI_COMM_WORLD, &all_here);
  int here = 0;
  while (asleep && !here) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    MPI_Test(&all_here, &here, MPI_STATUS_IGNORE);
  }
  MPI_Wait(&all_here, MPI_STATUS_IGNORE);
}

// So many stretches with contents of their own, in nanoseconds. Collective over all ranks.
static void series(const struct pattern *pattern, int count, double *stretches_ns, int number) {
  if (!pattern->idle) {
    prepare(pattern);
    for (int done = 0; done < number; done++) stretches_ns[done] = stretch(pattern, count);
    inspect(pattern);
  }
  wait_for_all(pattern->idle);
}

// Returns the median of this rank's values.
static double write_series(const struct pattern *pattern, enum phase phase, int count, const double *stretches_ns,
                           int number) {
  struct point point = pattern->point;
  point.inner = count;
  int mine = pattern->timed && !pattern->idle ? number : 0;
  double *values = allocate((size_t)mine * sizeof *values);
  for (int done = 0; done < mine; done++) values[done] = stretches_ns[done] / count / pattern->divide_by;
  record(&point, phase, values, mine);
  double middle_ns = mine ? median(values, mine) : 0;
  free(values);
  return middle_ns;
}

static double smallest_of_all(const struct pattern *pattern, double mine_ns) {
  double smallest_ns;
  if (pattern->idle || !pattern->timed) mine_ns = DBL_MAX;
  MPI_Allreduce(&mine_ns, &smallest_ns, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  return smallest_ns;
}

// The middle one of three: the first may be long, because it connects, and one may be too short, because of messages
// that arrived while the rank had lost its core.
static double middle(const double *values) {
  double first = values[0], second = values[1], third = values[2];
  double low = first < second ? first : second, high = first < second ? second : first;
  return third < low ? low : third > high ? high : third;
}

static int longer(const struct pattern *pattern, int count, double growth) {
  growth = growth < 2 ? 2 : growth > GROWTH_MAX ? GROWTH_MAX : growth;
  return ((int)(count * growth) / pattern->unit + 1) * pattern->unit;
}

// How many operations last long enough on every rank; and how long those last.
static int find_count(const struct pattern *pattern, double *stretch_ns) {
  // Twice what is needed: later stretches may be shorter.
  double trials_ns[TRIALS], enough_ns = 2.0 * RESOLUTIONS_MIN * (double)clock_resolution_ns;
  if (pattern->steady && enough_ns < STEADY_NS) enough_ns = STEADY_NS;
  for (int count = pattern->steady ? 4 * pattern->unit : pattern->unit;;) {
    series(pattern, count, trials_ns, TRIALS);
    write_series(pattern, WARMUP, count, trials_ns, TRIALS);
    *stretch_ns = smallest_of_all(pattern, middle(trials_ns));
    if (*stretch_ns >= enough_ns || count > COUNT_MAX) return count;
    count = longer(pattern, count, *stretch_ns > 0 ? 1.25 * enough_ns / *stretch_ns : GROWTH_MAX);
  }
}

double measure(const struct pattern *pattern) {
  if (!together_count && !pattern->idle) measure_among(1);
  double stretch_ns;
  int count = find_count(pattern, &stretch_ns), warmup = settings.warmup;
  for (;;) {
    int number = samples_within(stretch_ns * (1 + (double)lead_in(pattern, count) / count));
    double *stretches_ns = allocate((size_t)(warmup + number) * sizeof *stretches_ns), shortest_ns = DBL_MAX;
    series(pattern, count, stretches_ns, warmup + number);
    for (int done = 0; done < warmup + number; done++)
      if (stretches_ns[done] < shortest_ns) shortest_ns = stretches_ns[done];
    shortest_ns = smallest_of_all(pattern, shortest_ns);
    // A disturbance while the count was looked for can make it too small. What was measured with it stays on record.
    int again = shortest_ns < (double)(RESOLUTIONS_MIN * clock_resolution_ns) && count <= COUNT_MAX;
    write_series(pattern, WARMUP, count, stretches_ns, again ? warmup + number : warmup);
    double middle_ns = again ? 0 : write_series(pattern, MEASURE, count, stretches_ns + warmup, number);
    free(stretches_ns);
    if (!again) return middle_ns;
    count = longer(pattern, count, 2);
    stretch_ns *= 2;
  }
}
