// SPDX-License-Identifier: Apache-2.0 OR MIT
// Counters of peers' accesses to a memory region, and counters bound to an endpoint that is already enabled.
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "node.h"

enum {
  KEY = 42,
  OTHER_KEY = 43,
  BYTES = 1 << 20
};

static struct node a, b;
static fi_addr_t to_b;
static char ours[BYTES], theirs[BYTES], others[BYTES];

static void open_both(struct options options) {
  options.caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
  node_open(&a, options);
  node_open(&b, options);
  to_b = node_add_peer(&a, &b);
  node_add_peer(&b, &a);
}

static void close_both(void) {
  node_close(&a);
  node_close(&b);
}

static struct fid_mr *expose(void *memory, uint64_t key, uint64_t flags) {
  struct fid_mr *region;
  OK(fi_mr_reg(b.domain, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, flags, &region, NULL));
  return region;
}

static struct fid_cntr *open_counter(struct node *node) {
  struct fi_cntr_attr attributes = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
  struct fid_cntr *counter;
  OK(fi_cntr_open(node->domain, &attributes, &counter, NULL));
  return counter;
}

// What is not counted here is refused, instead of counting something else.
static void other_kinds_of_counters_are_refused(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct options){0});
  struct fi_cntr_attr of_bytes = {.events = (enum fi_cntr_events)1}, with_flags = {.flags = 1};
  struct fid_cntr *counter;
  EXPECT(-FI_ENOSYS, fi_cntr_open(node.domain, &of_bytes, &counter, NULL));
  EXPECT(-FI_ENOSYS, fi_cntr_open(node.domain, &with_flags, &counter, NULL));
  node_close(&node);
}

// A second endpoint of b's, with b's queue.
static struct node open_later(void) {
  struct node later = b;
  OK(fi_endpoint(b.domain, b.info, &later.ep, NULL));
  OK(fi_ep_bind(later.ep, &b.av->fid, 0));
  OK(fi_ep_bind(later.ep, &b.cq->fid, FI_TRANSMIT | FI_RECV));
  OK(fi_enable(later.ep));
  OK(fi_getname(&later.ep->fid, later.name, &later.name_bytes));
  return later;
}

static void write_to_b(fi_addr_t to, size_t length, uint64_t key) {
  OK(fi_write(a.ep, ours, length, NULL, to, 0, key, ours));
  next_success(&a);
}

