// SPDX-License-Identifier: Apache-2.0 OR MIT
// Process 1, and the only program, of a guest whose kernel's AF_LLC sockets are the peer of our own LLC.
//
// The host gives orders (guest.h) on the kernel's command line and, later, as lines on the second serial port. Answers
// are lines of JSON on the same port; the kernel's own messages go to the first one.

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "guest.h"

enum {
  LINE_BYTES_MAX = 2048
};

struct interface wire = {.name = "eth0"};
static int console = 1;

static void boot(void);
static void load_modules(const char *directory);
static void bring_up(void);
static void obey(const char *text);
static bool parse_order(const char *text, struct order *order);
static void set_timeouts(const struct order *order);
static void report_status(const struct order *order);
static void die(const char *operation) __attribute__((noreturn));

int main(int count, char **words) {
  boot();
  for (int i = 1; i < count; i++) obey(words[i]);
  struct utsname system;
  uname(&system);
  char mac[18];
  format_mac(wire.mac, mac);
  report("\"event\":\"ready\",\"kernel\":\"%s\",\"interface\":\"%s\",\"mac\":\"%s\"", system.release, wire.name, mac);
  FILE *orders = fdopen(console, "r");
  if (orders == NULL) die("fdopen");
  char line[ORDER_BYTES_MAX];
  while (fgets(line, sizeof line, orders) != NULL) {
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] != '\0') obey(line);
  }
  die("read of the console");
}

void report(const char *members, ...) {
  char line[LINE_BYTES_MAX];
  va_list arguments;
  line[0] = '{';
  va_start(arguments, members);
  int length = vsnprintf(line + 1, sizeof line - 3, members, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 4) length = (int)sizeof line - 4;
  memcpy(line + 1 + length, "}\n", 2);
  if (write(console, line, (size_t)length + 3) < 0) reboot(RB_AUTOBOOT);
}

void report_failure(const struct order *order, const char *operation) {
  int number = errno;
  report("\"event\":\"failed\",\"id\":%ld,\"operation\":\"%s\",\"errno\":%d,\"error\":\"%s\"", order->id, operation,
         number, strerror(number));
}

long number_of(const struct order *order, const char *key, long otherwise) {
  const char *text = text_of(order, key, NULL);
  return text == NULL ? otherwise : strtol(text, NULL, 0);
}

const char *text_of(const struct order *order, const char *key, const char *otherwise) {
  for (int i = 0; i < order->fields; i++) {
    if (strcmp(order->keys[i], key) == 0) return order->values[i];
  }
  return otherwise;
}

bool parse_mac(const char *text, uint8_t mac[MAC_BYTES]) {
  unsigned int part[MAC_BYTES];
  if (text == NULL || sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &part[0], &part[1], &part[2], &part[3], &part[4],
                             &part[5]) != MAC_BYTES) {
    return false;
  }
  for (int i = 0; i < MAC_BYTES; i++) mac[i] = (uint8_t)part[i];
  return true;
}

void format_mac(const uint8_t mac[MAC_BYTES], char text[18]) {
  snprintf(text, 18, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void boot(void) {
  mkdir("/dev", 0755);
  mkdir("/proc", 0755);
  if (mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) != 0) die("mount of /dev");
  if (mount("proc", "/proc", "proc", 0, NULL) != 0) die("mount of /proc");
  int port = open("/dev/ttyS1", O_RDWR | O_NOCTTY);
  if (port < 0) die("open of the second serial port");
  struct termios mode;
  if (tcgetattr(port, &mode) != 0) die("tcgetattr");
  cfmakeraw(&mode);  // no echo of orders, no carriage returns
  cfsetspeed(&mode, B115200);
  if (tcsetattr(port, TCSANOW, &mode) != 0) die("tcsetattr");
  console = port;
  signal(SIGCHLD, SIG_IGN);  // roles end on their own; nobody asks how
  load_modules("/modules");
  bring_up();
}

// In the order of their names, which the image gives them by their dependencies.
static void load_modules(const char *directory) {
  struct dirent **entries;
  int count = scandir(directory, &entries, NULL, alphasort);
  if (count < 0) die("scandir");
  for (int i = 0; i < count; i++) {
    if (entries[i]->d_name[0] == '.') continue;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || (syscall(SYS_finit_module, file, "", 0) != 0 && errno != EEXIST)) die(path);
    close(file);
  }
}

