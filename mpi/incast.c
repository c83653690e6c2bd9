// SPDX-License-Identifier: Apache-2.0 OR MIT
// Many to one: a growing number of ranks sends to rank 0 at once, which records the time between messages.
// posted: each sender sends a window of messages by MPI_Isend and waits for an empty message from rank 0, which rank 0
// sends once it has posted the receives of the next window. any-source: each sends by MPI_Send, rank 0 receives with
// MPI_ANY_SOURCE.
#include <stdio.h>
#include <stdlib.h>

#include "common/measure.h"

enum {
  WINDOW_MAX = 1024,
  DATA = 0,  // tags
  CREDIT
};

static int64_t window_requested = 16, senders_max;
static int bytes, window, senders, is_sender;
static struct buffers out, in;
static MPI_Request *requests;
static int *sources;  // of the last message in each buffer
static size_t received;
static uint64_t epoch;

// All messages of a sender have the same contents within a series, because the order of arrival is not known.
static uint64_t key(int sender) { return key_of(sender, 0, epoch); }

static unsigned char *next_from(int source) {
  if (received < in.count) received++;
  sources[in.next] = source;
  return next_buffer(&in);
}

static void post_window(void) {
  for (int sender = 0; sender < senders; sender++)
    for (int number = 0; number < window; number++)
      MPI_Irecv(next_from(sender + 1), bytes, MPI_BYTE, sender + 1, DATA, MPI_COMM_WORLD,
                &requests[sender * window + number]);
}

static void posted(int count) {
  for (int done = 0; done < count && is_sender; done += senders * window) {
    for (int number = 0; number < window; number++)
      MPI_Isend(next_buffer(&out), bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &requests[number]);
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    MPI_Recv(NULL, 0, MPI_BYTE, 0, CREDIT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  for (int done = 0; done < count && !is_sender; done += senders * window) {
    MPI_Waitall(senders * window, requests, MPI_STATUSES_IGNORE);
    post_window();
    for (int sender = 1; sender <= senders; sender++) MPI_Send(NULL, 0, MPI_BYTE, sender, CREDIT, MPI_COMM_WORLD);
  }
}

static void any_source(int count) {
  for (int done = 0; done < count; done += senders * window) {
    for (int number = 0; number < window && is_sender; number++)
      MPI_Send(next_buffer(&out), bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
    if (is_sender) MPI_Recv(NULL, 0, MPI_BYTE, 0, CREDIT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int number = 0; number < senders * window && !is_sender; number++) {
      MPI_Status status;
      int *source = &sources[in.next];
      MPI_Recv(next_from(0), bytes, MPI_BYTE, MPI_ANY_SOURCE, DATA, MPI_COMM_WORLD, &status);
      *source = status.MPI_SOURCE;
    }
    for (int sender = 1; sender <= senders && !is_sender; sender++)
      MPI_Send(NULL, 0, MPI_BYTE, sender, CREDIT, MPI_COMM_WORLD);
  }
}

static const struct kind {
  const char *variant;
  void (*run)(int);
} kinds[] = {{"posted", posted}, {"any-source", any_source}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};
static const struct kind *kind;

static void open_series(void) {
  epoch++, received = 0, in.next = out.next = 0;
  for (size_t buffer = 0; buffer < out.count && is_sender; buffer++)
    fill(out.memory + buffer * out.stride, (size_t)bytes, key(rank));
  for (size_t buffer = 0; buffer < in.count && !is_sender; buffer++)
    fill(in.memory + buffer * in.stride, (size_t)bytes, key(0));
  if (!is_sender && kind->run == posted) post_window();
}

static void close_series(void) {
  if (kind->run == posted) {
    for (int number = 0; number < window && is_sender; number++)
      MPI_Isend(next_buffer(&out), bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &requests[number]);
    MPI_Waitall(is_sender ? window : senders * window, requests, MPI_STATUSES_IGNORE);
  }
  for (size_t buffer = 0; buffer < received && !is_sender; buffer++) {
    char what[64];
    snprintf(what, sizeof what, "%s, message from rank %d", kind->variant, sources[buffer]);
    check(in.memory + buffer * in.stride, (size_t)bytes, key(sources[buffer]), what);
  }
}

static void measure_one(size_t size) {
  // Idle ranks have not counted the series.
  static uint64_t points;
  epoch = ++points << 32;
  // One buffer for each message in flight.
  if (!fits(kind->variant, size, (uint64_t)size * (uint64_t)(window * senders))) return;
  int participates = rank <= senders;
  is_sender = rank > 0;
  bytes = (int)size;
  if (participates) {
    out = is_sender ? buffers_at_least((size_t)window, size) : (struct buffers){0};
    in = is_sender ? (struct buffers){0} : buffers_at_least((size_t)(window * senders), size);
    requests = allocate((size_t)(window * senders) * sizeof *requests);
    sources = allocate((in.count + 1) * sizeof *sources);
  }
  set_measuring_ranks(participates);
  measure(&(struct pattern){.point = {.variant = kind->variant,
                                      .quantity = "arrival_interval",
                                      .message_bytes = size,
                                      .parameter = "senders",
                                      .parameter_value = senders},
                            .idle = !participates,
                            .timed = !is_sender,
                            .divide_by = 1,
                            .unit = senders * window,
                            .steady = 1,
                            .run = kind->run,
                            .open = open_series,
                            .close = close_series});
  if (!participates) return;
  free_buffers(&out);
  free_buffers(&in);
  free(requests);
  free(sources);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int number = 0; number < KINDS; number++) variants[number] = kinds[number].variant;
  begin(argc, argv,
        &(struct program){
            .name = "incast",
            .summary = "messages of 1, 2, 4, … and all other ranks to rank 0",
            .variants = variants,
            .extras = (struct extra[]){{"window", COUNT, &window_requested, "concurrent messages of a sender (16)"},
                                       {"senders", COUNT, &senders_max, "maximum senders (all other ranks)"},
                                       MEMORY_OPTION,
                                       {0}},
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 2});
  if (window_requested < 1 || window_requested > WINDOW_MAX)
    usage_error("--window must be from 1 to %d, not %" PRId64, WINDOW_MAX, window_requested);
  if (!senders_max) senders_max = ranks - 1;
  if (senders_max > ranks - 1)
    usage_error("--senders %" PRId64 " needs one more rank; there are %d", senders_max, ranks);
  window = (int)window_requested;
  for (int number = 0; number < KINDS; number++) {
    kind = &kinds[number];
    if (!is_selected(kind->variant)) continue;
    for (int size = 0; size < settings.size_count; size++)
      for (int count = 1; count < 2 * senders_max; count *= 2) {
        senders = count < senders_max ? count : (int)senders_max;
        measure_one(settings.sizes[size]);
      }
  }
  finish();
}
