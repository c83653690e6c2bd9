// SPDX-License-Identifier: Apache-2.0 OR MIT
// Half a round trip: the first rank of each pair sends a message, the second replies with one of the same length. In
// the non-blocking variants and in ready mode, which requires it, every receive is posted before its message can be
// sent: the first rank posts the receive of the reply before it sends, the second that of the next message before it
// replies.
#include "common/measure.h"
#include "common/mode.h"

static void blocking(int count), blocking_posted(int count), nonblocking(int count);

static const struct kind {
  const char *variant;
  const struct mode *mode;
  void (*run)(int);
  int posted;  // receives are posted ahead
} kinds[] = {{"blocking-standard", &standard_mode, blocking, 0},
             {"blocking-synchronous", &synchronous_mode, blocking, 0},
             {"blocking-buffered", &buffered_mode, blocking, 0},
             {"blocking-ready", &ready_mode, blocking_posted, 1},
             {"nonblocking-standard", &standard_mode, nonblocking, 1},
             {"nonblocking-synchronous", &synchronous_mode, nonblocking, 1},
             {"nonblocking-buffered", &buffered_mode, nonblocking, 1},
             {"nonblocking-ready", &ready_mode, nonblocking, 1}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static const struct kind *kind;
static struct pair pair;
static struct messages out, in;
static int bytes;
static MPI_Request next_receive;  // the second rank's posted receive

static void receive_one(void) {
  MPI_Recv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void post(MPI_Request *request) {
  MPI_Irecv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, request);
}

static void send_one(void) {
  kind->mode->send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
}

static void start_one(MPI_Request *request) {
  kind->mode->start(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, request);
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
  attach_buffer(kind->mode, (size_t)bytes);
  if (kind->posted && !pair.first) post(&next_receive);
}

static void close_series(void) {
  if (kind->posted && pair.first) MPI_Send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
  if (kind->posted && !pair.first) MPI_Wait(&next_receive, MPI_STATUS_IGNORE);
  detach_buffer(kind->mode);
}

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, 1);
  in = messages_for(size, 1, &pair.partner, 1);
  for (kind = kinds; kind < kinds + KINDS; kind++)
    if (is_selected(kind->variant))
      measure(&(struct pattern){.point = {.variant = kind->variant,
                                          .quantity = "half_round_trip",
                                          .message_bytes = size,
                                          .pairs = pair.count},
                                .idle = pair.idle,
                                .timed = pair.first,
                                .divide_by = 2,
                                .unit = 1,
                                .steady = pair.steady,
                                .run = kind->run,
                                .open = open_series,
                                .close = close_series,
                                .out = &out,
                                .in = &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int number = 0; number < KINDS; number++) variants[number] = kinds[number].variant;
  begin(argc, argv,
        &(struct program){.name = "pingpong",
                          .summary = "half a round trip between pairs of ranks, in each send mode",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .needs_even_ranks = 1});
  pair = join_pairs();
  if (is_selected("blocking-buffered") || is_selected("nonblocking-buffered")) check_buffered_sizes();
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  finish();
}
