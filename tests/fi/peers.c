// SPDX-License-Identifier: Apache-2.0 OR MIT
// Several processes, on one host or two. They exchange addresses through a Unix socket, which lab hosts share.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "node.h"

static struct sockaddr_un socket_address(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  CHECK(strlen(path) < sizeof address.sun_path);
  strcpy(address.sun_path, path);
  return address;
}

static fi_addr_t exchange_names(struct node *node, int socket) {
  struct node peer = {.name_bytes = node->name_bytes};
  CHECK(write(socket, node->name, node->name_bytes) == (long)node->name_bytes);
  CHECK(recv(socket, peer.name, peer.name_bytes, MSG_WAITALL) == (long)peer.name_bytes);
  return node_add_peer(node, &peer);
}

// Accepts one connection.
static int accept_peer(const char *path) {
  struct sockaddr_un address = socket_address(path);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 1));
  int fd = accept(listener, NULL, NULL);
  CHECK(fd >= 0);
  close(listener);
  return fd;
}

static int connect_to_peer(const char *path) {
  struct sockaddr_un address = socket_address(path);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  for (double until = now_s() + 20; connect(fd, (struct sockaddr *)&address, sizeof address); usleep(10000))
    CHECK(now_s() < until, "no listener at %s", path);
  return fd;
}

enum {
  PING = 1,
  BULK,
  NEVER,
  LONG = 1 << 20
};

// Echoes pings and receives long messages until the socket is closed.
static void serve(char **arguments) {
  struct node node;
  node_open(&node, (struct options){0});
  int socket = accept_peer(arguments[0]);
  fi_addr_t caller = exchange_names(&node, socket);
  static char in[64], bulk[LONG], byte;
  OK(fi_trecv(node.ep, in, sizeof in, NULL, caller, PING, 0, in));
  OK(fi_trecv(node.ep, bulk, sizeof bulk, NULL, caller, BULK, 0, bulk));
  while (recv(socket, &byte, 1, MSG_DONTWAIT) < 0) {
    make_progress();
    while (node.count) {
      // The client closes its endpoint, which may be seen before its socket's end.
      if (node.completions[node.first].error == FI_ECONNRESET) {
        next_error(&node, FI_ECONNRESET);
        continue;
      }
      struct completion completion = next_success(&node);
      if (completion.entry.op_context == in) {
        OK(fi_tinject(node.ep, in, completion.entry.len, caller, PING));
        OK(fi_trecv(node.ep, in, sizeof in, NULL, caller, PING, 0, in));
      } else if (completion.entry.op_context == bulk) {
        OK(fi_trecv(node.ep, bulk, sizeof bulk, NULL, caller, BULK, 0, bulk));
      }
    }
  }
  node_close(&node);
}

