// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "ends.h"

#include <stdio.h>
#include <string.h>

// Key of a buffer's contents, the same in both directions, because an answer may be the received message.
static uint64_t key_at(const struct ends *ends, size_t buffer) {
  return key_of(0, ranks - 1, (uint64_t)ends->bytes << 20 ^ buffer);
}

struct ends open_ends(size_t bytes) {
  struct ends ends = {.bytes = bytes};
  if (!participates()) return ends;
  ends.out = buffers_for(bytes);
  ends.in = buffers_for(bytes);
  for (size_t buffer = 0; buffer < ends.out.count; buffer++)
    fill(ends.out.memory + buffer * ends.out.stride, bytes, key_at(&ends, buffer));
  return ends;
}

void close_ends(struct ends *ends) {
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
