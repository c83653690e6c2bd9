// SPDX-License-Identifier: Apache-2.0 OR MIT
// killed [SECONDS MAX]: the last rank is killed by SIGKILL in the middle of long messages to and from all others. Each
// of these must end with an MPI error, or get one for its messages with that rank, within so many seconds; if it gets
// one, its messages with other survivors go on and arrive whole. Prints one line of JSON for each such survivor.
#define _GNU_SOURCE
#include <signal.h>
#include <unistd.h>

#include "check.h"

#define BYTES (256 << 20)

// The others' messages with each other, whole, however often there is time for them.
static int exchange_with_survivor(int number) {
  static unsigned char out[4096], in[4096];
  int peer = ranks > 2 ? (rank + 1) % (ranks - 1) : rank, from = (rank + ranks - 2) % (ranks - 1);
  if (ranks == 2) from = rank;
  fill(out, sizeof out, key_of(rank, peer, number));
  MPI_Request requests[2];
  if (MPI_Irecv(in, sizeof in, MPI_BYTE, from, 3, MPI_COMM_WORLD, &requests[0])) return 0;
  if (MPI_Isend(out, sizeof out, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &requests[1])) return 0;
  if (MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)) return 0;
  check(in, sizeof in, key_of(from, rank, number), "message of a survivor");
  return 1;
}

static void die_in_the_middle(void) {
  unsigned char *data = allocate(BYTES);
  MPI_Request request;
  for (int other = 0; other < ranks - 1; other++) {
    MPI_Isend(data, BYTES, MPI_BYTE, other, 1, MPI_COMM_WORLD, &request);
    MPI_Irecv(data, BYTES, MPI_BYTE, other, 2, MPI_COMM_WORLD, &request);
  }
  // Long enough for some of the messages, too short for all.
  for (double start = MPI_Wtime(); MPI_Wtime() - start < 0.003;) {
    int done;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) break;
  }
  kill(getpid(), SIGKILL);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  double most = (double)argument(argc, argv, 1, 10);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (rank < ranks - 1) exchange_with_survivor(0);
  MPI_Barrier(MPI_COMM_WORLD);
  int victim = ranks - 1;
  if (rank == victim) die_in_the_middle();
  unsigned char *in = allocate(BYTES), *out = allocate(BYTES);
  MPI_Request requests[2];
  int posted = MPI_Irecv(in, BYTES, MPI_BYTE, victim, 1, MPI_COMM_WORLD, &requests[0]);
  posted |= MPI_Isend(out, BYTES, MPI_BYTE, victim, 2, MPI_COMM_WORLD, &requests[1]);
  if (posted) fail("a message could not be posted");
  double start = MPI_Wtime();
  int errors = 0, done = 0, rounds = 0, code[2] = {0, 0};
  while (done < 2) {
    for (int which = 0; which < 2; which++) {
      int ended = 0;
      if (requests[which] == MPI_REQUEST_NULL) continue;
      code[which] = MPI_Test(&requests[which], &ended, MPI_STATUS_IGNORE);
      // An error ends a request, whatever the flag says.
      if (!ended && !code[which]) continue;
      requests[which] = MPI_REQUEST_NULL;
      errors += code[which] != MPI_SUCCESS;
      done++;
    }
    if (MPI_Wtime() - start > most) fail("no error within %.0f s: %d of 2 messages ended", most, done);
    rounds++;
  }
  double noticed = MPI_Wtime() - start;
  if (errors == 0) fail("both messages with a dead rank ended without an error");
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(code[0] ? code[0] : code[1], text, &length);
  printf("{\"test\": \"killed\", \"rank\": %d, \"noticed_s\": %.3f, \"errors\": %d, \"polls\": %d}\n", rank, noticed,
         errors, rounds);
  for (int number = 1; number <= 100; number++)
    if (!exchange_with_survivor(number)) fail("a survivor's message failed, too");
  puts("{\"test\": \"killed\", \"survivors\": \"whole\"}");
  fflush(stdout);
  // Finalize waits for all, in any MPI library: who is dead would keep everyone. The other's last message may need us
  // still.
  for (double end = MPI_Wtime() + 1; MPI_Wtime() < end;) {
    int found;
    MPI_Iprobe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
  _exit(0);
}