// One of two peers is killed while it receives long messages: its operations fail in time, and round trips with the
// other continue.
static void a_killed_peer(char **arguments) {
  double patience = atof(getenv("FI_BAREWIRE_PATIENCE"));
  struct node node;
  node_open(&node, (struct options){0});
  int victim_socket = connect_to_peer(arguments[0]), other_socket = connect_to_peer(arguments[1]);
  fi_addr_t victim = exchange_names(&node, victim_socket), other = exchange_names(&node, other_socket);
  struct ucred peer;
  socklen_t length = sizeof peer;
  CHECK(!getsockopt(victim_socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) && peer.pid > 1);

  static char out[LONG], in[64], never[8], any_source[8], ping[64];
  enum {
    BULKS = 4
  };
  int bulks = 0, answers = 0, failed_bulks = 0, has_failed_receive = 0;
  double began = now_s(), killed = 0, last_answer = now_s(), longest = 0;
  fill(ping, sizeof ping, 0);
  OK(fi_trecv(node.ep, never, sizeof never, NULL, victim, NEVER, 0, never));
  OK(fi_trecv(node.ep, any_source, sizeof any_source, NULL, FI_ADDR_UNSPEC, NEVER, 0, any_source));
  OK(fi_trecv(node.ep, in, sizeof in, NULL, other, PING, 0, in));
  OK(fi_tinject(node.ep, ping, sizeof ping, other, PING));
  for (; bulks < BULKS; bulks++) POST(fi_tsend(node.ep, out, sizeof out, NULL, victim, BULK, out));
  while (!killed || failed_bulks < BULKS || !has_failed_receive) {
    CHECK(!killed || now_s() < killed + patience * 1.25 + 0.5, "%d of %d sends failed, receive: %d", failed_bulks,
          BULKS, has_failed_receive);
    if (!killed && now_s() > began + 1.5) {
      CHECK(!kill(peer.pid, SIGKILL));
      killed = now_s();
    }
    make_progress();
    while (node.count) {
      void *context = node.completions[node.first].entry.op_context;
      int error = node.completions[node.first].error;
      if (error) {
        struct completion completion = next_error(&node, error);
        CHECK(killed && (context == out || context == never), "%s of %p", fi_strerror(error), context);
        CHECK(error == FI_ECONNRESET || error == FI_EHOSTUNREACH, "%s", fi_strerror(completion.error));
        failed_bulks += context == out;
        has_failed_receive |= context == never;
        continue;
      }
      struct completion completion = next_success(&node);
      if (context == out) {
        long status = fi_tsend(node.ep, out, sizeof out, NULL, victim, BULK, out);
        CHECK(status == 0 || killed, "%s", fi_strerror((int)-status));
        failed_bulks += status != 0;
      } else if (context == in) {
        CHECK(completion.entry.len == sizeof ping && is_filled(in, sizeof in, answers));
        double gap = now_s() - last_answer;
        longest = gap > longest && answers ? gap : longest;
        last_answer = now_s();
        fill(ping, sizeof ping, ++answers);
        OK(fi_trecv(node.ep, in, sizeof in, NULL, other, PING, 0, in));
        OK(fi_tinject(node.ep, ping, sizeof ping, other, PING));
      }
    }
  }
  printf("all operations of the killed peer failed after %.3f s; %d round trips with the other, %.1f ms at most\n",
         now_s() - killed, answers, longest * 1e3);
  CHECK(answers > 10 && longest < 0.5, "%d round trips, %.3f s", answers, longest);
  // Receives from any source keep waiting.
  OK(fi_cancel(&node.ep->fid, any_source));
  close(other_socket);
  node_close(&node);
}

// One message of a given length to another process, with all bytes checked.
static void one_message(char **arguments) {
  size_t bytes = strtoull(arguments[1], NULL, 10);
  int is_sender = !strcmp(arguments[2], "send");
  struct node node;
  node_open(&node, (struct options){0});
  int socket = is_sender ? connect_to_peer(arguments[0]) : accept_peer(arguments[0]);
  fi_addr_t peer = exchange_names(&node, socket);
  char *memory = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  if (is_sender) {
    fill(memory, bytes, 4);
    OK(fi_tsend(node.ep, memory, bytes, NULL, peer, 1, memory));
    next_success(&node);
  } else {
    OK(fi_trecv(node.ep, memory, bytes, NULL, peer, 1, 0, memory));
    CHECK(next_success(&node).entry.len == bytes && is_filled(memory, bytes, 4));
  }
  node_close(&node);
}

// Alternating messages between two processes; prints this endpoint's address.
static void messages_both_ways(char **arguments) {
  struct node node;
  node_open(&node, (struct options){0});
  char text[64];
  size_t room = sizeof text;
  printf("at %s\n", fi_av_straddr(node.av, node.name, text, &room));
  int calls = !strcmp(arguments[1], "call");
  int socket = calls ? connect_to_peer(arguments[0]) : accept_peer(arguments[0]);
  fi_addr_t peer = exchange_names(&node, socket);
  static const size_t lengths[] = {0, 8, 1000, 16385, LONG};
  static char out[LONG], in[LONG];
  for (uint64_t round = 0; round < 50; round++) {
    size_t length = lengths[round % 5];
    OK(fi_trecv(node.ep, in, length, NULL, peer, round, 0, in));
    fill(out, length, 2 * round + (uint64_t)calls);
    if (!calls) CHECK(next_success(&node).entry.op_context == in);
    POST(fi_tsend(node.ep, out, length, NULL, peer, round, out));
    next_success(&node);
    if (calls) next_success(&node);
    CHECK(is_filled(in, length, 2 * round + (uint64_t)!calls), "%zu bytes", length);
  }
  node_close(&node);
}

