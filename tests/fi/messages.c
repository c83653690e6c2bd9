// SPDX-License-Identifier: Apache-2.0 OR MIT
// Messages between two endpoints of this process, and of one with itself.
#include <errno.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b, to_a;

static void open_both(struct wish wish) {
  node_open(&a, wish);
  node_open(&b, wish);
  to_b = node_know(&a, &b);
  to_a = node_know(&b, &a);
}

static void close_both(void) {
  node_close(&a);
  node_close(&b);
}

static void with_itself_and_another(char **arguments) {
  (void)arguments;
  open_both((struct wish){0});
  fi_addr_t to_itself = node_know(&a, &a);
  static const size_t lengths[] = {0, 1, 8, 1000, 16384, 16385, 100000, 1 << 20, (16 << 20) + 3};
  char *out = malloc(32 << 20), *in = malloc(32 << 20);
  for (size_t place = 0; place < sizeof lengths / sizeof *lengths; place++)
    for (int is_itself = 0; is_itself < 2; is_itself++) {
      struct node *receiver = is_itself ? &a : &b;
      size_t length = lengths[place];
      fill(out, length, place);
      memset(in, 0, length);
      WORKS(fi_trecv(receiver->ep, in, length, NULL, FI_ADDR_UNSPEC, place, 0, in));
      WORKS(fi_tsend(a.ep, out, length, NULL, is_itself ? to_itself : to_b, place, out));
      int has_sent = 0, has_received = 0;
      while (!has_sent || !has_received) {
        struct ended ended = next(has_sent ? receiver : &a);
        has_sent |= ended.entry.op_context == out;
        if (ended.entry.op_context == in) {
          has_received = 1;
          CHECK(ended.entry.len == length && ended.entry.tag == place && ended.entry.flags & FI_TAGGED);
        }
      }
      CHECK(is_filled(in, length, place), "%zu bytes to %s", length, is_itself ? "itself" : "the other");
    }
  free(out);
  free(in);
  close_both();
}

// Sends until there is no room, without a receive; then all that was taken arrives, in order.
static void nothing_is_lost_when_there_is_no_room(char **arguments) {
  (void)arguments;
  open_both((struct wish){0});
  enum {
    LENGTH = 1000,
    MOST = 2 << 20
  };
  char out[LENGTH], in[LENGTH];
  size_t sent = 0;
  double taken = now_s();
  while (sent < MOST && now_s() < taken + 0.5) {
    fill(out, LENGTH, sent);
    long status = fi_tinject(a.ep, out, LENGTH, to_b, sent);
    CHECK(status == 0 || status == -FI_EAGAIN, "%ld", status);
    if (status == 0) {
      sent++;
      taken = now_s();
    }
    turn();
  }
  CHECK(sent >= a.info->tx_attr->size && sent < MOST, "%zu", sent);
  for (size_t place = 0; place < sent; place++) {
    WORKS(fi_trecv(b.ep, in, LENGTH, NULL, to_a, 0, UINT64_MAX, NULL));
    struct ended ended = next(&b);
    CHECK(ended.entry.tag == place && ended.entry.len == LENGTH && is_filled(in, LENGTH, place), "%zu: tag %lu", place,
          (unsigned long)ended.entry.tag);
  }
  nothing(&a, 0.05);
  nothing(&b, 0.05);
  // And now there is room again.
  WORKS(fi_tinject(a.ep, out, LENGTH, to_b, 1));
  close_both();
}

static void receives_have_an_end_too(char **arguments) {
  (void)arguments;
  open_both((struct wish){0});
  size_t posted = 0;
  long status = 0;
  char in[8];
  while (posted < 2 << 20 && !(status = fi_trecv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, posted, 0, NULL))) posted++;
  CHECK(status == -FI_EAGAIN && posted >= b.info->rx_attr->size, "%zu, %ld", posted, status);
  // Some of them: the last, and those between.
  enum {
    STRIDE = 100
  };
  for (size_t place = posted - 1; place > STRIDE; place -= STRIDE) {
    WORKS(fi_tinject(a.ep, &place, sizeof place, to_b, place));
    CHECK(next(&b).entry.tag == place);
  }
  close_both();
}

