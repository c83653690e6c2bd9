// SPDX-License-Identifier: Apache-2.0 OR MIT
// One-way bursts of messages with pauses: the first rank computes without MPI calls, sends a burst, computes again, and
// repeats once the last rank has the burst, so that no burst waits behind the one before. The last rank receives one
// message after another and sends nothing until it is asked after the pause. The first rank records: "sends",
// the time from before a burst's first send until its last buffer can be reused; and, if both ranks have the same
// clock, "delivery", until the last rank has received the last message.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ends.h"

enum {
  BURST_MAX = 64,
  BOOT_ID_BYTES = 64,  // length of the boot id, which identifies a kernel and its clock
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
static int has_common_clock;

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

static void compute(void) {
  for (uint64_t end_ns = now_ns() + (uint64_t)pause_us * 1000; now_ns() < end_ns;) continue;
}

// Executes `count` bursts. The first rank fills in `starts` and `sent` (all sends complete), the last rank `arrived`
// (last message received), which it sends back after the last burst.
static void bursts(struct ends *ends, const struct kind *kind, int count, uint64_t *starts, uint64_t *sent,
                   uint64_t *arrived) {
  if (rank == 0) {
    for (int burst = 0; burst < count; burst++) {
      await_ready();
      compute();
      starts[burst] = now_ns();
      send_burst(ends, kind);
      sent[burst] = now_ns();
      compute();
      send_ready();
    }
    MPI_Recv(arrived, count, MPI_UINT64_T, ranks - 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  for (int burst = 0; burst < count; burst++) {
    send_ready();
    for (int number = 0; number < kind->messages; number++)
      MPI_Recv(next_buffer(&ends->in), (int)ends->bytes, MPI_BYTE, 0, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    arrived[burst] = now_ns();
    await_ready();
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
  record(&point, WARMUP, delivery, rank || !has_common_clock ? 0 : warmup);
  record(&point, MEASURE, delivery + warmup, rank || !has_common_clock ? 0 : count - warmup);
  free(sends);
  free(delivery);
}

static void measure(const struct kind *kind, size_t bytes) {
  if (!is_selected(kind->variant) || !fits(kind->variant, bytes, 2 * bytes)) return;
  struct ends ends = open_ends(bytes, &standard_mode, 0);
  uint64_t first[TRIALS], sent_first[TRIALS], arrived_first[TRIALS];
  int outer = 0;
  if (participates()) bursts(&ends, kind, TRIALS, first, sent_first, arrived_first);
  // From the time of a burst once connected, with its pauses.
  if (rank == 0) outer = samples_within((double)(first[TRIALS - 1] - first[TRIALS - 2]));
  MPI_Bcast(&outer, 1, MPI_INT, 0, MPI_COMM_WORLD);
  int count = settings.warmup + outer;
  size_t size = (size_t)count * sizeof(uint64_t);
  uint64_t *starts = allocate(size), *sent = allocate(size), *arrived = allocate(size);
  if (participates()) bursts(&ends, kind, count, starts, sent, arrived);
  record_both(kind, bytes, settings.warmup, count, starts, sent, arrived);
  free(starts);
  free(sent);
  free(arrived);
  close_ends(&ends);
}

static void compare_clocks(void) {
  char local_id[BOOT_ID_BYTES] = {0}, first_id[BOOT_ID_BYTES];
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  int is_readable = file && fgets(local_id, sizeof local_id, file);
  if (file) fclose(file);
  memcpy(first_id, local_id, sizeof first_id);
  MPI_Bcast(first_id, sizeof first_id, MPI_CHAR, 0, MPI_COMM_WORLD);
  int same = is_readable && !memcmp(local_id, first_id, sizeof first_id);
  MPI_Allreduce(&same, &has_common_clock, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int kind = 0; kind < KINDS; kind++) variants[kind] = kinds[kind].variant;
  begin(argc, argv,
        &(struct program){
            .name = "burst",
            .summary = "bursts of messages with pauses, to a receiver that does not reply",
            .variants = variants,
            .extras =
                (struct extra[]){{"pause", COUNT, &pause_us, "microseconds between bursts (200)"}, MEMORY_OPTION, {0}},
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 2});
  if (pause_us > 1000000) usage_error("--pause must be at most 1000000 us, not %" PRId64, pause_us);
  compare_clocks();
  if (!has_common_clock) leave_out("delivery", 0, "the ranks are on machines with different clocks");
  for (int kind = 0; kind < KINDS; kind++)
    for (int size = 0; size < settings.size_count; size++) measure(&kinds[kind], settings.sizes[size]);
  finish();
}
