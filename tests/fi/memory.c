// SPDX-License-Identifier: Apache-2.0 OR MIT
// Remote memory: what works, and what is refused to whom.
#include <errno.h>
#include <stdlib.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b;

static void open_both(void) {
  struct wish wish = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};
  node_open(&a, wish);
  node_open(&b, wish);
  to_b = node_know(&a, &b);
  node_know(&b, &a);
}

static void close_both(void) {
  node_close(&a);
  node_close(&b);
}

enum {
  KEY = 42,
  BYTES = 1 << 20
};

static struct fid_mr *expose(void *memory, uint64_t access) {
  struct fid_mr *region;
  WORKS(fi_mr_reg(b.domain, memory, BYTES, access, 0, KEY, 0, &region, NULL));
  CHECK(fi_mr_key(region) == KEY);
  return region;
}

static void accesses_that_are_not_allowed(char **arguments) {
  (void)arguments;
  open_both();
  char *theirs = malloc(BYTES), *ours = malloc(BYTES);
  fill(theirs, BYTES, 1);
  fill(ours, BYTES, 2);
  struct fid_mr *region = expose(theirs, FI_REMOTE_READ);
  static const size_t lengths[] = {8, 1000, 100000};
  for (int place = 0; place < 3; place++) {
    size_t length = lengths[place];
    const struct {
      uint64_t offset, key;
    } wrong[] = {{0, KEY + 1}, {BYTES - length + 1, KEY}, {UINT64_MAX - 3, KEY}, {BYTES, KEY}};
    for (int which = 0; which < 4; which++) {
      WORKS(fi_read(a.ep, ours, length, NULL, to_b, wrong[which].offset, wrong[which].key, ours));
      CHECK(next_error(&a, which == 0 ? FI_EKEYREJECTED : ERANGE).entry.op_context == ours);
      WORKS(fi_write(a.ep, ours, length, NULL, to_b, wrong[which].offset, wrong[which].key, ours));
      struct ended ended = next_error(&a, which == 0 ? FI_EKEYREJECTED : FI_EACCES);
      CHECK(ended.entry.op_context == ours && ended.entry.flags & FI_WRITE);
    }
    // Only reading is allowed.
    WORKS(fi_write(a.ep, ours, length, NULL, to_b, 0, KEY, ours));
    next_error(&a, FI_EACCES);
    WORKS(fi_read(a.ep, ours, length, NULL, to_b, 16, KEY, ours));
    next(&a);
    CHECK(!memcmp(ours, theirs + 16, length));
  }
  uint64_t one = 1, before;
  WORKS(fi_fetch_atomic(a.ep, &one, 1, NULL, &before, NULL, to_b, 0, KEY, FI_UINT64, FI_SUM, NULL));
  next_error(&a, FI_EACCES);
  CHECK(is_filled(theirs, BYTES, 1));
  // Another region of the same key is refused; the key is free again once the first is closed.
  struct fid_mr *second;
  GIVES(-FI_ENOKEY, fi_mr_reg(b.domain, theirs, BYTES, FI_REMOTE_WRITE, 0, KEY, 0, &second, NULL));
  WORKS(fi_close(&region->fid));
  region = expose(theirs, FI_REMOTE_READ | FI_REMOTE_WRITE);
  WORKS(fi_fetch_atomic(a.ep, &one, 1, NULL, &before, NULL, to_b, 8, KEY, FI_UINT64, FI_SUM, NULL));
  next(&a);
  uint64_t after;
  memcpy(&after, theirs + 8, 8);
  CHECK(after == before + 1);
  // Elements that do not lie where such elements may.
  WORKS(fi_fetch_atomic(a.ep, &one, 1, NULL, &before, NULL, to_b, BYTES - 4, KEY, FI_UINT64, FI_SUM, NULL));
  next_error(&a, ERANGE);
  WORKS(fi_close(&region->fid));
  WORKS(fi_read(a.ep, ours, 8, NULL, to_b, 0, KEY, ours));
  next_error(&a, FI_EKEYREJECTED);
  free(theirs);
  free(ours);
  close_both();
}

// Without a token for the job, memory is open to those whom the program has in its address vector, and to nobody else;
// with one to all who have it.
static void memory_is_closed_to_unknown_peers(char **arguments) {
  (void)arguments;
  for (int has_token = 0; has_token <= 1; has_token++) {
    if (has_token) {
      setenv("FI_BAREWIRE_TOKEN", "1234", 1);
    }
    struct wish wish = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};
    node_open(&a, wish);
    node_open(&b, wish);
    to_b = node_know(&a, &b);
    char *theirs = calloc(1, BYTES), *ours = malloc(BYTES);
    uint64_t one = 1;
    fi_addr_t known = FI_ADDR_NOTAVAIL;
    fill(ours, BYTES, 1);
    struct fid_mr *region = expose(theirs, FI_REMOTE_READ | FI_REMOTE_WRITE);
    if (!has_token) {
      WORKS(fi_write(a.ep, ours, 100000, NULL, to_b, 0, KEY, ours));
      next_error(&a, FI_EACCES);
      WORKS(fi_read(a.ep, ours, 8, NULL, to_b, 0, KEY, ours));
      next_error(&a, FI_EACCES);
      WORKS(fi_atomic(a.ep, &one, 1, NULL, to_b, 0, KEY, FI_UINT64, FI_SUM, ours));
      next_error(&a, FI_EACCES);
      for (int byte = 0; byte < BYTES; byte++) {
        CHECK(!theirs[byte]);
      }
      known = node_know(&b, &a);
    }
    WORKS(fi_write(a.ep, ours, BYTES, NULL, to_b, 0, KEY, ours));
    next(&a);
    CHECK(!memcmp(theirs, ours, BYTES));
    if (!has_token) {
      // Who is taken out is unknown again. Its channel ends with that, so an access or two may fail by that first.
      WORKS(fi_av_remove(b.av, &known, 1, 0));
      int error = 0;
      for (int attempts = 0; attempts < 5 && error != FI_EACCES; attempts++) {
        WORKS(fi_read(a.ep, ours, 8, NULL, to_b, 0, KEY, ours));
        error = any(&a).error;
      }
      CHECK(error == FI_EACCES, "%s", fi_strerror(error));
    }
    WORKS(fi_close(&region->fid));
    free(theirs);
    free(ours);
    close_both();
  }
}