static void ping(struct node *node, fi_addr_t peer, uint64_t seed) {
  static char out[64], in[64];
  fill(out, sizeof out, seed);
  OK(fi_trecv(node->ep, in, sizeof in, NULL, peer, PING, 0, in));
  POST(fi_tinject(node->ep, out, sizeof out, peer, PING));
  CHECK(next_success(node).entry.op_context == in && is_filled(in, sizeof in, seed));
}

// A server is killed and restarted, possibly at the same address: pending operations fail, new ones succeed.
static void a_restarted_peer(char **arguments) {
  double patience = atof(getenv("FI_BAREWIRE_PATIENCE"));
  struct node node;
  node_open(&node, (struct options){0});
  int socket = connect_to_peer(arguments[0]);
  struct ucred server;
  socklen_t length = sizeof server;
  CHECK(!getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &server, &length) && server.pid > 1);
  fi_addr_t peer = exchange_names(&node, socket);
  ping(&node, peer, 1);
  static char out[LONG], never[8];
  OK(fi_trecv(node.ep, never, sizeof never, NULL, peer, NEVER, 0, never));
  // No receive is posted for it.
  POST(fi_tsend(node.ep, out, sizeof out, NULL, peer, NEVER, out));
  expect_idle(&node, 0.1);
  CHECK(!kill(server.pid, SIGKILL));
  double killed = now_s();
  for (int failed = 0; failed < 2; failed++) {
    struct completion completion = next_completion(&node);
    CHECK(completion.error == FI_ECONNRESET || completion.error == EHOSTUNREACH, "%s", fi_strerror(completion.error));
  }
  CHECK(now_s() < killed + patience * 1.25 + 0.5, "%.3f s", now_s() - killed);
  puts("over");
  close(socket);

  uint8_t name[sizeof node.name];
  size_t room = sizeof name, other_room = sizeof name;
  OK(fi_av_lookup(node.av, peer, name, &room));
  socket = connect_to_peer(arguments[1]);
  fi_addr_t again = exchange_names(&node, socket);
  uint8_t other[sizeof node.name];
  OK(fi_av_lookup(node.av, again, other, &other_room));
  CHECK(room == other_room && !memcmp(name, other, 12), "the server is at another address");
  CHECK(memcmp(name + 12, other + 12, 8), "the new process has the cookie of the old one");
  for (uint64_t round = 0; round < 100; round++) ping(&node, again, round);
  POST(fi_tsend(node.ep, out, sizeof out, NULL, again, BULK, out));
  CHECK(next_success(&node).entry.op_context == out);
  close(socket);
  node_close(&node);
}

