// SPDX-License-Identifier: Apache-2.0 OR MIT
// Remote memory access, and its refusal.
#include <errno.h>
#include <rdma/fi_eq.h>
#include <stdlib.h>

#include "node.h"

static struct node a, b;
static fi_addr_t to_b;

static void open_both(void) {
  struct options options = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};
  node_open(&a, options);
  node_open(&b, options);
  to_b = node_add_peer(&a, &b);
  node_add_peer(&b, &a);
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
  OK(fi_mr_reg(b.domain, memory, BYTES, access, 0, KEY, 0, &region, NULL));
  CHECK(fi_mr_key(region) == KEY);
  return region;
}

static void invalid_accesses_are_refused(char **arguments) {
  (void)arguments;
  open_both();
  char *theirs = malloc(BYTES), *ours = malloc(BYTES);
  fill(theirs, BYTES, 1);
  fill(ours, BYTES, 2);
  struct fid_mr *region = expose(theirs, FI_REMOTE_READ);
  static const size_t lengths[] = {8, 1000, 100000};
  for (int i = 0; i < 3; i++) {
    size_t length = lengths[i];
    const struct {
      uint64_t offset, key;
    } wrong[] = {{0, KEY + 1}, {BYTES - length + 1, KEY}, {UINT64_MAX - 3, KEY}, {BYTES, KEY}};
    for (int which = 0; which < 4; which++) {
      OK(fi_read(a.ep, ours, length, NULL, to_b, wrong[which].offset, wrong[which].key, ours));
      CHECK(next_error(&a, which == 0 ? FI_EKEYREJECTED : ERANGE).entry.op_context == ours);
      OK(fi_write(a.ep, ours, length, NULL, to_b, wrong[which].offset, wrong[which].key, ours));
      struct completion completion = next_error(&a, which == 0 ? FI_EKEYREJECTED : FI_EACCES);
      CHECK(completion.entry.op_context == ours && completion.entry.flags & FI_WRITE);
    }
    // Only reads are allowed.
    OK(fi_write(a.ep, ours, length, NULL, to_b, 0, KEY, ours));
    next_error(&a, FI_EACCES);
    // Injected ones have no completion, but a failure is told: MPICH waits for it in a flush.
    if (length <= a.info->tx_attr->inject_size) {
      OK(fi_inject_write(a.ep, ours, length, to_b, 0, KEY));
      struct completion injected = next_error(&a, FI_EACCES);
      CHECK(!injected.entry.op_context && injected.entry.flags & FI_WRITE);
    }
    OK(fi_read(a.ep, ours, length, NULL, to_b, 16, KEY, ours));
    next_success(&a);
    CHECK(!memcmp(ours, theirs + 16, length));
  }
  uint64_t one = 1, before;
  OK(fi_fetch_atomic(a.ep, &one, 1, NULL, &before, NULL, to_b, 0, KEY, FI_UINT64, FI_SUM, NULL));
  next_error(&a, FI_EACCES);
  CHECK(is_filled(theirs, BYTES, 1));
  // Another region of the same key is refused; the key is free again once the first is closed.
  struct fid_mr *second;
  EXPECT(-FI_ENOKEY, fi_mr_reg(b.domain, theirs, BYTES, FI_REMOTE_WRITE, 0, KEY, 0, &second, NULL));
  OK(fi_close(&region->fid));
  region = expose(theirs, FI_REMOTE_READ | FI_REMOTE_WRITE);
  OK(fi_fetch_atomic(a.ep, &one, 1, NULL, &before, NULL, to_b, 8, KEY, FI_UINT64, FI_SUM, NULL));
  next_success(&a);
  uint64_t after;
  memcpy(&after, theirs + 8, 8);
  CHECK(after == before + 1);
  OK(fi_inject_write(a.ep, &before, 8, to_b, 8, KEY));
  expect_idle(&a, 0.02);
  // A read ignores its operand.
  struct fi_rma_ioc at = {8, 1, KEY};
  struct fi_ioc result = {&after, 1};
  struct fi_msg_atomic atomic = {
      .iov_count = 1, .addr = to_b, .rma_iov = &at, .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_ATOMIC_READ};
  OK(fi_fetch_atomicmsg(a.ep, &atomic, &result, NULL, 1, FI_COMPLETION));
  next_success(&a);
  CHECK(after == before);
  // An element beyond the end of the region.
  OK(fi_fetch_atomic(a.ep, &one, 1, NULL, &before, NULL, to_b, BYTES - 4, KEY, FI_UINT64, FI_SUM, NULL));
  next_error(&a, ERANGE);
  OK(fi_close(&region->fid));
  OK(fi_read(a.ep, ours, 8, NULL, to_b, 0, KEY, ours));
  next_error(&a, FI_EKEYREJECTED);
  free(theirs);
  free(ours);
  close_both();
}

