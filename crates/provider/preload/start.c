// SPDX-License-Identifier: Apache-2.0 OR MIT
// Leaves out what Open MPI and libfabric wait for at a job's start and end on behalf of other fabrics. `barewire run`
// preloads this into ranks of Open MPI over Barewire:
//
// - libfabric's verbs provider reads all of the kernel's symbols, twice, to learn whether InfiniBand cards may read the
//   memory of graphics cards: a quarter of a second each time. Here it finds none.
// - Open MPI 5's byte transfer layer over libfabric sleeps for a second when it is closed, for libfabric's sockets
//   provider. Ours has told its peers by then.
// - Debian's libfabric is linked with the library of InfiniPath's cards, which holds each process on the first core for
//   100 ms to measure that core's clock, whenever it is loaded. This file bears that library's name (tools/build.sh),
//   so that the loader has it already: with these functions, and without a card.
//
// Nobody but these libraries sees any of it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

// Whether an address lies in a library, and not in the function of that name.
static int is_in(void *address, const char *library, const char *but) {
  Dl_info found;
  if (!dladdr(address, &found) || !found.dli_fname || !strstr(found.dli_fname, library)) return 0;
  return !found.dli_sname || strcmp(found.dli_sname, but) != 0;
}

static FILE *open_file(const char *name, const char *path, const char *mode, void *caller) {
  if (path && strcmp(path, "/proc/kallsyms") == 0 && is_in(caller, "libfabric.so", "")) {
    errno = ENOENT;
    return NULL;
  }
  FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, name);
  return next(path, mode);
}

PUBLIC FILE *fopen(const char *path, const char *mode) { return open_file("fopen", path, mode, CALLER); }

PUBLIC FILE *fopen64(const char *path, const char *mode) { return open_file("fopen64", path, mode, CALLER); }

PUBLIC unsigned sleep(unsigned seconds) {
  // A delay before an abort, which a user asked for, stays.
  if (seconds == 1 && is_in(CALLER, "libopen-pal.so", "opal_delay_abort")) return 0;
  unsigned (*next)(unsigned) = (unsigned (*)(unsigned))dlsym(RTLD_NEXT, "sleep");
  return next(seconds);
}

// All functions of InfiniPath's library: a libfabric that lacks one of those that it calls does not load at all.
#define NO_CARD(name) \
  PUBLIC int name(void) { return 3; /* PSM_PARAM_ERR */ }

PUBLIC const char *psm_error_get_string(int error) {
  (void)error;
  return "left out by barewire run";
}

NO_CARD(psm_am_get_parameters)
NO_CARD(psm_am_register_handlers)
NO_CARD(psm_am_reply_short)
NO_CARD(psm_am_request_short)
NO_CARD(psm_ep_close)
NO_CARD(psm_ep_connect)
NO_CARD(psm_ep_epid_lookup)
NO_CARD(psm_ep_epid_share_memory)
NO_CARD(psm_ep_num_devunits)
NO_CARD(psm_ep_open)
NO_CARD(psm_ep_open_opts_get_defaults)
NO_CARD(psm_ep_query)
NO_CARD(psm_epaddr_getctxt)
NO_CARD(psm_epaddr_setctxt)
NO_CARD(psm_epaddr_setlabel)
NO_CARD(psm_epid_context)
NO_CARD(psm_epid_nid)
NO_CARD(psm_epid_port)
NO_CARD(psm_error_defer)
NO_CARD(psm_error_register_handler)
NO_CARD(psm_finalize)
NO_CARD(psm_getopt)
NO_CARD(psm_init)
NO_CARD(psm_map_nid_hostname)
NO_CARD(psm_mq_cancel)
NO_CARD(psm_mq_finalize)
NO_CARD(psm_mq_get_stats)
NO_CARD(psm_mq_getopt)
NO_CARD(psm_mq_init)
NO_CARD(psm_mq_ipeek)
NO_CARD(psm_mq_iprobe)
NO_CARD(psm_mq_irecv)
NO_CARD(psm_mq_isend)
NO_CARD(psm_mq_send)
NO_CARD(psm_mq_setopt)
NO_CARD(psm_mq_test)
NO_CARD(psm_mq_wait)
NO_CARD(psm_poll)
NO_CARD(psm_setopt)
NO_CARD(psm_uuid_generate)
