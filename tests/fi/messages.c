// SPDX-License-Identifier: Apache-2.0 OR MIT
// Messages between two endpoints of this process, and from one to itself.
#include <errno.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b, to_a;

static void open_both(struct options options) {
  node_open(&a, options);
  node_open(&b, options);
  to_b = node_add_peer(&a, &b);
  to_a = node_add_peer(&b, &a);
}

static void close_both(void) {
  node_close(&a);
  node_close(&b);
}

static fi_addr_t source_at_a(void) {
  static char in[8];
  OK(fi_trecv(a.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in));
  POST(fi_tinject(b.ep, "message", 8, to_a, 1));
  return next_success(&a).source;
}

// A number that was removed is told of no message, and other numbers of the same address stay.
static void addresses_can_be_removed(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  // A peer that was only received from.
  CHECK(source_at_a() == to_b);
  OK(fi_av_remove(a.av, &to_b, 1, 0));
  CHECK(source_at_a() == FI_ADDR_NOTAVAIL);
  fi_addr_t first = node_add_peer(&a, &b), second = node_add_peer(&a, &b);
  CHECK(first != second && source_at_a() == first);
  // One that was sent to, by both numbers.
  char in[8];
  for (int turn = 0; turn < 4; turn++) {
    OK(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 2, 0, in));
    POST(fi_tsend(a.ep, "answer", 7, NULL, turn % 2 ? first : second, 2, &a));
    next_success(&a);
    CHECK(next_success(&b).entry.len == 7);
    if (turn == 1) {
      OK(fi_av_remove(a.av, &first, 1, 0));
      EXPECT(-FI_EINVAL, fi_tsend(a.ep, "answer", 7, NULL, first, 2, &a));
      first = second;
    }
  }
  CHECK(source_at_a() == second);
  close_both();
}