// The memory is gone in the middle of a write, or before: it is not touched afterwards, and the writer is told.
static void memory_that_goes_while_it_is_written(char **arguments) {
  (void)arguments;
  open_both();
  size_t length = BYTES;
  char *theirs = malloc(BYTES), *ours = malloc(BYTES);
  memset(ours, 1, BYTES);
  int worked = 0, failed = 0;
  for (int turns = 0; turns < 200; turns++) {
    memset(theirs, 0, BYTES);
    struct fid_mr *region = expose(theirs, FI_REMOTE_WRITE);
    WORKS(fi_write(a.ep, ours, length, NULL, to_b, 0, KEY, ours));
    for (int steps = 0; steps < turns % 50; steps++) turn();
    WORKS(fi_close(&region->fid));
    memset(theirs, 2, BYTES);
    for (double until = now_s() + 60; !a.count; turn()) CHECK(now_s() < until, "nothing ends");
    struct ended ended = a.ended[a.first];
    ended = ended.error ? next_error(&a, FI_EKEYREJECTED) : next(&a);
    *(ended.error ? &failed : &worked) += 1;
    for (size_t at = 0; at < BYTES; at++)
      CHECK(theirs[at] == 2, "byte %zu was written after the region was closed", at);
  }
  CHECK(failed > 0, "%d worked, %d failed", worked, failed);
  WORKS(fi_send(a.ep, ours, 0, NULL, to_b, NULL));
  WORKS(fi_recv(b.ep, theirs, 8, NULL, FI_ADDR_UNSPEC, NULL));
  next(&b);
  free(theirs);
  free(ours);
  close_both();
}

// A peer's zero-byte writes with data, and its zero-byte messages for a receive of many, make completions that nobody
// here posted an operation for. A program that makes progress and does not read its queue holds a bounded number of
// them: the peer's calls say -FI_EAGAIN. Once it reads, all of them are there, in order.
static void what_is_not_read_lets_its_senders_wait(char **arguments) {
  (void)arguments;
  enum {
    UNREAD = 1 << 16,      // the provider's bound
    ON_THE_WAY = 1 << 13,  // what waits in the sender, and in the frames or the pipe between
    TOO_MANY = UNREAD * 4
  };
  struct wish wish = {.caps = FI_MSG | FI_RMA | FI_MULTI_RECV, .has_counters = 1};
  node_open(&a, wish);
  node_open(&b, wish);
  to_b = node_know(&a, &b);
  node_know(&b, &a);
  char *theirs = malloc(BYTES), many[4096];
  struct fid_mr *region = expose(theirs, FI_REMOTE_WRITE);
  struct iovec part = {many, sizeof many};
  struct fi_msg receive = {.msg_iov = &part, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = many};
  WORKS(fi_recvmsg(b.ep, &receive, FI_MULTI_RECV));
  uint64_t sent = 0;
  for (double last = now_s(); now_s() < last + 1 && sent < TOO_MANY;) {
    long status =
        sent % 2 ? fi_injectdata(a.ep, NULL, 0, sent, to_b) : fi_inject_writedata(a.ep, NULL, 0, sent, to_b, 0, KEY);
    CHECK(status == 0 || status == -FI_EAGAIN, "%s", fi_strerror((int)-status));
    if (status == 0) {
      sent++;
      last = now_s();
    }
    // Makes progress, and reads no completion.
    if (status || sent % 16 == 0) fi_cntr_read(b.received), fi_cntr_read(a.sent);
  }
  CHECK(sent >= UNREAD && sent < UNREAD + ON_THE_WAY, "%lu were taken", sent);
  for (uint64_t number = 0; number < sent; number++) {
    struct ended ended = next(&b);
    CHECK(ended.entry.data == number && ended.entry.flags & FI_REMOTE_CQ_DATA, "%lu for %lu", ended.entry.data, number);
  }
  // And others go on.
  POSTS(fi_inject_writedata(a.ep, NULL, 0, sent, to_b, 0, KEY));
  CHECK(next(&b).entry.data == sent);
  WORKS(fi_close(&region->fid));
  free(theirs);
  close_both();
}

const struct test memory_cases[] = {
    {"accesses_that_are_not_allowed", accesses_that_are_not_allowed},
    {"memory_is_closed_to_unknown_peers", memory_is_closed_to_unknown_peers},
    {"memory_that_goes_while_it_is_written", memory_that_goes_while_it_is_written},
    {"what_is_not_read_lets_its_senders_wait", what_is_not_read_lets_its_senders_wait},
    {NULL, NULL},
};
