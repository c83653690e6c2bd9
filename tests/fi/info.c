// SPDX-License-Identifier: Apache-2.0 OR MIT
// What there is, and what is refused: hints, addresses, buffers.
#include <errno.h>
#include <rdma/fi_eq.h>

#include "node.h"

static void too_long(struct fi_info *hints) { hints->tx_attr->inject_size = 1 << 20; }
static void too_deep(struct fi_info *hints) { hints->tx_attr->size = 1 << 20; }
static void many_receives(struct fi_info *hints) { hints->rx_attr->size = 1 << 20; }
static void many_parts(struct fi_info *hints) { hints->rx_attr->iov_limit = 1000; }
static void collective(struct fi_info *hints) { hints->caps |= FI_COLLECTIVE; }
static void connected(struct fi_info *hints) { hints->ep_attr->type = FI_EP_MSG; }
static void of_the_internet(struct fi_info *hints) { hints->addr_format = FI_SOCKADDR_IN; }
static void of_another_domain(struct fi_info *hints) { hints->domain_attr->name = strdup("nosuch0"); }
static void of_another_fabric(struct fi_info *hints) { hints->fabric_attr->name = strdup("infinite"); }
static void long_data(struct fi_info *hints) { hints->domain_attr->cq_data_size = 16; }
static void long_keys(struct fi_info *hints) { hints->domain_attr->mr_key_size = 16; }
static void many_contexts(struct fi_info *hints) { hints->ep_attr->tx_ctx_cnt = 2; }
static void with_a_key(struct fi_info *hints) { hints->ep_attr->auth_key_size = 8; }
static void ordered(struct fi_info *hints) { hints->tx_attr->msg_order = FI_ORDER_WAR; }
static void sends_in_order(struct fi_info *hints) { hints->tx_attr->comp_order = FI_ORDER_STRICT; }
static void receives_in_order(struct fi_info *hints) { hints->rx_attr->comp_order = FI_ORDER_DATA; }
static void other_protocol(struct fi_info *hints) { hints->ep_attr->protocol = FI_PROTO_UDP; }
static void longer_than_any(struct fi_info *hints) {
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
    void (*ask)(struct fi_info *);
    const char *said;
  } wishes[] = {
      {too_long, "inject_size 1048576"},
      {too_deep, "1048576 sends at once"},
      {many_receives, "1048576 receives at once"},
      {many_parts, "more parts"},
      {collective, "capabilities that there are not"},
      {connected, "another type of endpoint"},
      {of_the_internet, "addresses of another format"},
      {of_another_domain, "another domain"},
      {of_another_fabric, "another fabric"},
      {long_data, "remote CQ data"},
      {long_keys, "keys of more than 8 bytes"},
      {many_contexts, "more than one transmit or receive context"},
      {with_a_key, "FI_BAREWIRE_TOKEN"},
      {ordered, "an order of messages that is not kept"},
      {sends_in_order, "an order of completions"},
      {receives_in_order, "an order of completions"},
      {other_protocol, "another protocol"},
      {longer_than_any, "messages of 1048576 bytes"},
      {tagged_datagrams, "capabilities that there are not"},
  };
  for (size_t place = 0; place < sizeof wishes / sizeof *wishes; place++) {
    struct fi_info *hints = hints_of(&(struct wish){0}), *found = NULL;
    wishes[place].ask(hints);
    log_begin();
    int status = fi_getinfo(API, NULL, NULL, 0, hints, &found);
    const char *said = log_end();
    CHECK(status == -FI_ENODATA, "%s: %d", wishes[place].said, status);
    CHECK(strstr(said, "the hints ask for") && strstr(said, wishes[place].said), "%s, not %s", said,
          wishes[place].said);
    fi_freeinfo(hints);
  }
}

