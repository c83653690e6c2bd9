// SPDX-License-Identifier: Apache-2.0 OR MIT
// onesided [SEED [OPERATIONS]]: put, get, accumulate, fetch-and-op and compare-and-swap, in fence and lock epochs.
#include "check.h"

enum {
  PART = 4096,
  SHORT = 8
};  // words that each rank may write in each other's window

static MPI_Win window;
static uint64_t *base;

// Each rank puts a part into each other's window and gets its own part back from there.
static void put_and_get(int words, int number) {
  uint64_t *out = allocate((size_t)ranks * PART * 8), *in = allocate((size_t)ranks * PART * 8);
  MPI_Win_fence(0, window);
  for (int to = 0; to < ranks; to++) {
    fill(out + to * PART, (size_t)words * 8, key_of(rank, to, number));
    MPI_Put(out + to * PART, words, MPI_UINT64_T, to, rank * PART, words, MPI_UINT64_T, window);
  }
  MPI_Win_fence(0, window);
  for (int from = 0; from < ranks; from++)
    check(base + from * PART, (size_t)words * 8, key_of(from, rank, number), "put");
  for (int from = 0; from < ranks; from++)
    MPI_Get(in + from * PART, words, MPI_UINT64_T, from, rank * PART, words, MPI_UINT64_T, window);
  MPI_Win_fence(0, window);
  for (int from = 0; from < ranks; from++)
    check(in + from * PART, (size_t)words * 8, key_of(rank, from, number), "get");
  free(out), free(in);
}

// All ranks add to the same words of all windows.
static void accumulate(int operations) {
  uint64_t one = 1, *ones = allocate(PART * 8);
  for (int at = 0; at < PART; at++) ones[at] = (uint64_t)rank + 1;
  memset(base, 0, PART * 8);
  MPI_Win_fence(0, window);
  for (int to = 0; to < ranks; to++)
    MPI_Accumulate(ones, PART, MPI_UINT64_T, to, 0, PART, MPI_UINT64_T, MPI_SUM, window);
  MPI_Win_fence(0, window);
  for (int at = 0; at < PART; at++)
    if (base[at] != (uint64_t)ranks * (uint64_t)(ranks + 1) / 2) fail("word %d is %" PRIu64, at, base[at]);
  memset(base, 0, PART * 8);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  for (int number = 0; number < operations; number++) {
    int to = (rank + number) % ranks;
    MPI_Win_lock(number % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, to, 0, window);
    MPI_Accumulate(&one, 1, MPI_UINT64_T, to, SHORT, 1, MPI_UINT64_T, MPI_SUM, window);
    MPI_Win_unlock(to, window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);  // what others wrote is seen from inside an epoch
  uint64_t sum, own = base[SHORT];
  MPI_Win_unlock(rank, window);
  MPI_Allreduce(&own, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (sum != (uint64_t)ranks * (uint64_t)operations) fail("%d additions each make %" PRIu64, operations, sum);
  free(ones);
}

// Tickets from one counter: no two ranks may draw the same, and none may be left out.
static void tickets(int operations) {
  uint64_t one = 1, ticket, sum = 0, total, all = (uint64_t)ranks * (uint64_t)operations, *seen;
  memset(base, 0, PART * 8);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  MPI_Win_lock_all(0, window);
  seen = calloc(all, sizeof *seen);
  if (!seen) fail("no memory for %" PRIu64 " tickets", all);
  for (int number = 0; number < operations; number++) {
    MPI_Fetch_and_op(&one, &ticket, MPI_UINT64_T, 0, 0, MPI_SUM, window);
    MPI_Win_flush(0, window);
    if (ticket >= all) fail("ticket %" PRIu64 " of %" PRIu64, ticket, all);
    seen[ticket]++;
    sum += ticket;
  }
  MPI_Win_unlock_all(window);
  MPI_Allreduce(MPI_IN_PLACE, seen, (int)all, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (uint64_t at = 0; at < all; at++)
    if (seen[at] != 1) fail("ticket %" PRIu64 " was drawn %" PRIu64 " times", at, seen[at]);
  if (total != all * (all - 1) / 2) fail("tickets sum up to %" PRIu64, total);
  free(seen);
}

// One of all ranks wins each round.
static void compare_and_swap(void) {
  uint64_t mine = (uint64_t)rank + 1, free_word = 0, found;
  MPI_Win_lock_all(0, window);
  MPI_Compare_and_swap(&mine, &free_word, &found, MPI_UINT64_T, 0, 1, window);
  MPI_Win_unlock_all(window);
  int won = found == 0, winners;
  MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (winners != 1) fail("%d ranks swapped the same word", winners);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  seed = argument(argc, argv, 1, 1);
  int operations = (int)argument(argc, argv, 2, 50);
  MPI_Win_allocate((MPI_Aint)ranks * PART * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  put_and_get(1, 0);
  put_and_get(PART, 1);
  accumulate(operations);
  tickets(operations);
  compare_and_swap();
  MPI_Win_free(&window);
  if (rank == 0)
    printf("{\"test\": \"onesided\", \"seed\": %" PRIu64 ", \"ranks\": %d, \"right\": true}\n", seed, ranks);
  MPI_Finalize();
}
