// SPDX-License-Identifier: Apache-2.0 OR MIT
// goes_on SECONDS STOPPED [SEED [FILE]]: all ranks exchange messages of all sizes around a ring, both ways, and reduce
// vectors, for so long, while somebody breaks and mends what they run on; every byte is checked. With STOPPED above 0
// the last rank is stopped for so many seconds in the middle. With a FILE they go on until that exists, however long
// that takes, and for some turns more. The record says how much memory and how many descriptors the rank that grew most
// has more of than when a third of the time had passed, and how long rank 0's longest turn took.
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"

enum {
  BYTES = 300000,
  WORDS = 2000,
  UNDER_WAY = 200,  // turns
  AFTER_FILE = 200
};

// As a debugger does.
static void stop_for(unsigned seconds) {
  pid_t stopped = getpid(), child = fork();
  if (child < 0) fail("nobody to stop this rank");
  if (child == 0) {
    kill(stopped, SIGSTOP);
    sleep(seconds);
    kill(stopped, SIGCONT);
    _exit(0);
  }
}

static void exchange(unsigned char *out, unsigned char *in, int turn, int step) {
  uint64_t state = seed + (uint64_t)turn;
  int bytes = (int)(draw(&state) % (draw(&state) % 4 ? 3000 : BYTES)) + 1;
  int to = (rank + step) % ranks, from = (rank + ranks - step) % ranks;
  fill(out, (size_t)bytes, key_of(rank, to, turn));
  MPI_Sendrecv(out, bytes, MPI_BYTE, to, turn % 1000, in, bytes, MPI_BYTE, from, turn % 1000, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  check(in, (size_t)bytes, key_of(from, rank, turn), "an exchange");
}

static int64_t value(int who, int turn, int at) { return (int64_t)(who + 1) * (turn % 1000 + 7 * at); }

static void reduce(int turn) {
  static int64_t mine[WORDS], all[WORDS];
  uint64_t state = seed ^ (uint64_t)turn << 32;
  int words = (int)(draw(&state) % WORDS) + 1;
  for (int at = 0; at < words; at++) mine[at] = value(rank, turn, at);
  MPI_Allreduce(mine, all, words, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (int at = 0; at < words; at++)
    if (all[at] != value(0, turn, at) * ranks * (ranks + 1) / 2) fail("word %d of %d of a sum is wrong", at, words);
}

typedef struct {
  int64_t resident_bytes, descriptors;
} Used;

static Used used(void) {
  Used now = {0};
  FILE *file = fopen("/proc/self/statm", "r");
  DIR *folder = opendir("/proc/self/fd");
  if (!file || !folder || fscanf(file, "%*d %" SCNd64, &now.resident_bytes) != 1) fail("/proc tells nothing");
  now.resident_bytes *= sysconf(_SC_PAGESIZE);
  while (readdir(folder)) now.descriptors++;
  closedir(folder);
  fclose(file);
  return now;
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  double seconds = (double)argument(argc, argv, 1, 5);
  unsigned stopped = (unsigned)argument(argc, argv, 2, 0);
  seed = argument(argc, argv, 3, 1);
  const char *file = argc > 4 ? argv[4] : NULL;
  unsigned char *out = allocate(BYTES), *in = allocate(BYTES);
  Used before = {0};
  int goes_on = 1, turn = 0, last = INT_MAX;
  double longest = 0;
  for (double began = MPI_Wtime(); goes_on; turn++) {
    double turn_began = MPI_Wtime();
    exchange(out, in, turn, turn % 2 ? 1 : ranks - 1);
    if (turn % 8 == 0) reduce(turn);
    if (turn == UNDER_WAY) {
      if (rank == 0) puts("under way");
      fflush(stdout);
      began = MPI_Wtime();
    }
    if (turn == UNDER_WAY && rank == ranks - 1 && stopped > 0) stop_for(stopped);
    if (!before.resident_bytes && turn >= UNDER_WAY && MPI_Wtime() > began + seconds / 3) before = used();
    if (file && rank == 0 && last == INT_MAX && turn >= UNDER_WAY && !access(file, F_OK)) last = turn + AFTER_FILE;
    goes_on = turn < UNDER_WAY || (file ? turn < last : MPI_Wtime() < began + seconds);
    MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double took = MPI_Wtime() - turn_began;
    if (turn > UNDER_WAY && took > longest) longest = took;
  }
  if (!before.resident_bytes) before = used();
  Used after = used();
  int64_t mine[2] = {after.resident_bytes - before.resident_bytes, after.descriptors - before.descriptors}, most[2];
  MPI_Reduce(mine, most, 2, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("{\"test\": \"goes_on\", \"right\": true, \"turns\": %d, \"grown_bytes\": %" PRId64
           ", \"grown_descriptors\": %" PRId64 ", \"longest_turn_us\": %.0f}\n",
           turn, most[0], most[1], 1e6 * longest);
  MPI_Finalize();
}
