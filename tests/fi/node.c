// SPDX-License-Identifier: Apache-2.0 OR MIT
// Endpoints for the test cases, and the selection of a case.
#define _GNU_SOURCE
#include "node.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

// Longer than any operation takes on a busy machine.
#define TIMEOUT_S 60.0
#define NODES 300

static struct node *nodes[NODES];

struct fi_info *hints_of(const struct options *options) {
  struct fi_info *hints = fi_allocinfo();
  CHECK(hints);
  hints->caps = options->caps                  ? options->caps
                : options->type == FI_EP_DGRAM ? FI_MSG
                                               : FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
  hints->mode = FI_CONTEXT;
  hints->ep_attr->type = options->type ? options->type : FI_EP_RDM;
  hints->domain_attr->threading = options->threading;
  hints->domain_attr->data_progress = options->progress;
  hints->tx_attr->op_flags = options->transmit_flags;
  hints->fabric_attr->prov_name = strdup("barewire");
  return hints;
}

void node_open(struct node *node, struct options options) {
  static int opened;
  memset(node, 0, sizeof *node);
  // Nodes alternate between the two ends of a wire, so that they communicate by frames.
  const char *wire = getenv("WIRE");
  if (wire) {
    char first[16];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(wire, ","), wire);
    setenv("FI_BAREWIRE_INTERFACE", opened++ % 2 ? strchr(wire, ',') + 1 : first, 1);
  }
  struct fi_info *hints = hints_of(&options);
  OK(fi_getinfo(API, NULL, NULL, 0, hints, &node->info));
  fi_freeinfo(hints);
  OK(fi_fabric(node->info->fabric_attr, &node->fabric, NULL));
  OK(fi_domain(node->fabric, node->info, &node->domain, NULL));
  struct fi_av_attr av = {.type = FI_AV_TABLE};
  OK(fi_av_open(node->domain, &av, &node->av, NULL));
  struct fi_cq_attr cq = {.format = options.format ? options.format : FI_CQ_FORMAT_TAGGED,
                          .wait_obj = options.wait,
                          .size = options.queue_size};
  OK(fi_cq_open(node->domain, &cq, &node->cq, NULL));
  OK(fi_endpoint(node->domain, node->info, &node->ep, NULL));
  OK(fi_ep_bind(node->ep, &node->av->fid, 0));
  OK(fi_ep_bind(node->ep, &node->cq->fid, FI_TRANSMIT | FI_RECV | options.binding));
  if (options.has_counters) {
    struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    OK(fi_cntr_open(node->domain, &counter, &node->sent, NULL));
    OK(fi_cntr_open(node->domain, &counter, &node->received, NULL));
    OK(fi_ep_bind(node->ep, &node->sent->fid, FI_SEND));
    OK(fi_ep_bind(node->ep, &node->received->fid, FI_RECV));
  }
  OK(fi_enable(node->ep));
  node->name_bytes = sizeof node->name;
  OK(fi_getname(&node->ep->fid, node->name, &node->name_bytes));
  size_t i = 0;
  while (i < NODES && nodes[i]) i++;
  CHECK(i < NODES);
  nodes[i] = node;
}

void node_close(struct node *node) {
  OK(fi_close(&node->ep->fid));
  if (node->sent) {
    OK(fi_close(&node->sent->fid));
    OK(fi_close(&node->received->fid));
  }
  OK(fi_close(&node->cq->fid));
  OK(fi_close(&node->av->fid));
  OK(fi_close(&node->domain->fid));
  OK(fi_close(&node->fabric->fid));
  fi_freeinfo(node->info);
  free(node->completions);
  for (size_t i = 0; i < NODES; i++)
    if (nodes[i] == node) nodes[i] = NULL;
}

fi_addr_t node_add_peer(struct node *node, const struct node *peer) {
  fi_addr_t number;
  EXPECT(1, fi_av_insert(node->av, peer->name, 1, &number, 0, NULL));
  return number;
}

fi_addr_t node_add_victim(struct node *node, const struct node *peer) {
  struct node same = *peer;
  // The end of an address is a hash of the token.
  memcpy(same.name + same.name_bytes - 2, node->name + node->name_bytes - 2, 2);
  return node_add_peer(node, &same);
}

