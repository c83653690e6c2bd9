// SPDX-License-Identifier: Apache-2.0 OR MIT
// Other processes, on this host or on another: they exchange addresses by a Unix socket, which lab hosts share.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "node.h"

static struct sockaddr_un place(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  CHECK(strlen(path) < sizeof address.sun_path);
  strcpy(address.sun_path, path);
  return address;
}

static fi_addr_t exchange_names(struct node *node, int socket) {
  struct node peer = {.name_bytes = node->name_bytes};
  CHECK(write(socket, node->name, node->name_bytes) == (long)node->name_bytes);
  CHECK(recv(socket, peer.name, peer.name_bytes, MSG_WAITALL) == (long)peer.name_bytes);
  return node_know(node, &peer);
}

// Waits for one who calls.
static int answer(const char *path) {
  struct sockaddr_un address = place(path);
  int door = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(!bind(door, (struct sockaddr *)&address, sizeof address) && !listen(door, 1));
  int one = accept(door, NULL, NULL);
  CHECK(one >= 0);
  close(door);
  return one;
}

static int call(const char *path) {
  struct sockaddr_un address = place(path);
  int one = socket(AF_UNIX, SOCK_STREAM, 0);
  for (double until = now_s() + 20; connect(one, (struct sockaddr *)&address, sizeof address); usleep(10000))
    CHECK(now_s() < until, "nobody at %s", path);
  return one;
}

enum {
  PING = 1,
  BULK,
  NEVER,
  LONG = 1 << 20
};

// Echoes pings and takes long messages, until the socket is closed.
static void serve(char **arguments) {
  struct node node;
  node_open(&node, (struct wish){0});
  int socket = answer(arguments[0]);
  fi_addr_t caller = exchange_names(&node, socket);
  static char in[64], bulk[LONG], byte;
  WORKS(fi_trecv(node.ep, in, sizeof in, NULL, caller, PING, 0, in));
  WORKS(fi_trecv(node.ep, bulk, sizeof bulk, NULL, caller, BULK, 0, bulk));
  while (recv(socket, &byte, 1, MSG_DONTWAIT) < 0) {
    turn();
    while (node.count) {
      // The caller closes its endpoint, which may be seen before its socket's end.
      if (node.ended[node.first].error == FI_ECONNRESET) {
        next_error(&node, FI_ECONNRESET);
        continue;
      }
      struct ended ended = next(&node);
      if (ended.entry.op_context == in) {
        WORKS(fi_tinject(node.ep, in, ended.entry.len, caller, PING));
        WORKS(fi_trecv(node.ep, in, sizeof in, NULL, caller, PING, 0, in));
      } else if (ended.entry.op_context == bulk) {
        WORKS(fi_trecv(node.ep, bulk, sizeof bulk, NULL, caller, BULK, 0, bulk));
      }
    }
  }
  node_close(&node);
}

