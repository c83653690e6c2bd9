// SPDX-License-Identifier: Apache-2.0 OR MIT
// Frames through AF_XDP: one queue of the interface, its four rings, and an XDP program.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "link.h"

enum {
  RECEIVE_CHUNKS = 1024,
  SEND_CHUNKS = 256,
  BATCH = 32,
  GROUP = 16
};

struct ring {
  uint32_t *producer, *consumer, *flags, own, seen;
  void *entries;
};

static int descriptor;
static size_t chunk_bytes;
static uint8_t *memory;
static struct ring fill, complete, receive, transmit;
static uint64_t spare[SEND_CHUNKS];
static size_t spares, unsent;

static struct ring map_ring(int option, uint32_t size, size_t entry_bytes, off_t page, struct xdp_ring_offset *at) {
  struct xdp_mmap_offsets offsets;
  socklen_t length = sizeof offsets;
  if (setsockopt(descriptor, SOL_XDP, option, &size, sizeof size) ||
      getsockopt(descriptor, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length))
    fail("ring");
  struct xdp_ring_offset where = *(struct xdp_ring_offset *)((char *)&offsets + (size_t)at);
  uint8_t *base =
      mmap(NULL, where.desc + size * entry_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, page);
  if (base == MAP_FAILED) fail("mmap");
  return (struct ring){(uint32_t *)(base + where.producer),
                       (uint32_t *)(base + where.consumer),
                       (uint32_t *)(base + where.flags),
                       0,
                       0,
                       base + where.desc};
}
#define RING(option, size, type, page, member) \
  map_ring(option, size, sizeof(type), (off_t)(page), &((struct xdp_mmap_offsets *)0)->member)

static int bpf(int command, union bpf_attr *request, const char *what) {
  int result = (int)syscall(SYS_bpf, command, request, sizeof *request);
  if (result < 0) fail(what);
  return result;
}

