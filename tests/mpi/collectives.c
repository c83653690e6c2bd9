// SPDX-License-Identifier: Apache-2.0 OR MIT
// collectives [SEED [COMMUNICATORS]]: the usual collectives on many communicators, copies and halves of the world; in
// the end one under way on each of them at once. Results are compared with what each rank can work out for itself.
#include "check.h"

enum {
  WORDS_MAX = 4096
};

static int size, place;  // of the communicator at hand
static MPI_Comm world_of;

static int64_t value(int who, int at) { return (int64_t)(key_of(who, 7, at) % 100000); }

static void expect(int64_t found, int64_t meant, const char *what) {
  if (found != meant) fail("%s gave %" PRId64 ", not %" PRId64, what, found, meant);
}

static int64_t sum_of(int count, int at) {
  int64_t sum = 0;
  for (int who = 0; who < count; who++) sum += value(who, at);
  return sum;
}

static void reductions(int words) {
  int64_t *mine = allocate((size_t)words * 8), *all = allocate((size_t)words * 8);
  for (int at = 0; at < words; at++) mine[at] = value(place, at);
  MPI_Allreduce(mine, all, words, MPI_INT64_T, MPI_SUM, world_of);
  for (int at = 0; at < words; at++) expect(all[at], sum_of(size, at), "allreduce");
  MPI_Scan(mine, all, words, MPI_INT64_T, MPI_SUM, world_of);
  for (int at = 0; at < words; at++) expect(all[at], sum_of(place + 1, at), "scan");
  int root = words % size;
  MPI_Reduce(mine, all, words, MPI_INT64_T, MPI_SUM, root, world_of);
  for (int at = 0; at < words && place == root; at++) expect(all[at], sum_of(size, at), "reduce");
  if (place == root) memcpy(all, mine, (size_t)words * 8);
  MPI_Bcast(all, words, MPI_INT64_T, root, world_of);
  for (int at = 0; at < words; at++) expect(all[at], value(root, at), "bcast");
  free(mine), free(all);
}

static void exchanges(int words) {
  size_t bytes = (size_t)words * (size_t)size * 8;
  int64_t *out = allocate(bytes), *in = allocate(bytes), part;
  for (int at = 0; at < words * size; at++) out[at] = value(place, at);
  MPI_Alltoall(out, words, MPI_INT64_T, in, words, MPI_INT64_T, world_of);
  for (int at = 0; at < words * size; at++) expect(in[at], value(at / words, place * words + at % words), "alltoall");
  MPI_Allgather(out, words, MPI_INT64_T, in, words, MPI_INT64_T, world_of);
  for (int at = 0; at < words * size; at++) expect(in[at], value(at / words, at % words), "allgather");
  MPI_Gather(out, words, MPI_INT64_T, in, words, MPI_INT64_T, 0, world_of);
  for (int at = 0; at < words * size && place == 0; at++) expect(in[at], value(at / words, at % words), "gather");
  MPI_Scatter(out, words, MPI_INT64_T, in, words, MPI_INT64_T, 0, world_of);
  for (int at = 0; at < words; at++) expect(in[at], value(0, place * words + at), "scatter");
  MPI_Reduce_scatter_block(out, &part, 1, MPI_INT64_T, MPI_SUM, world_of);
  expect(part, sum_of(size, place), "reduce_scatter");
  MPI_Barrier(world_of);
  free(out), free(in);
}

// A message for each pair, of a length of its own, none at all for some.
static void uneven(void) {
  int *out_words = allocate((size_t)size * 4), *in_words = allocate((size_t)size * 4);
  int *out_at = allocate((size_t)size * 4), *in_at = allocate((size_t)size * 4), sent = 0, received = 0;
  for (int who = 0; who < size; who++) {
    out_words[who] = (int)(key_of(place, who, 11) % 300) - 100,
    in_words[who] = (int)(key_of(who, place, 11) % 300) - 100;
    if (out_words[who] < 0) out_words[who] = 0;
    if (in_words[who] < 0) in_words[who] = 0;
    out_at[who] = sent, in_at[who] = received;
    sent += out_words[who], received += in_words[who];
  }
  int64_t *out = allocate((size_t)sent * 8), *in = allocate((size_t)received * 8);
  for (int who = 0; who < size; who++)
    for (int at = 0; at < out_words[who]; at++) out[out_at[who] + at] = value(place * 1000 + who, at);
  MPI_Alltoallv(out, out_words, out_at, MPI_INT64_T, in, in_words, in_at, MPI_INT64_T, world_of);
  for (int who = 0; who < size; who++)
    for (int at = 0; at < in_words[who]; at++) expect(in[in_at[who] + at], value(who * 1000 + place, at), "alltoallv");
  free(out_words), free(in_words), free(out_at), free(in_at), free(out), free(in);
}

static void at_once(MPI_Comm *communicators, int count) {
  MPI_Request *requests = allocate((size_t)count * sizeof *requests);
  int64_t *mine = allocate((size_t)count * 8), *all = allocate((size_t)count * 8);
  for (int at = 0; at < count; at++) {
    MPI_Comm_rank(communicators[at], &place);
    mine[at] = value(place, at);
    MPI_Iallreduce(&mine[at], &all[at], 1, MPI_INT64_T, MPI_SUM, communicators[at], &requests[at]);
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  for (int at = 0; at < count; at++) {
    MPI_Comm_size(communicators[at], &size);
    expect(all[at], sum_of(size, at), "iallreduce");
  }
  free(requests), free(mine), free(all);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  seed = argument(argc, argv, 1, 1);
  int count = (int)argument(argc, argv, 2, 24);
  MPI_Comm *communicators = allocate((size_t)count * sizeof *communicators);
  uint64_t state = seed;
  for (int at = 0; at < count; at++) {
    if (at % 3) MPI_Comm_dup(MPI_COMM_WORLD, &communicators[at]);
    else MPI_Comm_split(MPI_COMM_WORLD, rank * 2 / ranks, -rank, &communicators[at]);
    world_of = communicators[at];
    MPI_Comm_size(world_of, &size);
    MPI_Comm_rank(world_of, &place);
    uint64_t drawn = state + (uint64_t)at;
    int words = 1 + (int)draw_size(&drawn, WORDS_MAX - 1);
    reductions(words);
    exchanges(words / size + 1);
    uneven();
  }
  at_once(communicators, count);
  for (int at = 0; at < count; at++) MPI_Comm_free(&communicators[at]);
  if (rank == 0)
    printf("{\"test\": \"collectives\", \"seed\": %" PRIu64 ", \"ranks\": %d, \"right\": true}\n", seed, ranks);
  MPI_Finalize();
}
