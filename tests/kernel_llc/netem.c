// SPDX-License-Identifier: Apache-2.0 OR MIT
// Loss, duplication and delay of what the guest sends: the netem queueing discipline, asked for by rtnetlink.

#include <errno.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest.h"

enum {
  QUEUE_FRAMES = 10000
};  // far above any window, so that netem drops only what it was told to

// One request; the kernel's layout, attributes aligned to 4 bytes.
struct request {
  struct nlmsghdr header;
  struct tcmsg discipline;
  char attributes[128];
};

static void append(struct request *request, uint16_t type, const void *value, size_t length);
static struct rtattr *open_nest(struct request *request, uint16_t type);
static void close_nest(struct request *request, struct rtattr *nest);
static uint32_t share(const struct order *order, const char *key);
static int talk(const struct request *request);

// loss and duplicate in percent, delay_us in microseconds; a new order replaces the one before.
void set_netem(const struct order *order) {
  struct request request = {
      .header = {.nlmsg_len = NLMSG_LENGTH(sizeof request.discipline),
                 .nlmsg_type = RTM_NEWQDISC,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE},
      .discipline = {.tcm_family = AF_UNSPEC,
                     .tcm_ifindex = wire.index,
                     .tcm_handle = TC_H_MAKE(1U << 16, 0),
                     .tcm_parent = TC_H_ROOT},
  };
  struct tc_netem_qopt options = {
      .limit = QUEUE_FRAMES, .loss = share(order, "loss"), .duplicate = share(order, "duplicate")};
  int64_t delay_ns = (int64_t)number_of(order, "delay_us", 0) * 1000;
  append(&request, TCA_KIND, "netem", sizeof "netem");
  struct rtattr *nest = open_nest(&request, TCA_OPTIONS);
  // The options begin with a bare structure; attributes follow it.
  memcpy((char *)&request + request.header.nlmsg_len, &options, sizeof options);
  request.header.nlmsg_len += NLMSG_ALIGN(sizeof options);
  append(&request, TCA_NETEM_LATENCY64, &delay_ns, sizeof delay_ns);
  close_nest(&request, nest);
  errno = talk(&request);
  if (errno != 0) {
    report_failure(order, "netem");
  } else {
    report("\"event\":\"set\",\"id\":%ld", order->id);
  }
}

static void append(struct request *request, uint16_t type, const void *value, size_t length) {
  struct rtattr *attribute = (struct rtattr *)((char *)request + request->header.nlmsg_len);
  attribute->rta_type = type;
  attribute->rta_len = (unsigned short)RTA_LENGTH(length);
  memcpy(RTA_DATA(attribute), value, length);
  request->header.nlmsg_len += RTA_ALIGN(attribute->rta_len);
}

static struct rtattr *open_nest(struct request *request, uint16_t type) {
  struct rtattr *nest = (struct rtattr *)((char *)request + request->header.nlmsg_len);
  append(request, type, "", 0);
  return nest;
}

static void close_nest(struct request *request, struct rtattr *nest) {
  nest->rta_len = (unsigned short)((char *)request + request->header.nlmsg_len - (char *)nest);
}

// A percentage as netem counts probabilities: parts of 2^32 - 1.
static uint32_t share(const struct order *order, const char *key) {
  double percent = strtod(text_of(order, key, "0"), NULL);
  return (uint32_t)(fmin(fmax(percent, 0), 100) / 100 * UINT32_MAX);
}

// Returns 0 or an errno.
static int talk(const struct request *request) {
  struct {
    struct nlmsghdr header;
    struct nlmsgerr error;
    char rest[512];
  } answer = {0};
  int link = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (link < 0) return errno;
  int result = 0;
  if (send(link, request, request->header.nlmsg_len, 0) < 0 || recv(link, &answer, sizeof answer, 0) < 0) {
    result = errno;
  } else {
    result = answer.header.nlmsg_type == NLMSG_ERROR ? -answer.error.error : EPROTO;
  }
  close(link);
  return result;
}