// Attaches a program that redirects frames of our EtherType to the socket of queue 0, and passes others to the kernel.
static void attach_program(unsigned interface, unsigned flags) {
  union bpf_attr request = {.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
  int map = bpf(BPF_MAP_CREATE, &request, "map");
  const struct bpf_insn code[] = {
      {.code = 0x61, .dst_reg = 2, .src_reg = 1, .off = 0},                    // r2 = data
      {.code = 0x61, .dst_reg = 3, .src_reg = 1, .off = 4},                    // r3 = data_end
      {.code = 0xb7, .dst_reg = 0, .imm = XDP_PASS},                           // r0 = XDP_PASS
      {.code = 0xbf, .dst_reg = 4, .src_reg = 2},                              // r4 = r2
      {.code = 0x07, .dst_reg = 4, .imm = ETH_HLEN},                           // r4 += 14
      {.code = 0x2d, .dst_reg = 4, .src_reg = 3, .off = 7},                    // if r4 > r3: end
      {.code = 0x69, .dst_reg = 4, .src_reg = 2, .off = 12},                   // r4 = EtherType
      {.code = 0x55, .dst_reg = 4, .off = 5, .imm = htons(ETHER_TYPE)},        // if r4 != ours: end
      {.code = 0x18, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map},  // r1 = map
      {0},                                                                     //
      {.code = 0xb7, .dst_reg = 2, .imm = 0},                                  // r2 = queue
      {.code = 0xb7, .dst_reg = 3, .imm = XDP_PASS},                           // r3 = XDP_PASS
      {.code = 0x85, .imm = BPF_FUNC_redirect_map},                            // r0 = redirect
      {.code = 0x95},                                                          // end: return r0
  };
  memset(&request, 0, sizeof request);
  request.prog_type = BPF_PROG_TYPE_XDP;
  request.insn_cnt = sizeof code / sizeof *code;
  request.insns = (uintptr_t)code;
  request.license = (uintptr_t) "Apache-2.0 OR MIT";
  int program = bpf(BPF_PROG_LOAD, &request, "program");
  memset(&request, 0, sizeof request);
  request.link_create.prog_fd = (uint32_t)program;
  request.link_create.target_ifindex = interface;
  request.link_create.attach_type = BPF_XDP;
  request.link_create.flags = flags;
  bpf(BPF_LINK_CREATE, &request, "attach");
  uint32_t queue = 0;
  memset(&request, 0, sizeof request);
  request.map_fd = (uint32_t)map;
  request.key = (uintptr_t)&queue;
  request.value = (uintptr_t)&descriptor;
  bpf(BPF_MAP_UPDATE_ELEM, &request, "map entry");
}

void open_link(const char *interface, size_t mtu, const char *kind) {
  chunk_bytes = mtu + ETH_HLEN + XDP_PACKET_HEADROOM > 2048 ? 4096 : 2048;
  if (mtu + ETH_HLEN + XDP_PACKET_HEADROOM > chunk_bytes) errno = EMSGSIZE, fail(interface);
  descriptor = socket(AF_XDP, SOCK_RAW, 0);
  if (descriptor < 0) fail("socket");
  size_t bytes = chunk_bytes * (RECEIVE_CHUNKS + SEND_CHUNKS);
  memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  struct xdp_umem_reg area = {.addr = (uintptr_t)memory, .len = bytes, .chunk_size = (uint32_t)chunk_bytes};
  if (setsockopt(descriptor, SOL_XDP, XDP_UMEM_REG, &area, sizeof area)) fail("umem");
  fill = RING(XDP_UMEM_FILL_RING, RECEIVE_CHUNKS, uint64_t, XDP_UMEM_PGOFF_FILL_RING, fr);
  complete = RING(XDP_UMEM_COMPLETION_RING, SEND_CHUNKS, uint64_t, XDP_UMEM_PGOFF_COMPLETION_RING, cr);
  receive = RING(XDP_RX_RING, RECEIVE_CHUNKS, struct xdp_desc, XDP_PGOFF_RX_RING, rx);
  transmit = RING(XDP_TX_RING, SEND_CHUNKS, struct xdp_desc, XDP_PGOFF_TX_RING, tx);
  for (uint64_t i = 0; i < RECEIVE_CHUNKS; i++) ((uint64_t *)fill.entries)[i] = i * chunk_bytes;
  __atomic_store_n(fill.producer, fill.own = RECEIVE_CHUNKS, __ATOMIC_RELEASE);
  for (uint64_t i = 0; i < SEND_CHUNKS; i++) spare[spares++] = (RECEIVE_CHUNKS + i) * chunk_bytes;
  // Floors run in labs, where veth is faster in generic mode.
  bool native = strcmp(kind, "xdp-native") == 0 || strcmp(kind, "xdp-zerocopy") == 0;
  struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_ifindex = if_nametoindex(interface)};
  address.sxdp_flags = (strcmp(kind, "xdp-zerocopy") == 0 ? XDP_ZEROCOPY : XDP_COPY) | XDP_USE_NEED_WAKEUP;
  // The queue of a program that has just ended is released with a delay.
  for (int i = 0; bind(descriptor, (struct sockaddr *)&address, sizeof address); i++)
    if (errno != EBUSY || i == 500) fail("bind");
    else usleep(1000);
  attach_program(address.sxdp_ifindex, native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
}

static void reclaim(void) {
  complete.seen = __atomic_load_n(complete.producer, __ATOMIC_ACQUIRE);
  while (complete.own != complete.seen) spare[spares++] = ((uint64_t *)complete.entries)[complete.own++ % SEND_CHUNKS];
  __atomic_store_n(complete.consumer, complete.own, __ATOMIC_RELEASE);
}

void send_frame(const uint8_t *header, size_t header_bytes, size_t payload_bytes, bool last) {
  uint64_t began = 0;
  for (; spares == 0; reclaim()) spend_patience(&began);
  uint64_t chunk = spare[--spares];
  memcpy(memory + chunk, header, header_bytes);
  ((struct xdp_desc *)transmit.entries)[transmit.own++ % SEND_CHUNKS] =
      (struct xdp_desc){chunk, (uint32_t)(header_bytes + payload_bytes), 0};
  if (++unsent < BATCH && !last) return;
  unsent = 0;
  __atomic_store_n(transmit.producer, transmit.own, __ATOMIC_RELEASE);
  began = 0;
  for (bool again = false; __atomic_load_n(transmit.flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP &&
                           __atomic_load_n(transmit.consumer, __ATOMIC_ACQUIRE) != transmit.own;
       again = true) {
    // The first call takes the whole batch, as a rule; no clock is read then.
    if (again) spend_patience(&began);
    if (sendto(descriptor, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != EBUSY && errno != ENOBUFS)
      fail("sendto");
  }
  reclaim();
}

static struct xdp_desc *entry(void) { return (struct xdp_desc *)receive.entries + receive.own % RECEIVE_CHUNKS; }

// Returns chunks to the kernel, in groups or when idle.
static void return_chunks(void) {
  if (*receive.consumer == receive.own) return;
  __atomic_store_n(fill.producer, fill.own, __ATOMIC_RELEASE);
  __atomic_store_n(receive.consumer, receive.own, __ATOMIC_RELEASE);
}

const uint8_t *next_frame(size_t *bytes) {
  if (receive.own == receive.seen) {
    receive.seen = __atomic_load_n(receive.producer, __ATOMIC_ACQUIRE);
    if (receive.own == receive.seen) return return_chunks(), NULL;
  }
  *bytes = entry()->len;
  return memory + entry()->addr;
}

void return_frame(void) {
  ((uint64_t *)fill.entries)[fill.own++ % RECEIVE_CHUNKS] = entry()->addr & ~(uint64_t)(chunk_bytes - 1);
  if (++receive.own % GROUP == 0) return_chunks();
}