static void what_is_too_long_is_cut(char **arguments) {
  (void)arguments;
  open_both((struct wish){0});
  enum {
    LONG = 100000,
    SHORT = 10
  };
  static char out[LONG], in[LONG];
  static const size_t lengths[] = {SHORT + 1, 1000, LONG};
  fill(out, LONG, 1);
  for (int is_expected = 0; is_expected < 2; is_expected++)
    for (int place = 0; place < 3; place++) {
      memset(in, 0x55, LONG);
      if (is_expected) WORKS(fi_trecv(b.ep, in, SHORT, NULL, to_a, 5, 0, in));
      WORKS(fi_tsend(a.ep, out, lengths[place], NULL, to_b, 5, out));
      if (!is_expected) {
        nothing(&b, 0.02);
        WORKS(fi_trecv(b.ep, in, SHORT, NULL, to_a, 5, 0, in));
      }
      struct ended ended = next_error(&b, FI_ETRUNC);
      CHECK(ended.entry.op_context == in && ended.entry.len == SHORT && ended.lost == lengths[place] - SHORT,
            "len %zu, lost %zu", ended.entry.len, ended.lost);
      CHECK(!memcmp(in, out, SHORT) && in[SHORT] == 0x55);
      next(&a);
    }
  // The next message is whole.
  WORKS(fi_trecv(b.ep, in, LONG, NULL, to_a, 6, 0, in));
  WORKS(fi_tsend(a.ep, out, LONG, NULL, to_b, 6, out));
  CHECK(next(&b).entry.len == LONG && is_filled(in, LONG, 1));
  close_both();
}

static void what_is_cancelled_ends(char **arguments) {
  (void)arguments;
  open_both((struct wish){0});
  char in[2][8];
  WORKS(fi_trecv(b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, in[0]));
  WORKS(fi_recv(b.ep, in[1], 8, NULL, FI_ADDR_UNSPEC, in[1]));
  WORKS(fi_cancel(&b.ep->fid, in[0]));
  CHECK(next_error(&b, FI_ECANCELED).entry.op_context == in[0]);
  WORKS(fi_inject(a.ep, "message", 8, to_b));
  CHECK(next(&b).entry.op_context == in[1] && !strcmp(in[1], "message"));
  CHECK(fi_cancel(&b.ep->fid, in[1]) == -FI_ENOENT);
  nothing(&b, 0.02);
  close_both();
}

static long peek(uint64_t tag, uint64_t flags, void *context, void *to, size_t bytes) {
  struct iovec part = {to, bytes};
  struct fi_msg_tagged message = {
      .msg_iov = &part, .iov_count = bytes ? 1 : 0, .addr = FI_ADDR_UNSPEC, .tag = tag, .context = context};
  return fi_trecvmsg(b.ep, &message, flags);
}

static void peek_claim_and_discard(char **arguments) {
  (void)arguments;
  open_both((struct wish){0});
  static char out[50000], in[50000];
  static const size_t lengths[] = {10, sizeof out};
  for (int place = 0; place < 2; place++) {
    size_t length = lengths[place];
    struct fi_context claimed;
    fill(out, length, place);
    WORKS(peek(3, FI_PEEK, &claimed, NULL, 0));
    next_error(&b, FI_ENOMSG);
    for (uint64_t tag = 3; tag < 6; tag++) POSTS(fi_tsend(a.ep, out, length, NULL, to_b, tag, out));
    nothing(&b, 0.05);
    WORKS(peek(3, FI_PEEK, &claimed, NULL, 0));
    struct ended ended = next(&b);
    CHECK(ended.entry.len == length && ended.entry.tag == 3, "%zu", ended.entry.len);
    // Claimed: no other receive gets it.
    WORKS(peek(3, FI_PEEK | FI_CLAIM, &claimed, NULL, 0));
    next(&b);
    WORKS(peek(3, FI_PEEK, in, NULL, 0));
    next_error(&b, FI_ENOMSG);
    WORKS(peek(3, FI_CLAIM, &claimed, in, sizeof in));
    CHECK(next(&b).entry.len == length && is_filled(in, length, place));
    // Looked at and thrown away at once; and claimed first.
    WORKS(peek(4, FI_PEEK | FI_DISCARD, &claimed, NULL, 0));
    next(&b);
    WORKS(peek(4, FI_PEEK, in, NULL, 0));
    next_error(&b, FI_ENOMSG);
    WORKS(peek(5, FI_PEEK | FI_CLAIM, &claimed, NULL, 0));
    next(&b);
    WORKS(peek(5, FI_CLAIM | FI_DISCARD, &claimed, NULL, 0));
    ended = next(&b);
    CHECK(ended.entry.len == length && ended.entry.tag == 5, "%zu", ended.entry.len);
    for (int sent = 0; sent < 3; sent++) next(&a);
  }
  close_both();
}

