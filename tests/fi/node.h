// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the test cases: an endpoint with its objects, its completions in order, and checks that exit with the line
// that failed.
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

// Exits with the line, the condition and the actual values.
#define CHECK(condition, ...)                               \
  do {                                                      \
    if (!(condition)) {                                     \
      printf("%s:%d: %s:", __FILE__, __LINE__, #condition); \
      printf(" " __VA_ARGS__);                              \
      printf("\n");                                         \
      exit(1);                                              \
    }                                                       \
  } while (0)
#define OK(call)                                                                   \
  do {                                                                             \
    long status_ = (long)(call);                                                   \
    CHECK(status_ == 0, "%s: %ld %s", #call, status_, fi_strerror((int)-status_)); \
  } while (0)
#define EXPECT(expected, call)                                                                    \
  do {                                                                                            \
    long status_ = (long)(call);                                                                  \
    CHECK(status_ == (long)(expected), "%s: %ld %s", #call, status_, fi_strerror((int)-status_)); \
  } while (0)

// Retries a post until there is room: few messages may be under way to a peer before its first answer.
#define POST(call)                                                  \
  do {                                                              \
    long posted_;                                                   \
    while ((posted_ = (long)(call)) == -FI_EAGAIN) make_progress(); \
    EXPECT(0, posted_);                                             \
  } while (0)

struct options {
  enum fi_ep_type type;         // FI_EP_RDM if unset
  uint64_t caps;                // messages, tagged or not, if 0
  enum fi_threading threading;  // as offered if 0
  enum fi_progress progress;    // of data; as offered if 0
  enum fi_wait_obj wait;        // FI_WAIT_NONE if unset
  enum fi_cq_format format;     // FI_CQ_FORMAT_TAGGED if unset
  uint64_t transmit_flags;      // of calls without flags
  size_t queue_size;            // as offered if 0
  uint64_t binding;             // flags of the queue's binding besides the directions
  int has_counters;             // one for sends, one for receives
};

// A completion.
struct completion {
  struct fi_cq_tagged_entry entry;
  fi_addr_t source;
  int error;        // 0 on success
  size_t overflow;  // bytes beyond the buffer
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
  struct completion *completions;
  size_t first, count, room;
};

struct fi_info *hints_of(const struct options *options);
void node_open(struct node *node, struct options options);
void node_close(struct node *node);
fi_addr_t node_add_peer(struct node *node, const struct node *peer);
// As if the peer had the node's job token.
fi_addr_t node_add_victim(struct node *node, const struct node *peer);
// Makes progress on all open nodes and reads their completions.
void make_progress(void);
// The next completion of a node, which must be a success.
struct completion next_success(struct node *node);
// The next completion, of either kind.
struct completion next_completion(struct node *node);
// The next completion, which must have this error.
struct completion next_error(struct node *node, int error);
// Checks that no completion arrives for a time.
void expect_idle(struct node *node, double seconds);

double now_s(void);
double cpu_s(void);
void fill(void *to, size_t bytes, uint64_t seed);
int is_filled(const void *from, size_t bytes, uint64_t seed);

// Capture standard error.
void log_begin(void);
const char *log_end(void);

typedef void run_fn(char **arguments);
struct test {
  const char *name;
  run_fn *run;
};
extern const struct test info_cases[], message_cases[], waiting_cases[], memory_cases[], life_cases[], datagram_cases[],
    sibling_cases[], counter_cases[], atomic_cases[], peer_cases[];
