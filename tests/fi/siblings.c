// SPDX-License-Identifier: Apache-2.0 OR MIT
// Endpoints of one domain that share a queue and an address vector, in one thread.
#include "node.h"

enum {
  SIBLINGS = 3,
  LONG = 4 << 20
};

// The first endpoint is the node's own.
static struct node node;
static struct fid_ep *eps[SIBLINGS];
static fi_addr_t numbers[SIBLINGS];
static char *out, *in;

static void open_all(struct options options) {
  node_open(&node, options);
  eps[0] = node.ep;
  for (int i = 0; i < SIBLINGS; i++) {
    struct node sibling = {.name_bytes = sizeof sibling.name};
    if (i > 0) {
      OK(fi_endpoint(node.domain, node.info, &eps[i], NULL));
      OK(fi_ep_bind(eps[i], &node.av->fid, 0));
      OK(fi_ep_bind(eps[i], &node.cq->fid, FI_TRANSMIT | FI_RECV));
      OK(fi_enable(eps[i]));
    }
    OK(fi_getname(&eps[i]->fid, sibling.name, &sibling.name_bytes));
    numbers[i] = node_add_peer(&node, &sibling);
  }
  out = malloc(LONG), in = malloc(LONG);
  CHECK(out && in);
}

static void close_all(void) {
  for (int i = 1; i < SIBLINGS; i++)
    if (eps[i]) OK(fi_close(&eps[i]->fid));
  node_close(&node);
  free(out);
  free(in);
}

static void messages_between_all_pairs(char **arguments) {
  (void)arguments;
  open_all((struct options){0});
  static const size_t lengths[] = {0, 8, 5000, 200000, LONG};
  for (size_t which = 0; which < sizeof lengths / sizeof *lengths; which++)
    for (int pair = 0; pair < SIBLINGS * SIBLINGS; pair++) {
      int from = pair / SIBLINGS, to = pair % SIBLINGS;
      size_t length = lengths[which];
      fill(out, length, (uint64_t)pair);
      memset(in, 0, length);
      OK(fi_trecv(eps[to], in, length, NULL, numbers[from], (uint64_t)pair, 0, in));
      POST(fi_tsend(eps[from], out, length, NULL, numbers[to], (uint64_t)pair, out));
      struct completion first = next_success(&node), second = next_success(&node);
      struct completion received = first.entry.op_context == in ? first : second;
      CHECK((first.entry.op_context == in) != (second.entry.op_context == in));
      CHECK(received.source == numbers[from] && received.entry.len == length && is_filled(in, length, (uint64_t)pair),
            "%zu bytes from %d to %d", length, from, to);
    }
  expect_idle(&node, 0.02);
  close_all();
}

// Closing occupies the program's only thread. What the sibling receives without the program arrives, what needs the
// program fails there.
static void closed_with_an_unfinished_send_to_a_sibling(char **arguments) {
  (void)arguments;
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  static const size_t lengths[] = {8, LONG};
  for (int kind = 0; kind < 2; kind++)
    for (int which = 0; which < 4; which++) {
      size_t length = lengths[which / 2];
      int is_awaited = which % 2;
      open_all((struct options){.progress = kinds[kind], .transmit_flags = FI_DELIVERY_COMPLETE});
      fill(out, length, 7);
      if (is_awaited) OK(fi_trecv(eps[1], in, length, NULL, numbers[2], 1, 0, in));
      OK(fi_tsend(eps[2], out, length, NULL, numbers[1], 1, out));
      double began = now_s();
      OK(fi_close(&eps[2]->fid));
      eps[2] = NULL;
      CHECK(now_s() - began < 8, "%zu bytes, receive %d: %.3f s", length, is_awaited, now_s() - began);
      if (is_awaited) CHECK(next_success(&node).entry.op_context == in && is_filled(in, length, 7));
      // Messages from another sibling are not affected.
      fill(out, length, 8);
      memset(in, 0, length);
      OK(fi_trecv(eps[1], in, length, NULL, numbers[0], 2, 0, in));
      OK(fi_tsend(eps[0], out, length, NULL, numbers[1], 2, out));
      struct completion first = next_success(&node), second = next_success(&node);
      CHECK(first.entry.op_context != second.entry.op_context && is_filled(in, length, 8));
      close_all();
    }
}