static void addresses_of_others(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct wish){0});
  uint8_t names[3][64];
  size_t bytes = node.name_bytes;
  uint8_t *list = &names[0][0];
  for (int place = 0; place < 3; place++) memcpy(list + place * bytes, node.name, bytes);
  list[0] ^= 1;              // another provider's
  list[2 * bytes + 4] += 1;  // another version's
  fi_addr_t numbers[3];
  int status[3];
  log_begin();
  GIVES(1, fi_av_insert(node.av, list, 3, numbers, FI_SYNC_ERR, status));
  const char *said = log_end();
  CHECK(strstr(said, "not an address of this provider") && strstr(said, "install the same Barewire"), "%s", said);
  CHECK(status[0] == FI_EINVAL && status[1] == 0 && status[2] == FI_EINVAL, "%d %d %d", status[0], status[1],
        status[2]);
  CHECK(numbers[0] == FI_ADDR_NOTAVAIL && numbers[1] != FI_ADDR_NOTAVAIL && numbers[2] == FI_ADDR_NOTAVAIL);
  char byte = 0;
  GIVES(-FI_EINVAL, fi_send(node.ep, &byte, 1, NULL, FI_ADDR_NOTAVAIL, NULL));
  GIVES(-FI_EINVAL, fi_send(node.ep, &byte, 1, NULL, 77, NULL));
  WORKS(fi_av_remove(node.av, &numbers[1], 1, 0));
  GIVES(-FI_EINVAL, fi_send(node.ep, &byte, 1, NULL, numbers[1], NULL));
  GIVES(-FI_EINVAL, fi_av_remove(node.av, &numbers[1], 1, 0));
  node_close(&node);
}

// Each of three that authenticate their frames in another way knows itself only, and says why it refuses the others.
static void peers_that_are_protected_otherwise(char **arguments) {
  (void)arguments;
  static const char *const modes[] = {"none", "job", "encrypt"};
  struct node nodes[3];
  setenv("FI_BAREWIRE_SECRET", "00112233445566778899aabbccddeeff", 1);
  for (int own = 0; own < 3; own++) {
    setenv("FI_BAREWIRE_AUTH", modes[own], 1);
    node_open(&nodes[own], (struct wish){0});
  }
  for (int own = 0; own < 3; own++) {
    for (int peer = 0; peer < 3; peer++) {
      fi_addr_t number;
      char expected[80];
      snprintf(expected, sizeof expected, "FI_BAREWIRE_AUTH=%s, this process %s", modes[peer], modes[own]);
      log_begin();
      GIVES(own == peer, fi_av_insert(nodes[own].av, nodes[peer].name, 1, &number, 0, NULL));
      const char *said = log_end();
      CHECK((strstr(said, expected) == NULL) == (own == peer), "%s", said);
      CHECK(!strstr(said, "00112233"), "%s", said);
    }
  }
  for (int own = 0; own < 3; own++) node_close(&nodes[own]);
  unsetenv("FI_BAREWIRE_AUTH");
  unsetenv("FI_BAREWIRE_SECRET");
}

static void buffers_that_are_too_small(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct wish){0});
  uint8_t name[64];
  memset(name, 0xee, sizeof name);
  size_t room = 5;
  GIVES(-FI_ETOOSMALL, fi_getname(&node.ep->fid, name, &room));
  CHECK(room == node.name_bytes && name[5] == 0xee && !memcmp(name, node.name, 5));
  room = 0;
  GIVES(-FI_ETOOSMALL, fi_getname(&node.ep->fid, NULL, &room));
  CHECK(room == node.name_bytes);

  struct fid_eq *events;
  struct fi_eq_attr attributes = {.size = 4, .flags = FI_WRITE, .wait_obj = FI_WAIT_NONE};
  WORKS(fi_eq_open(node.fabric, &attributes, &events, NULL));
  struct fi_eq_entry event = {.fid = &node.ep->fid, .data = 7}, read;
  uint32_t kind = FI_NOTIFY;
  GIVES(sizeof event, fi_eq_write(events, kind, &event, sizeof event, 0));
  GIVES(-FI_ETOOSMALL, fi_eq_read(events, &kind, &read, 3, 0));
  GIVES(sizeof read, fi_eq_read(events, &kind, &read, sizeof read, 0));
  CHECK(read.data == 7 && read.fid == &node.ep->fid);
  GIVES(-FI_EAGAIN, fi_eq_read(events, &kind, &read, sizeof read, 0));
  WORKS(fi_close(&events->fid));

  char text[8];
  size_t length = sizeof text;
  CHECK(fi_av_straddr(node.av, node.name, text, &length) && length > sizeof text && strlen(text) < sizeof text);
  node_close(&node);
}

