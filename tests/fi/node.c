// SPDX-License-Identifier: Apache-2.0 OR MIT
// Endpoints for the cases, and the choice of a case.
#define _GNU_SOURCE
#include "node.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

// Longer than anything here takes on a busy machine.
#define PATIENCE_S 60.0
#define NODES 300

static struct node *nodes[NODES];

struct fi_info *hints_of(const struct wish *wish) {
  struct fi_info *hints = fi_allocinfo();
  CHECK(hints);
  hints->caps = wish->caps ? wish->caps : wish->type == FI_EP_DGRAM ? FI_MSG : FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
  hints->mode = FI_CONTEXT;
  hints->ep_attr->type = wish->type ? wish->type : FI_EP_RDM;
  hints->domain_attr->threading = wish->threading;
  hints->domain_attr->data_progress = wish->progress;
  hints->tx_attr->op_flags = wish->transmit_flags;
  hints->fabric_attr->prov_name = strdup("barewire");
  return hints;
}

void node_open(struct node *node, struct wish wish) {
  static int opened;
  memset(node, 0, sizeof *node);
  // The two ends of a wire: what is open on one reaches the other by frames.
  const char *wire = getenv("WIRE");
  if (wire) {
    char first[16];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(wire, ","), wire);
    setenv("FI_BAREWIRE_INTERFACE", opened++ % 2 ? strchr(wire, ',') + 1 : first, 1);
  }
  struct fi_info *hints = hints_of(&wish);
  WORKS(fi_getinfo(API, NULL, NULL, 0, hints, &node->info));
  fi_freeinfo(hints);
  WORKS(fi_fabric(node->info->fabric_attr, &node->fabric, NULL));
  WORKS(fi_domain(node->fabric, node->info, &node->domain, NULL));
  struct fi_av_attr av = {.type = FI_AV_TABLE};
  WORKS(fi_av_open(node->domain, &av, &node->av, NULL));
  struct fi_cq_attr cq = {.format = wish.format ? wish.format : FI_CQ_FORMAT_TAGGED, .wait_obj = wish.wait};
  WORKS(fi_cq_open(node->domain, &cq, &node->cq, NULL));
  WORKS(fi_endpoint(node->domain, node->info, &node->ep, NULL));
  WORKS(fi_ep_bind(node->ep, &node->av->fid, 0));
  WORKS(fi_ep_bind(node->ep, &node->cq->fid, FI_TRANSMIT | FI_RECV | wish.binding));
  if (wish.has_counters) {
    struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    WORKS(fi_cntr_open(node->domain, &counter, &node->sent, NULL));
    WORKS(fi_cntr_open(node->domain, &counter, &node->received, NULL));
    WORKS(fi_ep_bind(node->ep, &node->sent->fid, FI_SEND));
    WORKS(fi_ep_bind(node->ep, &node->received->fid, FI_RECV));
  }
  WORKS(fi_enable(node->ep));
  node->name_bytes = sizeof node->name;
  WORKS(fi_getname(&node->ep->fid, node->name, &node->name_bytes));
  size_t place = 0;
  while (place < NODES && nodes[place]) place++;
  CHECK(place < NODES);
  nodes[place] = node;
}

void node_close(struct node *node) {
  WORKS(fi_close(&node->ep->fid));
  if (node->sent) {
    WORKS(fi_close(&node->sent->fid));
    WORKS(fi_close(&node->received->fid));
  }
  WORKS(fi_close(&node->cq->fid));
  WORKS(fi_close(&node->av->fid));
  WORKS(fi_close(&node->domain->fid));
  WORKS(fi_close(&node->fabric->fid));
  fi_freeinfo(node->info);
  free(node->ended);
  for (size_t place = 0; place < NODES; place++)
    if (nodes[place] == node) nodes[place] = NULL;
}

fi_addr_t node_know(struct node *node, const struct node *peer) {
  fi_addr_t number;
  GIVES(1, fi_av_insert(node->av, peer->name, 1, &number, 0, NULL));
  return number;
}

static void remember(struct node *node, struct ended ended) {
  if (node->count == node->room) {
    size_t room = node->room ? 2 * node->room : 64;
    struct ended *more = malloc(room * sizeof *more);
    CHECK(more);
    for (size_t place = 0; place < node->count; place++) more[place] = node->ended[(node->first + place) % node->room];
    free(node->ended);
    node->ended = more;
    node->first = 0;
    node->room = room;
  }
  node->ended[(node->first + node->count++) % node->room] = ended;
}

static void take(struct node *node) {
  struct ended ended = {0};
  long read;
  while ((read = fi_cq_readfrom(node->cq, &ended.entry, 1, &ended.source)) == 1) remember(node, ended);
  if (read == -FI_EAVAIL) {
    struct fi_cq_err_entry error = {0};
    GIVES(1, fi_cq_readerr(node->cq, &error, 0));
    ended = (struct ended){.source = FI_ADDR_NOTAVAIL, .error = error.err, .lost = error.olen};
    ended.entry =
        (struct fi_cq_tagged_entry){error.op_context, error.flags, error.len, error.buf, error.data, error.tag};
    remember(node, ended);
  } else {
    CHECK(read == -FI_EAGAIN, "%ld %s", read, fi_strerror((int)-read));
  }
}

void turn(void) {
  for (size_t place = 0; place < NODES; place++)
    if (nodes[place]) take(nodes[place]);
}

struct ended any(struct node *node) {
  for (double until = now_s() + PATIENCE_S; !node->count; turn()) CHECK(now_s() < until, "nothing ends");
  struct ended ended = node->ended[node->first];
  node->first = (node->first + 1) % node->room;
  node->count--;
  return ended;
}

struct ended next(struct node *node) {
  struct ended ended = any(node);
  CHECK(ended.error == 0, "%s", fi_strerror(ended.error));
  return ended;
}

struct ended next_error(struct node *node, int error) {
  struct ended ended = any(node);
  CHECK(ended.error == error, "%d %s", ended.error, fi_strerror(ended.error));
  return ended;
}

void nothing(struct node *node, double seconds) {
  for (double until = now_s() + seconds; now_s() < until; turn())
    CHECK(node->count == 0, "context %p, error %d", node->ended[node->first].entry.op_context,
          node->ended[node->first].error);
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

// Every eighth byte of a long message would not show two pieces exchanged; a word that counts does.
static uint64_t word(uint64_t seed, size_t place) {
  return (seed + 1) * 0x9e3779b97f4a7c15u + place * 0xd1342543de82ef95u;
}

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

// Groups of cases that need no other process; without an argument they are listed.
#define CASES_ALONE 7

int main(int count, char **arguments) {
  const struct test *groups[] = {info_cases, message_cases,  waiting_cases, memory_cases,
                                 life_cases, datagram_cases, sibling_cases, peer_cases};
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (size_t group = 0; group < sizeof groups / sizeof *groups; group++)
    for (const struct test *test = groups[group]; test->name; test++) {
      if (count < 2 && group < CASES_ALONE) printf("%s\n", test->name);
      else if (count > 1 && !strcmp(test->name, arguments[1])) {
        test->run(arguments + 2);
        printf("%s: right\n", test->name);
        return 0;
      }
    }
  return count < 2 ? 0 : 2;
}
