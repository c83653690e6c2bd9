// SPDX-License-Identifier: Apache-2.0 OR MIT
// Exchange: both ranks of a pair send a message and receive one, by each of MPI's methods. blocking-receive is a
// non-blocking send, a blocking receive and the wait for the send, because two blocking sends could deadlock.
#include "common/measure.h"

static struct pair pair;
static struct messages out, in;
static int bytes;

static void blocking_receive(int count) {
  for (int number = 0; number < count; number++) {
    MPI_Request sent;
    MPI_Isend(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &sent);
    MPI_Recv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
  }
}

static void nonblocking_receive_standard(int count) {
  for (int number = 0; number < count; number++) {
    MPI_Request received;
    MPI_Irecv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &received);
    MPI_Send(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
    MPI_Wait(&received, MPI_STATUS_IGNORE);
  }
}

static void nonblocking_receive_synchronous(int count) {
  for (int number = 0; number < count; number++) {
    MPI_Request received;
    MPI_Irecv(next_buffer(&in.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD, &received);
    MPI_Ssend(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, MPI_COMM_WORLD);
    MPI_Wait(&received, MPI_STATUS_IGNORE);
  }
}

static void sendrecv(int count) {
  for (int number = 0; number < count; number++)
    MPI_Sendrecv(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, next_buffer(&in.buffers), bytes, MPI_BYTE,
                 pair.partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void sendrecv_replace(int count) {
  for (int number = 0; number < count; number++)
    MPI_Sendrecv_replace(next_buffer(&out.buffers), bytes, MPI_BYTE, pair.partner, 0, pair.partner, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
}

static const struct {
  const char *variant;
  void (*run)(int);
} kinds[] = {{"blocking-receive", blocking_receive},
             {"nonblocking-receive-standard", nonblocking_receive_standard},
             {"nonblocking-receive-synchronous", nonblocking_receive_synchronous},
             {"sendrecv", sendrecv},
             {"sendrecv-replace", sendrecv_replace}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};

static void measure_size(size_t size) {
  bytes = (int)size;
  out = messages_for(size, 1, &pair.partner, 1);
  in = messages_for(size, 1, &pair.partner, 1);
  for (int kind = 0; kind < KINDS; kind++)
    if (is_selected(kinds[kind].variant))
      measure(&(struct pattern){
          .point = {.variant = kinds[kind].variant, .quantity = "exchange", .message_bytes = size, .pairs = pair.count},
          .idle = pair.idle,
          .timed = 1,
          .divide_by = 1,
          .unit = 1,
          .steady = pair.steady,
          .run = kinds[kind].run,
          .out = &out,
          .in = kinds[kind].run == sendrecv_replace ? &out : &in});
  free_messages(&out);
  free_messages(&in);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int kind = 0; kind < KINDS; kind++) variants[kind] = kinds[kind].variant;
  begin(argc, argv,
        &(struct program){.name = "exchange",
                          .summary = "both ranks of a pair send and receive, by each of MPI's methods",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .needs_even_ranks = 1});
  pair = join_pairs();
  for (int number = 0; number < settings.size_count; number++) measure_size(settings.sizes[number]);
  finish();
}
