// SPDX-License-Identifier: Apache-2.0 OR MIT
// How long each operation of MPI takes two ranks that have nothing else to do: the shortest of a few times, on the
// slower rank. Nobody answers the one who sends, so whatever waits for a timer of the provider's takes that long each
// time.
#include "check.h"

#define TIMES 3

static char *out, *in, *attached;
static MPI_Win window;
static int other;

// What is timed: an operation with a message of so many bytes, from rank 0 to rank 1 where it has a direction.
struct operation {
  const char *name;
  void (*run)(int bytes);
  int is_sized;
};

static void receive(int bytes) { MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static void send(int bytes) { rank ? receive(bytes) : MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD); }

static void ssend(int bytes) { rank ? receive(bytes) : MPI_Ssend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD); }

static void bsend(int bytes) { rank ? receive(bytes) : MPI_Bsend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD); }

static void isend(int bytes) {
  MPI_Request requests[8];
  for (int each = 0; each < 8; each++)
    if (rank) MPI_Irecv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[each]);
    else MPI_Isend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[each]);
  MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
}

static void persistent(int bytes) {
  MPI_Request request;
  if (rank) MPI_Recv_init(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
  else MPI_Send_init(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
}

static void probed(int bytes) {
  if (!rank) {
    MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    return;
  }
  MPI_Message message;
  MPI_Mprobe(0, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
  MPI_Mrecv(in, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
}

static void exchange(int bytes) {
  MPI_Sendrecv(out, bytes, MPI_BYTE, other, 1, in, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(int bytes) {
  (void)bytes;
  MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(int bytes) { MPI_Bcast(rank ? in : out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void reduce(int bytes) { MPI_Reduce(out, in, bytes, MPI_BYTE, MPI_BXOR, 0, MPI_COMM_WORLD); }
static void allreduce(int bytes) { MPI_Allreduce(out, in, bytes, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD); }
static void gather(int bytes) { MPI_Gather(out, bytes / 2, MPI_BYTE, in, bytes / 2, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void scatter(int bytes) { MPI_Scatter(out, bytes / 2, MPI_BYTE, in, bytes / 2, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void alltoall(int bytes) { MPI_Alltoall(out, bytes / 2, MPI_BYTE, in, bytes / 2, MPI_BYTE, MPI_COMM_WORLD); }
static void scan(int bytes) { MPI_Scan(out, in, bytes, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD); }

static void put_fence(int bytes) {
  if (!rank) MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window);
  MPI_Win_fence(0, window);
}

static void get_fence(int bytes) {
  if (!rank) MPI_Get(in, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window);
  MPI_Win_fence(0, window);
}

static void accumulate_fence(int bytes) {
  if (!rank) MPI_Accumulate(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, MPI_BXOR, window);
  MPI_Win_fence(0, window);
}

static void fetch_fence(int bytes) {
  (void)bytes;
  static int64_t one = 1, before;
  if (!rank) MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 1, 0, MPI_SUM, window);
  MPI_Win_fence(0, window);
}

static const struct operation OPERATIONS[] = {
    {"send", send, 1},
    {"ssend", ssend, 1},
    {"bsend", bsend, 1},
    {"isend", isend, 1},
    {"persistent", persistent, 1},
    {"probed", probed, 1},
    {"exchange", exchange, 1},
    {"barrier", barrier, 0},
    {"bcast", bcast, 1},
    {"reduce", reduce, 1},
    {"allreduce", allreduce, 1},
    {"gather", gather, 1},
    {"scatter", scatter, 1},
    {"alltoall", alltoall, 1},
    {"scan", scan, 1},
    {"put_fence", put_fence, 1},
    {"get_fence", get_fence, 1},
    {"accumulate_fence", accumulate_fence, 1},
    {"fetch_fence", fetch_fence, 0},
};
static const int SIZES[] = {8, 2048, 8192, 16384, 20000, 65536, 300000};

static double time_of(const struct operation *operation, int bytes) {
  double shortest = 1e9, longest;
  for (int each = 0; each < TIMES; each++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    operation->run(bytes);
    double took = MPI_Wtime() - began;
    shortest = took < shortest ? took : shortest;
  }
  MPI_Allreduce(&shortest, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return longest * 1e6;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) fail("takes two ranks, not %d", ranks);
  other = 1 - rank;
  size_t most = 300000, attached_bytes = 4 * (most + MPI_BSEND_OVERHEAD);
  out = memset(allocate(most), 1, most);
  in = memset(allocate(most), 2, most);
  attached = allocate(attached_bytes);
  MPI_Buffer_attach(attached, (int)attached_bytes);
  void *memory;
  MPI_Win_allocate((MPI_Aint)most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Win_fence(0, window);
  for (size_t each = 0; each < sizeof OPERATIONS / sizeof *OPERATIONS; each++)
    for (size_t size = 0; size < sizeof SIZES / sizeof *SIZES; size++) {
      if (size && !OPERATIONS[each].is_sized) continue;
      double us = time_of(&OPERATIONS[each], SIZES[size]);
      if (!rank)
        printf("{\"test\": \"timers\", \"operation\": \"%s\", \"bytes\": %d, \"us\": %.1f}\n", OPERATIONS[each].name,
               SIZES[size], us);
    }
  MPI_Win_fence(0, window);
  MPI_Win_free(&window);
  void *detached;
  int detached_bytes;
  MPI_Buffer_detach(&detached, &detached_bytes);
  MPI_Finalize();
  return 0;
}
