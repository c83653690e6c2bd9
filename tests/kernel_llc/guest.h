// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the files of the guest's only program share: its report line, its order's fields, and the roles.
#ifndef BAREWIRE_KERNEL_LLC_GUEST_H
#define BAREWIRE_KERNEL_LLC_GUEST_H

#include <stdbool.h>
#include <stdint.h>

enum {
  MAC_BYTES = 6,
  ORDER_BYTES_MAX = 256,
  FIELDS_MAX = 16
};

// An order, `name:key=value,key=value`: one word of the kernel's command line after `--`, or one line on the console.
struct order {
  char text[ORDER_BYTES_MAX];  // the pointers below lie in it
  const char *name;
  const char *keys[FIELDS_MAX];
  const char *values[FIELDS_MAX];
  int fields;
  long id;  // chosen by the host; stands in every record that answers this order
};

struct interface {
  const char *name;
  int index;
  uint8_t mac[MAC_BYTES];
};

extern struct interface wire;  // the guest's one Ethernet interface

// Writes one line of JSON to the console, by one write so that processes do not mix; `members` is a printf format of
// the object's members without the braces.
void report(const char *members, ...) __attribute__((format(printf, 1, 2)));
// Reports that `operation` of an order failed, with the current errno.
void report_failure(const struct order *order, const char *operation);

long number_of(const struct order *order, const char *key, long otherwise);
const char *text_of(const struct order *order, const char *key, const char *otherwise);
bool parse_mac(const char *text, uint8_t mac[MAC_BYTES]);
void format_mac(const uint8_t mac[MAC_BYTES], char text[18]);
int64_t now_ms(void);

// Roles. The caller's process returns at once; what takes time goes on in a child.
void start_server(const struct order *order, const char *role);
void start_connect(const struct order *order);
void start_datagram(const struct order *order);
void set_netem(const struct order *order);

#endif