// Contexts of the ready ones of two queues and a counter, as many as there is room for.
static void a_poll_set_reports_ready_members(char **arguments) {
  (void)arguments;
  open_all((struct options){0});
  struct fid_poll *set;
  struct fi_poll_attr attributes = {0};
  struct fi_cq_attr queues = {.format = FI_CQ_FORMAT_TAGGED};
  struct fi_cntr_attr counters = {.events = FI_CNTR_EVENTS_COMP};
  struct fid_cq *sends, *receives;
  struct fid_cntr *counter;
  struct fid_ep *ep;
  int of_sends, of_receives, of_counter;
  OK(fi_cq_open(node.domain, &queues, &sends, &of_sends));
  OK(fi_cq_open(node.domain, &queues, &receives, &of_receives));
  OK(fi_cntr_open(node.domain, &counters, &counter, &of_counter));
  OK(fi_endpoint(node.domain, node.info, &ep, NULL));
  OK(fi_ep_bind(ep, &node.av->fid, 0));
  OK(fi_ep_bind(ep, &sends->fid, FI_TRANSMIT));
  OK(fi_ep_bind(ep, &receives->fid, FI_RECV));
  OK(fi_ep_bind(ep, &counter->fid, FI_RECV));
  OK(fi_enable(ep));
  struct node name = {.name_bytes = sizeof name.name};
  OK(fi_getname(&ep->fid, name.name, &name.name_bytes));
  fi_addr_t itself = node_add_peer(&node, &name);

  OK(fi_poll_open(node.domain, &attributes, &set));
  EXPECT(-FI_EINVAL, fi_poll_add(set, &ep->fid, 0));
  EXPECT(-FI_EINVAL, fi_poll_del(set, &sends->fid, 0));
  OK(fi_poll_add(set, &sends->fid, 0));
  OK(fi_poll_add(set, &receives->fid, 0));
  OK(fi_poll_add(set, &counter->fid, 0));
  void *found[4];
  EXPECT(0, fi_poll(set, found, 4));

  // For an arriving message, polling makes progress.
  OK(fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
  OK(fi_tinject(eps[0], "message", 8, itself, 1));
  int count;
  double until = now_s() + 10;
  while (!(count = fi_poll(set, found, 4))) CHECK(now_s() < until);
  // Polling the counter may make the progress that the queue reports in the next poll.
  if (count == 1) {
    CHECK(found[0] == &of_counter || found[0] == &of_receives);
    EXPECT(1, fi_poll(set, found, 1));
  } else {
    CHECK(count == 2 && found[0] == &of_receives && found[1] == &of_counter, "%d", count);
  }
  // A queue is ready until it is read, a counter only once.
  EXPECT(1, fi_poll(set, found, 4));
  CHECK(found[0] == &of_receives);
  struct fi_cq_tagged_entry entry;
  EXPECT(1, fi_cq_read(receives, &entry, 1));
  CHECK(entry.op_context == in && !strcmp(in, "message"));
  EXPECT(0, fi_poll(set, found, 4));

  // All three ready, with room for one and for all.
  OK(fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, in));
  OK(fi_tsend(ep, "message", 8, NULL, itself, 2, out));
  until = now_s() + 10;
  while (fi_cntr_read(counter) < 2) CHECK(now_s() < until);
  EXPECT(1, fi_poll(set, found, 1));
  CHECK(found[0] == &of_sends);
  // The next poll begins behind that, so that none is left out for ever.
  EXPECT(1, fi_poll(set, found, 1));
  CHECK(found[0] == &of_receives);
  EXPECT(3, fi_poll(set, found, 4));
  CHECK(found[0] == &of_counter && found[1] == &of_sends && found[2] == &of_receives);
  // A counter is ready when its errors change, too.
  OK(fi_cntr_adderr(counter, 1));
  EXPECT(3, fi_poll(set, found, 4));
  CHECK(found[0] == &of_counter);
  // A removed member is not reported.
  OK(fi_poll_del(set, &sends->fid, 0));
  EXPECT(1, fi_poll(set, found, 4));
  CHECK(found[0] == &of_receives);
  // The domain stays open for the set.
  OK(fi_poll_del(set, &receives->fid, 0));
  OK(fi_poll_del(set, &counter->fid, 0));
  EXPECT(-FI_EBUSY, fi_close(&node.domain->fid));
  OK(fi_close(&set->fid));
  OK(fi_close(&ep->fid));
  OK(fi_close(&sends->fid));
  OK(fi_close(&receives->fid));
  OK(fi_close(&counter->fid));
  close_all();
}

const struct test sibling_cases[] = {
    {"messages_between_all_pairs", messages_between_all_pairs},
    {"closed_with_an_unfinished_send_to_a_sibling", closed_with_an_unfinished_send_to_a_sibling},
    {"a_poll_set_reports_ready_members", a_poll_set_reports_ready_members},
    {NULL, NULL},
};
