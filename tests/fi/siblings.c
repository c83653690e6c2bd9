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
      CHECK(now_s() - began < 2.0, "%zu bytes, receive %d: %.3f s", length, is_awaited, now_s() - began);
      if (is_awaited) CHECK(next(&node).entry.op_context == in && is_filled(in, length, 7));
      // Another's messages with it are undisturbed.
      WORKS(fi_trecv(eps[1], in, length, NULL, numbers[0], 2, 0, in));
      WORKS(fi_tsend(eps[0], out, length, NULL, numbers[1], 2, out));
      struct ended one = next(&node), other = next(&node);
      CHECK(one.entry.op_context != other.entry.op_context && is_filled(in, length, 7));
      close_all();
    }
}

const struct test sibling_cases[] = {
    {"each_to_each", each_to_each},
    {"closed_with_an_unfinished_send_to_a_sibling", closed_with_an_unfinished_send_to_a_sibling},
    {NULL, NULL},
};