// Who can connect may access memory, with a job token or without: in the address vector, not in it, and removed from
// it.
static void memory_is_open_to_peers_outside_the_address_vector(char **arguments) {
  (void)arguments;
  for (int has_token = 0; has_token <= 1; has_token++) {
    if (has_token) {
      setenv("FI_BAREWIRE_TOKEN", "1234", 1);
    }
    struct options options = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};
    node_open(&a, options);
    node_open(&b, options);
    to_b = node_add_peer(&a, &b);
    char *theirs = calloc(1, BYTES), *ours = malloc(BYTES);
    fill(ours, BYTES, 1);
    struct fid_mr *region = expose(theirs, FI_REMOTE_READ | FI_REMOTE_WRITE);
    fi_addr_t known = FI_ADDR_NOTAVAIL;
    for (int turn = 0; turn < 2; turn++) {
      memset(theirs, 0, BYTES);
      OK(fi_write(a.ep, ours, BYTES, NULL, to_b, 0, KEY, ours));
      next_success(&a);
      CHECK(!memcmp(theirs, ours, BYTES));
      if (turn == 0) known = node_add_peer(&b, &a);
    }
    // Its channel ends, so an access or two may fail with that error first.
    OK(fi_av_remove(b.av, &known, 1, 0));
    int error = 1;
    for (int attempts = 0; attempts < 5 && error; attempts++) {
      OK(fi_read(a.ep, ours, 8, NULL, to_b, 0, KEY, ours));
      error = next_completion(&a).error;
    }
    CHECK(!error, "%s", fi_strerror(error));
    OK(fi_close(&region->fid));
    free(theirs);
    free(ours);
    close_both();
  }
}

// A region is closed before or during a write: the memory is not written afterwards, and the writer gets an error.
static void memory_deregistered_during_a_write(char **arguments) {
  (void)arguments;
  open_both();
  size_t length = BYTES;
  char *theirs = malloc(BYTES), *ours = malloc(BYTES);
  memset(ours, 1, BYTES);
  int succeeded = 0, failed = 0;
  for (int round = 0; round < 200; round++) {
    memset(theirs, 0, BYTES);
    struct fid_mr *region = expose(theirs, FI_REMOTE_WRITE);
    OK(fi_write(a.ep, ours, length, NULL, to_b, 0, KEY, ours));
    for (int steps = 0; steps < round % 50; steps++) make_progress();
    OK(fi_close(&region->fid));
    memset(theirs, 2, BYTES);
    for (double until = now_s() + 60; !a.count; make_progress()) CHECK(now_s() < until, "timeout");
    struct completion completion = a.completions[a.first];
    completion = completion.error ? next_error(&a, FI_EKEYREJECTED) : next_success(&a);
    *(completion.error ? &failed : &succeeded) += 1;
    for (size_t at = 0; at < BYTES; at++)
      CHECK(theirs[at] == 2, "byte %zu was written after the region was closed", at);
  }
  CHECK(failed > 0, "%d succeeded, %d failed", succeeded, failed);
  OK(fi_send(a.ep, ours, 0, NULL, to_b, NULL));
  OK(fi_recv(b.ep, theirs, 8, NULL, FI_ADDR_UNSPEC, NULL));
  next_success(&b);
  free(theirs);
  free(ours);
  close_both();
}

// A peer's zero-byte writes with data, and its zero-byte messages for a multi-receive, cause completions without an
// operation posted here. If the program makes progress but does not read its queue, their number is bounded: the peer's
// calls return -FI_EAGAIN. Once the program reads, all of them arrive in order.
static void unread_completions_hold_back_senders(char **arguments) {
  (void)arguments;
  enum {
    UNREAD = 1 << 16,      // the provider's bound
    ON_THE_WAY = 1 << 13,  // queued by the sender, or in frames or the pipe
    TOO_MANY = UNREAD * 4
  };
  struct options options = {.caps = FI_MSG | FI_RMA | FI_MULTI_RECV, .has_counters = 1};
  node_open(&a, options);
  node_open(&b, options);
  to_b = node_add_peer(&a, &b);
  node_add_peer(&b, &a);
  char *theirs = malloc(BYTES), many[4096];
  struct fid_mr *region = expose(theirs, FI_REMOTE_WRITE);
  struct iovec part = {many, sizeof many};
  struct fi_msg receive = {.msg_iov = &part, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = many};
  OK(fi_recvmsg(b.ep, &receive, FI_MULTI_RECV));
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
    struct completion completion = next_success(&b);
    CHECK(completion.entry.data == number && completion.entry.flags & FI_REMOTE_CQ_DATA, "%lu for %lu",
          completion.entry.data, number);
  }
  // Further ones are accepted again.
  POST(fi_inject_writedata(a.ep, NULL, 0, sent, to_b, 0, KEY));
  CHECK(next_success(&b).entry.data == sent);
  OK(fi_close(&region->fid));
  free(theirs);
  close_both();
}

