// SPDX-License-Identifier: Apache-2.0 OR MIT
// FI_EP_DGRAM: one frame per message, without retransmission.
#include <errno.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b, to_a;

static void open_both(struct options options) {
  options.type = FI_EP_DGRAM;
  options.caps = FI_MSG | FI_SOURCE;
  node_open(&a, options);
  node_open(&b, options);
  to_b = node_add_peer(&a, &b);
  to_a = node_add_peer(&b, &a);
}

static void close_both(void) {
  node_close(&a);
  node_close(&b);
}

// An endpoint that has received from a peer before it sends to it for the first time.
static void a_reply_reaches_who_was_heard_first(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  char in[8];
  for (int round = 0; round < 3; round++) {
    OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
    OK(fi_inject(a.ep, "question", 8, to_b));
    CHECK(next_success(&b).source == to_a && !memcmp(in, "question", 8));
    OK(fi_recv(a.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
    OK(fi_inject(b.ep, "answer", 7, to_a));
    CHECK(next_success(&a).source == to_b && !strcmp(in, "answer"));
  }
  close_both();
}

static void datagrams_of_any_length(char **arguments) {
  (void)arguments;
  open_both((struct options){.has_counters = 1});
  size_t max_bytes = a.info->ep_attr->max_msg_size;
  CHECK(max_bytes > 1000 && max_bytes < 10000, "%zu", max_bytes);
  static char out[10000], in[10000];
  const size_t lengths[] = {0, 1, 20, 45, 46, 1000, max_bytes};
  for (int i = 0; i < 7; i++) {
    size_t length = lengths[i];
    fill(out, length, i);
    memset(in, 0x55, sizeof in);
    OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
    OK(fi_send(a.ep, out, length, NULL, to_b, out));
    CHECK(next_success(&a).entry.op_context == out);
    struct completion completion = next_success(&b);
    CHECK(completion.entry.len == length && completion.source == to_a && completion.entry.op_context == in, "%zu",
          completion.entry.len);
    CHECK(is_filled(in, length, i) && in[length] == 0x55);
  }
  // From an I/O vector, and injected.
  struct iovec parts[] = {{out, 100}, {out + 100, 0}, {out + 100, 200}};
  OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_sendv(a.ep, parts, NULL, 3, to_b, out));
  next_success(&a);
  CHECK(next_success(&b).entry.len == 300 && !memcmp(in, out, 300));
  OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_inject(a.ep, out, 50, to_b));
  CHECK(next_success(&b).entry.len == 50);
  expect_idle(&a, 0.02);
  CHECK(fi_cntr_read(a.sent) == 9 && fi_cntr_read(b.received) == 9);
  EXPECT(-EMSGSIZE, fi_send(a.ep, out, max_bytes + 100, NULL, to_b, out));
  EXPECT(-FI_EOPNOTSUPP, fi_tsend(a.ep, out, 8, NULL, to_b, 1, out));
  EXPECT(-FI_EOPNOTSUPP, fi_senddata(a.ep, out, 8, NULL, 1, to_b, out));
  EXPECT(-FI_EOPNOTSUPP, fi_write(a.ep, out, 8, NULL, to_b, 0, 0, out));
  // Truncated, cancelled.
  OK(fi_recv(b.ep, in, 10, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_inject(a.ep, out, 50, to_b));
  struct completion completion = next_error(&b, FI_ETRUNC);
  CHECK(completion.entry.len == 10 && completion.overflow == 40);
  OK(fi_recv(b.ep, in, 10, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_cancel(&b.ep->fid, in));
  next_error(&b, FI_ECANCELED);
  close_both();
}

// Without a receive, datagrams are dropped; neither the sender nor the receiving process blocks.
static void datagrams_without_a_receive(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  enum {
    SENT = 5000
  };
  uint64_t number;
  for (number = 0; number < SENT; number++) POST(fi_inject(a.ep, &number, sizeof number, to_b));
  expect_idle(&b, 0.05);
  // Some were held, and arrive in any order, each at most once.
  uint64_t in[SENT];
  char has_arrived[SENT] = {0};
  size_t received = 0;
  for (size_t i = 0; i < SENT; i++) OK(fi_recv(b.ep, &in[i], 8, NULL, FI_ADDR_UNSPEC, &in[i]));
  for (double until = now_s() + 0.2; now_s() < until; make_progress())
    while (b.count) {
      uint64_t *got = next_success(&b).entry.op_context;
      CHECK(*got < SENT && !has_arrived[*got]);
      has_arrived[*got] = 1;
      received++;
    }
  CHECK(received > 0 && received < SENT, "%zu", received);
  // With a receive posted, the next one arrives.
  number = SENT;
  OK(fi_inject(a.ep, &number, sizeof number, to_b));
  CHECK(*(uint64_t *)next_success(&b).entry.op_context == SENT);
  close_both();
}

// To a closed endpoint, or to one with another token: the sender gets no error and does not block.
static void datagrams_to_unreachable_endpoints(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_TOKEN", "1234", 1);
  open_both((struct options){0});
  setenv("FI_BAREWIRE_TOKEN", "4321", 1);
  struct node intruder;
  node_open(&intruder, (struct options){.type = FI_EP_DGRAM});
  fi_addr_t victim = node_add_victim(&intruder, &b);
  uint64_t in;
  OK(fi_recv(b.ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, &in));
  for (int round = 0; round < 10; round++) {
    POST(fi_inject(intruder.ep, "intruder", 8, victim));
    expect_idle(&b, 0.01);
  }
  node_close(&intruder);
  uint64_t number = 7;
  OK(fi_inject(a.ep, &number, sizeof number, to_b));
  next_success(&b);
  CHECK(in == 7);
  OK(fi_close(&b.ep->fid));
  for (int round = 0; round < 1000; round++) POST(fi_inject(a.ep, &number, sizeof number, to_b));
  OK(fi_endpoint(b.domain, b.info, &b.ep, NULL));
  close_both();
}

const struct test datagram_cases[] = {
    {"a_reply_reaches_who_was_heard_first", a_reply_reaches_who_was_heard_first},
    {"datagrams_of_any_length", datagrams_of_any_length},
    {"datagrams_without_a_receive", datagrams_without_a_receive},
    {"datagrams_to_unreachable_endpoints", datagrams_to_unreachable_endpoints},
    {NULL, NULL},
};