static void remember(struct node *node, struct completion completion) {
  if (node->count == node->room) {
    size_t room = node->room ? 2 * node->room : 64;
    struct completion *more = malloc(room * sizeof *more);
    CHECK(more);
    for (size_t i = 0; i < node->count; i++) more[i] = node->completions[(node->first + i) % node->room];
    free(node->completions);
    node->completions = more;
    node->first = 0;
    node->room = room;
  }
  node->completions[(node->first + node->count++) % node->room] = completion;
}

static void take(struct node *node) {
  struct completion completion = {0};
  long read;
  while ((read = fi_cq_readfrom(node->cq, &completion.entry, 1, &completion.source)) == 1) remember(node, completion);
  if (read == -FI_EAVAIL) {
    struct fi_cq_err_entry error = {0};
    EXPECT(1, fi_cq_readerr(node->cq, &error, 0));
    completion = (struct completion){.source = FI_ADDR_NOTAVAIL, .error = error.err, .overflow = error.olen};
    completion.entry =
        (struct fi_cq_tagged_entry){error.op_context, error.flags, error.len, error.buf, error.data, error.tag};
    remember(node, completion);
  } else {
    CHECK(read == -FI_EAGAIN, "%ld %s", read, fi_strerror((int)-read));
  }
}

void make_progress(void) {
  for (size_t i = 0; i < NODES; i++)
    if (nodes[i]) take(nodes[i]);
}

struct completion next_completion(struct node *node) {
  for (double until = now_s() + TIMEOUT_S; !node->count; make_progress()) CHECK(now_s() < until, "timeout");
  struct completion completion = node->completions[node->first];
  node->first = (node->first + 1) % node->room;
  node->count--;
  return completion;
}

struct completion next_success(struct node *node) {
  struct completion completion = next_completion(node);
  CHECK(completion.error == 0, "%s", fi_strerror(completion.error));
  return completion;
}

struct completion next_error(struct node *node, int error) {
  struct completion completion = next_completion(node);
  CHECK(completion.error == error, "%d %s", completion.error, fi_strerror(completion.error));
  return completion;
}

void expect_idle(struct node *node, double seconds) {
  for (double until = now_s() + seconds; now_s() < until; make_progress())
    CHECK(node->count == 0, "context %p, error %d", node->completions[node->first].entry.op_context,
          node->completions[node->first].error);
}

double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

double cpu_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Words that depend on their position reveal exchanged parts of a message.
static uint64_t word(uint64_t seed, size_t i) { return (seed + 1) * 0x9e3779b97f4a7c15u + i * 0xd1342543de82ef95u; }

void fill(void *to, size_t bytes, uint64_t seed) {
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t value = word(seed, at / 8);
    memcpy((char *)to + at, &value, bytes - at < 8 ? bytes - at : 8);
  }
}

int is_filled(const void *from, size_t bytes, uint64_t seed) {
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t value = word(seed, at / 8);
    if (memcmp((const char *)from + at, &value, bytes - at < 8 ? bytes - at : 8)) return 0;
  }
  return 1;
}

static int log_file = -1, old_stderr = -1;

void log_begin(void) {
  fflush(stderr);
  old_stderr = dup(2);
  log_file = memfd_create("log", 0);
  CHECK(old_stderr >= 0 && log_file >= 0 && dup2(log_file, 2) == 2);
}

const char *log_end(void) {
  static char text[1 << 16];
  fflush(stderr);
  CHECK(dup2(old_stderr, 2) == 2);
  long length = pread(log_file, text, sizeof text - 1, 0);
  CHECK(length >= 0);
  text[length] = 0;
  close(old_stderr);
  close(log_file);
  return text;
}

// The first groups need no other process; without an argument their cases are listed.
#define SINGLE_PROCESS_GROUPS 9

int main(int count, char **arguments) {
  const struct test *groups[] = {info_cases,    message_cases, waiting_cases,  memory_cases,  atomic_cases,
                                 counter_cases, life_cases,    datagram_cases, sibling_cases, peer_cases};
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (size_t group = 0; group < sizeof groups / sizeof *groups; group++)
    for (const struct test *test = groups[group]; test->name; test++) {
      if (count < 2 && group < SINGLE_PROCESS_GROUPS) printf("%s\n", test->name);
      else if (count > 1 && !strcmp(test->name, arguments[1])) {
        test->run(arguments + 2);
        printf("%s: passed\n", test->name);
        return 0;
      }
    }
  return count < 2 ? 0 : 2;
}
