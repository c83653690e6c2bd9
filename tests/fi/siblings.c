// SPDX-License-Identifier: Apache-2.0 OR MIT
// Endpoints of one domain that share its queue and its address vector, in one thread.
#include "node.h"

enum {
  SIBLINGS = 3,
  LONG = 4 << 20
};

// The first is the node's own.
static struct node node;
static struct fid_ep *eps[SIBLINGS];
static fi_addr_t numbers[SIBLINGS];
static char *out, *in;

static void open_all(struct wish wish) {
  node_open(&node, wish);
  eps[0] = node.ep;
  for (int place = 0; place < SIBLINGS; place++) {
    struct node sibling = {.name_bytes = sizeof sibling.name};
    if (place > 0) {
      WORKS(fi_endpoint(node.domain, node.info, &eps[place], NULL));
      WORKS(fi_ep_bind(eps[place], &node.av->fid, 0));
      WORKS(fi_ep_bind(eps[place], &node.cq->fid, FI_TRANSMIT | FI_RECV));
      WORKS(fi_enable(eps[place]));
    }
    WORKS(fi_getname(&eps[place]->fid, sibling.name, &sibling.name_bytes));
    numbers[place] = node_know(&node, &sibling);
  }
  out = malloc(LONG), in = malloc(LONG);
  CHECK(out && in);
}

static void close_all(void) {
  for (int place = 1; place < SIBLINGS; place++)
    if (eps[place]) WORKS(fi_close(&eps[place]->fid));
  node_close(&node);
  free(out);
  free(in);
}

static void each_to_each(char **arguments) {
  (void)arguments;
  open_all((struct wish){0});
  static const size_t lengths[] = {0, 8, 5000, 100000, LONG};
  for (size_t which = 0; which < sizeof lengths / sizeof *lengths; which++)
    for (int pair = 0; pair < SIBLINGS * SIBLINGS; pair++) {
      int from = pair / SIBLINGS, to = pair % SIBLINGS;
      size_t length = lengths[which];
      fill(out, length, (uint64_t)pair);
      memset(in, 0, length);
      WORKS(fi_trecv(eps[to], in, length, NULL, numbers[from], (uint64_t)pair, 0, in));
      POSTS(fi_tsend(eps[from], out, length, NULL, numbers[to], (uint64_t)pair, out));
      struct ended one = next(&node), other = next(&node);
      struct ended received = one.entry.op_context == in ? one : other;
      CHECK((one.entry.op_context == in) != (other.entry.op_context == in));
      CHECK(received.source == numbers[from] && received.entry.len == length && is_filled(in, length, (uint64_t)pair),
            "%zu bytes from %d to %d", length, from, to);
    }
  nothing(&node, 0.02);
  close_all();
}

// It has the program's only thread meanwhile. What the sibling can take by itself arrives, what waits for the program
// fails there.
static void closed_with_an_unfinished_send_to_a_sibling(char **arguments) {
  (void)arguments;
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  static const size_t lengths[] = {8, LONG};
  for (int kind = 0; kind < 2; kind++)
    for (int which = 0; which < 4; which++) {
      size_t length = lengths[which / 2];
      int is_awaited = which % 2;
      open_all((struct wish){.progress = kinds[kind], .transmit_flags = FI_DELIVERY_COMPLETE});
      fill(out, length, 7);
      if (is_awaited) WORKS(fi_trecv(eps[1], in, length, NULL, numbers[2], 1, 0, in));
      WORKS(fi_tsend(eps[2], out, length, NULL, numbers[1], 1, out));
      double began = now_s();
      WORKS(fi_close(&eps[2]->fid));
      eps[2] = NULL;
      CHECK(now_s() - began < 2.9, "%zu bytes, receive %d: %.3f s", length, is_awaited, now_s() - began);
      if (is_awaited) CHECK(next(&node).entry.op_context == in && is_filled(in, length, 7));
      // Another's messages with it are undisturbed.
      WORKS(fi_trecv(eps[1], in, length, NULL, numbers[0], 2, 0, in));
      WORKS(fi_tsend(eps[0], out, length, NULL, numbers[1], 2, out));
      struct ended one = next(&node), other = next(&node);
      CHECK(one.entry.op_context != other.entry.op_context && is_filled(in, length, 7));
      close_all();
    }
}

