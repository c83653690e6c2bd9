// SPDX-License-Identifier: Apache-2.0 OR MIT
// Hints, addresses, buffers and parameters that are refused.
#include <errno.h>
#include <rdma/fi_eq.h>

#include "node.h"

static void large_inject(struct fi_info *hints) { hints->tx_attr->inject_size = 1 << 20; }
static void many_sends(struct fi_info *hints) { hints->tx_attr->size = 1 << 20; }
static void many_receives(struct fi_info *hints) { hints->rx_attr->size = 1 << 20; }
static void many_parts(struct fi_info *hints) { hints->rx_attr->iov_limit = 1000; }
static void collective(struct fi_info *hints) { hints->caps |= FI_COLLECTIVE; }
static void connected(struct fi_info *hints) { hints->ep_attr->type = FI_EP_MSG; }
static void internet_addresses(struct fi_info *hints) { hints->addr_format = FI_SOCKADDR_IN; }
static void another_domain(struct fi_info *hints) { hints->domain_attr->name = strdup("nosuch0"); }
static void another_fabric(struct fi_info *hints) { hints->fabric_attr->name = strdup("infinite"); }
static void long_data(struct fi_info *hints) { hints->domain_attr->cq_data_size = 16; }
static void long_keys(struct fi_info *hints) { hints->domain_attr->mr_key_size = 16; }
static void many_contexts(struct fi_info *hints) { hints->ep_attr->tx_ctx_cnt = 2; }
static void auth_key(struct fi_info *hints) { hints->ep_attr->auth_key_size = 8; }
static void strict_order(struct fi_info *hints) { hints->tx_attr->msg_order = FI_ORDER_WAR; }
static void ordered_sends(struct fi_info *hints) { hints->tx_attr->comp_order = FI_ORDER_STRICT; }
static void ordered_receives(struct fi_info *hints) { hints->rx_attr->comp_order = FI_ORDER_DATA; }
static void another_protocol(struct fi_info *hints) { hints->ep_attr->protocol = FI_PROTO_UDP; }
static void too_long_datagrams(struct fi_info *hints) {
  hints->ep_attr->type = FI_EP_DGRAM;
  hints->caps = FI_MSG;
  hints->ep_attr->max_msg_size = 1 << 20;
}
static void tagged_datagrams(struct fi_info *hints) {
  hints->ep_attr->type = FI_EP_DGRAM;
  hints->caps = FI_TAGGED;
}

static void hints_that_cannot_be_met(char **arguments) {
  (void)arguments;
  const struct {
    void (*apply)(struct fi_info *);
    const char *message;
  } cases[] = {
      {large_inject, "inject_size 1048576"},
      {many_sends, "1048576 pending sends"},
      {many_receives, "1048576 pending receives"},
      {many_parts, "too many I/O vector entries"},
      {collective, "unsupported capabilities"},
      {connected, "an endpoint type other than"},
      {internet_addresses, "another address format"},
      {another_domain, "another domain"},
      {another_fabric, "another fabric"},
      {long_data, "remote CQ data"},
      {long_keys, "keys of more than 8 bytes"},
      {many_contexts, "more than one transmit or receive context"},
      {auth_key, "FI_BAREWIRE_TOKEN"},
      {strict_order, "an unsupported message order"},
      {ordered_sends, "an unsupported completion order"},
      {ordered_receives, "an unsupported completion order"},
      {another_protocol, "another protocol"},
      {too_long_datagrams, "messages of 1048576 bytes"},
      {tagged_datagrams, "unsupported capabilities"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct fi_info *hints = hints_of(&(struct options){0}), *found = NULL;
    cases[i].apply(hints);
    log_begin();
    int status = fi_getinfo(API, NULL, NULL, 0, hints, &found);
    const char *log = log_end();
    CHECK(status == -FI_ENODATA, "%s: %d", cases[i].message, status);
    CHECK(strstr(log, "the hints ask for") && strstr(log, cases[i].message), "%s, not %s", log, cases[i].message);
    fi_freeinfo(hints);
  }
}

static void foreign_addresses_are_refused(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct options){0});
  uint8_t names[3][64];
  size_t bytes = node.name_bytes;
  uint8_t *list = &names[0][0];
  for (int i = 0; i < 3; i++) memcpy(list + i * bytes, node.name, bytes);
  list[0] ^= 1;              // another provider's
  list[2 * bytes + 4] += 1;  // another version's
  fi_addr_t numbers[3];
  int status[3];
  log_begin();
  EXPECT(1, fi_av_insert(node.av, list, 3, numbers, FI_SYNC_ERR, status));
  const char *log = log_end();
  CHECK(strstr(log, "not an address of this provider") && strstr(log, "install the same Barewire"), "%s", log);
  CHECK(status[0] == FI_EINVAL && status[1] == 0 && status[2] == FI_EINVAL, "%d %d %d", status[0], status[1],
        status[2]);
  CHECK(numbers[0] == FI_ADDR_NOTAVAIL && numbers[1] != FI_ADDR_NOTAVAIL && numbers[2] == FI_ADDR_NOTAVAIL);
  char byte = 0;
  EXPECT(-FI_EINVAL, fi_send(node.ep, &byte, 1, NULL, FI_ADDR_NOTAVAIL, NULL));
  EXPECT(-FI_EINVAL, fi_send(node.ep, &byte, 1, NULL, 77, NULL));
  OK(fi_av_remove(node.av, &numbers[1], 1, 0));
  EXPECT(-FI_EINVAL, fi_send(node.ep, &byte, 1, NULL, numbers[1], NULL));
  EXPECT(-FI_EINVAL, fi_av_remove(node.av, &numbers[1], 1, 0));
  node_close(&node);
}