// A receive from an address that was removed and inserted again is refused only until the peer has answered: its
// retries make progress.
static void receives_from_a_new_number_of_an_address(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  char in[8];
  for (int turn = 0; turn < 3; turn++) {
    POST(fi_tinject(b.ep, "message", 8, to_a, 1));
    OK(fi_trecv(a.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    next_success(&a);
    OK(fi_av_remove(b.av, &to_a, 1, 0));
    to_a = node_add_peer(&b, &a);
    double began = now_s();
    long status;
    while ((status = fi_trecv(b.ep, in, sizeof in, NULL, to_a, 2, 0, in)) == -FI_EAGAIN) {
      CHECK(now_s() - began < 0.5);
      fi_cq_read(a.cq, NULL, 0);
    }
    OK(status);
    // What a sends before it notices the end of its channel is lost.
    for (double until = now_s() + 0.05; now_s() < until;) make_progress();
    POST(fi_tinject(a.ep, "answer", 7, to_b, 2));
    CHECK(next_success(&b).entry.len == 7);
  }
  close_both();
}

static void messages_to_self_and_peer(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  fi_addr_t to_itself = node_add_peer(&a, &a);
  static const size_t lengths[] = {0, 1, 8, 1000, 16384, 16385, 200000, 1 << 20, (16 << 20) + 3};
  char *out = malloc(32 << 20), *in = malloc(32 << 20);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (int is_itself = 0; is_itself < 2; is_itself++) {
      struct node *receiver = is_itself ? &a : &b;
      size_t length = lengths[i];
      fill(out, length, i);
      memset(in, 0, length);
      OK(fi_trecv(receiver->ep, in, length, NULL, FI_ADDR_UNSPEC, i, 0, in));
      OK(fi_tsend(a.ep, out, length, NULL, is_itself ? to_itself : to_b, i, out));
      int has_sent = 0, has_received = 0;
      while (!has_sent || !has_received) {
        struct completion completion = next_success(has_sent ? receiver : &a);
        has_sent |= completion.entry.op_context == out;
        if (completion.entry.op_context == in) {
          has_received = 1;
          CHECK(completion.entry.len == length && completion.entry.tag == i && completion.entry.flags & FI_TAGGED);
        }
      }
      CHECK(is_filled(in, length, i), "%zu bytes to %s", length, is_itself ? "itself" : "the other");
    }
  free(out);
  free(in);
  close_both();
}

// Sends without receives until the sender is refused; then everything that was accepted arrives, in order.
static void full_queues_lose_nothing(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  enum {
    LENGTH = 1300,
    SENDS_MAX = 2 << 20
  };
  char out[LENGTH], in[LENGTH];
  size_t sent = 0;
  double taken = now_s();
  while (sent < SENDS_MAX && now_s() < taken + 0.5) {
    fill(out, LENGTH, sent);
    long status = fi_tinject(a.ep, out, LENGTH, to_b, sent);
    CHECK(status == 0 || status == -FI_EAGAIN, "%ld", status);
    if (status == 0) {
      sent++;
      taken = now_s();
    }
    make_progress();
  }
  CHECK(sent >= a.info->tx_attr->size && sent < SENDS_MAX, "%zu", sent);
  for (size_t i = 0; i < sent; i++) {
    OK(fi_trecv(b.ep, in, LENGTH, NULL, to_a, 0, UINT64_MAX, NULL));
    struct completion completion = next_success(&b);
    CHECK(completion.entry.tag == i && completion.entry.len == LENGTH && is_filled(in, LENGTH, i), "%zu: tag %lu", i,
          (unsigned long)completion.entry.tag);
  }
  expect_idle(&a, 0.05);
  expect_idle(&b, 0.05);
  // There is room again.
  OK(fi_tinject(a.ep, out, LENGTH, to_b, 1));
  close_both();
}

static void posted_receives_are_bounded(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  size_t posted = 0;
  long status = 0;
  char in[8];
  while (posted < 2 << 20 && !(status = fi_trecv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, posted, 0, NULL))) posted++;
  CHECK(status == -FI_EAGAIN && posted >= b.info->rx_attr->size, "%zu, %ld", posted, status);
  // Messages for some of them: the last, and every STRIDE-th before.
  enum {
    STRIDE = 100
  };
  for (size_t i = posted - 1; i > STRIDE; i -= STRIDE) {
    OK(fi_tinject(a.ep, &i, sizeof i, to_b, i));
    CHECK(next_success(&b).entry.tag == i);
  }
  close_both();
}

static void long_messages_are_truncated(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  enum {
    LONG = 200000,
    SHORT = 10
  };
  static char out[LONG], in[LONG];
  static const size_t lengths[] = {SHORT + 1, 1000, LONG};
  fill(out, LONG, 1);
  for (int is_expected = 0; is_expected < 2; is_expected++)
    for (int i = 0; i < 3; i++) {
      memset(in, 0x55, LONG);
      if (is_expected) OK(fi_trecv(b.ep, in, SHORT, NULL, to_a, 5, 0, in));
      OK(fi_tsend(a.ep, out, lengths[i], NULL, to_b, 5, out));
      if (!is_expected) {
        expect_idle(&b, 0.02);
        OK(fi_trecv(b.ep, in, SHORT, NULL, to_a, 5, 0, in));
      }
      struct completion completion = next_error(&b, FI_ETRUNC);
      CHECK(completion.entry.op_context == in && completion.entry.len == SHORT &&
                completion.overflow == lengths[i] - SHORT,
            "len %zu, lost %zu", completion.entry.len, completion.overflow);
      CHECK(!memcmp(in, out, SHORT) && in[SHORT] == 0x55);
      next_success(&a);
    }
  // The next message is not truncated.
  OK(fi_trecv(b.ep, in, LONG, NULL, to_a, 6, 0, in));
  OK(fi_tsend(a.ep, out, LONG, NULL, to_b, 6, out));
  CHECK(next_success(&b).entry.len == LONG && is_filled(in, LONG, 1));
  close_both();
}

static void receives_can_be_cancelled(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  char in[2][8];
  OK(fi_trecv(b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, in[0]));
  OK(fi_recv(b.ep, in[1], 8, NULL, FI_ADDR_UNSPEC, in[1]));
  OK(fi_cancel(&b.ep->fid, in[0]));
  CHECK(next_error(&b, FI_ECANCELED).entry.op_context == in[0]);
  OK(fi_inject(a.ep, "message", 8, to_b));
  CHECK(next_success(&b).entry.op_context == in[1] && !strcmp(in[1], "message"));
  CHECK(fi_cancel(&b.ep->fid, in[1]) == -FI_ENOENT);
  expect_idle(&b, 0.02);
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
  open_both((struct options){0});
  static char out[50000], in[50000];
  static const size_t lengths[] = {10, sizeof out};
  for (int i = 0; i < 2; i++) {
    size_t length = lengths[i];
    struct fi_context claimed;
    fill(out, length, i);
    OK(peek(3, FI_PEEK, &claimed, NULL, 0));
    next_error(&b, FI_ENOMSG);
    for (uint64_t tag = 3; tag < 6; tag++) POST(fi_tsend(a.ep, out, length, NULL, to_b, tag, out));
    expect_idle(&b, 0.05);
    OK(peek(3, FI_PEEK, &claimed, NULL, 0));
    struct completion completion = next_success(&b);
    CHECK(completion.entry.len == length && completion.entry.tag == 3, "%zu", completion.entry.len);
    // A claimed message matches no other receive.
    OK(peek(3, FI_PEEK | FI_CLAIM, &claimed, NULL, 0));
    next_success(&b);
    OK(peek(3, FI_PEEK, in, NULL, 0));
    next_error(&b, FI_ENOMSG);
    OK(peek(3, FI_CLAIM, &claimed, in, sizeof in));
    CHECK(next_success(&b).entry.len == length && is_filled(in, length, i));
    // Discarded by the peek itself, or after a claim.
    OK(peek(4, FI_PEEK | FI_DISCARD, &claimed, NULL, 0));
    next_success(&b);
    OK(peek(4, FI_PEEK, in, NULL, 0));
    next_error(&b, FI_ENOMSG);
    OK(peek(5, FI_PEEK | FI_CLAIM, &claimed, NULL, 0));
    next_success(&b);
    OK(peek(5, FI_CLAIM | FI_DISCARD, &claimed, NULL, 0));
    completion = next_success(&b);
    CHECK(completion.entry.len == length && completion.entry.tag == 5, "%zu", completion.entry.len);
    for (int sent = 0; sent < 3; sent++) next_success(&a);
  }
  close_both();
}

static void multi_receive(char **arguments) {
  (void)arguments;
  struct options options = {.caps = FI_MSG | FI_MULTI_RECV};
  open_both(options);
  static char memory[4096];
  size_t least = 1000, read = 0, room = sizeof read;
  OK(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  OK(fi_getopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &read, &room));
  CHECK(read == least);
  struct iovec part = {memory, sizeof memory};
  struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = memory};
  OK(fi_recvmsg(b.ep, &message, FI_MULTI_RECV));
  char out[700];
  size_t filled = 0;
  int sent = 0, is_over = 0;
  while (!is_over) {
    fill(out, sizeof out, sent);
    OK(fi_send(a.ep, out, sizeof out, NULL, to_b, out));
    next_success(&a);
    struct completion completion = next_success(&b);
    if (completion.entry.flags & FI_RECV) {
      CHECK(completion.entry.buf == memory + filled && completion.entry.len == sizeof out &&
            completion.entry.op_context == memory);
      CHECK(is_filled(completion.entry.buf, sizeof out, sent));
      filled += sizeof out;
      sent++;
    }
    is_over = !!(completion.entry.flags & FI_MULTI_RECV);
  }
  CHECK(sizeof memory - filled < least && sizeof memory - filled + sizeof out >= least, "%zu filled", filled);
  // A message longer than the buffer is truncated.
  part.iov_len = 1200;
  OK(fi_recvmsg(b.ep, &message, FI_MULTI_RECV));
  static char longer[2000];
  OK(fi_send(a.ep, longer, sizeof longer, NULL, to_b, longer));
  struct completion completion = next_error(&b, FI_ETRUNC);
  CHECK(completion.entry.len == 1200 && completion.overflow == 800);
  close_both();
}

