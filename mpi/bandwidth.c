// SPDX-License-Identifier: Apache-2.0 OR MIT
// Bandwidth with a queue, after Stival 2006: the first rank of each pair starts Q messages, and as many more whenever
// half of them are complete; the second posts its receives likewise. A one-byte reply, within the timed region,
// confirms that all data has arrived. queue-Q: whole messages. pieces-Q: each message is cut into Q pieces, and Q
// pieces are in flight. blocking: one message after another by blocking calls.
#include "common/measure.h"

enum {
  DEPTH_MAX = 8,
  BLOCKING = 0
};

static const struct kind {
  const char *variant;
  int depth;   // requests in flight
  int pieces;  // of each message
} kinds[] = {{"blocking", BLOCKING, 1}, {"queue-1", 1, 1},  {"queue-2", 2, 1},  {"queue-4", 4, 1},
             {"queue-8", DEPTH_MAX, 1}, {"pieces-2", 2, 2}, {"pieces-4", 4, 4}, {"pieces-8", DEPTH_MAX, 8}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static struct pair pair;
static struct messages out, in;
static int bytes;
static const struct kind *kind;
static int
    offsets[DEPTH_MAX + 1];  // of the pieces in a message, which differ in length by at most a byte; then its end

static void reply(void) {
  char reply_byte = 0;
  if (pair.first) MPI_Recv(&reply_byte, 1, MPI_BYTE, pair.partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else MPI_Send(&reply_byte, 1, MPI_BYTE, pair.partner, 1, MPI_COMM_WORLD);
}

static void blocking(int count) {
  for (int number = 0; number < count && pair.first; number++)
    MPI_Send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
  for (int number = 0; number < count && !pair.first; number++)
    MPI_Recv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  reply();
}

// Starts the next piece, of the current message or of the next one.
static void start(MPI_Request *request) {
  static unsigned char *message;
  static int piece;
  if (!piece) message = next_buffer(pair.first ? &out.buffers : &in.buffers);
  unsigned char *data = message + offsets[piece];
  int length = offsets[piece + 1] - offsets[piece];
  if (++piece == kind->pieces) piece = 0;
  if (pair.first) MPI_Isend(data, length, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, request);
  else MPI_Irecv(data, length, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, request);
}

// Waits for the older half: messages of a pair normally complete in order, although MPI does not require it.
static void queue(int count) {
  MPI_Request requests[DEPTH_MAX];
  int depth = kind->depth, half = depth > 1 ? depth / 2 : 1, started = 0;
  count *= kind->pieces;
  for (; started < depth; started++) start(&requests[started]);
  for (int complete = 0; complete < count; complete += half) {
    MPI_Waitall(half, &requests[complete % depth], MPI_STATUSES_IGNORE);
    for (int more = 0; more < half && started < count; more++, started++) start(&requests[started % depth]);
  }
  reply();
}

static void measure_kind(size_t size) {
  if (size < (size_t)kind->pieces && kind->pieces > 1) {
    leave_out(kind->variant, size, "%d pieces need %d bytes", kind->pieces, kind->pieces);
    return;
  }
  for (int piece = 0; piece <= kind->pieces; piece++) offsets[piece] = (int)((int64_t)bytes * piece / kind->pieces);
  measure(&(struct pattern){
      .point = {.variant = kind->variant, .quantity = "send_interval", .message_bytes = size, .pairs = pair.count},
      .idle = pair.idle,
      .timed = pair.first,
      .divide_by = 1,
      .unit = kind->depth == BLOCKING ? 1 : kind->depth / kind->pieces,
      .steady = 1,
      .run = kind->depth == BLOCKING ? blocking : queue,
      .out = pair.first ? &out : NULL,
      .in = pair.first ? NULL : &in});
}

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, DEPTH_MAX);
  in = messages_for(size, 1, &pair.partner, DEPTH_MAX);
  for (kind = kinds; kind < kinds + KINDS; kind++)
    if (is_selected(kind->variant)) measure_kind(size);
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int number = 0; number < KINDS; number++) variants[number] = kinds[number].variant;
  begin(argc, argv,
        &(struct program){
            .name = "bandwidth",
            .summary = "one-way messages with a fixed number in flight, timed to the reply that all arrived",
            .variants = variants,
            .extras = (struct extra[]){PAIRS_OPTION, {0}},
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 2,
            .needs_even_ranks = 1});
  pair = join_pairs();
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  finish();
}
