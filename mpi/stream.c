// SPDX-License-Identifier: Apache-2.0 OR MIT
// One-way messages without a pause, like NetPIPE's streaming mode: the first rank of each pair sends message after
// message, in standard or in synchronous mode, the second measures the interval between arrivals. An untimed reply
// after each stretch holds the sender back, so that no message of the next stretch arrives before its lead-in.
#include "common/measure.h"
#include "common/mode.h"

static const struct kind {
  const char *variant;
  const struct mode *mode;
  int posted;  // receives are posted ahead
} kinds[] = {{"blocking-receive", &standard_mode, 0},
             {"nonblocking-receive", &standard_mode, 1},
             {"blocking-receive-synchronous", &synchronous_mode, 0},
             {"nonblocking-receive-synchronous", &synchronous_mode, 1}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static const struct kind *kind;
static struct pair pair;
static struct messages out, in;
static int bytes;
static MPI_Request requests[2];  // posted receives: the current and the next
static unsigned waited;          // number of completed waits

static void post(MPI_Request *request) {
  MPI_Irecv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, request);
}

static void send_all(int count) {
  for (int number = 0; number < count; number++)
    kind->mode->send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
}

static void receive_all(int count) {
  for (int number = 0; number < count; number++)
    MPI_Recv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void receive_posted(int count) {
  for (int number = 0; number < count; number++) {
    MPI_Request *request = &requests[waited++ % 2];
    MPI_Wait(request, MPI_STATUS_IGNORE);
    post(request);
  }
}

static void drain(void) {
  char reply = 0;
  if (pair.first) MPI_Recv(&reply, 1, MPI_BYTE, pair.partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else MPI_Send(&reply, 1, MPI_BYTE, pair.partner, 1, MPI_COMM_WORLD);
}

static void post_both(void) {
  waited = 0;
  for (int number = 0; number < 2 && kind->posted && !pair.first; number++) post(&requests[number]);
}

static void match_last(void) {
  if (!kind->posted) return;
  if (pair.first) send_all(2);
  else MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, 2);
  in = messages_for(size, 1, &pair.partner, 2);
  for (kind = kinds; kind < kinds + KINDS; kind++)
    if (is_selected(kind->variant))
      measure(&(struct pattern){.point = {.variant = kind->variant,
                                          .quantity = "arrival_interval",
                                          .message_bytes = size,
                                          .pairs = pair.count},
                                .idle = pair.idle,
                                .timed = !pair.first,
                                .divide_by = 1,
                                .unit = 1,
                                .steady = 1,
                                .arriving = 1,
                                .run = pair.first     ? send_all
                                       : kind->posted ? receive_posted
                                                      : receive_all,
                                .open = post_both,
                                .close = match_last,
                                .drain = drain,
                                .out = pair.first ? &out : NULL,
                                .in = pair.first ? NULL : &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int number = 0; number < KINDS; number++) variants[number] = kinds[number].variant;
  begin(argc, argv,
        &(struct program){.name = "stream",
                          .summary = "one-way messages without a pause, timed at the receiver",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .needs_even_ranks = 1});
  pair = join_pairs();
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  finish();
}