// Nodes with different authentication refuse each other's addresses, with a reason.
static void peers_with_other_protection_are_refused(char **arguments) {
  (void)arguments;
  static const char *const modes[] = {"none", "job", "encrypt"};
  struct node nodes[3];
  setenv("FI_BAREWIRE_SECRET", "00112233445566778899aabbccddeeff", 1);
  for (int own = 0; own < 3; own++) {
    setenv("FI_BAREWIRE_AUTH", modes[own], 1);
    node_open(&nodes[own], (struct options){0});
  }
  for (int own = 0; own < 3; own++) {
    for (int peer = 0; peer < 3; peer++) {
      fi_addr_t number;
      char expected[80];
      snprintf(expected, sizeof expected, "FI_BAREWIRE_AUTH=%s, this process %s", modes[peer], modes[own]);
      log_begin();
      EXPECT(own == peer, fi_av_insert(nodes[own].av, nodes[peer].name, 1, &number, 0, NULL));
      const char *log = log_end();
      CHECK((strstr(log, expected) == NULL) == (own == peer), "%s", log);
      CHECK(!strstr(log, "00112233"), "%s", log);
    }
  }
  for (int own = 0; own < 3; own++) node_close(&nodes[own]);
  unsetenv("FI_BAREWIRE_AUTH");
  unsetenv("FI_BAREWIRE_SECRET");
}

// Nodes with different job tokens, of which one has none, refuse each other's addresses, with a reason; so do those
// with different secrets, with a token and without.
static void peers_with_other_tokens_are_refused(char **arguments) {
  (void)arguments;
  static const struct {
    const char *token, *auth, *secret;
  } jobs[] = {
      {"", "none", ""},
      {"1234", "none", ""},
      {"4321", "none", ""},
      {"", "job", "00112233445566778899aabbccddeeff"},
      {"", "job", "ff112233445566778899aabbccddeeff"},
      {"1234", "job", "00112233445566778899aabbccddeeff"},
      {"1234", "job", "ff112233445566778899aabbccddeeff"},
  };
  enum {
    JOBS = sizeof jobs / sizeof *jobs
  };
  // Two of each job.
  struct node nodes[2 * JOBS];
  for (int own = 0; own < 2 * JOBS; own++) {
    setenv("FI_BAREWIRE_TOKEN", jobs[own / 2].token, 1);
    setenv("FI_BAREWIRE_AUTH", jobs[own / 2].auth, 1);
    setenv("FI_BAREWIRE_SECRET", jobs[own / 2].secret, 1);
    node_open(&nodes[own], (struct options){0});
  }
  for (int own = 0; own < 2 * JOBS; own++) {
    for (int peer = 0; peer < 2 * JOBS; peer++) {
      fi_addr_t number;
      int is_of_job = own / 2 == peer / 2;
      log_begin();
      EXPECT(is_of_job, fi_av_insert(nodes[own].av, nodes[peer].name, 1, &number, 0, NULL));
      const char *log = log_end();
      CHECK((strstr(log, "so they cannot communicate: set the same") == NULL) == is_of_job, "%d %d %s", own, peer, log);
      CHECK(!strstr(log, "1234") && !strstr(log, "4321") && !strstr(log, "112233"), "%s", log);
    }
  }
  for (int own = 0; own < 2 * JOBS; own++) node_close(&nodes[own]);
  unsetenv("FI_BAREWIRE_TOKEN");
  unsetenv("FI_BAREWIRE_AUTH");
  unsetenv("FI_BAREWIRE_SECRET");
}

