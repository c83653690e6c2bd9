// SPDX-License-Identifier: Apache-2.0 OR MIT
// offset_types: sends of every kind, and MPI_Alltoallw, of contiguous datatypes that do not begin at their buffer's
// address: what is there must not be sent instead.
#include "check.h"

enum {
  PLACE = 1000,
  COUNT = 500,
  LONGEST = 100000,
  KINDS = 7
};

static const char *const names[] = {"Send", "Isend", "Ssend", "Bsend", "Send_init", "Ssend_init", "Bsend_init"};

static void start(MPI_Request *request) {
  MPI_Start(request);
  MPI_Wait(request, MPI_STATUS_IGNORE);
  MPI_Request_free(request);
}

static void send_as(int kind, const void *from, int count, MPI_Datatype type, int to) {
  MPI_Request request;
  switch (kind) {
    case 0: MPI_Send(from, count, type, to, kind, MPI_COMM_WORLD); break;
    case 1:
      MPI_Isend(from, count, type, to, kind, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      break;
    case 2: MPI_Ssend(from, count, type, to, kind, MPI_COMM_WORLD); break;
    case 3: MPI_Bsend(from, count, type, to, kind, MPI_COMM_WORLD); break;
    case 4:
      MPI_Send_init(from, count, type, to, kind, MPI_COMM_WORLD, &request);
      start(&request);
      break;
    case 5:
      MPI_Ssend_init(from, count, type, to, kind, MPI_COMM_WORLD, &request);
      start(&request);
      break;
    default:
      MPI_Bsend_init(from, count, type, to, kind, MPI_COMM_WORLD, &request);
      start(&request);
      break;
  }
}

// Sends `types` elements of a contiguous type of `elements` integers each, which begins at place `PLACE`.
static void exchange(int elements, int types) {
  MPI_Datatype type;
  int place = PLACE, bytes = 4 * elements * types;
  MPI_Type_indexed(1, &elements, &place, MPI_INT32_T, &type);
  MPI_Type_commit(&type);
  char *out = allocate(4 * (size_t)PLACE + (size_t)bytes), *in = allocate((size_t)bytes);
  for (int kind = 0; kind < KINDS; kind++) {
    memset(out, 0x55, 4 * PLACE);
    fill(out + 4 * PLACE, (size_t)bytes, key_of(rank, 1 - rank, kind));
    if (rank == 0) {
      send_as(kind, out, types, type, 1);
    } else {
      MPI_Recv(in, bytes, MPI_BYTE, 0, kind, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(in, (size_t)bytes, key_of(0, 1, kind), names[kind]);
    }
  }
  MPI_Type_free(&type);
  free(out);
  free(in);
}

// Each rank sends the first half of its elements to rank 0 and the second to rank 1, as a transposition does.
static void transpose(int elements) {
  int counts[2] = {1, 1}, displacements[2] = {0, 0};
  MPI_Datatype types[2];
  char *out = allocate(8 * (size_t)elements), *in = allocate(8 * (size_t)elements);
  for (int half = 0; half < 2; half++) {
    int place = half * elements;
    MPI_Type_indexed(1, &elements, &place, MPI_INT32_T, types + half);
    MPI_Type_commit(types + half);
    fill(out + 4 * (size_t)place, 4 * (size_t)elements, key_of(rank, half, elements));
  }
  MPI_Alltoallw(out, counts, displacements, types, in, counts, displacements, types, MPI_COMM_WORLD);
  for (int half = 0; half < 2; half++) {
    check(in + 4 * (size_t)half * (size_t)elements, 4 * (size_t)elements, key_of(half, rank, elements), "Alltoallw");
    MPI_Type_free(types + half);
  }
  free(out);
  free(in);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  if (ranks != 2) fail("needs 2 ranks");
  void *attached = allocate(16 * LONGEST + MPI_BSEND_OVERHEAD);
  MPI_Buffer_attach(attached, 16 * LONGEST + MPI_BSEND_OVERHEAD);
  exchange(1, 1);
  exchange(COUNT, 1);
  exchange(COUNT, 3);
  exchange(LONGEST, 1);
  transpose(1);
  transpose(COUNT);
  transpose(LONGEST);
  int bytes;
  MPI_Buffer_detach(&attached, &bytes);
  if (rank == 0) printf("{\"test\": \"offset_types\"}\n");
  MPI_Finalize();
}
