// SPDX-License-Identifier: Apache-2.0 OR MIT
// sends_first MOST: ranks send to their successors before they receive, up to MOST bytes at a time. MPI promises only
// that this works if messages are buffered; short ones are by every library, and programs rely on it.
#include "check.h"

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  size_t most = (size_t)argument(argc, argv, 1, 65536);
  int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  unsigned char *out = allocate(most), *in = allocate(most);
  for (size_t bytes = 1024; bytes <= most; bytes *= 2) {
    fill(out, bytes, key_of(rank, next, (int)bytes));
    MPI_Send(out, (int)bytes, MPI_BYTE, next, 1, MPI_COMM_WORLD);
    MPI_Recv(in, (int)bytes, MPI_BYTE, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(in, bytes, key_of(previous, rank, (int)bytes), "what was sent first");
  }
  if (rank == 0) printf("{\"test\": \"sends_first\", \"right\": true}\n");
  MPI_Finalize();
}
