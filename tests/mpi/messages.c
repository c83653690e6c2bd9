// SPDX-License-Identifier: Apache-2.0 OR MIT
// messages [SEED [MESSAGES [SIZE MAX]]]: all ranks exchange messages with all, themselves included: standard,
// synchronous and persistent ones, expected or not, probed, claimed, cancelled and truncated. Sizes, tags and ways to
// send are drawn by seed, and every byte is checked.
#include "check.h"

static int messages = 8;
static size_t most = 2 << 20;

typedef struct {
  void *data;
  size_t size;
} Message;

// What rank `from` sends to rank `to` as its `number`th; both sides draw the same.
static Message make(int from, int to, int number, int filled) {
  uint64_t state = key_of(from, to, number) ^ 0x5a5a;
  Message made = {NULL, draw_size(&state, most)};
  made.data = allocate(made.size);
  if (filled) fill(made.data, made.size, key_of(from, to, number));
  return made;
}

static int tag_of(int number) { return number % 3; }

static void receive_from(int from, int number, Message *into, MPI_Request *request) {
  *into = make(from, rank, number, 0);
  // Several numbers have the same tag: those must come in the order of sending.
  MPI_Irecv(into->data, (int)into->size, MPI_BYTE, from, tag_of(number), MPI_COMM_WORLD, request);
}

static void start_send(int to, int number, Message *sent, MPI_Request *request) {
  *sent = make(rank, to, number, 1);
  int size = (int)sent->size, tag = tag_of(number);
  switch (key_of(rank, to, number) % 3) {
    case 0: MPI_Isend(sent->data, size, MPI_BYTE, to, tag, MPI_COMM_WORLD, request); break;
    case 1: MPI_Issend(sent->data, size, MPI_BYTE, to, tag, MPI_COMM_WORLD, request); break;
    default: MPI_Send_init(sent->data, size, MPI_BYTE, to, tag, MPI_COMM_WORLD, request); MPI_Start(request);
  }
}

// Half of the receives are posted before anything is sent, half after: expected and unexpected messages.
static void exchange(void) {
  int count = ranks * messages, expected;
  Message *in = allocate((size_t)count * sizeof *in), *out = allocate((size_t)count * sizeof *out);
  MPI_Request *requests = allocate(2 * (size_t)count * sizeof *requests);
  MPI_Status *statuses = allocate((size_t)count * sizeof *statuses);
  for (expected = 0; expected < count / 2; expected++)
    receive_from(expected % ranks, expected / ranks, &in[expected], &requests[expected]);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int at = 0; at < count; at++) start_send(at % ranks, at / ranks, &out[at], &requests[count + at]);
  for (int at = expected; at < count; at++) receive_from(at % ranks, at / ranks, &in[at], &requests[at]);
  MPI_Waitall(count, requests, statuses);
  for (int at = 0; at < count; at++) {
    int bytes;
    MPI_Get_count(&statuses[at], MPI_BYTE, &bytes);
    if ((size_t)bytes != in[at].size) fail("message %d has %d bytes, not %zu", at, bytes, in[at].size);
    check(in[at].data, in[at].size, key_of(at % ranks, rank, at / ranks), "exchange");
    free(in[at].data);
  }
  MPI_Waitall(count, requests + count, MPI_STATUSES_IGNORE);
  for (int at = 0; at < count; at++) {
    if (requests[count + at] != MPI_REQUEST_NULL) MPI_Request_free(&requests[count + at]);
    free(out[at].data);
  }
  free(in), free(out), free(requests), free(statuses);
}

