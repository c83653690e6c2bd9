// SPDX-License-Identifier: Apache-2.0 OR MIT
// The floor: a minimal program that exchanges Ethernet frames on this machine, the reference for all other results.
// No library of ours: a socket, its ring, a copy of the payload out of the ring, and a clock. Linked with packet.c or
// xdp.c, which send and receive the frames.
//
//   barewire-floor[-xdp] active|passive pingpong|bidirectional|stream -i IFACE -p PEER-MAC -c CPU [-l LINK]
//                        -s SIZE[,SIZE…] [-n SAMPLES] [-w WARM-UP] [-t SECONDS-PER-SIZE] [-b STREAM-BLOCKS] [-r RUN]
//
// The frames have as many bytes of header before the payload as those of the probe's raw transport, 12.
//   | destination 6 | source 6 | EtherType 2 | message bytes 4 | message 4 | fragment 2 | run 2 | payload …
// Prints the probe's JSON Lines, with `ready` once it listens. Both sides need the same -s, -w, -b and -r; floors that
// run at once on an interface need different -r.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "link.h"

enum {
  HEADER = ETH_HLEN + 12,
  STREAM_BLOCK_BYTES = 4 << 20,  // payload of a stream's block, as in the probe
  STREAM_BLOCK_MESSAGES = 16384,
  LARGEST_MESSAGE = 64 << 20,
  SIZES = 256,
};
static const uint32_t END = UINT32_MAX;  // in the field message bytes: the other side may exit

static size_t mtu;
static uint16_t run;
static uint8_t header_bytes[HEADER], message[LARGEST_MESSAGE];

struct fragment {
  uint32_t message_bytes, message;
  uint16_t fragment, run;
};

void fail(const char *what) {
  fprintf(stderr, "barewire-floor: %s: %s\n", what, strerror(errno));
  exit(errno == EPERM || errno == EACCES || errno == EOPNOTSUPP || errno == EBUSY ? 3 : 1);
}

uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void spend_patience(uint64_t *began) {
  if (*began == 0) *began = now_ns();
  if (now_ns() - *began > PATIENCE_S * 1000000000ull) errno = ETIMEDOUT, fail("the link takes no frame");
}

static _Noreturn void wrong_use(const char *what, const char *why) {
  fprintf(stderr, "barewire-floor: %s: %s\n", what, why);
  exit(2);
}