// The end of a multi-receive is reported even if its messages are not, and its context can be used again.
static void a_silent_multi_receive_reports_its_end(char **arguments) {
  (void)arguments;
  open_both((struct options){.caps = FI_MSG | FI_MULTI_RECV, .binding = FI_SELECTIVE_COMPLETION});
  static char memory[1000];
  size_t least = 400;
  OK(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  struct iovec part = {memory, sizeof memory};
  struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = memory};
  char out[350];
  for (int round = 0; round < 3; round++) {
    OK(fi_recvmsg(b.ep, &message, FI_MULTI_RECV));
    for (int sent = 0; sent < 2; sent++) OK(fi_inject(a.ep, out, sizeof out, to_b));
    struct completion completion = next_success(&b);
    CHECK(completion.entry.flags & FI_MULTI_RECV && completion.entry.op_context == memory);
    expect_idle(&b, 0.02);
  }
  OK(fi_recvmsg(b.ep, &message, FI_MULTI_RECV));
  OK(fi_cancel(&b.ep->fid, memory));
  CHECK(next_error(&b, FI_ECANCELED).entry.op_context == memory);
  close_both();
}

static void inject_and_remote_cq_data(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  static char out[10000], in[10000];
  size_t max_bytes = a.info->tx_attr->inject_size;
  CHECK(max_bytes >= 64 && max_bytes < sizeof out);
  for (int round = 0; round < 500; round++) {
    fill(out, max_bytes, round);
    OK(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 1, 0, in));
    long status = round % 2 ? fi_tinject(a.ep, out, max_bytes, to_b, 1)
                            : fi_tinjectdata(a.ep, out, max_bytes, ~0ul - round, to_b, 1);
    OK(status);
    memset(out, 0, max_bytes);  // the buffer may be reused at once
    struct completion completion = next_success(&b);
    CHECK(is_filled(in, max_bytes, round) && completion.source == to_a);
    CHECK(!!(completion.entry.flags & FI_REMOTE_CQ_DATA) == !(round % 2));
    CHECK(round % 2 || completion.entry.data == ~0ul - round, "%lx", (long)completion.entry.data);
  }
  expect_idle(&a, 0.02);  // injected messages have no completion
  EXPECT(-EMSGSIZE, fi_tinject(a.ep, out, max_bytes + 100, to_b, 1));
  OK(fi_recv(b.ep, in, sizeof in, NULL, to_a, in));
  OK(fi_senddata(a.ep, out, sizeof out, NULL, 99, to_b, out));
  next_success(&a);
  CHECK(next_success(&b).entry.data == 99);
  close_both();
}

