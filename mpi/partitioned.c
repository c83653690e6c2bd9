// SPDX-License-Identifier: Apache-2.0 OR MIT
// Half a round trip of partitioned messages (MPI 4): MPI_Start, MPI_Pready of each partition, MPI_Wait against
// MPI_Start, MPI_Wait, and back. whole: the same by MPI_Send_init and MPI_Recv_init. Requests are created once, outside
// the timed region; a receive is started before its message can be sent.
#include "common/measure.h"

// Open MPI 5 supports them, although it declares MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAVE_PARTITIONED 1
#else
#define HAVE_PARTITIONED 0
#endif

static const struct kind {
  const char *variant;
  int partitions;  // 0: not partitioned
} kinds[] = {{"whole", 0}, {"partitions-1", 1}, {"partitions-8", 8}, {"partitions-64", 64}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static const struct kind *kind;
static struct pair pair;
static struct messages out, in;
static MPI_Request sending, receiving;

static void send_one(void) {
  MPI_Start(&sending);
#if HAVE_PARTITIONED
  for (int partition = 0; partition < kind->partitions; partition++) MPI_Pready(partition, sending);
#endif
  MPI_Wait(&sending, MPI_STATUS_IGNORE);
}

static void pingpong(int count) {
  for (int number = 0; number < count && pair.first; number++) {
    MPI_Start(&receiving);
    send_one();
    MPI_Wait(&receiving, MPI_STATUS_IGNORE);
  }
  for (int number = 0; number < count && !pair.first; number++) {
    MPI_Wait(&receiving, MPI_STATUS_IGNORE);
    MPI_Start(&receiving);
    send_one();
  }
}

static void make_requests(void) {
  void *from = out.buffers.memory, *to = in.buffers.memory;
  int bytes = (int)out.bytes;
  if (!kind->partitions) {
    MPI_Send_init(from, bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &sending);
    MPI_Recv_init(to, bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &receiving);
  }
#if HAVE_PARTITIONED
  if (kind->partitions) {
    int part = bytes / kind->partitions;
    MPI_Psend_init(from, kind->partitions, part, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &sending);
    MPI_Precv_init(to, kind->partitions, part, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receiving);
  }
#endif
  if (!pair.first) MPI_Start(&receiving);
}

// Matches the last receive of the second rank, which is still posted.
static void free_requests(void) {
  if (pair.first) send_one();
  else MPI_Wait(&receiving, MPI_STATUS_IGNORE);
  MPI_Request_free(&sending);
  MPI_Request_free(&receiving);
}

static void measure_one(size_t size) {
  const char *variant = kind->variant;
  if (!is_selected(variant) || !fits(variant, size, 2 * size)) return;
  if (kind->partitions && size % (size_t)kind->partitions) {
    leave_out(variant, size, "its messages are multiples of %d bytes", kind->partitions);
    return;
  }
  out = messages_for(size, 1, &pair.partner, 1);
  in = messages_for(size, 1, &pair.partner, 1);
  measure(&(struct pattern){
      .point = {.variant = variant, .quantity = "half_round_trip", .message_bytes = size, .pairs = pair.count},
      .idle = pair.idle,
      .timed = pair.first,
      .divide_by = 2,
      .unit = 1,
      .steady = pair.steady,
      .run = pingpong,
      .open = make_requests,
      .close = free_requests,
      .out = &out,
      .in = &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int number = 0; number < KINDS; number++) variants[number] = kinds[number].variant;
  begin(argc, argv,
        &(struct program){.name = "partitioned",
                          .summary = "half a round trip of partitioned messages, and of whole ones",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, MEMORY_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .needs_even_ranks = 1});
  if (settings.walk_bytes) usage_error("--walk-bytes does not apply to persistent requests: each has a fixed buffer");
  pair = join_pairs();
  for (int number = 0; number < KINDS; number++) {
    kind = &kinds[number];
    if (kind->partitions && !HAVE_PARTITIONED) {
      if (is_selected(kind->variant))
        leave_out(kind->variant, 0, "this library has MPI %d.%d; partitioned messages need MPI 4", MPI_VERSION,
                  MPI_SUBVERSION);
      continue;
    }
    for (int size = 0; size < settings.size_count; size++) measure_one(settings.sizes[size]);
  }
  finish();
}