// From anybody, with any tag, of unknown length: probed, half of them taken out of matching first. The numbers of each
// source must come in order.
static void wildcards(void) {
  int count = ranks * messages, *next = calloc((size_t)ranks, sizeof(int));
  Message *out = allocate((size_t)count * sizeof *out);
  MPI_Request *requests = allocate((size_t)count * sizeof *requests);
  for (int at = 0; at < count; at++) {
    int to = at % ranks, number = at / ranks;
    out[at] = make(rank, to, number, 1);
    MPI_Isend(out[at].data, (int)out[at].size, MPI_BYTE, to, 100 + number, MPI_COMM_WORLD, &requests[at]);
  }
  for (int at = 0; at < count; at++) {
    MPI_Status status;
    MPI_Message claimed;
    int bytes, claim = at % 2;
    if (claim) MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &claimed, &status);
    else MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    int from = status.MPI_SOURCE, number = next[from]++;
    if (status.MPI_TAG != 100 + number) fail("from %d came tag %d instead of %d", from, status.MPI_TAG, 100 + number);
    void *data = allocate((size_t)bytes);
    if (claim) MPI_Mrecv(data, bytes, MPI_BYTE, &claimed, MPI_STATUS_IGNORE);
    else MPI_Recv(data, bytes, MPI_BYTE, from, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    Message meant = make(from, rank, number, 0);
    if (meant.size != (size_t)bytes) fail("probe says %d bytes, not %zu", bytes, meant.size);
    check(data, meant.size, key_of(from, rank, number), "wildcards");
    free(meant.data), free(data);
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  for (int at = 0; at < count; at++) free(out[at].data);
  free(out), free(requests), free(next);
}

// Between each rank and the next in a ring: `to` sends nothing before `from` says so.
static void synchronous(int to, int from, int size) {
  MPI_Request send, go;
  int done = 0;
  char *out = allocate((size_t)size), *in = allocate((size_t)size);
  fill(out, (size_t)size, key_of(rank, to, size));
  MPI_Issend(out, size, MPI_BYTE, to, 200, MPI_COMM_WORLD, &send);
  // For longer than the message and an acknowledgement of its arrival take.
  for (double until = MPI_Wtime() + 0.01; MPI_Wtime() < until;) {
    MPI_Test(&send, &done, MPI_STATUS_IGNORE);
    if (done) fail("a synchronous send of %d bytes ended before its receive was posted", size);
  }
  MPI_Isend(NULL, 0, MPI_BYTE, to, 201, MPI_COMM_WORLD, &go);
  MPI_Recv(NULL, 0, MPI_BYTE, from, 201, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Recv(in, size, MPI_BYTE, from, 200, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  check(in, (size_t)size, key_of(from, rank, size), "synchronous");
  MPI_Wait(&send, MPI_STATUS_IGNORE);
  MPI_Wait(&go, MPI_STATUS_IGNORE);
  free(out), free(in);
}

// A receive that is cancelled takes no message, and one of the same pattern after it does.
static void cancelled(int to, int from) {
  MPI_Request receive;
  MPI_Status status;
  int was_cancelled, never = 0, value = rank, got = -1;
  for (int times = 0; times < 20; times++) {
    MPI_Irecv(&never, 1, MPI_INT, times % 2 ? from : MPI_ANY_SOURCE, 300, MPI_COMM_WORLD, &receive);
    MPI_Cancel(&receive);
    MPI_Wait(&receive, &status);
    MPI_Test_cancelled(&status, &was_cancelled);
    if (!was_cancelled) fail("a receive without a message was not cancelled");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Irecv(&got, 1, MPI_INT, from, 300, MPI_COMM_WORLD, &receive);
  MPI_Send(&value, 1, MPI_INT, to, 300, MPI_COMM_WORLD);
  MPI_Wait(&receive, MPI_STATUS_IGNORE);
  if (got != from || never) fail("after cancelled receives came %d, not %d", got, from);
}

// A message longer than its receive is an error there and nowhere else, and the next one is whole. (Open MPI's ob1
// writes behind the receive, so that is not checked here; tests/fi does.)
static void truncated(int to, int from, int size) {
  MPI_Comm tolerant;
  MPI_Comm_dup(MPI_COMM_WORLD, &tolerant);
  MPI_Comm_set_errhandler(tolerant, MPI_ERRORS_RETURN);
  char *out = allocate((size_t)size), *in = allocate((size_t)size);
  MPI_Request sends[2];
  fill(out, (size_t)size, key_of(rank, to, -size));
  for (int at = 0; at < 2; at++) MPI_Isend(out, size, MPI_BYTE, to, 400, tolerant, &sends[at]);
  int kind, error = MPI_Recv(in, size / 2, MPI_BYTE, from, 400, tolerant, MPI_STATUS_IGNORE);
  MPI_Error_class(error, &kind);
  if (kind != MPI_ERR_TRUNCATE) fail("%d bytes into half as many gave error class %d", size, kind);
  MPI_Recv(in, size, MPI_BYTE, from, 400, tolerant, MPI_STATUS_IGNORE);
  check(in, (size_t)size, key_of(from, rank, -size), "after a truncation");
  MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
  MPI_Comm_free(&tolerant);
  free(out), free(in);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  seed = argument(argc, argv, 1, 1);
  messages = (int)argument(argc, argv, 2, 8);
  most = argument(argc, argv, 3, 2 << 20);
  int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  exchange();
  MPI_Barrier(MPI_COMM_WORLD);
  wildcards();
  MPI_Barrier(MPI_COMM_WORLD);
  synchronous(to, from, 8);
  synchronous(to, from, 200000);
  cancelled(to, from);
  truncated(to, from, 1000);
  truncated(to, from, 1 << 20);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    printf("{\"test\": \"messages\", \"seed\": %" PRIu64 ", \"ranks\": %d, \"right\": true}\n", seed, ranks);
  MPI_Finalize();
}
