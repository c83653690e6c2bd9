// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the cases share: an endpoint with all it needs, completions in the order in which they came, and checks that end
// the program with the line that failed.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API FI_VERSION(1, 17)

// Where it failed, and what was there instead.
#define CHECK(is_right, ...)                               \
  do {                                                     \
    if (!(is_right)) {                                     \
      printf("%s:%d: %s:", __FILE__, __LINE__, #is_right); \
      printf(" " __VA_ARGS__);                             \
      printf("\n");                                        \
      exit(1);                                             \
    }                                                      \
  } while (0)
#define WORKS(call)                                                                \
  do {                                                                             \
    long status_ = (long)(call);                                                   \
    CHECK(status_ == 0, "%s: %ld %s", #call, status_, fi_strerror((int)-status_)); \
  } while (0)
#define GIVES(expected, call)                                                                     \
  do {                                                                                            \
    long status_ = (long)(call);                                                                  \
    CHECK(status_ == (long)(expected), "%s: %ld %s", #call, status_, fi_strerror((int)-status_)); \
  } while (0)

// Posts it, as soon as there is room: a peer that has not answered yet may have few messages under way.
#define POSTS(call)                                        \
  do {                                                     \
    long posted_;                                          \
    while ((posted_ = (long)(call)) == -FI_EAGAIN) turn(); \
    GIVES(0, posted_);                                     \
  } while (0)

struct wish {
  enum fi_ep_type type;         // FI_EP_RDM if unset
  uint64_t caps;                // messages, tagged or not, if 0
  enum fi_threading threading;  // as offered if 0
  enum fi_progress progress;    // of data; as offered if 0
  enum fi_wait_obj wait;        // FI_WAIT_NONE if unset
  enum fi_cq_format format;     // FI_CQ_FORMAT_TAGGED if unset
  uint64_t transmit_flags;      // of calls without flags
  uint64_t binding;             // flags of the queue's binding besides the directions
  int has_counters;             // one for sends, one for receives
};

// An operation that has ended.
struct ended {
  struct fi_cq_tagged_entry entry;
  fi_addr_t source;
  int error;    // 0: it worked
  size_t lost;  // bytes that were cut off
};

struct node {
  struct fi_info *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *av;
  struct fid_cq *cq;
  struct fid_ep *ep;
  struct fid_cntr *sent, *received;
  uint8_t name[64];
  size_t name_bytes;
  struct ended *ended;
  size_t first, count, room;
};

struct fi_info *hints_of(const struct wish *wish);
void node_open(struct node *node, struct wish wish);
void node_close(struct node *node);
fi_addr_t node_know(struct node *node, const struct node *peer);
// Makes progress with every node that is open and takes what has ended.
void turn(void);
// The next operation of a node that has ended; of one that has not worked only if `error` says which.
struct ended next(struct node *node);
// Whether it has worked or not.
struct ended any(struct node *node);
struct ended next_error(struct node *node, int error);
// Nothing has ended for so long.
void nothing(struct node *node, double seconds);

double now_s(void);
double cpu_s(void);
void fill(void *to, size_t bytes, uint64_t seed);
int is_filled(const void *from, size_t bytes, uint64_t seed);

// Standard error since `log_begin`, to look for a line in.
void log_begin(void);
const char *log_end(void);

typedef void run_fn(char **arguments);
struct test {
  const char *name;
  run_fn *run;
};
extern const struct test info_cases[], message_cases[], waiting_cases[], memory_cases[], life_cases[], datagram_cases[],
    sibling_cases[], peer_cases[];