// Writes count once their data is in place, also those through an endpoint that is enabled later. An atomic operation
// that fetches and updates is both a read and a write. Accesses to other regions and refused ones do not count.
static void a_counter_counts_accesses_to_its_region(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  struct fid_mr *region = expose(theirs, KEY, FI_RMA_EVENT), *other = expose(others, OTHER_KEY, 0);
  write_to_b(to_b, 8, KEY);
  struct fid_cntr *written = open_counter(&b), *read = open_counter(&b), *both = open_counter(&b);
  OK(fi_mr_bind(region, &written->fid, FI_REMOTE_WRITE));
  OK(fi_mr_bind(region, &read->fid, FI_REMOTE_READ));
  OK(fi_mr_bind(other, &both->fid, FI_REMOTE_WRITE | FI_REMOTE_READ));
  OK(fi_mr_enable(region));
  CHECK(fi_cntr_read(written) == 0);
  write_to_b(to_b, 8, KEY);
  fill(ours, BYTES, 1);
  OK(fi_write(a.ep, ours, BYTES, NULL, to_b, 0, KEY, ours));
  // No completion of the writer's is needed, nor its progress except to send.
  while (fi_cntr_read(written) < 2) fi_cq_read(a.cq, NULL, 0);
  CHECK(is_filled(theirs, BYTES, 1));
  next_success(&a);
  uint64_t one = 1, before;
  OK(fi_atomic(a.ep, &one, 1, NULL, to_b, 0, KEY, FI_UINT64, FI_SUM, ours));
  next_success(&a);
  CHECK(fi_cntr_read(written) == 3 && fi_cntr_read(read) == 0);
  OK(fi_fetch_atomic(a.ep, &one, 1, NULL, &before, NULL, to_b, 0, KEY, FI_UINT64, FI_SUM, ours));
  next_success(&a);
  CHECK(fi_cntr_read(written) == 4 && fi_cntr_read(read) == 1);
  OK(fi_fetch_atomic(a.ep, NULL, 1, NULL, &before, NULL, to_b, 0, KEY, FI_UINT64, FI_ATOMIC_READ, ours));
  next_success(&a);
  OK(fi_read(a.ep, ours, BYTES, NULL, to_b, 0, KEY, ours));
  next_success(&a);
  CHECK(fi_cntr_read(written) == 4 && fi_cntr_read(read) == 3);
  OK(fi_write(a.ep, ours, 8, NULL, to_b, BYTES, KEY, ours));
  next_error(&a, ERANGE);
  write_to_b(to_b, 8, OTHER_KEY);
  OK(fi_read(a.ep, ours, 8, NULL, to_b, 0, OTHER_KEY, ours));
  next_success(&a);
  CHECK(fi_cntr_read(written) == 4 && fi_cntr_read(read) == 3 && fi_cntr_read(both) == 2);

  struct node later = open_later();
  write_to_b(node_add_peer(&a, &later), 8, KEY);
  CHECK(fi_cntr_read(written) == 5, "%lu", fi_cntr_read(written));
  OK(fi_close(&later.ep->fid));
  CHECK(fi_cntr_read(written) == 5, "%lu", fi_cntr_read(written));

  // A counter is in use while the region is open, and keeps its value afterwards.
  EXPECT(-FI_EBUSY, fi_close(&written->fid));
  OK(fi_close(&region->fid));
  CHECK(fi_cntr_read(written) == 5 && fi_cntr_readerr(written) == 0 && fi_cntr_read(read) == 3);
  OK(fi_close(&written->fid));
  OK(fi_close(&read->fid));
  OK(fi_close(&other->fid));
  OK(fi_close(&both->fid));
  close_both();
}

static void wrong_bindings_are_refused(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  struct fid_mr *region = expose(theirs, KEY, 0);
  struct fid_cntr *counter = open_counter(&b), *second = open_counter(&b), *foreign = open_counter(&a);
  EXPECT(-FI_EINVAL, fi_mr_bind(region, &foreign->fid, FI_REMOTE_WRITE));
  EXPECT(-FI_EINVAL, fi_mr_bind(region, &b.ep->fid, 0));
  EXPECT(-FI_EBADFLAGS, fi_mr_bind(region, &counter->fid, 0));
  EXPECT(-FI_EBADFLAGS, fi_mr_bind(region, &counter->fid, FI_REMOTE_WRITE | FI_SEND));
  EXPECT(-FI_EBADFLAGS, fi_ep_bind(b.ep, &counter->fid, FI_SELECTIVE_COMPLETION));
  EXPECT(-FI_EINVAL, fi_ep_bind(b.ep, &foreign->fid, FI_SEND));
  // One counter for each kind of operation.
  OK(fi_mr_bind(region, &counter->fid, FI_REMOTE_WRITE));
  EXPECT(-FI_EINVAL, fi_mr_bind(region, &second->fid, FI_REMOTE_WRITE | FI_REMOTE_READ));
  OK(fi_ep_bind(b.ep, &counter->fid, FI_REMOTE_READ | FI_RECV));
  EXPECT(-FI_EINVAL, fi_ep_bind(b.ep, &second->fid, FI_SEND | FI_RECV));
  OK(fi_close(&second->fid));
  OK(fi_close(&foreign->fid));
  // Both bindings count.
  write_to_b(to_b, 8, KEY);
  OK(fi_read(a.ep, ours, 8, NULL, to_b, 0, KEY, ours));
  next_success(&a);
  CHECK(fi_cntr_read(counter) == 2, "%lu", fi_cntr_read(counter));
  EXPECT(-FI_EBUSY, fi_close(&counter->fid));
  OK(fi_close(&region->fid));
  EXPECT(-FI_EBUSY, fi_close(&counter->fid));
  OK(fi_close(&b.ep->fid));
  CHECK(fi_cntr_read(counter) == 2, "%lu", fi_cntr_read(counter));
  OK(fi_close(&counter->fid));
  OK(fi_endpoint(b.domain, b.info, &b.ep, NULL));
  close_both();
}

