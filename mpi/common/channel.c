// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "channel.h"

#include <string.h>

// Of what lies in a buffer, whichever way it goes: an answer may be what was received.
static uint64_t key_at(const struct channel *channel, size_t buffer) {
  return key_of(0, ranks - 1, (uint64_t)channel->bytes << 20 ^ buffer);
}

struct channel open_channel(size_t bytes) {
  struct channel channel = {.bytes = bytes};
  if (!takes_part()) return channel;
  channel.out = buffers_for(bytes);
  channel.in = buffers_for(bytes);
  for (size_t buffer = 0; buffer < channel.out.count; buffer++)
    fill(channel.out.memory + buffer * channel.out.stride, bytes, key_at(&channel, buffer));
  return channel;
}

void close_channel(struct channel *channel) {
  free_buffers(&channel->out);
  free_buffers(&channel->in);
}

void check_channel(struct channel *channel, int received) {
  const struct buffers *in = &channel->in;
  size_t used = (size_t)received < in->count ? (size_t)received : in->count;
  for (size_t back = 1; back <= used; back++) {
    size_t buffer = (in->next + in->count - back) % in->count;
    unsigned char *data = in->memory + buffer * in->stride;
    check(data, channel->bytes, key_at(channel, buffer), "message");
    memset(data, 0, channel->bytes);
  }
}