// Of two queues and a counter, each by its context: only those that have something, as many as there is room for.
static void a_poll_set_names_who_has_something(char **arguments) {
  (void)arguments;
  open_all((struct wish){0});
  struct fid_poll *set;
  struct fi_poll_attr attributes = {0};
  struct fi_cq_attr queues = {.format = FI_CQ_FORMAT_TAGGED};
  struct fi_cntr_attr counters = {.events = FI_CNTR_EVENTS_COMP};
  struct fid_cq *sends, *receives;
  struct fid_cntr *counter;
  struct fid_ep *ep;
  int of_sends, of_receives, of_counter;
  WORKS(fi_cq_open(node.domain, &queues, &sends, &of_sends));
  WORKS(fi_cq_open(node.domain, &queues, &receives, &of_receives));
  WORKS(fi_cntr_open(node.domain, &counters, &counter, &of_counter));
  WORKS(fi_endpoint(node.domain, node.info, &ep, NULL));
  WORKS(fi_ep_bind(ep, &node.av->fid, 0));
  WORKS(fi_ep_bind(ep, &sends->fid, FI_TRANSMIT));
  WORKS(fi_ep_bind(ep, &receives->fid, FI_RECV));
  WORKS(fi_ep_bind(ep, &counter->fid, FI_RECV));
  WORKS(fi_enable(ep));
  struct node name = {.name_bytes = sizeof name.name};
  WORKS(fi_getname(&ep->fid, name.name, &name.name_bytes));
  fi_addr_t itself = node_know(&node, &name);

  WORKS(fi_poll_open(node.domain, &attributes, &set));
  GIVES(-FI_EINVAL, fi_poll_add(set, &ep->fid, 0));
  GIVES(-FI_EINVAL, fi_poll_del(set, &sends->fid, 0));
  WORKS(fi_poll_add(set, &sends->fid, 0));
  WORKS(fi_poll_add(set, &receives->fid, 0));
  WORKS(fi_poll_add(set, &counter->fid, 0));
  void *found[4];
  GIVES(0, fi_poll(set, found, 4));

  // A message that comes: its poll makes the progress.
  WORKS(fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
  WORKS(fi_tinject(eps[0], "message", 8, itself, 1));
  int count;
  double until = now_s() + 10;
  while (!(count = fi_poll(set, found, 4))) CHECK(now_s() < until);
  // The counter's look may make the progress of which the queue hears next time.
  if (count == 1) {
    CHECK(found[0] == &of_counter || found[0] == &of_receives);
    GIVES(1, fi_poll(set, found, 1));
  } else {
    CHECK(count == 2 && found[0] == &of_receives && found[1] == &of_counter, "%d", count);
  }
  // A queue until it is read, a counter until it is told.
  GIVES(1, fi_poll(set, found, 4));
  CHECK(found[0] == &of_receives);
  struct fi_cq_tagged_entry entry;
  GIVES(1, fi_cq_read(receives, &entry, 1));
  CHECK(entry.op_context == in && !strcmp(in, "message"));
  GIVES(0, fi_poll(set, found, 4));

  // All three, in room for one, and for all.
  WORKS(fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, in));
  WORKS(fi_tsend(ep, "message", 8, NULL, itself, 2, out));
  until = now_s() + 10;
  while (fi_cntr_read(counter) < 2) CHECK(now_s() < until);
  GIVES(1, fi_poll(set, found, 1));
  CHECK(found[0] == &of_sends);
  GIVES(3, fi_poll(set, found, 4));
  CHECK(found[0] == &of_sends && found[1] == &of_receives && found[2] == &of_counter);
  // Who is taken out is not named.
  WORKS(fi_poll_del(set, &sends->fid, 0));
  GIVES(1, fi_poll(set, found, 4));
  CHECK(found[0] == &of_receives);
  // The set is the domain's.
  WORKS(fi_poll_del(set, &receives->fid, 0));
  WORKS(fi_poll_del(set, &counter->fid, 0));
  GIVES(-FI_EBUSY, fi_close(&node.domain->fid));
  WORKS(fi_close(&set->fid));
  WORKS(fi_close(&ep->fid));
  WORKS(fi_close(&sends->fid));
  WORKS(fi_close(&receives->fid));
  WORKS(fi_close(&counter->fid));
  close_all();
}

const struct test sibling_cases[] = {
    {"each_to_each", each_to_each},
    {"closed_with_an_unfinished_send_to_a_sibling", closed_with_an_unfinished_send_to_a_sibling},
    {"a_poll_set_names_who_has_something", a_poll_set_names_who_has_something},
    {NULL, NULL},
};
