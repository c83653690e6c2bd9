// SPDX-License-Identifier: Apache-2.0 OR MIT
// Stretches, their length and their number; messages that are checked on the way.
#include "measure.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  TRIALS = 3,        // stretches of each length: the first ones also connect, and fault memory in
  LENGTHS_MAX = 16,  // lengths tried; most points need two or three
  GROWTH_MAX = 16,   // of the length from one try to the next, because the first ones are slow
  LENGTH_MAX = INT_MAX / (2 * GROWTH_MAX)
};

int64_t pairs_wanted = 1;

// The ranks that measure.
static MPI_Comm together;
static int together_count;

// Counts up with each filling, so that no message has the contents of an earlier one.
static uint64_t filling;
// Operations since the last filling.
static uint64_t used;

struct length {
  int count;
  double values[TRIALS];
};

static void join(int idle) {
  MPI_Comm_split(MPI_COMM_WORLD, idle ? MPI_UNDEFINED : 0, rank, &together);
  if (!idle) MPI_Comm_size(together, &together_count);
}

struct pair join_pairs(void) {
  int half = ranks / 2;
  if (pairs_wanted > half)
    wrong_use("--pairs %" PRId64 " needs %" PRId64 " ranks, not %d", pairs_wanted, 2 * pairs_wanted, ranks);
  struct pair pair = {.first = rank < half, .count = pairs_wanted ? (int)pairs_wanted : half};
  pair.partner = pair.first ? rank + half : rank - half;
  pair.idle = rank % half >= pair.count;
  join(pair.idle);
  return pair;
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
  return messages->buffers.memory + buffer * messages->buffers.stride + (size_t)block * messages->bytes;
}

// Every byte is another one than the message's, so that none can be taken for received.
static void spoil(unsigned char *data, size_t bytes, uint64_t key) {
  fill(data, bytes, key);
  for (size_t at = 0; at < bytes; at++) data[at] = (unsigned char)~data[at];
}

static void prepare_one(struct messages *messages, int outgoing) {
  for (size_t buffer = 0; buffer < messages->buffers.count; buffer++)
    for (int block = 0; block < messages->blocks; block++) {
      unsigned char *data = block_of(messages, buffer, block);
      int peer = messages->peers[block];
      if (outgoing) {
        fill(data, messages->bytes, key_in(messages, buffer, block, rank, peer));
      } else {
        spoil(data, messages->bytes, key_in(messages, buffer, block, peer, rank));
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
      // What was exchanged in place an even number of times is back where it came from.
      int back = in == pattern->out && times % 2 == 0;
      uint64_t key = key_in(in, buffer, block, back ? rank : peer, back ? peer : rank);
      char what[128];
      snprintf(what, sizeof what, "%s, message from rank %d", pattern->point.variant, peer);
      check(block_of(in, buffer, block), in->bytes, key, what);
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

static double value_of(const struct pattern *pattern, double stretch_ns, int count) {
  return stretch_ns / count / pattern->divide_by;
}

// The length at which even the shortest stretch of any rank lasts long enough, and how many lengths were tried.
static int find_length(const struct pattern *pattern, struct length *lengths, double *stretch_ns) {
  // Twice what is needed: later stretches may be shorter.
  double enough_ns = 2.0 * RESOLUTIONS_MIN * (double)clock_resolution_ns;
  if (pattern->steady && enough_ns < STEADY_NS) enough_ns = STEADY_NS;
  int count = pattern->steady ? 4 * pattern->unit : pattern->unit;
  for (int tried = 1;; tried++) {
    struct length *length = &lengths[tried - 1];
    double shortest = DBL_MAX;
    length->count = count;
    for (int trial = 0; trial < TRIALS; trial++) {
      double taken = stretch(pattern, count);
      if (pattern->timed && taken < shortest) shortest = taken;
      length->values[trial] = value_of(pattern, taken, count);
    }
    MPI_Allreduce(&shortest, stretch_ns, 1, MPI_DOUBLE, MPI_MIN, together);
    if (*stretch_ns >= enough_ns || tried == LENGTHS_MAX || count > LENGTH_MAX) return tried;
    double growth = 1.25 * enough_ns / (*stretch_ns > 1 ? *stretch_ns : 1);
    if (growth > GROWTH_MAX) growth = GROWTH_MAX;
    if (growth < 2) growth = 2;
    count = ((int)(count * growth) / pattern->unit + 1) * pattern->unit;
  }
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

void measure(const struct pattern *pattern) {
  if (!together_count && !pattern->idle) join(0);
  struct length lengths[LENGTHS_MAX] = {{0}};
  int tried = 0, outer = 0, inner = 0;
  double *values = NULL;
  if (!pattern->idle) {
    double stretch_ns;
    prepare(pattern);
    tried = find_length(pattern, lengths, &stretch_ns);
    inspect(pattern);
    inner = lengths[tried - 1].count;
    outer = samples_within(stretch_ns * (1 + (double)lead_in(pattern, inner) / inner));
    values = allocate((size_t)(settings.warmup + outer) * sizeof(double));
    prepare(pattern);
    for (int number = 0; number < settings.warmup + outer; number++)
      values[number] = value_of(pattern, stretch(pattern, inner), inner);
    inspect(pattern);
  }
  wait_for_all(pattern->idle);
  MPI_Bcast(&tried, 1, MPI_INT, 0, MPI_COMM_WORLD);
  struct point point = pattern->point;
  int counts = pattern->timed && !pattern->idle;
  for (int number = 0; number < tried; number++) {
    point.inner = lengths[number].count;
    record(&point, WARMUP, lengths[number].values, counts ? TRIALS : 0);
  }
  point.inner = inner;
  record(&point, WARMUP, values, counts ? settings.warmup : 0);
  record(&point, MEASURE, values ? values + settings.warmup : NULL, counts ? outer : 0);
  free(values);
}
