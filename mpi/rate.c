// SPDX-License-Identifier: Apache-2.0 OR MIT
// Message rate: the first rank of each pair starts a window of messages and waits for them and for a one-byte reply.
// The second posts the receives of the next window before it replies, so no message is unexpected.
#include <stdlib.h>

#include "common/measure.h"

enum {
  WINDOW_MAX = 65536
};

static const char *const variants[] = {"window", NULL};

static int64_t window_requested = 64;
static struct pair pair;
static struct messages out, in;
static int bytes, window;
static MPI_Request *requests;

static void start_window(void) {
  for (int number = 0; number < window; number++)
    MPI_Isend(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &requests[number]);
}

static void post_window(void) {
  for (int number = 0; number < window; number++)
    MPI_Irecv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &requests[number]);
}

static void send_windows(int count) {
  char reply;
  for (int sent = 0; sent < count; sent += window) {
    start_window();
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    MPI_Recv(&reply, 1, MPI_BYTE, pair.partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void receive_windows(int count) {
  char reply = 0;
  for (int received = 0; received < count; received += window) {
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    post_window();
    MPI_Send(&reply, 1, MPI_BYTE, pair.partner, 1, MPI_COMM_WORLD);
  }
}

static void post_first(void) {
  if (!pair.first) post_window();
}

static void match_last(void) {
  if (pair.first) start_window();
  MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
}

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, (size_t)window);
  in = messages_for(size, 1, &pair.partner, (size_t)window);
  measure(&(struct pattern){.point = {.variant = variants[0],
                                      .quantity = "send_interval",
                                      .message_bytes = size,
                                      .pairs = pair.count,
                                      .parameter = "window",
                                      .parameter_value = window},
                            .idle = pair.idle,
                            .timed = pair.first,
                            .divide_by = 1,
                            .unit = window,
                            .steady = 1,
                            .run = pair.first ? send_windows : receive_windows,
                            .open = post_first,
                            .close = match_last,
                            .out = pair.first ? &out : NULL,
                            .in = pair.first ? NULL : &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  begin(argc, argv,
        &(struct program){
            .name = "rate",
            .summary = "windows of messages between pairs of ranks, with a reply per window",
            .variants = variants,
            .extras =
                (struct extra[]){PAIRS_OPTION, {"window", COUNT, &window_requested, "messages in a window (64)"}, {0}},
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 2,
            .needs_even_ranks = 1});
  if (window_requested < 1 || window_requested > WINDOW_MAX)
    usage_error("--window must be from 1 to %d, not %" PRId64, WINDOW_MAX, window_requested);
  window = (int)window_requested;
  requests = allocate((size_t)window * sizeof *requests);
  pair = join_pairs();
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  free(requests);
  finish();
}
