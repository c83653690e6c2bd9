// SPDX-License-Identifier: Apache-2.0 OR MIT
// Half a round trip: the first rank of each pair sends a message, the second replies with one of the same length. In
// the non-blocking variants and in ready mode, which requires it, every receive is posted before its message can be
// sent: the first rank posts the receive of the reply before it sends, the second that of the next message before it
// replies.
#include <limits.h>
#include <stdlib.h>

#include "common/measure.h"

typedef int send_function(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int start_function(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

enum {
  BSEND_BUFFER_BYTES = 1 << 24,  // of buffered mode, for short messages: libraries release sent messages late
  BSEND_BUFFER_MESSAGES = 2      // at least
};

static const struct mode {
  const char *variant;
  send_function *send;    // of blocking variants
  start_function *start;  // of non-blocking variants
  int buffered;
  int posted;  // receives are posted ahead
} modes[] = {{"blocking-standard", MPI_Send, NULL, 0, 0},      {"blocking-synchronous", MPI_Ssend, NULL, 0, 0},
             {"blocking-buffered", MPI_Bsend, NULL, 1, 0},     {"blocking-ready", MPI_Rsend, NULL, 0, 1},
             {"nonblocking-standard", NULL, MPI_Isend, 0, 1},  {"nonblocking-synchronous", NULL, MPI_Issend, 0, 1},
             {"nonblocking-buffered", NULL, MPI_Ibsend, 1, 1}, {"nonblocking-ready", NULL, MPI_Irsend, 0, 1}};
enum {
  MODES = sizeof modes / sizeof *modes
};

static const struct mode *mode;
static struct pair pair;
static struct messages out, in;
static int bytes;
static MPI_Request next_receive;  // the second rank's posted receive
static void *bsend_buffer;

static void receive_one(void) {
  MPI_Recv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void post(MPI_Request *request) {
  MPI_Irecv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, request);
}

static void send_one(void) { mode->send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD); }

static void start_one(MPI_Request *request) {
  mode->start(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, request);
}

static void blocking(int count) {
  for (int number = 0; number < count && pair.first; number++) {
    send_one();
    receive_one();
  }
  for (int number = 0; number < count && !pair.first; number++) {
    receive_one();
    send_one();
  }
}

static void blocking_posted(int count) {
  for (int number = 0; number < count && pair.first; number++) {
    MPI_Request answer;
    post(&answer);
    send_one();
    MPI_Wait(&answer, MPI_STATUS_IGNORE);
  }
  for (int number = 0; number < count && !pair.first; number++) {
    MPI_Wait(&next_receive, MPI_STATUS_IGNORE);
    post(&next_receive);
    send_one();
  }
}

static void nonblocking(int count) {
  for (int number = 0; number < count && pair.first; number++) {
    MPI_Request requests[2];
    post(&requests[0]);
    start_one(&requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  }
  for (int number = 0; number < count && !pair.first; number++) {
    MPI_Request answer;
    MPI_Wait(&next_receive, MPI_STATUS_IGNORE);
    post(&next_receive);
    start_one(&answer);
    MPI_Wait(&answer, MPI_STATUS_IGNORE);
  }
}

static void open_series(void) {
  if (mode->buffered) {
    size_t each = (size_t)bytes + MPI_BSEND_OVERHEAD;
    size_t whole =
        each * BSEND_BUFFER_MESSAGES > BSEND_BUFFER_BYTES ? each * BSEND_BUFFER_MESSAGES : BSEND_BUFFER_BYTES;
    bsend_buffer = allocate(whole);
    MPI_Buffer_attach(bsend_buffer, (int)whole);
  }
  if (mode->posted && !pair.first) post(&next_receive);
}

static void close_series(void) {
  if (mode->posted && pair.first) MPI_Send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
  if (mode->posted && !pair.first) MPI_Wait(&next_receive, MPI_STATUS_IGNORE);
  if (mode->buffered) {
    int size;
    MPI_Buffer_detach(&bsend_buffer, &size);
    free(bsend_buffer);
  }
}

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, 1);
  in = messages_for(size, 1, &pair.partner, 1);
  for (mode = modes; mode < modes + MODES; mode++)
    if (is_selected(mode->variant))
      measure(&(struct pattern){.point = {.variant = mode->variant,
                                          .quantity = "half_round_trip",
                                          .message_bytes = size,
                                          .pairs = pair.count},
                                .idle = pair.idle,
                                .timed = pair.first,
                                .divide_by = 2,
                                .unit = 1,
                                .steady = pair.steady,
                                .run = mode->start    ? nonblocking
                                       : mode->posted ? blocking_posted
                                                      : blocking,
                                .open = open_series,
                                .close = close_series,
                                .out = &out,
                                .in = &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[MODES + 1] = {NULL};
  for (int number = 0; number < MODES; number++) variants[number] = modes[number].variant;
  begin(argc, argv,
        &(struct program){.name = "pingpong",
                          .summary = "half a round trip between pairs of ranks, in each send mode",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .needs_even_ranks = 1});
  pair = join_pairs();
  size_t size_max = INT_MAX / BSEND_BUFFER_MESSAGES - MPI_BSEND_OVERHEAD;
  for (int number = 0; number < settings.size_count; number++)
    if (settings.sizes[number] > size_max && (is_selected("blocking-buffered") || is_selected("nonblocking-buffered")))
      usage_error("buffered mode takes messages of up to %zu bytes, not %zu: choose other --variants", size_max,
                  settings.sizes[number]);
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  finish();
}