static void buffers_that_are_too_small(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct options){0});
  uint8_t name[64];
  memset(name, 0xee, sizeof name);
  size_t room = 5;
  EXPECT(-FI_ETOOSMALL, fi_getname(&node.ep->fid, name, &room));
  CHECK(room == node.name_bytes && name[5] == 0xee && !memcmp(name, node.name, 5));
  room = 0;
  EXPECT(-FI_ETOOSMALL, fi_getname(&node.ep->fid, NULL, &room));
  CHECK(room == node.name_bytes);

  struct fid_eq *events;
  struct fi_eq_attr attributes = {.size = 4, .flags = FI_WRITE, .wait_obj = FI_WAIT_NONE};
  OK(fi_eq_open(node.fabric, &attributes, &events, NULL));
  struct fi_eq_entry event = {.fid = &node.ep->fid, .data = 7}, read;
  uint32_t kind = FI_NOTIFY;
  EXPECT(sizeof event, fi_eq_write(events, kind, &event, sizeof event, 0));
  EXPECT(-FI_ETOOSMALL, fi_eq_read(events, &kind, &read, 3, 0));
  EXPECT(sizeof read, fi_eq_read(events, &kind, &read, sizeof read, 0));
  CHECK(read.data == 7 && read.fid == &node.ep->fid);
  EXPECT(-FI_EAGAIN, fi_eq_read(events, &kind, &read, sizeof read, 0));
  OK(fi_close(&events->fid));

  char text[8];
  size_t length = sizeof text;
  CHECK(fi_av_straddr(node.av, node.name, text, &length) && length > sizeof text && strlen(text) < sizeof text);
  node_close(&node);
}

// libfabric's utility providers would layer over ours, and be listed first.
static void no_utility_provider_layers_over_ours(char **arguments) {
  (void)arguments;
  struct fi_info *hints = hints_of(&(struct options){0}), *found;
  free(hints->fabric_attr->prov_name);
  hints->fabric_attr->prov_name = NULL;
  OK(fi_getinfo(API, NULL, NULL, 0, hints, &found));
  for (struct fi_info *info = found; info; info = info->next)
    CHECK(!strcmp(info->fabric_attr->prov_name, "barewire"), "%s", info->fabric_attr->prov_name);
  fi_freeinfo(found);
  fi_freeinfo(hints);
}

static void closing_order_is_enforced(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct options){0});
  EXPECT(-FI_EBUSY, fi_close(&node.cq->fid));
  EXPECT(-FI_EBUSY, fi_close(&node.av->fid));
  EXPECT(-FI_EBUSY, fi_close(&node.domain->fid));
  EXPECT(-FI_EBUSY, fi_close(&node.fabric->fid));
  node_close(&node);
}

// With the expected values, whether they are set before `fi_getinfo` or between it and `fi_domain`.
static void invalid_parameters_are_reported(char **arguments) {
  (void)arguments;
  static const struct {
    const char *name, *value, *message;
  } invalid[] = {
      {"FI_BAREWIRE_MTU", "8", "FI_BAREWIRE_MTU=8: frames would have no room"},
      {"FI_BAREWIRE_MTU", "0", "expected 88 or more"},
      {"FI_BAREWIRE_MTU", "87", "expected 88 or more"},
      {"FI_BAREWIRE_MTU", "-1", "FI_BAREWIRE_MTU=-1: expected a number of bytes"},
      {"FI_BAREWIRE_WAIT", "spni", "FI_BAREWIRE_WAIT=spni: expected spin, adaptive or block"},
      {"FI_BAREWIRE_TOKEN", "xyz", "FI_BAREWIRE_TOKEN=…: expected 1 to 16 hexadecimal digits"},
      {"FI_BAREWIRE_SECRET", "0123456789abcde", "FI_BAREWIRE_SECRET=…: expected 32 to 128 hexadecimal digits"},
      {"FI_BAREWIRE_AUTH", "yes", "FI_BAREWIRE_AUTH=yes: expected none, job or encrypt"},
      {"FI_BAREWIRE_AUTH", "job", "FI_BAREWIRE_AUTH=job, and this process has no secret in common with its job"},
      {"FI_BAREWIRE_PATIENCE", "0", "expected a number of seconds, 0.001 to 3600"},
      {"FI_BAREWIRE_PEERS", "0", "expected a number from 1 to 32768"},
      {"FI_BAREWIRE_EAGER", "4k", "FI_BAREWIRE_EAGER=4k: expected a number"},
      {"FI_BAREWIRE_INTERFACE", "nosuch0", "there is no interface 'nosuch0'"},
  };
  struct fi_info *hints = hints_of(&(struct options){0}), *valid, *found = NULL;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  OK(fi_getinfo(API, NULL, NULL, 0, hints, &valid));
  OK(fi_fabric(valid->fabric_attr, &fabric, NULL));
  for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
    setenv(invalid[i].name, invalid[i].value, 1);
    log_begin();
    int status = fi_getinfo(API, NULL, NULL, 0, hints, &found);
    const char *log = log_end();
    CHECK(status == -FI_ENODATA && strstr(log, invalid[i].message), "%d %s", status, log);
    log_begin();
    status = fi_domain(fabric, valid, &domain, NULL);
    log = log_end();
    if (status == 0) {
      // The domain uses the interface in `valid`.
      CHECK(!strcmp(invalid[i].name, "FI_BAREWIRE_INTERFACE"), "%s=%s", invalid[i].name, invalid[i].value);
      OK(fi_close(&domain->fid));
    } else {
      CHECK(status == -FI_EINVAL && strstr(log, invalid[i].message), "%d %s", status, log);
    }
    unsetenv(invalid[i].name);
  }
  OK(fi_close(&fabric->fid));
  fi_freeinfo(valid);
  // The smallest valid MTU.
  setenv("FI_BAREWIRE_MTU", "88", 1);
  struct node node;
  node_open(&node, (struct options){0});
  fi_addr_t itself = node_add_peer(&node, &node);
  static char out[200000], in[200000];
  fill(out, sizeof out, 1);
  OK(fi_recv(node.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_send(node.ep, out, sizeof out, NULL, itself, out));
  next_success(&node);
  next_success(&node);
  CHECK(is_filled(in, sizeof in, 1));
  node_close(&node);
  fi_freeinfo(hints);
}