static void one_receive_for_many_messages(char **arguments) {
  (void)arguments;
  struct wish wish = {.caps = FI_MSG | FI_MULTI_RECV};
  open_both(wish);
  static char memory[4096];
  size_t least = 1000, read = 0, room = sizeof read;
  WORKS(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  WORKS(fi_getopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &read, &room));
  CHECK(read == least);
  struct iovec part = {memory, sizeof memory};
  struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = memory};
  WORKS(fi_recvmsg(b.ep, &message, FI_MULTI_RECV));
  char out[700];
  size_t filled = 0;
  int sent = 0, is_over = 0;
  while (!is_over) {
    fill(out, sizeof out, sent);
    WORKS(fi_send(a.ep, out, sizeof out, NULL, to_b, out));
    next(&a);
    struct ended ended = next(&b);
    if (ended.entry.flags & FI_RECV) {
      CHECK(ended.entry.buf == memory + filled && ended.entry.len == sizeof out && ended.entry.op_context == memory);
      CHECK(is_filled(ended.entry.buf, sizeof out, sent));
      filled += sizeof out;
      sent++;
    }
    is_over = !!(ended.entry.flags & FI_MULTI_RECV);
  }
  CHECK(sizeof memory - filled < least && sizeof memory - filled + sizeof out >= least, "%zu filled", filled);
  // Memory that is not enough for a message keeps its beginning.
  part.iov_len = 1200;
  WORKS(fi_recvmsg(b.ep, &message, FI_MULTI_RECV));
  static char longer[2000];
  WORKS(fi_send(a.ep, longer, sizeof longer, NULL, to_b, longer));
  struct ended ended = next_error(&b, FI_ETRUNC);
  CHECK(ended.entry.len == 1200 && ended.lost == 800);
  close_both();
}

static void injected_and_with_data(char **arguments) {
  (void)arguments;
  open_both((struct wish){0});
  static char out[10000], in[10000];
  size_t most = a.info->tx_attr->inject_size;
  CHECK(most >= 64 && most < sizeof out);
  for (int turns = 0; turns < 500; turns++) {
    fill(out, most, turns);
    WORKS(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 1, 0, in));
    long status =
        turns % 2 ? fi_tinject(a.ep, out, most, to_b, 1) : fi_tinjectdata(a.ep, out, most, ~0ul - turns, to_b, 1);
    WORKS(status);
    memset(out, 0, most);  // it is ours again at once
    struct ended ended = next(&b);
    CHECK(is_filled(in, most, turns) && ended.source == to_a);
    CHECK(!!(ended.entry.flags & FI_REMOTE_CQ_DATA) == !(turns % 2));
    CHECK(turns % 2 || ended.entry.data == ~0ul - turns, "%lx", (long)ended.entry.data);
  }
  nothing(&a, 0.02);  // nobody is told of what is injected
  GIVES(-EMSGSIZE, fi_tinject(a.ep, out, most + 100, to_b, 1));
  WORKS(fi_recv(b.ep, in, sizeof in, NULL, to_a, in));
  WORKS(fi_senddata(a.ep, out, sizeof out, NULL, 99, to_b, out));
  next(&a);
  CHECK(next(&b).entry.data == 99);
  close_both();
}

// Of a program whose sends complete on delivery, more is injected than a frame holds.
static void injected_though_delivery_completes(char **arguments) {
  (void)arguments;
  open_both((struct wish){.transmit_flags = FI_INJECT | FI_DELIVERY_COMPLETE});
  static char out[10000], in[10000];
  size_t most = a.info->tx_attr->inject_size;
  CHECK(most >= 8192 && most < sizeof out - 100);
  for (int turns = 0; turns < 200; turns++) {
    fill(out, most, turns);
    WORKS(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 1, 0, in));
    struct iovec parts[] = {{out, most / 3}, {out + most / 3, most - most / 3}};
    WORKS(turns % 2 ? fi_tsend(a.ep, out, most, NULL, to_b, 1, out) : fi_tsendv(a.ep, parts, NULL, 2, to_b, 1, out));
    memset(out, 0, most);  // it is ours again at once
    next(&b);
    CHECK(is_filled(in, most, turns));
    CHECK(next(&a).entry.op_context == out);
    WORKS(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 1, 0, in));
    fill(out, most, turns);
    WORKS(fi_tinject(a.ep, out, most, to_b, 1));
    memset(out, 0, most);
    next(&b);
    CHECK(is_filled(in, most, turns));
  }
  nothing(&a, 0.02);
  GIVES(-EMSGSIZE, fi_tinject(a.ep, out, most + 1, to_b, 1));
  GIVES(-EMSGSIZE, fi_tsend(a.ep, out, most + 1, NULL, to_b, 1, out));
  close_both();
}

