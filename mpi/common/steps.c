// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "steps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "suite.h"

static const char *listener;
static int connection = -1;

void open_steps(const char *path) {
  listener = path;
  if (!listener) return;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path)
    usage_error("--steps %s is longer than a Unix socket's %zu bytes", path, sizeof address.sun_path - 1);
  if (rank) return;
  memcpy(address.sun_path, path, strlen(path));
  connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address))
    unsupported_here("no listener at --steps %s: %s", path, strerror(errno));
}

static void announce(const char *name, int number) {
  char line[64], answer;
  int length = snprintf(line, sizeof line, "%s %d\n", name, number);
  // Not by write, which would end the process by SIGPIPE.
  if (send(connection, line, (size_t)length, MSG_NOSIGNAL) != length)
    unsupported_here("the listener at --steps %s takes no line: %s", listener, strerror(errno));
  do {
    ssize_t got = read(connection, &answer, 1);
    if (got == 0) unsupported_here("the listener at --steps %s has closed the connection", listener);
    if (got < 0 && errno != EINTR) unsupported_here("--steps %s: %s", listener, strerror(errno));
    if (got < 0) answer = 0;
  } while (answer != '\n');
}

void next_step(const char *name, int number) {
  if (!listener) return;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) announce(name, number);
  MPI_Barrier(MPI_COMM_WORLD);
}

void close_steps(void) {
  if (connection >= 0) close(connection);
  connection = -1;
}
