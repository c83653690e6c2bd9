// SPDX-License-Identifier: Apache-2.0 OR MIT
// Frames through AF_PACKET: a mapped receive ring, and `send`.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "link.h"

enum {
  BLOCK_BYTES = 1 << 20,
  RING_BLOCKS = 2
};  // of the receive ring

static int descriptor;
static uint8_t *ring, frame[ETH_HLEN + 65536];
static size_t slot_bytes, slots, next_slot;

void open_link(const char *interface, size_t mtu, const char *kind) {
  (void)kind;
  descriptor = socket(AF_PACKET, SOCK_RAW, 0);
  if (descriptor < 0) fail("socket");
  slot_bytes = (80 + ETH_HLEN + mtu + 63) / 64 * 64;
  slots = BLOCK_BYTES / slot_bytes * RING_BLOCKS;
  int version = TPACKET_V2, on = 1;
  struct tpacket_req geometry = {BLOCK_BYTES, RING_BLOCKS, (unsigned)slot_bytes, (unsigned)slots};
  if (setsockopt(descriptor, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
      setsockopt(descriptor, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) ||
      setsockopt(descriptor, SOL_PACKET, PACKET_RX_RING, &geometry, sizeof geometry))
    fail("setsockopt");
  ring =
      mmap(NULL, (size_t)BLOCK_BYTES * RING_BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (ring == MAP_FAILED) fail("mmap");
  struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETHER_TYPE)};
  address.sll_ifindex = (int)if_nametoindex(interface);
  if (bind(descriptor, (struct sockaddr *)&address, sizeof address)) fail("bind");
}

void send_frame(const uint8_t *header, size_t header_bytes, size_t payload_bytes, bool last) {
  (void)last;
  memcpy(frame, header, header_bytes);
  uint64_t began = 0;
  while (send(descriptor, frame, header_bytes + payload_bytes, MSG_DONTWAIT) < 0) {
    if (errno != EAGAIN && errno != ENOBUFS) fail("send");
    spend_patience(&began);
  }
}

static struct tpacket2_hdr *slot(void) {
  size_t per_block = BLOCK_BYTES / slot_bytes;
  return (struct tpacket2_hdr *)(ring + next_slot / per_block * BLOCK_BYTES + next_slot % per_block * slot_bytes);
}

const uint8_t *next_frame(size_t *bytes) {
  struct tpacket2_hdr *header = slot();
  if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return NULL;
  *bytes = header->tp_snaplen;
  return (uint8_t *)header + header->tp_mac;
}

void return_frame(void) {
  __atomic_store_n(&slot()->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
  if (++next_slot == slots) next_slot = 0;
}
