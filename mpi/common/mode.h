// SPDX-License-Identifier: Apache-2.0 OR MIT
// MPI's send modes: the call that sends and the one that starts to send, and the buffer of buffered mode.
#pragma once
#include <mpi.h>
#include <stddef.h>

typedef int send_function(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int start_function(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

struct mode {
  send_function *send;
  start_function *start;
  int buffered;
};
extern const struct mode standard_mode, synchronous_mode, buffered_mode, ready_mode;

// A usage error if a message of `settings.sizes` is too long for buffered mode. Collective.
void check_buffered_sizes(void);
// Gives MPI a buffer for messages of this size, and takes it back once all of them are sent. No effect in other modes.
void attach_buffer(const struct mode *mode, size_t message_bytes);
void detach_buffer(const struct mode *mode);