static void bring_up(void) {
  int control = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {0};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", wire.name);
  if (ioctl(control, SIOCGIFHWADDR, &request) != 0) die("SIOCGIFHWADDR");
  memcpy(wire.mac, request.ifr_hwaddr.sa_data, MAC_BYTES);
  if (ioctl(control, SIOCGIFINDEX, &request) != 0) die("SIOCGIFINDEX");
  wire.index = request.ifr_ifindex;
  if (ioctl(control, SIOCGIFFLAGS, &request) != 0) die("SIOCGIFFLAGS");
  request.ifr_flags |= IFF_UP;
  if (ioctl(control, SIOCSIFFLAGS, &request) != 0) die("SIOCSIFFLAGS");
  close(control);
}

static void obey(const char *text) {
  struct order order;
  if (!parse_order(text, &order)) {
    report("\"event\":\"failed\",\"id\":-1,\"operation\":\"parse of an order\",\"errno\":%d,\"error\":\"%s\"", EINVAL,
           strerror(EINVAL));
  } else if (strcmp(order.name, "echo") == 0 || strcmp(order.name, "close-after") == 0) {
    start_server(&order, order.name);
  } else if (strcmp(order.name, "refuse") == 0) {
    // AF_LLC has no way to refuse: a SAP that nobody has bound is all there is.
    report("\"event\":\"listening\",\"id\":%ld,\"role\":\"refuse\",\"sap\":%ld", order.id, number_of(&order, "sap", 0));
  } else if (strcmp(order.name, "connect") == 0) {
    start_connect(&order);
  } else if (strcmp(order.name, "datagram") == 0) {
    start_datagram(&order);
  } else if (strcmp(order.name, "netem") == 0) {
    set_netem(&order);
  } else if (strcmp(order.name, "timeouts") == 0) {
    set_timeouts(&order);
  } else if (strcmp(order.name, "status") == 0) {
    report_status(&order);
  } else {
    errno = ENOSYS;
    report_failure(&order, "look-up of the order");
  }
}

static bool parse_order(const char *text, struct order *order) {
  memset(order, 0, sizeof *order);
  if (strlen(text) >= sizeof order->text) return false;
  strcpy(order->text, text);
  order->name = order->text;
  char *rest = strchr(order->text, ':');
  if (rest != NULL) *rest++ = '\0';
  for (char *field; (field = strsep(&rest, ",")) != NULL;) {
    char *value = strchr(field, '=');
    if (value == NULL || order->fields == FIELDS_MAX) return false;
    *value++ = '\0';
    order->keys[order->fields] = field;
    order->values[order->fields++] = value;
  }
  order->id = number_of(order, "id", -1);
  return true;
}

// Seconds; sockets take the values over when they are made.
static void set_timeouts(const struct order *order) {
  static const char *const names[] = {"ack", "p", "rej", "busy"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = text_of(order, names[i], NULL);
    if (value == NULL) continue;
    char path[64];
    snprintf(path, sizeof path, "/proc/sys/net/llc/llc2/timeout/%s", names[i]);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, value, strlen(value)) < 0) {
      report_failure(order, names[i]);
      return;
    }
    close(file);
  }
  report("\"event\":\"set\",\"id\":%ld", order->id);
}

// The connections' states as the kernel lists them, one record a line.
static void report_status(const struct order *order) {
  static const char *const paths[] = {"/proc/net/llc/socket", "/proc/net/llc/core"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    FILE *file = fopen(paths[i], "r");
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
      line[strcspn(line, "\n")] = '\0';
      report("\"event\":\"line\",\"id\":%ld,\"file\":\"%s\",\"text\":\"%s\"", order->id, paths[i], line);
    }
    if (file != NULL) fclose(file);
  }
  report("\"event\":\"status\",\"id\":%ld", order->id);
}

// With panic=-1 and without reboot, qemu ends; what was wrong stands in the kernel's log too.
static void die(const char *operation) {
  int number = errno;
  report("\"event\":\"dead\",\"operation\":\"%s\",\"errno\":%d,\"error\":\"%s\"", operation, number, strerror(number));
  tcdrain(console);
  fprintf(stderr, "init: %s: %s\n", operation, strerror(number));
  reboot(RB_AUTOBOOT);
  _exit(1);
}
