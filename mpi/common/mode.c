// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "mode.h"

#include <limits.h>
#include <stdlib.h>

#include "suite.h"

enum {
  BUFFER_BYTES = 1 << 24,  // for short messages: libraries release sent messages late
  BUFFER_MESSAGES = 2      // at least
};

const struct mode standard_mode = {MPI_Send, MPI_Isend, 0}, synchronous_mode = {MPI_Ssend, MPI_Issend, 0},
                  buffered_mode = {MPI_Bsend, MPI_Ibsend, 1}, ready_mode = {MPI_Rsend, MPI_Irsend, 0};

void check_buffered_sizes(void) {
  size_t size_max = INT_MAX / BUFFER_MESSAGES - MPI_BSEND_OVERHEAD;
  for (int number = 0; number < settings.size_count; number++)
    if (settings.sizes[number] > size_max)
      usage_error("buffered mode takes messages of up to %zu bytes, not %zu: choose other --variants", size_max,
                  settings.sizes[number]);
}

void attach_buffer(const struct mode *mode, size_t message_bytes) {
  if (!mode->buffered) return;
  size_t whole = (message_bytes + MPI_BSEND_OVERHEAD) * BUFFER_MESSAGES;
  if (whole < BUFFER_BYTES) whole = BUFFER_BYTES;
  MPI_Buffer_attach(allocate(whole), (int)whole);
}

void detach_buffer(const struct mode *mode) {
  if (!mode->buffered) return;
  void *buffer;
  int size;
  MPI_Buffer_detach(&buffer, &size);
  free(buffer);
}
