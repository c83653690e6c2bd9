// SPDX-License-Identifier: Apache-2.0 OR MIT
// goes_on SECONDS STOPPED: two ranks exchange messages of all sizes, both ways at once, for so long, while somebody
// takes the network away for a part of that; with STOPPED above 0 the second rank is stopped for so many seconds in the
// middle.
#include <signal.h>
#include <unistd.h>

#include "check.h"

enum {
  BYTES = 300000
};

// As a debugger does.
static void stop_for(unsigned seconds) {
  pid_t stopped = getpid();
  if (fork() == 0) {
    kill(stopped, SIGSTOP);
    sleep(seconds);
    kill(stopped, SIGCONT);
    _exit(0);
  }
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  double seconds = (double)argument(argc, argv, 1, 5);
  unsigned stopped = (unsigned)argument(argc, argv, 2, 0);
  unsigned char *out = allocate(BYTES), *in = allocate(BYTES);
  int peer = 1 - rank, goes_on = 1, turn = 0;
  for (double began = MPI_Wtime(); goes_on; turn++) {
    uint64_t state = seed + (uint64_t)turn;
    int bytes = (int)(draw(&state) % (draw(&state) % 4 ? 3000 : BYTES)) + 1;
    fill(out, (size_t)bytes, key_of(rank, peer, turn));
    MPI_Sendrecv(out, bytes, MPI_BYTE, peer, turn % 1000, in, bytes, MPI_BYTE, peer, turn % 1000, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    check(in, (size_t)bytes, key_of(peer, rank, turn), "an exchange");
    if (turn == 200 && rank == 0) {
      printf("under way\n");
      fflush(stdout);
    }
    if (turn == 200 && rank == 1 && stopped > 0) stop_for(stopped);
    goes_on = MPI_Wtime() < began + seconds;
    MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  if (turn <= 200) fail("%d exchanges only", turn);
  if (rank == 0) printf("{\"test\": \"goes_on\", \"right\": true}\n");
  MPI_Finalize();
}
