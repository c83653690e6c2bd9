// SPDX-License-Identifier: Apache-2.0 OR MIT
// The guest's roles on AF_LLC sockets: a server that echoes, a client that sends and verifies, a datagram echo.
//
// Every connection has a process of its own and blocks in it: whatever a socket does, the other roles go on.

#include <errno.h>
#include <linux/if_arp.h>
#include <linux/llc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

#ifndef SOL_LLC
#define SOL_LLC 268
#endif

enum {
  CONNECTIONS_MAX = 8,  // of one server at once, unless the order says otherwise
  IDLE_S = 60,          // a connection that neither receives nor sends ends: a dead one must not hold a slot
  CLOSE_S = 15,         // close() waits for the peer's UA, or for the last of our DISC to time out
  CHUNK_BYTES = 1 << 14,
  HOLD_MAX = 1 << 20
};

// What became of one connection.
struct outcome {
  const char *by;  // who ended it: "peer", "self", "idle", or "error"
  long received;   // bytes
  long sent;       // bytes
  int error;       // errno, 0 if none
};

static int open_socket(const struct order *order, int type);
static bool set_options(const struct order *order, int link);
static void set_timeout(int link, long seconds);
static void serve(const struct order *order, const char *role, int listener) __attribute__((noreturn));
static void serve_one(const struct order *order, int link, int number, long limit) __attribute__((noreturn));
static struct outcome echo(const struct order *order, int link, long limit);
static int send_all(int link, const uint8_t *data, long length, long *sent);
static int64_t close_link(int link);
static void connect_and_verify(const struct order *order, int link);
static long verify(int link, const struct order *order, struct outcome *outcome);
static int send_pattern(int link, const struct order *order);
static void fill(uint8_t *data, long length, uint32_t *state);
static void echo_datagrams(const struct order *order, int link) __attribute__((noreturn));

// sap, limit (connections at once), bytes (close-after: received before the server closes), echo (0: only receive),
// hold (bytes received before the first is sent back, at most HOLD_MAX), read_ms (wait before the first read), retry,
// window, receive_window, rcvbuf, idle (seconds).
void start_server(const struct order *order, const char *role) {
  int listener = open_socket(order, SOCK_STREAM);
  if (listener < 0) return;
  if (listen(listener, CONNECTIONS_MAX) != 0) {
    report_failure(order, "listen");
  } else {
    report("\"event\":\"listening\",\"id\":%ld,\"role\":\"%s\",\"sap\":%ld", order->id, role,
           number_of(order, "sap", 0));
    if (fork() == 0) serve(order, role, listener);
  }
  close(listener);
}

// mac, sap (the peer's), lsap (ours; 0: the kernel chooses), bytes, seed, echo (0: send only), wait (1: the peer
// closes), idle, retry, window, receive_window, rcvbuf.
void start_connect(const struct order *order) {
  if (fork() != 0) return;
  int link = open_socket(order, SOCK_STREAM);
  if (link >= 0) connect_and_verify(order, link);
  _exit(0);
}

// sap. XID and TEST are answered by the kernel itself, only on SAPs that have such a socket.
void start_datagram(const struct order *order) {
  int link = open_socket(order, SOCK_DGRAM);
  if (link < 0) return;
  report("\"event\":\"listening\",\"id\":%ld,\"role\":\"datagram\",\"sap\":%ld", order->id, number_of(order, "sap", 0));
  if (fork() == 0) echo_datagrams(order, link);
  close(link);
}

// A socket bound to this guest's address and the order's SAP; -1 after reporting why not.
static int open_socket(const struct order *order, int type) {
  bool active = strcmp(order->name, "connect") == 0;
  struct sockaddr_llc address = {.sllc_family = AF_LLC,
                                 .sllc_arphrd = ARPHRD_ETHER,
                                 .sllc_sap = (uint8_t)number_of(order, active ? "lsap" : "sap", 0)};
  memcpy(address.sllc_mac, wire.mac, MAC_BYTES);
  int link = socket(AF_LLC, type, 0);
  if (link < 0) {
    report_failure(order, "socket");
  } else if (bind(link, (struct sockaddr *)&address, sizeof address) != 0) {
    report_failure(order, "bind");
    close(link);
    link = -1;
  } else if (type == SOCK_STREAM && !set_options(order, link)) {
    report_failure(order, "setsockopt");
    close(link);
    link = -1;
  }
  return link;
}

// Accepted sockets do not inherit these.
static bool set_options(const struct order *order, int link) {
  static const struct {
    const char *key;
    int level;
    int option;
  } options[] = {
      {"retry", SOL_LLC, LLC_OPT_RETRY},
      {"window", SOL_LLC, LLC_OPT_TX_WIN},
      {"receive_window", SOL_LLC, LLC_OPT_RX_WIN},
      {"rcvbuf", SOL_SOCKET, SO_RCVBUF},
  };
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    int value = (int)number_of(order, options[i].key, -1);
    if (value >= 0 && setsockopt(link, options[i].level, options[i].option, &value, sizeof value) != 0) return false;
  }
  return true;
}