// They count from then on. Queue and address vector must be bound before.
static void counters_may_be_bound_to_enabled_endpoints(char **arguments) {
  (void)arguments;
  open_both((struct options){0});
  struct fid_mr *region = expose(theirs, KEY, 0);
  for (int i = 0; i < 3; i++) write_to_b(to_b, 8, KEY);
  OK(fi_write(a.ep, ours, 8, NULL, to_b, BYTES, KEY, ours));
  next_error(&a, ERANGE);
  struct fid_cntr *written = open_counter(&a), *by_peers = open_counter(&b);
  OK(fi_cntr_add(written, 10));
  OK(fi_ep_bind(a.ep, &written->fid, FI_WRITE));
  OK(fi_ep_bind(b.ep, &by_peers->fid, FI_REMOTE_WRITE));
  CHECK(fi_cntr_read(written) == 10 && fi_cntr_readerr(written) == 0 && fi_cntr_read(by_peers) == 0);
  write_to_b(to_b, 8, KEY);
  write_to_b(to_b, BYTES, KEY);
  CHECK(fi_cntr_read(written) == 12 && fi_cntr_read(by_peers) == 2);
  OK(fi_write(a.ep, ours, 8, NULL, to_b, BYTES, KEY, ours));
  next_error(&a, ERANGE);
  CHECK(fi_cntr_read(written) == 12 && fi_cntr_readerr(written) == 1);
  OK(fi_cntr_set(written, 1));
  write_to_b(to_b, 8, KEY);
  CHECK(fi_cntr_read(written) == 2);
  EXPECT(-FI_EOPBADSTATE, fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT));
  EXPECT(-FI_EOPBADSTATE, fi_ep_bind(a.ep, &a.av->fid, 0));
  EXPECT(-FI_EBUSY, fi_close(&by_peers->fid));
  OK(fi_close(&region->fid));
  OK(fi_close(&a.ep->fid));
  OK(fi_close(&b.ep->fid));
  CHECK(fi_cntr_read(written) == 2 && fi_cntr_readerr(written) == 1 && fi_cntr_read(by_peers) == 3);
  OK(fi_close(&written->fid));
  OK(fi_close(&by_peers->fid));
  OK(fi_endpoint(a.domain, a.info, &a.ep, NULL));
  OK(fi_endpoint(b.domain, b.info, &b.ep, NULL));
  close_both();
}

static void *write_later(void *unused) {
  (void)unused;
  usleep(300000);
  OK(fi_write(a.ep, ours, 100000, NULL, to_b, 0, KEY, ours));
  struct fi_cq_tagged_entry entry;
  EXPECT(1, fi_cq_sread(a.cq, &entry, 1, NULL, 10000));
  return NULL;
}

static void *add_error_later(void *counter) {
  usleep(300000);
  OK(fi_cntr_adderr(counter, 1));
  return NULL;
}

// Who waits for the counter of a region sleeps until a peer has written, or until the counter has an error.
static void a_peers_write_wakes_who_waits(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_WAIT", "block", 1);
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  for (int kind = 0; kind < 2; kind++) {
    open_both((struct options){.threading = FI_THREAD_SAFE, .progress = kinds[kind], .wait = FI_WAIT_UNSPEC});
    struct fid_mr *region = expose(theirs, KEY, 0);
    struct fid_cntr *written = open_counter(&b);
    OK(fi_mr_bind(region, &written->fid, FI_REMOTE_WRITE));
    EXPECT(-FI_ETIMEDOUT, fi_cntr_wait(written, 1, 10));
    pthread_t other;
    double began = now_s(), cpu_began = cpu_s();
    CHECK(!pthread_create(&other, NULL, write_later, NULL));
    OK(fi_cntr_wait(written, 1, 10000));
    CHECK(now_s() - began > 0.29 && now_s() - began < 1.0, "%.3f s", now_s() - began);
    CHECK(cpu_s() - cpu_began < 0.1, "%.3f s of a processor", cpu_s() - cpu_began);
    pthread_join(other, NULL);
    CHECK(!pthread_create(&other, NULL, add_error_later, written));
    EXPECT(-FI_EAVAIL, fi_cntr_wait(written, 2, 10000));
    pthread_join(other, NULL);
    OK(fi_close(&region->fid));
    OK(fi_close(&written->fid));
    close_both();
  }
}

