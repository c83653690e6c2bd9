// SPDX-License-Identifier: Apache-2.0 OR MIT
// Finds the MPI library's functions, also if the program has loaded it with dlopen and RTLD_LOCAL. Wraps dlsym, so that
// a lookup of MPI_Send in a loaded library returns the profiler's function, as linking does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler.h"

#define LIBRARIES_MAX 64

static void *(*real_dlsym)(void *, const char *);

static void find_dlsym(void) {
  // By version, because dlsym would find our own: glibc 2.34 and later; earlier on x86-64; earlier on other machines.
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27"};
  for (unsigned at = 0; !real_dlsym && at < sizeof versions / sizeof *versions; at++)
    real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[at]);
  if (!real_dlsym) {
    fputs("barewire profiler: no dlsym of a known version in this C library\n", stderr);
    _exit(127);
  }
}

static bool is_ours(const void *address) {
  Dl_info of, us;
  return dladdr(address, &of) && dladdr((const void *)is_ours, &us) && of.dli_fbase == us.dli_fbase;
}

struct found_libraries {
  unsigned count;
  char names[LIBRARIES_MAX][512];
};

static int collect(struct dl_phdr_info *info, size_t size, void *into) {
  (void)size;
  struct found_libraries *found = into;
  const char *base = strrchr(info->dlpi_name, '/');
  if (!base || !strcasestr(base, "mpi") || found->count == LIBRARIES_MAX) return 0;
  if (strlen(info->dlpi_name) < sizeof found->names[0]) strcpy(found->names[found->count++], info->dlpi_name);
  return 0;
}

// Searches libraries that the program has loaded with RTLD_LOCAL.
static void *find_hidden(const char *name) {
  void *address = NULL;
  struct found_libraries *found = calloc(1, sizeof *found);
  if (!found) return NULL;
  dl_iterate_phdr(collect, found);
  for (unsigned at = 0; !address && at < found->count; at++) {
    void *library = dlopen(found->names[at], RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    address = real_dlsym(library, name);
    if (address && is_ours(address)) address = NULL;
    dlclose(library);
  }
  free(found);
  return address;
}

void *find(const char *name) {
  if (!real_dlsym) find_dlsym();
  // The next in lookup order: other tools first, as without the profiler, then the library.
  void *address = real_dlsym(RTLD_NEXT, name);
  return address ? address : find_hidden(name);
}

void *find_variable(const char *name) {
  if (!real_dlsym) find_dlsym();
  // From the start of the lookup order, because the variable may be in the program (a copy relocation).
  void *address = real_dlsym(RTLD_DEFAULT, name);
  return address ? address : find_hidden(name);
}

void *library_function(const char *name) {
  void *address = find(name);
  if (!address) {
    fprintf(stderr, "barewire profiler: no MPI library of this process has %s\n", name);
    _exit(127);
  }
  return address;
}

bool is_open_mpi(void) {
  static int known;
  if (!known) known = find_variable("ompi_mpi_comm_world") ? 1 : -1;
  return known == 1;
}

// The standard ABI (MPI 5), which MPICH provides in a separate library.
static bool is_standard_abi(void) {
  static int known;
  if (!known) {
    Dl_info of;
    known = dladdr(library_function("MPI_Init"), &of) && of.dli_fname && strstr(of.dli_fname, "libmpi_abi") ? 1 : -1;
  }
  return known == 1;
}

bool handles_are_pointers(void) { return is_open_mpi() || is_standard_abi(); }

slot comm_world(void) {
  if (is_open_mpi()) return (slot)find_variable("ompi_mpi_comm_world");
  return is_standard_abi() ? 0x101 : 0x44000000;  // the standard ABI; MPICH and Intel MPI
}

static const struct {
  const char *name;
} recorded[] = {
#define CALL(name, ...) {"MPI_" #name},
#define CALL_BOTH(name, lower, ...) {"MPI_" #name}, {"mpi_" #lower "_"}, {"mpi_" #lower "_f08_"},
#include "present.def"
#undef CALL
#undef CALL_BOTH
    {"MPI_Init"},         {"MPI_Init_thread"},      {"MPI_Finalize"}, {"MPI_Abort"},
#ifdef SESSIONS
    {"MPI_Session_init"}, {"MPI_Session_finalize"},
#endif
};

static bool is_recorded(const char *name) {
  for (unsigned at = 0; at < sizeof recorded / sizeof *recorded; at++)
    if (strcmp(recorded[at].name, name) == 0) return true;
  return false;
}

static void *self(void) {
  static void *handle;
  Dl_info us;
  if (!handle && dladdr((const void *)self, &us)) handle = dlopen(us.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return handle;
}

static void *wrapper_for(void *library, const char *name) {
  void *original = real_dlsym(library, name);
  if (!original || is_ours(original) || !is_recorded(name) || !self()) return original;
  void *own = real_dlsym(self(), name);
  return own ? own : original;
}

EXPORTED void *dlsym(void *restrict library, const char *restrict name) {
  if (!real_dlsym) find_dlsym();
  // The meaning of RTLD_NEXT and RTLD_DEFAULT depends on the caller's address, so these must be tail
  // calls (Makefile).
  bool pseudo = library == RTLD_NEXT || library == RTLD_DEFAULT;
  if (pseudo || (strncmp(name, "MPI_", 4) != 0 && strncmp(name, "mpi_", 4) != 0)) return real_dlsym(library, name);
  return wrapper_for(library, name);
}