// A queue has the size that was asked for.
static void a_longer_queue_holds_back_nobody(char **arguments) {
  (void)arguments;
  enum {
    SIZE = 3 << 16
  };
  struct options options = {.caps = FI_MSG | FI_RMA, .queue_size = SIZE};
  node_open(&a, options);
  node_open(&b, options);
  to_b = node_add_peer(&a, &b);
  char *theirs = malloc(BYTES);
  struct fid_mr *region = expose(theirs, FI_REMOTE_WRITE);
  struct fid_cntr *written;
  OK(fi_cntr_open(b.domain, NULL, &written, NULL));
  OK(fi_mr_bind(region, &written->fid, FI_REMOTE_WRITE));
  double until = now_s() + 20;
  for (uint64_t sent = 0; sent < SIZE || fi_cntr_read(written) < SIZE;) {
    if (sent < SIZE && fi_inject_writedata(a.ep, NULL, 0, sent, to_b, 0, KEY) == 0) sent++;
    else fi_cq_read(a.cq, NULL, 0), fi_cntr_read(written);
    CHECK(now_s() < until, "%lu sent, %lu written", sent, fi_cntr_read(written));
  }
  OK(fi_close(&region->fid));
  OK(fi_close(&written->fid));
  free(theirs);
  close_both();
}

// A loop on fi_cq_read with a count of 0, or on fi_poll, drives progress also while the queue has an unread entry.
static void calls_that_read_nothing_make_progress(char **arguments) {
  (void)arguments;
  open_both();
  volatile char *theirs = calloc(1, BYTES);
  struct fid_mr *region = expose((void *)theirs, FI_REMOTE_WRITE);
  struct fid_poll *set;
  struct fi_poll_attr attributes = {0};
  OK(fi_poll_open(b.domain, &attributes, &set));
  OK(fi_poll_add(set, &b.cq->fid, 0));
  char in[8];
  OK(fi_recv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_send(a.ep, "message", 8, NULL, to_b, NULL));
  double until = now_s() + 5;
  while (fi_cq_read(b.cq, NULL, 0) != 0) {
    fi_cq_read(a.cq, NULL, 0);
    CHECK(now_s() < until, "no message");
  }
  for (int with_poll = 0; with_poll < 2; with_poll++) {
    OK(fi_inject_write(a.ep, "x", 1, to_b, with_poll, KEY));
    while (!theirs[with_poll]) {
      void *found;
      if (with_poll) EXPECT(1, fi_poll(set, &found, 1));
      else EXPECT(0, fi_cq_read(b.cq, NULL, 0));
      fi_cq_read(a.cq, NULL, 0);
      CHECK(now_s() < until, "no progress, fi_poll: %d", with_poll);
    }
  }
  next_success(&b);
  OK(fi_close(&set->fid));
  OK(fi_close(&region->fid));
  free((void *)theirs);
  close_both();
}

// The kind of memory counts only with FI_HMEM, and no registration is told of by an event.
static void registrations_ignore_what_is_not_offered(char **arguments) {
  (void)arguments;
  open_both();
  char *memory = malloc(BYTES);
  struct iovec part = {memory, BYTES};
  struct fi_mr_attr attributes = {.mr_iov = &part, .iov_count = 1, .access = FI_REMOTE_READ, .requested_key = KEY};
  memset(&attributes.iface, 0xee, sizeof attributes.iface);
  struct fid_mr *region;
  OK(fi_mr_regattr(b.domain, &attributes, 0, &region));
  OK(fi_close(&region->fid));
  EXPECT(-FI_EBADFLAGS, fi_mr_regattr(b.domain, &attributes, FI_CLAIM, &region));
  struct fid_eq *events;
  struct fi_eq_attr of_events = {.size = 4, .wait_obj = FI_WAIT_NONE};
  OK(fi_eq_open(b.fabric, &of_events, &events, NULL));
  EXPECT(-FI_ENOSYS, fi_domain_bind(b.domain, &events->fid, FI_REG_MR));
  OK(fi_domain_bind(b.domain, &events->fid, 0));
  OK(fi_close(&events->fid));
  close_both();
  free(memory);
}

const struct test memory_cases[] = {
    {"invalid_accesses_are_refused", invalid_accesses_are_refused},
    {"memory_is_open_to_peers_outside_the_address_vector", memory_is_open_to_peers_outside_the_address_vector},
    {"memory_deregistered_during_a_write", memory_deregistered_during_a_write},
    {"unread_completions_hold_back_senders", unread_completions_hold_back_senders},
    {"a_longer_queue_holds_back_nobody", a_longer_queue_holds_back_nobody},
    {"calls_that_read_nothing_make_progress", calls_that_read_nothing_make_progress},
    {"registrations_ignore_what_is_not_offered", registrations_ignore_what_is_not_offered},
    {NULL, NULL},
};
