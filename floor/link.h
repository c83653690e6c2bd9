// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sending and receiving frames: the part that differs between the floors.
#pragma once
#include <linux/if_ether.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  ETHER_TYPE = 0x88B6
};  // local experimental EtherType 2; the probe has 1, 0x88B5
// Timeout of receiving and of sending: a link whose other end is down refuses every frame.
enum {
  PATIENCE_S = 2
};

// Ends the program, with errno's message and a matching exit code.
_Noreturn void fail(const char *what);

// `kind` is the link's name as in `barewire bench --link`.
void open_link(const char *interface, size_t mtu, const char *kind);

// Sends a frame; may queue it until the `last` of its message. The payload is the buffer's old content, since it is
// never checked.
void send_frame(const uint8_t *header, size_t header_bytes, size_t payload_bytes, bool last);

// CLOCK_MONOTONIC.
uint64_t now_ns(void);

// Ends the program if a frame has waited for the link for too long; `*began` is 0 at first.
void spend_patience(uint64_t *began);

// The next received frame, without a system call, or NULL. Valid until `return_frame`.
const uint8_t *next_frame(size_t *bytes);
void return_frame(void);