// The first binding remains, and its object can be closed after the endpoint.
static void a_second_binding_is_refused(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct options){0});
  struct fi_av_attr vectors = {.type = FI_AV_TABLE};
  struct fi_cq_attr queues = {.format = FI_CQ_FORMAT_TAGGED};
  struct fid_av *first, *second;
  struct fid_cq *first_cq, *second_cq;
  struct fid_ep *ep;
  OK(fi_av_open(node.domain, &vectors, &first, NULL));
  // A hint.
  vectors.flags = FI_SYMMETRIC;
  OK(fi_av_open(node.domain, &vectors, &second, NULL));
  OK(fi_cq_open(node.domain, &queues, &first_cq, NULL));
  OK(fi_cq_open(node.domain, &queues, &second_cq, NULL));
  OK(fi_endpoint(node.domain, node.info, &ep, NULL));
  OK(fi_ep_bind(ep, &first->fid, 0));
  EXPECT(-FI_EINVAL, fi_ep_bind(ep, &first->fid, 0));
  EXPECT(-FI_EINVAL, fi_ep_bind(ep, &second->fid, 0));
  OK(fi_ep_bind(ep, &first_cq->fid, FI_RECV));
  EXPECT(-FI_EINVAL, fi_ep_bind(ep, &second_cq->fid, FI_TRANSMIT | FI_RECV));
  OK(fi_ep_bind(ep, &first_cq->fid, FI_TRANSMIT));
  // A refused binding leaves its object unused.
  OK(fi_close(&second->fid));
  OK(fi_close(&second_cq->fid));
  EXPECT(-FI_EBUSY, fi_close(&first->fid));
  EXPECT(-FI_EBUSY, fi_close(&first_cq->fid));
  // A message to self, through the first binding of each kind.
  OK(fi_enable(ep));
  EXPECT(-FI_EOPBADSTATE, fi_ep_bind(ep, &node.av->fid, 0));
  char name[64], in[8];
  size_t bytes = sizeof name;
  fi_addr_t itself;
  OK(fi_getname(&ep->fid, name, &bytes));
  EXPECT(1, fi_av_insert(first, name, 1, &itself, 0, NULL));
  OK(fi_recv(ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  OK(fi_send(ep, "message", 8, NULL, itself, NULL));
  struct fi_cq_tagged_entry entry;
  double until = now_s() + 10;
  for (int completed = 0; completed < 2; completed += fi_cq_read(first_cq, &entry, 1) == 1)
    CHECK(now_s() < until, "%d completed", completed);
  OK(fi_close(&ep->fid));
  OK(fi_close(&first->fid));
  OK(fi_close(&first_cq->fid));
  node_close(&node);
}

const struct test info_cases[] = {
    {"hints_that_cannot_be_met", hints_that_cannot_be_met},
    {"foreign_addresses_are_refused", foreign_addresses_are_refused},
    {"peers_with_other_protection_are_refused", peers_with_other_protection_are_refused},
    {"peers_with_other_tokens_are_refused", peers_with_other_tokens_are_refused},
    {"buffers_that_are_too_small", buffers_that_are_too_small},
    {"no_utility_provider_layers_over_ours", no_utility_provider_layers_over_ours},
    {"closing_order_is_enforced", closing_order_is_enforced},
    {"invalid_parameters_are_reported", invalid_parameters_are_reported},
    {"a_second_binding_is_refused", a_second_binding_is_refused},
    {NULL, NULL},
};