// One of two peers is killed while it gets long messages: what concerns it fails in time, the other's round trips go
// on.
static void a_killed_peer(char **arguments) {
  double patience = atof(getenv("FI_BAREWIRE_PATIENCE"));
  struct node node;
  node_open(&node, (struct wish){0});
  int victims = call(arguments[0]), others = call(arguments[1]);
  fi_addr_t victim = exchange_names(&node, victims), other = exchange_names(&node, others);
  struct ucred peer;
  socklen_t length = sizeof peer;
  CHECK(!getsockopt(victims, SOL_SOCKET, SO_PEERCRED, &peer, &length) && peer.pid > 1);

  static char out[LONG], in[64], never[8], anybody[8], ping[64];
  enum {
    BULKS = 4
  };
  int bulks = 0, answers = 0, failed_bulks = 0, has_failed_receive = 0;
  double began = now_s(), killed = 0, last_answer = now_s(), longest = 0;
  fill(ping, sizeof ping, 0);
  WORKS(fi_trecv(node.ep, never, sizeof never, NULL, victim, NEVER, 0, never));
  WORKS(fi_trecv(node.ep, anybody, sizeof anybody, NULL, FI_ADDR_UNSPEC, NEVER, 0, anybody));
  WORKS(fi_trecv(node.ep, in, sizeof in, NULL, other, PING, 0, in));
  WORKS(fi_tinject(node.ep, ping, sizeof ping, other, PING));
  for (; bulks < BULKS; bulks++) POSTS(fi_tsend(node.ep, out, sizeof out, NULL, victim, BULK, out));
  while (!killed || failed_bulks < BULKS || !has_failed_receive) {
    CHECK(!killed || now_s() < killed + patience * 1.25 + 0.5, "%d of %d sends failed, receive: %d", failed_bulks,
          BULKS, has_failed_receive);
    if (!killed && now_s() > began + 1.5) {
      CHECK(!kill(peer.pid, SIGKILL));
      killed = now_s();
    }
    turn();
    while (node.count) {
      void *context = node.ended[node.first].entry.op_context;
      int error = node.ended[node.first].error;
      if (error) {
        struct ended ended = next_error(&node, error);
        CHECK(killed && (context == out || context == never), "%s of %p", fi_strerror(error), context);
        CHECK(error == FI_ECONNRESET || error == FI_EHOSTUNREACH, "%s", fi_strerror(ended.error));
        failed_bulks += context == out;
        has_failed_receive |= context == never;
        continue;
      }
      struct ended ended = next(&node);
      if (context == out) {
        long status = fi_tsend(node.ep, out, sizeof out, NULL, victim, BULK, out);
        CHECK(status == 0 || killed, "%s", fi_strerror((int)-status));
        failed_bulks += status != 0;
      } else if (context == in) {
        CHECK(ended.entry.len == sizeof ping && is_filled(in, sizeof in, answers));
        double gap = now_s() - last_answer;
        longest = gap > longest && answers ? gap : longest;
        last_answer = now_s();
        fill(ping, sizeof ping, ++answers);
        WORKS(fi_trecv(node.ep, in, sizeof in, NULL, other, PING, 0, in));
        WORKS(fi_tinject(node.ep, ping, sizeof ping, other, PING));
      }
    }
  }
  printf("all that concerned the killed peer failed after %.3f s; %d round trips with the other, %.1f ms at most\n",
         now_s() - killed, answers, longest * 1e3);
  CHECK(answers > 10 && longest < 0.5, "%d round trips, %.3f s", answers, longest);
  // Receives from anybody wait on, and the other is still heard.
  WORKS(fi_cancel(&node.ep->fid, anybody));
  close(others);
  node_close(&node);
}

// One message of so many bytes to another process, checked byte by byte.
static void one_message(char **arguments) {
  size_t bytes = strtoull(arguments[1], NULL, 10);
  int is_sender = !strcmp(arguments[2], "send");
  struct node node;
  node_open(&node, (struct wish){0});
  int socket = is_sender ? call(arguments[0]) : answer(arguments[0]);
  fi_addr_t peer = exchange_names(&node, socket);
  char *memory = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  if (is_sender) {
    fill(memory, bytes, 4);
    WORKS(fi_tsend(node.ep, memory, bytes, NULL, peer, 1, memory));
    next(&node);
  } else {
    WORKS(fi_trecv(node.ep, memory, bytes, NULL, peer, 1, 0, memory));
    CHECK(next(&node).entry.len == bytes && is_filled(memory, bytes, 4));
  }
  node_close(&node);
}

// Messages there and back between two processes; says where this one is.
static void there_and_back(char **arguments) {
  struct node node;
  node_open(&node, (struct wish){0});
  char text[64];
  size_t room = sizeof text;
  printf("at %s\n", fi_av_straddr(node.av, node.name, text, &room));
  int calls = !strcmp(arguments[1], "call");
  int socket = calls ? call(arguments[0]) : answer(arguments[0]);
  fi_addr_t peer = exchange_names(&node, socket);
  static const size_t lengths[] = {0, 8, 1000, 16385, LONG};
  static char out[LONG], in[LONG];
  for (uint64_t turns = 0; turns < 50; turns++) {
    size_t length = lengths[turns % 5];
    WORKS(fi_trecv(node.ep, in, length, NULL, peer, turns, 0, in));
    fill(out, length, 2 * turns + (uint64_t)calls);
    if (!calls) CHECK(next(&node).entry.op_context == in);
    POSTS(fi_tsend(node.ep, out, length, NULL, peer, turns, out));
    next(&node);
    if (calls) next(&node);
    CHECK(is_filled(in, length, 2 * turns + (uint64_t)!calls), "%zu bytes", length);
  }
  node_close(&node);
}