static void only_completions_that_are_asked_for(char **arguments) {
  (void)arguments;
  open_both((struct wish){.binding = FI_SELECTIVE_COMPLETION, .has_counters = 1});
  char in[8];
  struct iovec part = {"message", 8}, into = {in, 8};
  struct fi_msg out = {.msg_iov = &part, .iov_count = 1, .addr = to_b, .context = &part};
  struct fi_msg receive = {.msg_iov = &into, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in};
  WORKS(fi_recvmsg(b.ep, &receive, FI_COMPLETION));
  WORKS(fi_sendmsg(a.ep, &out, 0));
  CHECK(next(&b).entry.op_context == in);
  nothing(&a, 0.02);
  WORKS(fi_recvmsg(b.ep, &receive, 0));
  WORKS(fi_sendmsg(a.ep, &out, FI_COMPLETION | FI_DELIVERY_COMPLETE));
  CHECK(next(&a).entry.op_context == &part);
  nothing(&b, 0.02);
  // Failures are told whatever was asked for.
  WORKS(fi_recv(b.ep, in, 2, NULL, to_a, in));
  WORKS(fi_send(a.ep, "message", 8, NULL, to_b, NULL));
  next_error(&b, FI_ETRUNC);
  WORKS(fi_cntr_wait(a.sent, 3, 5000));
  CHECK(fi_cntr_read(b.received) == 2 && fi_cntr_readerr(b.received) == 1, "%lu %lu",
        (unsigned long)fi_cntr_read(b.received), (unsigned long)fi_cntr_readerr(b.received));
  GIVES(-FI_ETIMEDOUT, fi_cntr_wait(a.sent, 4, 50));
  WORKS(fi_cntr_set(a.sent, 10));
  WORKS(fi_cntr_add(a.sent, 2));
  for (double until = now_s() + 5; fi_cntr_read(a.sent) != 12;)
    CHECK(now_s() < until, "%lu", (unsigned long)fi_cntr_read(a.sent));
  close_both();
}

// Frames without the job's token are as good as none.
static void a_wrong_token_is_not_heard(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_TOKEN", "1234", 1);
  setenv("FI_BAREWIRE_PATIENCE", "1", 1);
  open_both((struct wish){0});
  setenv("FI_BAREWIRE_TOKEN", "4321", 1);
  struct node stranger;
  node_open(&stranger, (struct wish){.transmit_flags = FI_DELIVERY_COMPLETE});
  fi_addr_t victim = node_know(&stranger, &b);
  char in[8];
  WORKS(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  WORKS(fi_send(stranger.ep, "stranger", 8, NULL, victim, NULL));
  nothing(&b, 0.5);
  // Nobody of its job is there: it is turned away on this host, and not answered over the wire.
  next_error(&stranger, getenv("WIRE") ? EHOSTUNREACH : FI_ECONNRESET);
  WORKS(fi_send(a.ep, "friend!", 8, NULL, to_b, NULL));
  next(&b);
  CHECK(!strcmp(in, "friend!"));
  node_close(&stranger);
  close_both();
}

const struct test message_cases[] = {
    {"with_itself_and_another", with_itself_and_another},
    {"nothing_is_lost_when_there_is_no_room", nothing_is_lost_when_there_is_no_room},
    {"receives_have_an_end_too", receives_have_an_end_too},
    {"what_is_too_long_is_cut", what_is_too_long_is_cut},
    {"what_is_cancelled_ends", what_is_cancelled_ends},
    {"peek_claim_and_discard", peek_claim_and_discard},
    {"one_receive_for_many_messages", one_receive_for_many_messages},
    {"injected_and_with_data", injected_and_with_data},
    {"injected_though_delivery_completes", injected_though_delivery_completes},
    {"only_completions_that_are_asked_for", only_completions_that_are_asked_for},
    {"a_wrong_token_is_not_heard", a_wrong_token_is_not_heard},
    {NULL, NULL},
};