// libfabric's own providers would make other endpoints of ours, and come first.
static void no_layer_comes_between(char **arguments) {
  (void)arguments;
  struct fi_info *hints = hints_of(&(struct wish){0}), *found;
  free(hints->fabric_attr->prov_name);
  hints->fabric_attr->prov_name = NULL;
  WORKS(fi_getinfo(API, NULL, NULL, 0, hints, &found));
  for (struct fi_info *info = found; info; info = info->next)
    CHECK(!strcmp(info->fabric_attr->prov_name, "barewire"), "%s", info->fabric_attr->prov_name);
  fi_freeinfo(found);
  fi_freeinfo(hints);
}

static void order_of_closing_is_kept(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct wish){0});
  GIVES(-FI_EBUSY, fi_close(&node.cq->fid));
  GIVES(-FI_EBUSY, fi_close(&node.av->fid));
  GIVES(-FI_EBUSY, fi_close(&node.domain->fid));
  GIVES(-FI_EBUSY, fi_close(&node.fabric->fid));
  node_close(&node);
}

// By a line that says what to say instead, whether they are set before `fi_getinfo` or between it and `fi_domain`.
static void parameters_that_cannot_be_meant(char **arguments) {
  (void)arguments;
  static const struct {
    const char *name, *value, *said;
  } wrong[] = {
      {"FI_BAREWIRE_MTU", "8", "FI_BAREWIRE_MTU=8: frames would have no room"},
      {"FI_BAREWIRE_MTU", "0", "say 88 or more"},
      {"FI_BAREWIRE_MTU", "87", "say 88 or more"},
      {"FI_BAREWIRE_MTU", "-1", "FI_BAREWIRE_MTU=-1: say a number of bytes"},
      {"FI_BAREWIRE_WAIT", "spni", "FI_BAREWIRE_WAIT=spni: say spin, adaptive or block"},
      {"FI_BAREWIRE_TOKEN", "xyz", "FI_BAREWIRE_TOKEN=…: say 1 to 16 hexadecimal digits"},
      {"FI_BAREWIRE_SECRET", "0123456789abcde", "FI_BAREWIRE_SECRET=…: say 32 to 128 hexadecimal digits"},
      {"FI_BAREWIRE_AUTH", "yes", "FI_BAREWIRE_AUTH=yes: say none, job or encrypt"},
      {"FI_BAREWIRE_AUTH", "job", "FI_BAREWIRE_AUTH=job, and this process has no secret in common with its job"},
      {"FI_BAREWIRE_PATIENCE", "0", "say a number of seconds, 0.001 to 3600"},
      {"FI_BAREWIRE_PEERS", "0", "say a number from 1 to 32768"},
      {"FI_BAREWIRE_EAGER", "4k", "FI_BAREWIRE_EAGER=4k: say a number"},
      {"FI_BAREWIRE_INTERFACE", "nosuch0", "there is no interface 'nosuch0'"},
  };
  struct fi_info *hints = hints_of(&(struct wish){0}), *right, *found = NULL;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  WORKS(fi_getinfo(API, NULL, NULL, 0, hints, &right));
  WORKS(fi_fabric(right->fabric_attr, &fabric, NULL));
  for (size_t place = 0; place < sizeof wrong / sizeof *wrong; place++) {
    setenv(wrong[place].name, wrong[place].value, 1);
    log_begin();
    int status = fi_getinfo(API, NULL, NULL, 0, hints, &found);
    const char *said = log_end();
    CHECK(status == -FI_ENODATA && strstr(said, wrong[place].said), "%d %s", status, said);
    log_begin();
    status = fi_domain(fabric, right, &domain, NULL);
    said = log_end();
    if (status == 0) {
      // The interface is the one that `right` names.
      CHECK(!strcmp(wrong[place].name, "FI_BAREWIRE_INTERFACE"), "%s=%s", wrong[place].name, wrong[place].value);
      WORKS(fi_close(&domain->fid));
    } else {
      CHECK(status == -FI_EINVAL && strstr(said, wrong[place].said), "%d %s", status, said);
    }
    unsetenv(wrong[place].name);
  }
  WORKS(fi_close(&fabric->fid));
  fi_freeinfo(right);
  // The least that is right.
  setenv("FI_BAREWIRE_MTU", "88", 1);
  struct node node;
  node_open(&node, (struct wish){0});
  fi_addr_t itself = node_know(&node, &node);
  static char out[100000], in[100000];
  fill(out, sizeof out, 1);
  WORKS(fi_recv(node.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  WORKS(fi_send(node.ep, out, sizeof out, NULL, itself, out));
  next(&node);
  next(&node);
  CHECK(is_filled(in, sizeof in, 1));
  node_close(&node);
  fi_freeinfo(hints);
}

// What was bound first stays, and is free again once the endpoint is closed.
static void a_second_binding_is_refused(char **arguments) {
  (void)arguments;
  struct node node;
  node_open(&node, (struct wish){0});
  struct fi_av_attr vectors = {.type = FI_AV_TABLE};
  struct fi_cq_attr queues = {.format = FI_CQ_FORMAT_TAGGED};
  struct fid_av *first, *second;
  struct fid_cq *one, *other;
  struct fid_ep *ep;
  WORKS(fi_av_open(node.domain, &vectors, &first, NULL));
  WORKS(fi_av_open(node.domain, &vectors, &second, NULL));
  WORKS(fi_cq_open(node.domain, &queues, &one, NULL));
  WORKS(fi_cq_open(node.domain, &queues, &other, NULL));
  WORKS(fi_endpoint(node.domain, node.info, &ep, NULL));
  WORKS(fi_ep_bind(ep, &first->fid, 0));
  GIVES(-FI_EINVAL, fi_ep_bind(ep, &first->fid, 0));
  GIVES(-FI_EINVAL, fi_ep_bind(ep, &second->fid, 0));
  WORKS(fi_ep_bind(ep, &one->fid, FI_RECV));
  GIVES(-FI_EINVAL, fi_ep_bind(ep, &other->fid, FI_TRANSMIT | FI_RECV));
  WORKS(fi_ep_bind(ep, &one->fid, FI_TRANSMIT));
  // Nobody uses what was refused.
  WORKS(fi_close(&second->fid));
  WORKS(fi_close(&other->fid));
  GIVES(-FI_EBUSY, fi_close(&first->fid));
  GIVES(-FI_EBUSY, fi_close(&one->fid));
  // A message to itself, by the first of each.
  WORKS(fi_enable(ep));
  GIVES(-FI_EOPBADSTATE, fi_ep_bind(ep, &node.av->fid, 0));
  char name[64], in[8];
  size_t bytes = sizeof name;
  fi_addr_t itself;
  WORKS(fi_getname(&ep->fid, name, &bytes));
  GIVES(1, fi_av_insert(first, name, 1, &itself, 0, NULL));
  WORKS(fi_recv(ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, in));
  WORKS(fi_send(ep, "message", 8, NULL, itself, NULL));
  struct fi_cq_tagged_entry entry;
  double until = now_s() + 10;
  for (int ended = 0; ended < 2; ended += fi_cq_read(one, &entry, 1) == 1) CHECK(now_s() < until, "%d ended", ended);
  WORKS(fi_close(&ep->fid));
  WORKS(fi_close(&first->fid));
  WORKS(fi_close(&one->fid));
  node_close(&node);
}

const struct test info_cases[] = {
    {"hints_that_cannot_be_met", hints_that_cannot_be_met},
    {"addresses_of_others", addresses_of_others},
    {"peers_that_are_protected_otherwise", peers_that_are_protected_otherwise},
    {"buffers_that_are_too_small", buffers_that_are_too_small},
    {"no_layer_comes_between", no_layer_comes_between},
    {"order_of_closing_is_kept", order_of_closing_is_kept},
    {"parameters_that_cannot_be_meant", parameters_that_cannot_be_meant},
    {"a_second_binding_is_refused", a_second_binding_is_refused},
    {NULL, NULL},
};
