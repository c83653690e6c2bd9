// SPDX-License-Identifier: Apache-2.0 OR MIT
// Bursts of messages one way, with pauses: the first rank sends so many, then computes without any call of MPI, and so
// on. The last rank receives one after the other and never answers, but for the end of all bursts. Recorded by the
// first rank: "sends", the time from before a burst's first send to where its last one's buffer may be used again; and,
// where both ranks have the same clock, "delivery": to where the last rank has its last message.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ends.h"

enum {
  BURST_MAX = 64,
  IDENTITY = 64,  // of a running kernel, which has one clock
  TRIALS = 5
};

static const struct kind {
  const char *variant;
  int messages;
  int nonblocking;
} kinds[] = {
    {"lone", 1, 0}, {"send-8", 8, 0}, {"send-64", BURST_MAX, 0}, {"isend-8", 8, 1}, {"isend-64", BURST_MAX, 1}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static int64_t pause_us = 200;
static int one_clock;

static void send_burst(struct ends *ends, const struct kind *kind) {
  MPI_Request requests[BURST_MAX];
  for (int number = 0; number < kind->messages; number++) {
    unsigned char *data = next_buffer(&ends->out);
    if (kind->nonblocking)
      MPI_Isend(data, (int)ends->bytes, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD, &requests[number]);
    else MPI_Send(data, (int)ends->bytes, MPI_BYTE, ranks - 1, MESSAGE, MPI_COMM_WORLD);
  }
  if (kind->nonblocking) MPI_Waitall(kind->messages, requests, MPI_STATUSES_IGNORE);
}

static void compute_until(uint64_t end_ns) {
  while (now_ns() < end_ns) continue;
}

// So many bursts; of each its start and, where the sends were done, at the first rank; of each its last message's
// arrival, at the last. The first gets these after the last burst, which is the only answer.
static void bursts(struct ends *ends, const struct kind *kind, int count, uint64_t *starts, uint64_t *sent,
                   uint64_t *arrived) {
  if (rank == 0) {
    await_ready();
    for (int burst = 0; burst < count; burst++) {
      starts[burst] = now_ns();
      send_burst(ends, kind);
      sent[burst] = now_ns();
      compute_until(sent[burst] + (uint64_t)pause_us * 1000);
    }
    MPI_Recv(arrived, count, MPI_UINT64_T, ranks - 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  send_ready();
  for (int burst = 0; burst < count; burst++) {
    for (int number = 0; number < kind->messages; number++)
      MPI_Recv(next_buffer(&ends->in), (int)ends->bytes, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    arrived[burst] = now_ns();
  }
  MPI_Send(arrived, count, MPI_UINT64_T, 0, ANSWER, MPI_COMM_WORLD);
  check_received(ends, kind->variant, count * kind->messages);
}

static void record_both(const struct kind *kind, size_t bytes, int warmup, int count, const uint64_t *starts,
                        const uint64_t *sent, const uint64_t *arrived) {
  double *sends = allocate((size_t)count * sizeof *sends), *delivery = allocate((size_t)count * sizeof *delivery);
  for (int burst = 0; burst < count; burst++) {
    sends[burst] = (double)(sent[burst] - starts[burst]);
    delivery[burst] = (double)arrived[burst] - (double)starts[burst];
  }
  struct point point = {.variant = kind->variant,
                        .quantity = "sends",
                        .message_bytes = bytes,
                        .inner = 1,
                        .parameter = "pause_us",
                        .parameter_value = (double)pause_us};
  record(&point, WARMUP, sends, rank ? 0 : warmup);
  record(&point, MEASURE, sends + warmup, rank ? 0 : count - warmup);
  point.quantity = "delivery";
  record(&point, WARMUP, delivery, rank || !one_clock ? 0 : warmup);
  record(&point, MEASURE, delivery + warmup, rank || !one_clock ? 0 : count - warmup);
  free(sends);
  free(delivery);
}

static void measure(const struct kind *kind, size_t bytes) {
  if (!wanted(kind->variant) || !fits(kind->variant, bytes, 2 * bytes)) return;
  struct ends ends = open_ends(bytes);
  uint64_t first[TRIALS], sent_first[TRIALS], arrived_first[TRIALS];
  int outer = 0;
  if (takes_part()) bursts(&ends, kind, TRIALS, first, sent_first, arrived_first);
  // What a burst takes once connected, with its pause.
  if (rank == 0) outer = samples_within((double)(sent_first[TRIALS - 1] - first[TRIALS - 1]) + (double)pause_us * 1e3);
  MPI_Bcast(&outer, 1, MPI_INT, 0, MPI_COMM_WORLD);
  int count = settings.warmup + outer;
  size_t size = (size_t)count * sizeof(uint64_t);
  uint64_t *starts = allocate(size), *sent = allocate(size), *arrived = allocate(size);
  if (takes_part()) bursts(&ends, kind, count, starts, sent, arrived);
  record_both(kind, bytes, settings.warmup, count, starts, sent, arrived);
  free(starts);
  free(sent);
  free(arrived);
  close_ends(&ends);
}

static void compare_clocks(void) {
  char mine[IDENTITY] = {0}, first[IDENTITY];
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  int known = file && fgets(mine, sizeof mine, file);
  if (file) fclose(file);
  memcpy(first, mine, sizeof first);
  MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
  int same = known && !memcmp(mine, first, sizeof first);
  MPI_Allreduce(&same, &one_clock, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int kind = 0; kind < KINDS; kind++) variants[kind] = kinds[kind].variant;
  begin(argc, argv,
        &(struct program){
            .name = "burst",
            .summary = "bursts of messages to a receiver that never answers, with pauses between",
            .variants = variants,
            .extras =
                (struct extra[]){{"pause", COUNT, &pause_us, "microseconds between bursts (200)"}, MEMORY_OPTION, {0}},
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 2});
  if (pause_us > 1000000) wrong_use("--pause must be at most 1000000 us, not %" PRId64, pause_us);
  compare_clocks();
  if (!one_clock) leave_out("delivery", 0, "the ranks are on several machines, whose clocks differ");
  for (int kind = 0; kind < KINDS; kind++)
    for (int size = 0; size < settings.size_count; size++) measure(&kinds[kind], settings.sizes[size]);
  finish();
}