// Long messages both ways until the link goes down at one end. Its queue reports that, also to a sleeping reader; the
// other end's operations fail.
// "stays": pending operations fail at both ends, after the patience. "returns": nothing fails, and messages continue.
static void a_link_that_goes_down(char **arguments) {
  double patience = atof(getenv("FI_BAREWIRE_PATIENCE"));
  int calls = !strcmp(arguments[1], "call"), returns = !strcmp(arguments[2], "returns");
  struct node node;
  node_open(&node, (struct options){.wait = FI_WAIT_UNSPEC});
  fi_addr_t peer = exchange_names(&node, calls ? connect_to_peer(arguments[0]) : accept_peer(arguments[0]));
  enum {
    SENDS = 3
  };
  static char out[LONG], in[LONG], never[8];
  int sends = 0, completed = 0, failed = 0, is_over = 0;
  double until = 0;
  OK(fi_trecv(node.ep, never, sizeof never, NULL, peer, NEVER, 0, never));
  OK(fi_trecv(node.ep, in, sizeof in, NULL, peer, BULK, 0, in));
  for (double last = now_s();;) {
    while (sends < SENDS && !failed && !fi_tsend(node.ep, out, sizeof out, NULL, peer, BULK, out)) sends++;
    struct fi_cq_tagged_entry entry;
    long read = fi_cq_sread(node.cq, &entry, 1, NULL, 100);
    if (read == 1) {
      sends -= entry.op_context == out;
      if (entry.op_context == in) OK(fi_trecv(node.ep, in, sizeof in, NULL, peer, BULK, 0, in));
      if (++completed == 50) puts("under way");
      // The link has been down and up again by then.
      if (completed == 50) until = now_s() + patience;
      last = now_s();
      if (returns && until && last > until && !is_over++) puts("went on");
    } else if (read == -FI_EAVAIL) {
      struct fi_cq_err_entry error = {0};
      EXPECT(1, fi_cq_readerr(node.cq, &error, 0));
      // The other end has closed first.
      if (is_over) break;
      CHECK(!returns && completed >= 50 && error.err == EHOSTUNREACH, "%d completed, %s", completed,
            fi_strerror(error.err));
      sends -= error.op_context == out;
      // Both receives and all sends.
      if (++failed && sends == 0 && failed >= 3) break;
    } else {
      EXPECT(-FI_EAGAIN, read);
      CHECK(now_s() < last + patience * 1.25 + 5, "%d completed, %d failed", completed, failed);
    }
    if (is_over && now_s() > until + 1) break;
  }
  double began = now_s();
  node_close(&node);
  CHECK(returns || now_s() < began + 1, "closed in %.3f s", now_s() - began);
}

// First contact of two endpoints of this process, with descriptors exhausted at each point where either needs one.
static void first_contact_with_few_descriptors(char **arguments) {
  (void)arguments;
  static char out[LONG], in[LONG];
  struct rlimit limit;
  OK(getrlimit(RLIMIT_NOFILE, &limit));
  int left = 0;
  for (int has_succeeded = 0; !has_succeeded; left++) {
    struct node a, b;
    node_open(&a, (struct options){0});
    node_open(&b, (struct options){0});
    fi_addr_t number = node_add_peer(&a, &b);
    fill(out, LONG, (uint64_t)left);
    int first = dup(0);
    close(first);
    struct rlimit few = {(rlim_t)(first + left), limit.rlim_max};
    OK(setrlimit(RLIMIT_NOFILE, &few));
    OK(fi_trecv(b.ep, in, LONG, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    OK(fi_tsend(a.ep, out, LONG, NULL, number, 1, out));
    double began = now_s();
    struct completion completion = next_completion(&a);
    CHECK(now_s() - began < 10, "%d left: after %.1f s", left, now_s() - began);
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    has_succeeded = completion.error == 0;
    if (!has_succeeded) {
      CHECK(completion.error == FI_ENOMEM, "%d left: %s", left, fi_strerror(completion.error));
      // With enough descriptors it succeeds.
      OK(fi_tsend(a.ep, out, LONG, NULL, number, 1, out));
      next_success(&a);
    }
    next_success(&b);
    CHECK(is_filled(in, LONG, (uint64_t)left));
    node_close(&a);
    node_close(&b);
  }
  CHECK(left > 3 && left < 12, "%d descriptors are enough", left - 1);
}

const struct test peer_cases[] = {
    {"serve", serve},
    {"a_killed_peer", a_killed_peer},
    {"first_contact_with_few_descriptors", first_contact_with_few_descriptors},
    {"one_message", one_message},
    {"messages_both_ways", messages_both_ways},
    {"a_restarted_peer", a_restarted_peer},
    {"a_link_that_goes_down", a_link_that_goes_down},
    {NULL, NULL},
};
