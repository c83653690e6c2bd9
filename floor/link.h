// SPDX-License-Identifier: Apache-2.0 OR MIT
// How frames move: all that differs between the floors.
#pragma once
#include <linux/if_ether.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  ETHER_TYPE = 0x88B6
};  // experimental, and not the probe's 0x88B5: the two never meet
// Nothing came, or the link took nothing, for so long: a link whose other end is down refuses every frame.
enum {
  PATIENCE_S = 2
};

// Ends the program with what errno says.
_Noreturn void fail(const char *what);

// `kind` is the link's name as in `barewire bench --link`.
void open_link(const char *interface, size_t mtu, const char *kind);

// Sends a frame, or keeps it until one comes that is the `last` of its message. The payload is whatever lies in the
// place where frames are made: nobody looks at it.
void send_frame(const uint8_t *header, size_t header_bytes, size_t payload_bytes, bool last);

// Of the monotonic clock.
uint64_t now_ns(void);

// The next frame that has come, without a system call, or NULL. It stays until `return_frame`.
const uint8_t *next_frame(size_t *bytes);
void return_frame(void);
