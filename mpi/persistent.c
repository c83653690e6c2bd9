// SPDX-License-Identifier: Apache-2.0 OR MIT
// Persistent operations: both ranks of a pair send and receive --messages messages, by requests that are created once,
// outside the timed region. isend: MPI_Irecv and MPI_Isend of each, for comparison. start: MPI_Start of each. startall:
// one MPI_Startall. All wait by one MPI_Waitall. The number of a message is its tag, because MPI_Startall may start
// requests in any order.
#include <stdlib.h>

#include "common/measure.h"

enum {
  MESSAGES_MAX = 256
};

static struct pair pair;
static int64_t messages = 8;
static struct messages out, in;
static int bytes, message_count;
static int peers[MESSAGES_MAX], numbers[MESSAGES_MAX];
static MPI_Request requests[2 * MESSAGES_MAX];  // receives, then sends

static unsigned char *at(struct messages *of, int number) {
  return of->buffers.memory + (size_t)number * (size_t)bytes;
}

static void isend(int count) {
  for (int done = 0; done < count; done++) {
    for (int number = 0; number < message_count; number++)
      MPI_Irecv(at(&in, number), bytes, MPI_BYTE, pair.partner, number, MPI_COMM_WORLD, &requests[number]);
    for (int number = 0; number < message_count; number++)
      MPI_Isend(at(&out, number), bytes, MPI_BYTE, pair.partner, number, MPI_COMM_WORLD,
                &requests[message_count + number]);
    MPI_Waitall(2 * message_count, requests, MPI_STATUSES_IGNORE);
  }
}

static void start(int count) {
  for (int done = 0; done < count; done++) {
    for (int number = 0; number < 2 * message_count; number++) MPI_Start(&requests[number]);
    MPI_Waitall(2 * message_count, requests, MPI_STATUSES_IGNORE);
  }
}

static void startall(int count) {
  for (int done = 0; done < count; done++) {
    MPI_Startall(2 * message_count, requests);
    MPI_Waitall(2 * message_count, requests, MPI_STATUSES_IGNORE);
  }
}

static void make_requests(void) {
  for (int number = 0; number < message_count; number++) {
    MPI_Recv_init(at(&in, number), bytes, MPI_BYTE, pair.partner, number, MPI_COMM_WORLD, &requests[number]);
    MPI_Send_init(at(&out, number), bytes, MPI_BYTE, pair.partner, number, MPI_COMM_WORLD,
                  &requests[message_count + number]);
  }
}

static void free_requests(void) {
  for (int number = 0; number < 2 * message_count; number++) MPI_Request_free(&requests[number]);
}

static const struct kind {
  const char *variant;
  void (*run)(int);
} kinds[] = {{"isend", isend}, {"start", start}, {"startall", startall}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static void measure_one(const struct kind *kind, size_t size) {
  if (!is_selected(kind->variant) || !fits(kind->variant, size, 2 * size * (uint64_t)messages)) return;
  bytes = (int)size;
  out = messages_for(size, message_count, peers, 1);
  in = messages_for(size, message_count, peers, 1);
  out.numbers = in.numbers = numbers;
  int persistent = kind->run != isend;
  measure(&(struct pattern){.point = {.variant = kind->variant,
                                      .quantity = "exchange",
                                      .message_bytes = size,
                                      .pairs = pair.count,
                                      .parameter = "messages",
                                      .parameter_value = message_count},
                            .idle = pair.idle,
                            .timed = 1,
                            .divide_by = 1,
                            .unit = 1,
                            .steady = pair.steady,
                            .run = kind->run,
                            .open = persistent ? make_requests : NULL,
                            .close = persistent ? free_requests : NULL,
                            .out = &out,
                            .in = &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int kind = 0; kind < KINDS; kind++) variants[kind] = kinds[kind].variant;
  begin(argc, argv,
        &(struct program){
            .name = "persistent",
            .summary = "messages in both directions by persistent requests",
            .variants = variants,
            .extras = (struct extra[]){PAIRS_OPTION,
                                       {"messages", COUNT, &messages, "messages per direction in an exchange (8)"},
                                       MEMORY_OPTION,
                                       {0}},
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 2,
            .needs_even_ranks = 1});
  if (messages < 1 || messages > MESSAGES_MAX)
    usage_error("--messages must be from 1 to %d, not %" PRId64, MESSAGES_MAX, messages);
  if (settings.walk_bytes) usage_error("--walk-bytes does not apply to persistent requests: each has a fixed buffer");
  pair = join_pairs();
  message_count = (int)messages;
  for (int number = 0; number < message_count; number++) peers[number] = pair.partner, numbers[number] = number;
  for (int kind = 0; kind < KINDS; kind++)
    for (int size = 0; size < settings.size_count; size++) measure_one(&kinds[kind], settings.sizes[size]);
  finish();
}
