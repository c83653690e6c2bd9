// SPDX-License-Identifier: Apache-2.0 OR MIT
// All-to-all: each rank has a block for every rank; its own is copied. In the pairwise variants the ranks form pairs in
// every step. Each rank records its own time.
#include <stdlib.h>
#include <string.h>

#include "common/measure.h"

static struct messages out, in;
static int bytes;
static int *partners, step_count;  // the partners of this rank, in order
static MPI_Request *requests;

// Powers of two: rank XOR step. Otherwise a round-robin tournament: in round r two ranks are partners if their sum is r
// modulo the number of rounds. The rank that would be its own partner is idle, or, with an even number of ranks, paired
// with the last rank.
static int partner_in(int round) {
  if (!(ranks & (ranks - 1))) return rank ^ (round + 1);
  int rounds = ranks - 1 + ranks % 2, last = ranks % 2 ? -1 : rounds;
  // 2 * alone = round, modulo the odd number of rounds.
  int unpaired = (int)((int64_t)round * (rounds + 1) / 2 % rounds);
  if (rank == last) return unpaired;
  return rank == unpaired ? (last < 0 ? rank : last) : (round - rank + rounds) % rounds;
}

static void find_partners(void) {
  partners = allocate((size_t)ranks * sizeof *partners);
  step_count = 0;
  for (int round = 0; round < ranks - 1 + ranks % 2; round++) {
    int partner = partner_in(round);
    if (partner != rank) partners[step_count++] = partner;
  }
}

static void *block(unsigned char *buffer, int of_rank) { return buffer + (size_t)of_rank * (size_t)bytes; }

static void collective(int count) {
  for (int number = 0; number < count; number++)
    MPI_Alltoall(next_buffer(&out.buffers), bytes, MPI_BYTE, next_buffer(&in.buffers), bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void pairwise_sendrecv(int count) {
  for (int number = 0; number < count; number++) {
    unsigned char *from = next_buffer(&out.buffers), *to = next_buffer(&in.buffers);
    memcpy(block(to, rank), block(from, rank), (size_t)bytes);
    for (int step = 0; step < step_count; step++) {
      int partner = partners[step];
      MPI_Sendrecv(block(from, partner), bytes, MPI_BYTE, partner, 0, block(to, partner), bytes, MPI_BYTE, partner, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
}

static void sendrecv_replace(int count) {
  for (int number = 0; number < count; number++) {
    unsigned char *buffer = next_buffer(&out.buffers);
    for (int step = 0; step < step_count; step++)
      MPI_Sendrecv_replace(block(buffer, partners[step]), bytes, MPI_BYTE, partners[step], 0, partners[step], 0,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void post_receives(unsigned char *to) {
  for (int step = 0; step < step_count; step++)
    MPI_Irecv(block(to, partners[step]), bytes, MPI_BYTE, partners[step], 0, MPI_COMM_WORLD, &requests[step]);
}

static void irecv_send(int count) {
  for (int number = 0; number < count; number++) {
    unsigned char *from = next_buffer(&out.buffers), *to = next_buffer(&in.buffers);
    post_receives(to);
    memcpy(block(to, rank), block(from, rank), (size_t)bytes);
    for (int step = 0; step < step_count; step++)
      MPI_Send(block(from, partners[step]), bytes, MPI_BYTE, partners[step], 0, MPI_COMM_WORLD);
    MPI_Waitall(step_count, requests, MPI_STATUSES_IGNORE);
  }
}

static void irecv_isend(int count) {
  for (int number = 0; number < count; number++) {
    unsigned char *from = next_buffer(&out.buffers), *to = next_buffer(&in.buffers);
    post_receives(to);
    for (int step = 0; step < step_count; step++)
      MPI_Isend(block(from, partners[step]), bytes, MPI_BYTE, partners[step], 0, MPI_COMM_WORLD,
                &requests[step_count + step]);
    memcpy(block(to, rank), block(from, rank), (size_t)bytes);
    MPI_Waitall(2 * step_count, requests, MPI_STATUSES_IGNORE);
  }
}

static const struct {
  const char *variant;
  void (*run)(int);
} kinds[] = {{"collective", collective},
             {"pairwise-sendrecv", pairwise_sendrecv},
             {"sendrecv-replace", sendrecv_replace},
             {"irecv-send", irecv_send},
             {"irecv-isend", irecv_isend}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static void measure_size(size_t size, const int *all) {
  bytes = (int)size;
  out = messages_for(size, ranks, all, 1);
  in = messages_for(size, ranks, all, 1);
  for (int kind = 0; kind < KINDS; kind++)
    if (is_selected(kinds[kind].variant))
      measure(
          &(struct pattern){.point = {.variant = kinds[kind].variant, .quantity = "alltoall", .message_bytes = size},
                            .timed = 1,
                            .divide_by = 1,
                            .unit = 1,
                            .run = kinds[kind].run,
                            .out = &out,
                            .in = kinds[kind].run == sendrecv_replace ? &out : &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int kind = 0; kind < KINDS; kind++) variants[kind] = kinds[kind].variant;
  begin(argc, argv,
        &(struct program){.name = "alltoall",
                          .summary = "a block from each rank to each, by the library's collective and by pairs",
                          .variants = variants,
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2});
  find_partners();
  requests = allocate(2 * (size_t)ranks * sizeof *requests);
  int *all = allocate((size_t)ranks * sizeof *all);
  for (int number = 0; number < ranks; number++) all[number] = number;
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number], all);
  free(all);
  free(requests);
  free(partners);
  finish();
}
