// SPDX-License-Identifier: Apache-2.0 OR MIT
// FI_EP_DGRAM: a frame each, which may be lost.
#include <errno.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b, to_a;

static void open_both(struct wish wish) {
  wish.type = FI_EP_DGRAM;
  wish.caps = FI_MSG | FI_SOURCE;
  node_open(&a, wish);
  node_open(&b, wish);
  to_b = node_know(&a, &b);
  to_a = node_know(&b, &a);
}

static void close_both(void) {
  node_close(&a);
  node_close(&b);
}

static void datagrams_of_any_length(char **arguments) {
  (void)arguments;
  open_both((struct wish){.has_counters = 1});
  size_t most = a.info->ep_attr->max_msg_size;
  CHECK(most > 1000 && most < 10000, "%zu", most);
  static char out[10000], in[10000];
  const size_t lengths[] = {0, 1, 20, 45, 46, 1000, most};
  for (int place = 0; place < 7; place++) {
    size_t length = lengths[place];
    fill(out, length, place);
    memset(in, 0x55, sizeof in);
    WORKS(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
    WORKS(fi_send(a.ep, out, length, NULL, to_b, out));
    CHECK(next(&a).entry.op_context == out);
    struct ended ended = next(&b);
    CHECK(ended.entry.len == length && ended.source == to_a && ended.entry.op_context == in, "%zu", ended.entry.len);
    CHECK(is_filled(in, length, place) && in[length] == 0x55);
  }
  // In parts, and injected.
  struct iovec parts[] = {{out, 100}, {out + 100, 0}, {out + 100, 200}};
  WORKS(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  WORKS(fi_sendv(a.ep, parts, NULL, 3, to_b, out));
  next(&a);
  CHECK(next(&b).entry.len == 300 && !memcmp(in, out, 300));
  WORKS(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  WORKS(fi_inject(a.ep, out, 50, to_b));
  CHECK(next(&b).entry.len == 50);
  nothing(&a, 0.02);
  CHECK(fi_cntr_read(a.sent) == 9 && fi_cntr_read(b.received) == 9);
  GIVES(-EMSGSIZE, fi_send(a.ep, out, most + 100, NULL, to_b, out));
  GIVES(-FI_EOPNOTSUPP, fi_tsend(a.ep, out, 8, NULL, to_b, 1, out));
  GIVES(-FI_EOPNOTSUPP, fi_senddata(a.ep, out, 8, NULL, 1, to_b, out));
  GIVES(-FI_EOPNOTSUPP, fi_write(a.ep, out, 8, NULL, to_b, 0, 0, out));
  // Cut, cancelled.
  WORKS(fi_recv(b.ep, in, 10, NULL, FI_ADDR_UNSPEC, in));
  WORKS(fi_inject(a.ep, out, 50, to_b));
  struct ended ended = next_error(&b, FI_ETRUNC);
  CHECK(ended.entry.len == 10 && ended.lost == 40);
  WORKS(fi_recv(b.ep, in, 10, NULL, FI_ADDR_UNSPEC, in));
  WORKS(fi_cancel(&b.ep->fid, in));
  next_error(&b, FI_ECANCELED);
  close_both();
}

// Who posts no receive loses what comes, and stops nobody: neither the sender nor its own process.
static void datagrams_that_nobody_awaits(char **arguments) {
  (void)arguments;
  open_both((struct wish){0});
  enum {
    SENT = 5000
  };
  uint64_t number;
  for (number = 0; number < SENT; number++) POSTS(fi_inject(a.ep, &number, sizeof number, to_b));
  nothing(&b, 0.05);
  // Some were held, the oldest; they come in order, and then there is no more.
  uint64_t in[SENT], last = 0;
  size_t received = 0;
  for (size_t place = 0; place < SENT; place++) WORKS(fi_recv(b.ep, &in[place], 8, NULL, FI_ADDR_UNSPEC, &in[place]));
  for (double until = now_s() + 0.2; now_s() < until; turn())
    while (b.count) {
      uint64_t *got = next(&b).entry.op_context;
      CHECK(received == 0 || *got > last);
      last = *got;
      received++;
    }
  CHECK(received > 0 && received < SENT, "%zu", received);
  // And now again every one.
  number = SENT;
  WORKS(fi_inject(a.ep, &number, sizeof number, to_b));
  CHECK(*(uint64_t *)next(&b).entry.op_context == SENT);
  close_both();
}

// Nobody is there, or somebody with another token: the sender is not told, and not stopped.
static void datagrams_to_nobody(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_TOKEN", "1234", 1);
  open_both((struct wish){0});
  setenv("FI_BAREWIRE_TOKEN", "4321", 1);
  struct node stranger;
  node_open(&stranger, (struct wish){.type = FI_EP_DGRAM});
  fi_addr_t victim = node_know(&stranger, &b);
  uint64_t in;
  WORKS(fi_recv(b.ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, &in));
  for (int turns = 0; turns < 10; turns++) {
    POSTS(fi_inject(stranger.ep, "stranger", 8, victim));
    nothing(&b, 0.01);
  }
  node_close(&stranger);
  uint64_t number = 7;
  WORKS(fi_inject(a.ep, &number, sizeof number, to_b));
  next(&b);
  CHECK(in == 7);
  WORKS(fi_close(&b.ep->fid));
  for (int turns = 0; turns < 1000; turns++) POSTS(fi_inject(a.ep, &number, sizeof number, to_b));
  WORKS(fi_endpoint(b.domain, b.info, &b.ep, NULL));
  close_both();
}

const struct test datagram_cases[] = {
    {"datagrams_of_any_length", datagrams_of_any_length},
    {"datagrams_that_nobody_awaits", datagrams_that_nobody_awaits},
    {"datagrams_to_nobody", datagrams_to_nobody},
    {NULL, NULL},
};