// Writes the Ethernet header.
static void address_frames(const char *interface, const char *peer) {
  struct ifreq request = {0};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
  int any = socket(AF_INET, SOCK_DGRAM, 0);
  if (any < 0) fail("socket");
  if (ioctl(any, SIOCGIFMTU, &request)) wrong_use(interface, strerror(errno));
  mtu = (size_t)request.ifr_mtu;
  if (ioctl(any, SIOCGIFHWADDR, &request)) fail(interface);
  close(any);
  uint8_t *to = header_bytes;
  memcpy(to + 6, request.ifr_hwaddr.sa_data, 6);
  if (sscanf(peer, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", to, to + 1, to + 2, to + 3, to + 4, to + 5) != 6)
    wrong_use(peer, "this is not a MAC address");
  uint16_t type = htons(ETHER_TYPE);
  memcpy(to + 12, &type, 2);
}

static uint32_t fragments(uint32_t bytes) {
  size_t payload = mtu - 12;
  return bytes == 0 ? 1 : (uint32_t)((bytes + payload - 1) / payload);
}

static void send_message(uint32_t bytes, uint32_t number) {
  size_t payload = mtu - 12, left = bytes;
  uint32_t count = bytes == END ? 1 : fragments(bytes);
  for (uint32_t i = 0; i < count; i++) {
    size_t part = bytes == END ? 0 : left < payload ? left : payload;
    struct fragment header = {bytes, number, (uint16_t)i, run};
    memcpy(header_bytes + ETH_HLEN, &header, sizeof header);
    send_frame(header_bytes, HEADER, part, i + 1 == count);
    left -= part;
  }
}

// Spins for the next fragment of this run and copies its payload; false if none arrives within `patience_ns`.
static bool receive(struct fragment *header, uint64_t patience_ns) {
  uint64_t began = 0;
  for (uint32_t polls = 1;; polls++) {
    size_t bytes;
    const uint8_t *frame = next_frame(&bytes);
    if (frame) {
      memcpy(header, frame + ETH_HLEN, sizeof *header);
      bool is_ours = bytes >= HEADER && header->run == run;
      size_t offset = (size_t)header->fragment * (mtu - 12), length = bytes - HEADER;
      if (is_ours && header->message_bytes != END && offset + length <= sizeof message)
        memcpy(message + offset, frame + HEADER, length);
      return_frame();
      if (is_ours) return true;
    }
    if (polls % (1 << 20) == 0) {
      if (began == 0) began = now_ns();
      if (now_ns() - began > patience_ns) return false;
    }
  }
}

static void receive_message(uint32_t bytes) {
  struct fragment header;
  for (uint32_t left = fragments(bytes); left > 0; left--)
    if (!receive(&header, PATIENCE_S * 1000000000ull)) errno = ETIMEDOUT, fail("a frame was lost");
}

static void print_samples(const char *quantity, uint32_t bytes, const char *phase, const uint64_t *ns, size_t count) {
  printf(
      "{\"record\":\"samples\",\"pair\":0,\"message_bytes\":%u,\"phase\":\"%s\",\"block\":0,\"quantity\":\"%s\","
      "\"unit\":\"ns\",\"lost\":0,\"values\":[",
      bytes, phase, quantity);
  for (size_t i = 0; i < count; i++) printf("%s%llu", i ? "," : "", (unsigned long long)ns[i]);
  printf("]}\n");
}

// One round trip (ping-pong) or one exchange (bidirectional) per sample.
static void active_round_trips(uint32_t bytes, const char *quantity, size_t warm_up, size_t samples, double seconds) {
  uint64_t *ns = calloc(warm_up + samples, sizeof *ns);
  if (!ns) fail("calloc");
  uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
  size_t done = 0;
  for (; done < warm_up + samples && (done < warm_up + 3 || now_ns() < end); done++) {
    uint64_t began = now_ns();
    send_message(bytes, (uint32_t)done);
    receive_message(bytes);
    ns[done] = now_ns() - began;
  }
  print_samples(quantity, bytes, "warmup", ns, warm_up);
  print_samples(quantity, bytes, "measure", ns + warm_up, done - warm_up);
  free(ns);
}

// Answers a message after its last frame, or, if `at_once`, after its first.
static void passive_round_trips(bool at_once) {
  for (struct fragment header; receive(&header, 30 * 1000000000ull) && header.message_bytes != END;)
    if (header.fragment == (at_once ? 0 : fragments(header.message_bytes) - 1))
      send_message(header.message_bytes, header.message);
}

static uint32_t stream_messages(uint32_t bytes) {
  uint32_t count = bytes == 0 ? STREAM_BLOCK_MESSAGES : STREAM_BLOCK_BYTES / bytes;
  return count > STREAM_BLOCK_MESSAGES ? STREAM_BLOCK_MESSAGES : count < 4 ? 4 : count;
}

static void active_stream(uint32_t bytes, uint32_t warm_up, size_t blocks, double seconds) {
  uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
  for (size_t block = 0; block < blocks && (block < 3 || now_ns() < end); block++) {
    for (uint32_t i = 0; i < warm_up + stream_messages(bytes); i++) send_message(bytes, i);
    usleep(5000);  // the passive side prints
  }
}

// Prints a block of which `count` frames have arrived; without a value if its start or its end was lost.
static void print_block(uint32_t bytes, uint64_t count, uint64_t began, uint64_t ended) {
  uint32_t messages = stream_messages(bytes);
  uint64_t lost = (uint64_t)messages * fragments(bytes) - count;
  char value[24] = "";
  if (began && ended) snprintf(value, sizeof value, "%llu", (unsigned long long)(ended - began));
  printf(
      "{\"record\":\"samples\",\"pair\":0,\"message_bytes\":%u,\"phase\":\"measure\",\"block\":0,\"quantity\":"
      "\"stream\","
      "\"unit\":\"ns\",\"messages\":%u,\"lost\":%llu,\"values\":[%s]}\n",
      bytes, messages, (unsigned long long)lost, value);
  fflush(stdout);
}

// Times each block, from the last frame of the warm-up to the last frame of the block.
static void passive_stream(uint32_t warm_up) {
  struct fragment header;
  uint64_t began = 0, count = 0;
  uint32_t bytes = 0, message = 0;
  bool in_block = false;
  while (receive(&header, 30 * 1000000000ull) && header.message_bytes != END) {
    if (in_block && (header.message < message || header.message_bytes != bytes)) {
      print_block(bytes, count, 0, 0);
      in_block = false;
    }
    if (!in_block) began = count = 0, in_block = true;
    bytes = header.message_bytes, message = header.message;
    uint32_t last = fragments(bytes) - 1;
    if (message < warm_up) {
      if (message == warm_up - 1 && header.fragment == last) began = now_ns();
      continue;
    }
    count++;
    if (message != warm_up + stream_messages(bytes) - 1 || header.fragment != last) continue;
    print_block(bytes, count, began, now_ns());
    in_block = false;
  }
  if (in_block) print_block(bytes, count, 0, 0);
}

int main(int argc, char **argv) {
  const char *interface = NULL, *peer = "ff:ff:ff:ff:ff:ff", *link = "packet";
  size_t samples = 3000, warm_up = 200, blocks = 10, sizes = 0;
  uint32_t size[SIZES];
  double seconds = 0.2;
  int cpu = -1;
  for (int option; (option = getopt(argc, argv, "i:p:c:l:s:n:w:t:b:r:")) != -1;) switch (option) {
      case 'i': interface = optarg; break;
      case 'p': peer = optarg; break;
      case 'c': cpu = atoi(optarg); break;
      case 'l': link = optarg; break;
      case 'n': samples = strtoul(optarg, NULL, 10); break;
      case 'w': warm_up = strtoul(optarg, NULL, 10); break;
      case 't': seconds = atof(optarg); break;
      case 'b': blocks = strtoul(optarg, NULL, 10); break;
      case 'r': run = (uint16_t)strtoul(optarg, NULL, 10); break;
      case 's':
        for (char *part = strtok(optarg, ","); part; part = strtok(NULL, ",")) {
          if (sizes == SIZES) return fprintf(stderr, "barewire-floor: %d sizes at most\n", SIZES), 2;
          size[sizes++] = (uint32_t)strtoul(part, NULL, 10);
        }
        break;
      default: return 2;
    }
  if (argc - optind != 2 || !interface || warm_up == 0) {
    fprintf(stderr, "usage: barewire-floor [options] active|passive pingpong|bidirectional|stream\n");
    return 2;
  }
  bool active = strcmp(argv[optind], "active") == 0, stream = strcmp(argv[optind + 1], "stream") == 0;
  const char *quantity = strcmp(argv[optind + 1], "pingpong") == 0 ? "round_trip" : "exchange";
  if (cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
  }
  address_frames(interface, peer);
  for (size_t i = 0; i < sizes; i++)
    if (fragments(size[i]) > UINT16_MAX) wrong_use(interface, "a message of such a size has more than 65535 frames");
  open_link(interface, mtu, link);
  printf("{\"record\":\"start\",\"schema\":\"barewire-probe/1\",\"transport\":\"floor\",\"mtu\":%zu}\n", mtu);
  printf("{\"record\":\"ready\"}\n");
  fflush(stdout);
  if (active) {
    for (size_t i = 0; i < sizes; i++)
      stream ? active_stream(size[i], (uint32_t)warm_up, blocks, seconds)
             : active_round_trips(size[i], quantity, warm_up, samples, seconds);
    // Repeated, because the peer's ring may still be full of a stream's last frames.
    for (int i = 0; i < 3; i++) send_message(END, 0), usleep(10000);
  } else if (stream) {
    passive_stream((uint32_t)warm_up);
  } else {
    passive_round_trips(strcmp(quantity, "exchange") == 0);
  }
  printf("{\"record\":\"end\",\"complete\":true}\n");
  return fflush(stdout) ? 1 : 0;
}