static void ping(struct node *node, fi_addr_t peer, uint64_t seed) {
  static char out[64], in[64];
  fill(out, sizeof out, seed);
  WORKS(fi_trecv(node->ep, in, sizeof in, NULL, peer, PING, 0, in));
  POSTS(fi_tinject(node->ep, out, sizeof out, peer, PING));
  CHECK(next(node).entry.op_context == in && is_filled(in, sizeof in, seed));
}

// A server is killed, and another started, which may be at the same address: what was under way fails, what is new
// works.
static void a_peer_that_is_started_again(char **arguments) {
  double patience = atof(getenv("FI_BAREWIRE_PATIENCE"));
  struct node node;
  node_open(&node, (struct wish){0});
  int socket = call(arguments[0]);
  struct ucred server;
  socklen_t length = sizeof server;
  CHECK(!getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &server, &length) && server.pid > 1);
  fi_addr_t peer = exchange_names(&node, socket);
  ping(&node, peer, 1);
  static char out[LONG], never[8];
  WORKS(fi_trecv(node.ep, never, sizeof never, NULL, peer, NEVER, 0, never));
  // Nobody receives it.
  POSTS(fi_tsend(node.ep, out, sizeof out, NULL, peer, NEVER, out));
  nothing(&node, 0.1);
  CHECK(!kill(server.pid, SIGKILL));
  double killed = now_s();
  for (int failed = 0; failed < 2; failed++) {
    struct ended ended = any(&node);
    CHECK(ended.error == FI_ECONNRESET || ended.error == EHOSTUNREACH, "%s", fi_strerror(ended.error));
  }
  CHECK(now_s() < killed + patience * 1.25 + 0.5, "%.3f s", now_s() - killed);
  puts("over");
  close(socket);

  uint8_t name[sizeof node.name];
  size_t room = sizeof name, other_room = sizeof name;
  WORKS(fi_av_lookup(node.av, peer, name, &room));
  socket = call(arguments[1]);
  fi_addr_t again = exchange_names(&node, socket);
  uint8_t other[sizeof node.name];
  WORKS(fi_av_lookup(node.av, again, other, &other_room));
  CHECK(room == 20 && other_room == 20 && !memcmp(name, other, 12), "the server is at another address");
  CHECK(memcmp(name + 12, other + 12, 8), "the cookie of a process that is gone is still good");
  for (uint64_t turns = 0; turns < 100; turns++) ping(&node, again, turns);
  POSTS(fi_tsend(node.ep, out, sizeof out, NULL, again, BULK, out));
  CHECK(next(&node).entry.op_context == out);
  close(socket);
  node_close(&node);
}