// If sends complete on delivery, messages longer than a frame can be injected.
static void inject_with_delivery_complete(char **arguments) {
  (void)arguments;
  open_both((struct options){.transmit_flags = FI_INJECT | FI_DELIVERY_COMPLETE});
  static char out[10000], in[10000];
  size_t max_bytes = a.info->tx_attr->inject_size;
  CHECK(max_bytes >= 8192 && max_bytes < sizeof out - 100);
  for (int round = 0; round < 200; round++) {
    fill(out, max_bytes, round);
    OK(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 1, 0, in));
    struct iovec parts[] = {{out, max_bytes / 3}, {out + max_bytes / 3, max_bytes - max_bytes / 3}};
    OK(round % 2 ? fi_tsend(a.ep, out, max_bytes, NULL, to_b, 1, out) : fi_tsendv(a.ep, parts, NULL, 2, to_b, 1, out));
    memset(out, 0, max_bytes);  // the buffer may be reused at once
    next_success(&b);
    CHECK(is_filled(in, max_bytes, round));
    CHECK(next_success(&a).entry.op_context == out);
    OK(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 1, 0, in));
    fill(out, max_bytes, round);
    OK(fi_tinject(a.ep, out, max_bytes, to_b, 1));
    memset(out, 0, max_bytes);
    next_success(&b);
    CHECK(is_filled(in, max_bytes, round));
  }
  expect_idle(&a, 0.02);
  EXPECT(-EMSGSIZE, fi_tinject(a.ep, out, max_bytes + 1, to_b, 1));
  EXPECT(-EMSGSIZE, fi_tsend(a.ep, out, max_bytes + 1, NULL, to_b, 1, out));
  close_both();
}

// A short message is delivered once the peer has it, a long one once it is received.
static void short_messages_are_delivered_without_a_receive(char **arguments) {
  (void)arguments;
  open_both((struct options){.transmit_flags = FI_DELIVERY_COMPLETE});
  static char out[200000], in[200000];
  static const size_t lengths[] = {8, 10000, sizeof out};
  fill(out, sizeof out, 1);
  for (int i = 0; i < 3; i++) {
    OK(fi_tsend(a.ep, out, lengths[i], NULL, to_b, 1, out));
    if (lengths[i] < sizeof out) next_success(&a);
    else expect_idle(&a, 0.02);
    OK(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 1, 0, in));
    next_success(&b);
    CHECK(is_filled(in, lengths[i], 1));
    if (lengths[i] == sizeof out) next_success(&a);
  }
  // In several parts as well.
  struct iovec parts[] = {{out, 5000}, {out + 5000, 5000}};
  OK(fi_tsendv(a.ep, parts, NULL, 2, to_b, 1, out));
  next_success(&a);
  OK(fi_trecv(b.ep, in, sizeof in, NULL, to_a, 1, 0, in));
  next_success(&b);
  CHECK(is_filled(in, 10000, 1));
  struct iovec part = {out, 8};
  struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .addr = to_b};
  OK(fi_sendmsg(a.ep, &message, FI_COMPLETION | FI_MATCH_COMPLETE));
  expect_idle(&a, 0.02);
  OK(fi_recv(b.ep, in, sizeof in, NULL, to_a, in));
  next_success(&b);
  next_success(&a);
  close_both();
}