static void *wait_for_one(void *counter) {
  OK(fi_cntr_wait(counter, 1, 10000));
  return NULL;
}

// A write through an endpoint that is enabled while a thread sleeps wakes it, whether or not a thread makes progress.
static void a_later_endpoint_wakes_who_waits(char **arguments) {
  (void)arguments;
  setenv("FI_BAREWIRE_WAIT", "block", 1);
  static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
  for (int kind = 0; kind < 2; kind++) {
    open_both((struct options){.threading = FI_THREAD_SAFE, .progress = kinds[kind], .wait = FI_WAIT_UNSPEC});
    struct fid_mr *region = expose(theirs, KEY, 0);
    struct fid_cntr *written = open_counter(&b);
    OK(fi_mr_bind(region, &written->fid, FI_REMOTE_WRITE));
    pthread_t waiter;
    CHECK(!pthread_create(&waiter, NULL, wait_for_one, written));
    usleep(200000);
    struct node later = open_later();
    double began = now_s();
    OK(fi_write(a.ep, ours, 8, NULL, node_add_peer(&a, &later), 0, KEY, ours));
    struct fi_cq_tagged_entry entry;
    EXPECT(1, fi_cq_sread(a.cq, &entry, 1, NULL, 5000));
    pthread_join(waiter, NULL);
    CHECK(now_s() - began < 0.7, "%.3f s", now_s() - began);
    OK(fi_close(&later.ep->fid));
    OK(fi_close(&region->fid));
    OK(fi_close(&written->fid));
    close_both();
  }
}

// Returns once the program may sleep on the counter.
static void try_wait(struct fid_cntr *counter) {
  struct fid *fid = &counter->fid;
  double began = now_s();
  long status;
  while ((status = fi_trywait(b.fabric, &fid, 1)) == -FI_EAGAIN) CHECK(now_s() - began < 1.0);
  OK(status);
}

// Nobody may sleep who has not read the counter's last change, whichever call received it.
static void a_change_that_was_not_read_lets_nobody_sleep(char **arguments) {
  (void)arguments;
  open_both((struct options){.wait = FI_WAIT_UNSPEC});
  struct fid_mr *region = expose(theirs, KEY, 0);
  struct fid_cntr *written = open_counter(&b);
  OK(fi_mr_bind(region, &written->fid, FI_REMOTE_WRITE));
  try_wait(written);
  struct fid *fids[] = {&b.cq->fid, &written->fid};
  for (uint64_t count = 1; count <= 2; count++) {
    write_to_b(to_b, 8, KEY);
    for (int turn = 0; turn < 3; turn++) EXPECT(-FI_EAGAIN, fi_trywait(b.fabric, fids, 2));
    CHECK(fi_cntr_readerr(written) == 0);
    EXPECT(-FI_EAGAIN, fi_trywait(b.fabric, fids, 2));
    CHECK(fi_cntr_read(written) == count);
    try_wait(written);
  }
  OK(fi_cntr_adderr(written, 1));
  EXPECT(-FI_EAGAIN, fi_trywait(b.fabric, fids, 2));
  CHECK(fi_cntr_readerr(written) == 1);
  try_wait(written);
  OK(fi_close(&region->fid));
  OK(fi_close(&written->fid));
  close_both();
}

const struct test counter_cases[] = {
    {"other_kinds_of_counters_are_refused", other_kinds_of_counters_are_refused},
    {"a_counter_counts_accesses_to_its_region", a_counter_counts_accesses_to_its_region},
    {"wrong_bindings_are_refused", wrong_bindings_are_refused},
    {"counters_may_be_bound_to_enabled_endpoints", counters_may_be_bound_to_enabled_endpoints},
    {"a_peers_write_wakes_who_waits", a_peers_write_wakes_who_waits},
    {"a_later_endpoint_wakes_who_waits", a_later_endpoint_wakes_who_waits},
    {"a_change_that_was_not_read_lets_nobody_sleep", a_change_that_was_not_read_lets_nobody_sleep},
    {NULL, NULL},
};