// Long messages both ways until the link goes down at one end. That one's queue says so, also to who sleeps in it; the
// other's operations fail.
// "stays": what is under way fails at both ends, after the patience. "returns": nothing fails, and all goes on.
static void a_link_that_goes_down(char **arguments) {
  double patience = atof(getenv("FI_BAREWIRE_PATIENCE"));
  int calls = !strcmp(arguments[1], "call"), returns = !strcmp(arguments[2], "returns");
  struct node node;
  node_open(&node, (struct wish){.wait = FI_WAIT_UNSPEC});
  fi_addr_t peer = exchange_names(&node, calls ? call(arguments[0]) : answer(arguments[0]));
  enum {
    SENDS = 3
  };
  static char out[LONG], in[LONG], never[8];
  int sends = 0, ended = 0, failed = 0, is_over = 0;
  double until = 0;
  WORKS(fi_trecv(node.ep, never, sizeof never, NULL, peer, NEVER, 0, never));
  WORKS(fi_trecv(node.ep, in, sizeof in, NULL, peer, BULK, 0, in));
  for (double last = now_s();;) {
    CHECK(now_s() < last + patience * 1.25 + 5, "%d ended, %d failed", ended, failed);
    while (sends < SENDS && !failed && !fi_tsend(node.ep, out, sizeof out, NULL, peer, BULK, out)) sends++;
    struct fi_cq_tagged_entry entry;
    long read = fi_cq_sread(node.cq, &entry, 1, NULL, 100);
    if (read == 1) {
      sends -= entry.op_context == out;
      if (entry.op_context == in) WORKS(fi_trecv(node.ep, in, sizeof in, NULL, peer, BULK, 0, in));
      if (++ended == 50) puts("under way");
      // As long as it takes to have been down and up again.
      if (ended == 50) until = now_s() + patience;
      last = now_s();
      if (returns && until && last > until && !is_over++) puts("went on");
    } else if (read == -FI_EAVAIL) {
      struct fi_cq_err_entry error = {0};
      GIVES(1, fi_cq_readerr(node.cq, &error, 0));
      // The other end has ended first.
      if (is_over) break;
      CHECK(!returns && ended >= 50 && error.err == EHOSTUNREACH, "%d ended, %s", ended, fi_strerror(error.err));
      sends -= error.op_context == out;
      // Both receives and all sends.
      if (++failed && sends == 0 && failed >= 3) break;
    } else {
      GIVES(-FI_EAGAIN, read);
    }
    if (is_over && now_s() > until + 1) break;
  }
  double began = now_s();
  node_close(&node);
  CHECK(returns || now_s() < began + 1, "closed in %.3f s", now_s() - began);
}

// Two of one process that meet for the first time: at each of the places where a descriptor is needed, here and there.
static void meeting_with_few_descriptors(char **arguments) {
  (void)arguments;
  static char out[LONG], in[LONG];
  struct rlimit limit;
  WORKS(getrlimit(RLIMIT_NOFILE, &limit));
  int left = 0;
  for (int has_worked = 0; !has_worked; left++) {
    struct node a, b;
    node_open(&a, (struct wish){0});
    node_open(&b, (struct wish){0});
    fi_addr_t number = node_know(&a, &b);
    fill(out, LONG, (uint64_t)left);
    int first = dup(0);
    close(first);
    struct rlimit few = {(rlim_t)(first + left), limit.rlim_max};
    WORKS(setrlimit(RLIMIT_NOFILE, &few));
    WORKS(fi_trecv(b.ep, in, LONG, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    WORKS(fi_tsend(a.ep, out, LONG, NULL, number, 1, out));
    double began = now_s();
    struct ended ended = any(&a);
    CHECK(now_s() - began < 10, "%d left: after %.1f s", left, now_s() - began);
    WORKS(setrlimit(RLIMIT_NOFILE, &limit));
    has_worked = ended.error == 0;
    if (!has_worked) {
      CHECK(ended.error == FI_ENOMEM, "%d left: %s", left, fi_strerror(ended.error));
      // There are enough now.
      WORKS(fi_tsend(a.ep, out, LONG, NULL, number, 1, out));
      next(&a);
    }
    next(&b);
    CHECK(is_filled(in, LONG, (uint64_t)left));
    node_close(&a);
    node_close(&b);
  }
  CHECK(left > 3 && left < 12, "%d descriptors are enough", left - 1);
}

const struct test peer_cases[] = {
    {"serve", serve},
    {"a_killed_peer", a_killed_peer},
    {"meeting_with_few_descriptors", meeting_with_few_descriptors},
    {"one_message", one_message},
    {"there_and_back", there_and_back},
    {"a_peer_that_is_started_again", a_peer_that_is_started_again},
    {"a_link_that_goes_down", a_link_that_goes_down},
    {NULL, NULL},
};
