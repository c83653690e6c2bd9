// SPDX-License-Identifier: Apache-2.0 OR MIT
// A transport with known parameters, put between a program and its MPI library (LD_PRELOAD): two ranks of one host,
// whose messages go through the library but take the time of a model. Sending keeps the processor busy for Os,
// receiving for Or. Messages leave one after the other, each for m bytes times G, and arrive L later. SYNTHETIC_OS_NS,
// _OR_NS, _L_NS, _G_NS (of a byte); SYNTHETIC_PROGRESS: "background" (messages leave by themselves) or "calls" (the
// sender sends in its own time: in Send, or in Wait). Implements the calls that the measurements under test make
// between these two: Send, Ssend, Isend, Issend, Recv, Irecv, Wait, of contiguous types, without wildcards. Receives
// are taken to be posted when a synchronous message arrives.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  PENDING_MAX = 64
};

static uint64_t os_ns, or_ns, l_ns, g_ns;
static int background;
// When the link is done with all messages so far.
static uint64_t link_free_ns;

// What goes through the library: when the message has arrived, and its contents.
struct frame {
  uint64_t arrival_ns;
  unsigned char contents[];
};

static struct pending {
  MPI_Request request;
  struct frame *frame;
  void *user;        // where a received message belongs; NULL: it is a sent one
  size_t bytes;      // that the user's buffer has
  uint64_t done_ns;  // of a sent one
  int synchronous, used;
} pending[PENDING_MAX];

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void busy_until(uint64_t end_ns) {
  while (now_ns() < end_ns) continue;
}

__attribute__((noreturn)) static void refuse(const char *what) {
  fprintf(stderr, "synthetic transport: %s\n", what);
  PMPI_Abort(MPI_COMM_WORLD, 2);
  abort();
}

static uint64_t parameter(const char *name) {
  const char *text = getenv(name);
  char *end = NULL;
  uint64_t value = text ? strtoull(text, &end, 10) : 0;
  if (!text || !*text || *end) {
    fprintf(stderr, "synthetic transport: %s must be a number\n", name);
    exit(2);
  }
  return value;
}

__attribute__((constructor)) static void read_parameters(void) {
  os_ns = parameter("SYNTHETIC_OS_NS");
  or_ns = parameter("SYNTHETIC_OR_NS");
  l_ns = parameter("SYNTHETIC_L_NS");
  g_ns = parameter("SYNTHETIC_G_NS");
  const char *progress = getenv("SYNTHETIC_PROGRESS");
  background = progress && !strcmp(progress, "background");
  if (!background && (!progress || strcmp(progress, "calls"))) {
    fprintf(stderr, "synthetic transport: SYNTHETIC_PROGRESS must be background or calls\n");
    exit(2);
  }
}

static size_t bytes_of(int count, MPI_Datatype type) {
  int size;
  PMPI_Type_size(type, &size);
  return (size_t)count * (size_t)size;
}

static struct frame *frame_of(const void *data, size_t bytes) {
  struct frame *frame = calloc(1, sizeof *frame + bytes);
  if (!frame) refuse("no memory");
  if (data && bytes) memcpy(frame->contents, data, bytes);
  return frame;
}

static struct pending *find(MPI_Request request) {
  for (int at = 0; at < PENDING_MAX; at++)
    if (pending[at].used && pending[at].request == request) return &pending[at];
  return NULL;
}

static struct pending *keep(struct pending wanted) {
  int at = 0;
  while (at < PENDING_MAX && pending[at].used) at++;
  if (at == PENDING_MAX) refuse("too many requests at once");
  wanted.used = 1;
  pending[at] = wanted;
  return &pending[at];
}

// The message is handed to the link, which sends it after those before. Returns when it has left.
static uint64_t hand_over(struct frame *frame, size_t bytes) {
  uint64_t now = now_ns(), begin = link_free_ns > now ? link_free_ns : now;
  link_free_ns = begin + bytes * g_ns;
  frame->arrival_ns = link_free_ns + l_ns;
  return link_free_ns;
}

int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm where) {
  size_t bytes = bytes_of(count, type);
  busy_until(now_ns() + os_ns);
  struct frame *frame = frame_of(data, bytes);
  uint64_t left_ns = hand_over(frame, bytes);
  int code = PMPI_Send(frame, (int)(sizeof *frame + bytes), MPI_BYTE, to, tag, where);
  if (!background) busy_until(left_ns);
  free(frame);
  return code;
}

static void start(struct pending *sent) {
  uint64_t left_ns = hand_over(sent->frame, sent->bytes);
  // The acknowledgement is an empty message without overheads.
  sent->done_ns = sent->synchronous ? left_ns + 2 * l_ns : left_ns;
  PMPI_Start(&sent->request);
}

// A persistent request is one that the caller can hold before anything was sent.
static int post(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm where, MPI_Request *request,
                int synchronous) {
  size_t bytes = bytes_of(count, type);
  busy_until(now_ns() + os_ns);
  struct frame *frame = frame_of(data, bytes);
  int code = PMPI_Send_init(frame, (int)(sizeof *frame + bytes), MPI_BYTE, to, tag, where, request);
  struct pending *sent =
      keep((struct pending){.request = *request, .frame = frame, .bytes = bytes, .synchronous = synchronous});
  if (background) start(sent);
  return code;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm where, MPI_Request *request) {
  return post(data, count, type, to, tag, where, request, 0);
}

int MPI_Issend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm where, MPI_Request *request) {
  return post(data, count, type, to, tag, where, request, 1);
}

// The message came into the frame; it is there for the program when the model says so.
static void deliver(const struct frame *frame, void *user, size_t bytes) {
  busy_until(frame->arrival_ns);
  busy_until(now_ns() + or_ns);
  if (user && bytes) memcpy(user, frame->contents, bytes);
}

int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm where, MPI_Status *status) {
  if (status != MPI_STATUS_IGNORE) refuse("no statuses");
  size_t bytes = bytes_of(count, type);
  struct frame *frame = frame_of(NULL, bytes);
  int code = PMPI_Recv(frame, (int)(sizeof *frame + bytes), MPI_BYTE, from, tag, where, MPI_STATUS_IGNORE);
  deliver(frame, data, bytes);
  free(frame);
  return code;
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm where, MPI_Request *request) {
  size_t bytes = bytes_of(count, type);
  struct frame *frame = frame_of(NULL, bytes);
  int code = PMPI_Irecv(frame, (int)(sizeof *frame + bytes), MPI_BYTE, from, tag, where, request);
  // An empty message has a place to go all the same, which tells it from a sent one.
  keep((struct pending){.request = *request, .frame = frame, .user = data ? data : (void *)frame, .bytes = bytes});
  return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
  struct pending *found = find(*request);
  if (!found) return PMPI_Wait(request, status);
  if (status != MPI_STATUS_IGNORE) refuse("no statuses");
  int sent = found->user == NULL;
  if (sent && !background) start(found);
  int code = PMPI_Wait(&found->request, MPI_STATUS_IGNORE);
  if (sent) {
    busy_until(found->done_ns);
    PMPI_Request_free(&found->request);
  } else {
    deliver(found->frame, found->bytes ? found->user : NULL, found->bytes);
  }
  free(found->frame);
  found->used = 0;
  *request = MPI_REQUEST_NULL;
  return code;
}

int MPI_Ssend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm where) {
  MPI_Request request;
  int code = MPI_Issend(data, count, type, to, tag, where, &request);
  return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}
