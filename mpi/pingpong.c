// SPDX-License-Identifier: Apache-2.0 OR MIT
// Half of a round trip: the first of each pair sends a message, the second answers with one as long. In all variants
// but the blocking ones a receive is posted before the message for it can be sent: the first posts that of the answer
// before it sends, the second posts that of the next message before it answers. Ready mode needs that.
#include <limits.h>
#include <stdlib.h>

#include "common/measure.h"

typedef int send_function(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int start_function(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

enum {
  ROOM_BYTES = 1 << 24,  // of buffered mode, for short messages: a library frees what it has sent in its own time
  ROOM_MESSAGES = 2      // but at least so many
};

static const struct mode {
  const char *variant;
  send_function *send;    // of blocking variants
  start_function *start;  // of non-blocking ones
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
static MPI_Request next;  // the second's receive
static void *room;

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
    MPI_Wait(&next, MPI_STATUS_IGNORE);
    post(&next);
    send_one();
  }
}

static void nonblocking(int count) {
  for (int number = 0; number < count && pair.first; number++) {
    MPI_Request both[2];
    post(&both[0]);
    start_one(&both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
  }
  for (int number = 0; number < count && !pair.first; number++) {
    MPI_Request answer;
    MPI_Wait(&next, MPI_STATUS_IGNORE);
    post(&next);
    start_one(&answer);
    MPI_Wait(&answer, MPI_STATUS_IGNORE);
  }
}

static void before_all(void) {
  if (mode->buffered) {
    size_t each = (size_t)bytes + MPI_BSEND_OVERHEAD;
    size_t whole = each * ROOM_MESSAGES > ROOM_BYTES ? each * ROOM_MESSAGES : ROOM_BYTES;
    room = allocate(whole);
    MPI_Buffer_attach(room, (int)whole);
  }
  if (mode->posted && !pair.first) post(&next);
}

static void after_all(void) {
  if (mode->posted && pair.first) MPI_Send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
  if (mode->posted && !pair.first) MPI_Wait(&next, MPI_STATUS_IGNORE);
  if (mode->buffered) {
    int size;
    MPI_Buffer_detach(&room, &size);
    free(room);
  }
}

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, 1);
  in = messages_for(size, 1, &pair.partner, 1);
  for (mode = modes; mode < modes + MODES; mode++)
    if (wanted(mode->variant))
      measure(&(struct pattern){.point = {.variant = mode->variant,
                                          .quantity = "half_round_trip",
                                          .message_bytes = size,
                                          .pairs = pair.count},
                                .idle = pair.idle,
                                .timed = pair.first,
                                .divide_by = 2,
                                .unit = 1,
                                .steady = pair.count > 1,
                                .run = mode->start    ? nonblocking
                                       : mode->posted ? blocking_posted
                                                      : blocking,
                                .open = before_all,
                                .close = after_all,
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
                          .summary = "half of a round trip between pairs of ranks, in each mode of sending",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .ranks_even = 1});
  pair = join_pairs();
  size_t most = INT_MAX / ROOM_MESSAGES - MPI_BSEND_OVERHEAD;
  for (int number = 0; number < settings.size_count; number++)
    if (settings.sizes[number] > most && (wanted("blocking-buffered") || wanted("nonblocking-buffered")))
      wrong_use("buffered mode takes messages of up to %zu bytes, not %zu: name other --variants", most,
                settings.sizes[number]);
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  finish();
}