static void selective_completion(char **arguments) {
  (void)arguments;
  open_both((struct options){.binding = FI_SELECTIVE_COMPLETION, .has_counters = 1});
  char in[8];
  struct iovec part = {"message", 8}, into = {in, 8};
  struct fi_msg out = {.msg_iov = &part, .iov_count = 1, .addr = to_b, .context = &part};
  struct fi_msg receive = {.msg_iov = &into, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in};
  OK(fi_recvmsg(b.ep, &receive, FI_COMPLETION));
  OK(fi_sendmsg(a.ep, &out, 0));
  CHECK(next_success(&b).entry.op_context == in);
  expect_idle(&a, 0.02);
  OK(fi_recvmsg(b.ep, &receive, 0));
  OK(fi_sendmsg(a.ep, &out, FI_COMPLETION | FI_DELIVERY_COMPLETE));
  CHECK(next_success(&a).entry.op_context == &part);
  expect_idle(&b, 0.02);
  // Errors are always reported.
  OK(fi_recv(b.ep, in, 2, NULL, to_a, in));
  OK(fi_send(a.ep, "message", 8, NULL, to_b, NULL));
  next_error(&b, FI_ETRUNC);
  OK(fi_cntr_wait(a.sent, 3, 5000));
  CHECK(fi_cntr_read(b.received) == 2 && fi_cntr_readerr(b.received) == 1, "%lu %lu",
        (unsigned long)fi_cntr_read(b.received), (unsigned long)fi_cntr_readerr(b.received));
  EXPECT(-FI_ETIMEDOUT, fi_cntr_wait(a.sent, 4, 50));
  OK(fi_cntr_set(a.sent, 10));
  OK(fi_cntr_add(a.sent, 2));
  for (double until = now_s() + 5; fi_cntr_read(a.sent) != 12;)
    CHECK(now_s() < until, "%lu", (unsigned long)fi_cntr_read(a.sent));
  close_both();
}

// The sender gets an error instead of an answer.
static void frames_with_another_token_are_dropped(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_TOKEN", "1234", 1);
  setenv("FI_BAREWIRE_PATIENCE", "1", 1);
  open_both((struct options){0});
  setenv("FI_BAREWIRE_TOKEN", "4321", 1);
  struct node intruder;
  node_open(&intruder, (struct options){.transmit_flags = FI_DELIVERY_COMPLETE});
  fi_addr_t victim = node_add_victim(&intruder, &b);
  char in[8];
  OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_send(intruder.ep, "intruder", 8, NULL, victim, NULL));
  expect_idle(&b, 0.5);
  // A local peer refuses the connection; over the wire there is no answer.
  next_error(&intruder, getenv("WIRE") ? EHOSTUNREACH : FI_ECONNRESET);
  OK(fi_send(a.ep, "friend!", 8, NULL, to_b, NULL));
  next_success(&b);
  CHECK(!strcmp(in, "friend!"));
  node_close(&intruder);
  close_both();
}

const struct test message_cases[] = {
    {"messages_to_self_and_peer", messages_to_self_and_peer},
    {"addresses_can_be_removed", addresses_can_be_removed},
    {"receives_from_a_new_number_of_an_address", receives_from_a_new_number_of_an_address},
    {"full_queues_lose_nothing", full_queues_lose_nothing},
    {"posted_receives_are_bounded", posted_receives_are_bounded},
    {"long_messages_are_truncated", long_messages_are_truncated},
    {"receives_can_be_cancelled", receives_can_be_cancelled},
    {"peek_claim_and_discard", peek_claim_and_discard},
    {"multi_receive", multi_receive},
    {"a_silent_multi_receive_reports_its_end", a_silent_multi_receive_reports_its_end},
    {"inject_and_remote_cq_data", inject_and_remote_cq_data},
    {"inject_with_delivery_complete", inject_with_delivery_complete},
    {"short_messages_are_delivered_without_a_receive", short_messages_are_delivered_without_a_receive},
    {"selective_completion", selective_completion},
    {"frames_with_another_token_are_dropped", frames_with_another_token_are_dropped},
    {NULL, NULL},
};
