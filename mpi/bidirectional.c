// SPDX-License-Identifier: Apache-2.0 OR MIT
// Both ways at once, as NetPIPE's two-way mode: both of a pair send and receive one message each. The receive of the
// next message is posted before this one is sent, so none ever arrives before its receive.
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
    MPI_Request both[2] = {posted};
    post(&posted);
    MPI_Isend(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
  }
}

static void post_first(void) { post(&posted); }

static void use_up_last(void) {
  MPI_Send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
  MPI_Wait(&posted, MPI_STATUS_IGNORE);
}

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, 2);
  in = messages_for(size, 1, &pair.partner, 2);
  for (int variant = 0; variants[variant]; variant++)
    if (wanted(variants[variant]))
      measure(&(struct pattern){
          .point = {.variant = variants[variant], .quantity = "exchange", .message_bytes = size, .pairs = pair.count},
          .idle = pair.idle,
          .timed = 1,
          .divide_by = 1,
          .unit = 1,
          .steady = 1,
          .run = variant ? nonblocking : blocking,
          .open = post_first,
          .close = use_up_last,
          .out = &out,
          .in = &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  begin(argc, argv,
        &(struct program){.name = "bidirectional",
                          .summary = "a message each way at once, the receives always posted before",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .ranks_even = 1});
  pair = join_pairs();
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  finish();
}
