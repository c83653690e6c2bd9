// SPDX-License-Identifier: Apache-2.0 OR MIT
// ulfm VICTIM…: user-level failure mitigation, under Open MPI 5 with `--with-ft ulfm`. All ranks exchange messages and
// reduce, and each victim is killed by SIGKILL in the middle, one after the other. The survivors must get an error that
// says so, revoke the communicator, agree on a value, and shrink; in the communicator that is left everything goes on,
// and every byte is checked. The record says how long it took until each survivor knew, and until it went on.
#include <signal.h>
#include <unistd.h>

#include "check.h"

#ifndef OPEN_MPI
#error "only Open MPI has these extensions"
#endif
#include <mpi-ext.h>

enum {
  BYTES = 200000,  // above the eager limits
  TURNS = 100      // with each communicator
};

static MPI_Comm world;
static int place, size, alive;  // in `world`; the ranks that live, a bit each

static void enter(MPI_Comm communicator) {
  world = communicator;
  MPI_Comm_rank(world, &place);
  MPI_Comm_size(world, &size);
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
}

// The error class of the first call that fails; 0 if all is right.
static int exchange(int turn) {
  static unsigned char out[BYTES], in[BYTES];
  int to = (place + 1) % size, from = (place + size - 1) % size, bytes = turn % 3 ? 100 : BYTES, class = MPI_SUCCESS;
  fill(out, (size_t)bytes, key_of(place, to, turn));
  int code = MPI_Sendrecv(out, bytes, MPI_BYTE, to, turn, in, bytes, MPI_BYTE, from, turn, world, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS) {
    check(in, (size_t)bytes, key_of(from, place, turn), "an exchange");
    int mine = place + turn, sum = 0;
    code = MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, world);
    if (code == MPI_SUCCESS && sum != size * turn + size * (size - 1) / 2) fail("a sum of %d is %d", size, sum);
  }
  MPI_Error_class(code, &class);
  return class;
}

// True if this rank was not the victim: then `world` is what is left.
static void survive(int victim) {
  double killed = 0, noticed;
  int class = MPI_SUCCESS;
  for (int turn = 0; class == MPI_SUCCESS; turn++) {
    // The victim may be dead before all others have ended the turn before.
    if (turn <= TURNS / 2) killed = MPI_Wtime();
    if (turn == TURNS / 2 && rank == victim) kill(getpid(), SIGKILL);
    class = exchange(turn);
    if (turn > 1000000) fail("no error came");
  }
  noticed = MPI_Wtime();
  if (class != MPIX_ERR_PROC_FAILED && class != MPIX_ERR_REVOKED) fail("error class %d, not that of a failure", class);
  MPIX_Comm_revoke(world);
  int is_revoked = 0, agreed = ~(1 << rank);
  MPIX_Comm_is_revoked(world, &is_revoked);
  if (!is_revoked) fail("the communicator is not revoked");
  // An agreement acknowledges failures, or says that there is one which somebody has not acknowledged.
  MPIX_Comm_failure_ack(world);
  int code = MPIX_Comm_agree(world, &agreed), agreement;
  MPI_Error_class(code, &agreement);
  if (agreement != MPI_SUCCESS && agreement != MPIX_ERR_PROC_FAILED)
    fail("the agreement ended with class %d", agreement);
  alive &= ~(1 << victim);
  // The victim's bit may be cleared or not.
  if ((agreed | 1 << victim) != (~alive | 1 << victim)) fail("agreed on %x without %x", agreed, alive);
  MPI_Comm left;
  if (MPIX_Comm_shrink(world, &left)) fail("the communicator was not shrunk");
  int before = size;
  if (world != MPI_COMM_WORLD) MPI_Comm_free(&world);
  enter(left);
  if (size != before - 1) fail("%d ranks are left of %d", size, before);
  for (int turn = 0; turn < TURNS; turn++)
    if ((class = exchange(turn))) fail("an exchange of survivors ended with class %d", class);
  printf("{\"test\": \"ulfm\", \"rank\": %d, \"left\": %d, \"noticed_s\": %.3f, \"went_on_s\": %.3f}\n", rank, size,
         noticed - killed, MPI_Wtime() - killed);
  fflush(stdout);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  enter(MPI_COMM_WORLD);
  alive = (1 << ranks) - 1;
  for (int number = 1; number < argc; number++) survive((int)argument(argc, argv, number, 0));
  MPI_Finalize();
}
