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

// Ends the program with what errno says.
_Noreturn void fail(const char *what);

// `kind` is the link's name as in `barewire bench --link`.
void open_link(const char *interface, size_t mtu, const char *kind);

// Sends a frame in two parts, or keeps it until one comes that is the `last` of its message.
void send_frame(const uint8_t *header, size_t header_bytes, const uint8_t *payload, size_t payload_bytes, bool last);

// The next frame that has come, without a system call, or NULL. It stays until `return_frame`.
const uint8_t *next_frame(size_t *bytes);
void return_frame(void);
