// SPDX-License-Identifier: Apache-2.0 OR MIT
// Both directions at once, like NetPIPE's two-way mode: both ranks of a pair send and receive a message. The next
// receive is posted before the current message is sent, so no message is unexpected.
#include "common/measure.h"

static const char *const variants[] = {"blocking-send", "nonblocking-send", NULL};

static struct pair pair;
static struct messages out, in;
static int bytes;
static MPI_Request posted;

static void post(MPI_Request *request) {
  MPI_Irecv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, request);
}

static void blocking(int count) {
  for (int number = 0; number < count; number++) {
    MPI_Request arriving = posted;
    post(&posted);
    MPI_Send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
    MPI_Wait(&arriving, MPI_STATUS_IGNORE);
  }
}

static void nonblocking(int count) {
  for (int number = 0; number < count; number++) {
    MPI_Request requests[2] = {posted};
    post(&posted);
    MPI_Isend(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  }
}

static void post_first(void) { post(&posted); }

static void match_last(void) {
  MPI_Send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
  MPI_Wait(&posted, MPI_STATUS_IGNORE);
}

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, 2);
  in = messages_for(size, 1, &pair.partner, 2);
  for (int variant = 0; variants[variant]; variant++)
    if (is_selected(variants[variant]))
      measure(&(struct pattern){
          .point = {.variant = variants[variant], .quantity = "exchange", .message_bytes = size, .pairs = pair.count},
          .idle = pair.idle,
          .timed = 1,
          .divide_by = 1,
          .unit = 1,
          .steady = 1,
          .run = variant ? nonblocking : blocking,
          .open = post_first,
          .close = match_last,
          .out = &out,
          .in = &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  begin(argc, argv,
        &(struct program){.name = "bidirectional",
                          .summary = "messages in both directions at once, receives always posted in advance",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .needs_even_ranks = 1});
  pair = join_pairs();
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  finish();
}
