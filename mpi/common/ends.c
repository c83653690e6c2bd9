// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "ends.h"

#include <stdio.h>
#include <string.h>

// Key of a buffer's contents, the same in both directions, because an answer may be the received message.
static uint64_t key_at(const struct ends *ends, size_t buffer) {
  return key_of(0, ranks - 1, (uint64_t)ends->bytes << 20 ^ buffer);
}

struct ends open_ends(size_t bytes, const struct mode *mode, int posted) {
  struct ends ends = {.bytes = bytes, .mode = mode, .posted = posted};
  if (!participates()) return ends;
  attach_buffer(mode, bytes);
  ends.out = buffers_at_least((size_t)posted + 1, bytes);
  ends.in = buffers_at_least((size_t)posted + 1, bytes);
  for (size_t buffer = 0; buffer < ends.out.count; buffer++)
    fill(ends.out.memory + buffer * ends.out.stride, bytes, key_at(&ends, buffer));
  return ends;
}

void close_ends(struct ends *ends) {
  if (participates()) detach_buffer(ends->mode);
  free_buffers(&ends->out);
  free_buffers(&ends->in);
}

void check_received(struct ends *ends, const char *variant, int received) {
  const struct buffers *in = &ends->in;
  char what[128];
  snprintf(what, sizeof what, "%s, message from rank %d", variant, other_rank());
  size_t used = (size_t)received < in->count ? (size_t)received : in->count;
  for (size_t back = 1; back <= used; back++) {
    size_t buffer = (in->next + in->count - back) % in->count;
    unsigned char *data = in->memory + buffer * in->stride;
    check(data, ends->bytes, key_at(ends, buffer), what);
    memset(data, 0, ends->bytes);
  }
}

static void post(struct ends *ends, struct receives *receives, int at) {
  if (!receives->left) return;
  receives->left--;
  receives->data[at] = next_buffer(&ends->in);
  MPI_Irecv(receives->data[at], (int)ends->bytes, MPI_BYTE, other_rank(), MESSAGE, MPI_COMM_WORLD,
            &receives->requests[at]);
}

struct receives begin_receiving(struct ends *ends, int number) {
  struct receives receives = {.left = number};
  if (rank == 0) {
    await_ready();
    return receives;
  }
  for (int at = 0; at < ends->posted; at++) post(ends, &receives, at);
  send_ready();
  return receives;
}

unsigned char *receive_next(struct ends *ends, struct receives *receives) {
  if (!ends->posted) {
    unsigned char *data = next_buffer(&ends->in);
    MPI_Recv(data, (int)ends->bytes, MPI_BYTE, other_rank(), MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return data;
  }
  int at = receives->next;
  unsigned char *data = receives->data[at];
  MPI_Wait(&receives->requests[at], MPI_STATUS_IGNORE);
  post(ends, receives, at);
  receives->next = (at + 1) % ends->posted;
  return data;
}