// For whatever blocks: a connection that ended before it was accepted never says so, neither to recv() nor to send().
static void set_timeout(int link, long seconds) {
  struct timeval timeout = {.tv_sec = seconds};
  setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(link, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

static void serve(const struct order *order, const char *role, int listener) {
  signal(SIGCHLD, SIG_DFL);
  long limit = strcmp(role, "close-after") == 0 ? number_of(order, "bytes", 0) : -1;
  long slots = number_of(order, "limit", CONNECTIONS_MAX);
  for (int number = 0;; number++) {
    while (waitpid(-1, NULL, WNOHANG) > 0) slots++;
    if (slots == 0 && wait(NULL) > 0) slots++;
    int link = accept(listener, NULL, NULL);
    if (link < 0) {
      report_failure(order, "accept");
      _exit(1);
    }
    slots--;
    if (fork() == 0) {
      close(listener);
      serve_one(order, link, number, limit);
    }
    close(link);
  }
}

static void serve_one(const struct order *order, int link, int number, long limit) {
  struct sockaddr_llc peer = {0};
  socklen_t length = sizeof peer;
  char mac[18] = "";
  if (getpeername(link, (struct sockaddr *)&peer, &length) == 0) format_mac(peer.sllc_mac, mac);
  if (!set_options(order, link)) report_failure(order, "setsockopt");
  report("\"event\":\"accepted\",\"id\":%ld,\"connection\":%d,\"peer\":\"%s\",\"peer_sap\":%d", order->id, number, mac,
         peer.sllc_sap);
  set_timeout(link, number_of(order, "idle", IDLE_S));
  usleep((useconds_t)number_of(order, "read_ms", 0) * 1000);
  struct outcome outcome = echo(order, link, limit);
  int64_t close_ms = close_link(link);
  report(
      "\"event\":\"closed\",\"id\":%ld,\"connection\":%d,\"peer_sap\":%d,\"by\":\"%s\",\"bytes_received\":%ld,"
      "\"bytes_sent\":%ld,\"errno\":%d,\"close_ms\":%ld",
      order->id, number, peer.sllc_sap, outcome.by, outcome.received, outcome.sent, outcome.error, (long)close_ms);
  _exit(0);
}

// Until the peer closes, or `limit` bytes have come in (-1: no limit).
static struct outcome echo(const struct order *order, int link, long limit) {
  bool answers = number_of(order, "echo", 1) != 0;
  static uint8_t data[HOLD_MAX];
  long hold = number_of(order, "hold", 0);
  if (hold > HOLD_MAX) hold = HOLD_MAX;
  struct outcome outcome = {.by = "self"};
  while (limit < 0 || outcome.received < limit) {
    bool holds = outcome.received == 0 && hold > 0;
    long wanted = holds ? hold : limit < 0 ? CHUNK_BYTES : limit - outcome.received;
    if (!holds && wanted > CHUNK_BYTES) wanted = CHUNK_BYTES;
    ssize_t got = recv(link, data, (size_t)wanted, holds ? MSG_WAITALL : 0);
    if (got <= 0) {
      outcome.error = got < 0 ? errno : 0;
      outcome.by = got == 0 ? "peer" : errno == EAGAIN ? "idle" : "error";
      return outcome;
    }
    outcome.received += got;
    if (answers) outcome.error = send_all(link, data, got, &outcome.sent);
    if (outcome.error != 0) {
      outcome.by = "error";
      return outcome;
    }
  }
  return outcome;
}

// One call sends at most one I PDU. Returns 0 or an errno.
static int send_all(int link, const uint8_t *data, long length, long *sent) {
  for (long done = 0; done < length;) {
    ssize_t put = send(link, data + done, (size_t)(length - done), 0);
    if (put < 0) return errno;
    done += put;
    *sent += put;
  }
  return 0;
}

// Milliseconds until the peer had answered our DISC, or nothing had to be asked.
static int64_t close_link(int link) {
  int64_t start = now_ms();
  set_timeout(link, CLOSE_S);
  close(link);
  return now_ms() - start;
}

static void connect_and_verify(const struct order *order, int link) {
  struct sockaddr_llc peer = {
      .sllc_family = AF_LLC, .sllc_arphrd = ARPHRD_ETHER, .sllc_sap = (uint8_t)number_of(order, "sap", 0)};
  struct outcome outcome = {.by = "self"};
  errno = EINVAL;
  if (!parse_mac(text_of(order, "mac", NULL), peer.sllc_mac)) {
    report_failure(order, "parse of mac");
    return;
  }
  int64_t start = now_ms();
  if (connect(link, (struct sockaddr *)&peer, sizeof peer) != 0) {
    report("\"event\":\"failed\",\"id\":%ld,\"operation\":\"connect\",\"errno\":%d,\"error\":\"%s\",\"ms\":%ld",
           order->id, errno, strerror(errno), (long)(now_ms() - start));
    return;
  }
  int64_t connected = now_ms();
  report("\"event\":\"connected\",\"id\":%ld,\"ms\":%ld", order->id, (long)(connected - start));
  set_timeout(link, number_of(order, "idle", IDLE_S));
  // Both directions at once: a sender that does not read would stop the peer.
  signal(SIGCHLD, SIG_DFL);
  pid_t sender = fork();
  if (sender == 0) _exit(send_pattern(link, order));
  long wrong_at = verify(link, order, &outcome);
  int status = 0;
  if (outcome.error != 0) kill(sender, SIGKILL);
  waitpid(sender, &status, 0);
  int send_error = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
  if (send_error == 0 && number_of(order, "wait", 0) != 0) {
    uint8_t more;
    ssize_t got = recv(link, &more, 1, 0);
    outcome.by = got == 0 ? "peer" : "error";
    outcome.error = got == 0 ? 0 : got > 0 ? EOVERFLOW : errno;
  }
  int64_t transferred = now_ms();
  int64_t close_ms = close_link(link);
  bool ok = outcome.error == 0 && send_error == 0 && wrong_at < 0;
  report(
      "\"event\":\"done\",\"id\":%ld,\"ok\":%s,\"by\":\"%s\",\"bytes_received\":%ld,\"wrong_at\":%ld,"
      "\"receive_errno\":%d,\"send_errno\":%d,\"transfer_ms\":%ld,\"close_ms\":%ld",
      order->id, ok ? "true" : "false", outcome.by, outcome.received, wrong_at, outcome.error, send_error,
      (long)(transferred - connected), (long)close_ms);
}

// Reads the pattern back. Returns the position of the first wrong byte, -1 if there is none.
static long verify(int link, const struct order *order, struct outcome *outcome) {
  static uint8_t data[CHUNK_BYTES], wanted[CHUNK_BYTES];
  uint32_t state = (uint32_t)number_of(order, "seed", 1);
  long bytes = number_of(order, "echo", 1) != 0 ? number_of(order, "bytes", 0) : 0;
  while (outcome->received < bytes) {
    long missing = bytes - outcome->received;
    ssize_t got = recv(link, data, (size_t)(missing < CHUNK_BYTES ? missing : CHUNK_BYTES), 0);
    if (got <= 0) {
      outcome->by = got == 0 ? "peer" : "error";
      outcome->error = got == 0 ? EPIPE : errno;
      return -1;
    }
    fill(wanted, got, &state);
    for (long i = 0; i < got; i++) {
      if (data[i] != wanted[i]) {
        outcome->error = EBADMSG;
        return outcome->received + i;
      }
    }
    outcome->received += got;
  }
  return -1;
}

// Returns 0 or an errno, for use as an exit code.
static int send_pattern(int link, const struct order *order) {
  static uint8_t data[CHUNK_BYTES];
  uint32_t state = (uint32_t)number_of(order, "seed", 1);
  long bytes = number_of(order, "bytes", 0), sent = 0;
  while (sent < bytes) {
    long length = bytes - sent < CHUNK_BYTES ? bytes - sent : CHUNK_BYTES;
    fill(data, length, &state);
    int error = send_all(link, data, length, &sent);
    if (error != 0) return error;
  }
  return 0;
}

// The next bytes of the pattern; guest.py makes the same ones.
static void fill(uint8_t *data, long length, uint32_t *state) {
  for (long i = 0; i < length; i++) {
    *state = *state * 1664525U + 1013904223U;
    data[i] = (uint8_t)(*state >> 24);
  }
}

static void echo_datagrams(const struct order *order, int link) {
  static uint8_t data[CHUNK_BYTES];
  for (;;) {
    struct sockaddr_llc peer = {0};
    socklen_t length = sizeof peer;
    ssize_t got = recvfrom(link, data, sizeof data, 0, (struct sockaddr *)&peer, &length);
    if (got < 0) {
      report_failure(order, "recvfrom");
      _exit(1);
    }
    // The address that came says which kind of PDU it was; sent back like this it would ask for the same kind.
    int kind = peer.sllc_test ? 1 : peer.sllc_xid ? 2 : 0;
    peer.sllc_test = peer.sllc_xid = peer.sllc_ua = 0;
    if (kind == 0 && sendto(link, data, (size_t)got, 0, (struct sockaddr *)&peer, sizeof peer) < 0) {
      report_failure(order, "sendto");
    }
    char mac[18];
    format_mac(peer.sllc_mac, mac);
    report("\"event\":\"datagram\",\"id\":%ld,\"kind\":\"%s\",\"peer\":\"%s\",\"peer_sap\":%d,\"bytes\":%ld", order->id,
           kind == 1   ? "TEST"
           : kind == 2 ? "XID"
                       : "UI",
           mac, peer.sllc_sap, (long)got);
  }
}
