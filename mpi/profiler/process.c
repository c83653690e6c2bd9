// SPDX-License-Identifier: Apache-2.0 OR MIT
// The profile file of a process, created in MPI_Init, and the times of its milestones.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "profiler.h"

#define PAGE 4096
#define ROUNDED(bytes) (((bytes) + PAGE - 1) / PAGE * PAGE)
#define BLOCK_OFFSET ROUNDED(sizeof(struct header) + CALLS * sizeof(struct name))
#define BLOCK_BYTES ROUNDED(sizeof(struct block))
#define FILE_BYTES (BLOCK_OFFSET + THREADS_MAX * BLOCK_BYTES)

static const char *const kinds[KINDS] = {
    [SEND] = "send",
    [RECEIVE] = "receive",
    [PROBE] = "probe",
    [START] = "start",
    [WAIT] = "wait",
    [TEST] = "test",
    [COLLECTIVE] = "collective",
    [ONE_SIDED] = "one-sided",
    [SYNCHRONISE] = "synchronise",
    [FILE_IO] = "file",
    [LOCAL] = "local",
    [SET_UP] = "set-up",
};

const struct call calls[CALLS] = {
#define CALL(called, slots, of_kind, ...) {.name = "MPI_" #called, .arguments = slots, .kind = of_kind, __VA_ARGS__},
#define CALL_BOTH(called, lower, slots, fortran, of_kind, ...) \
  {.name = "MPI_" #called, .arguments = slots, .kind = of_kind, __VA_ARGS__},
#include "present.def"
#undef CALL
#undef CALL_BOTH
};

// A name that is cut off would be that of another call, or of none.
#define CALL(called, ...) \
  _Static_assert(sizeof("MPI_" #called) <= sizeof((struct name *)0)->text, "MPI_" #called ": too long a name");
#define CALL_BOTH CALL
#include "present.def"
#undef CALL
#undef CALL_BOTH

struct header *recording;
// Set also in light mode, in which only milestones are recorded.
static struct header *header;
static uint64_t loaded;
static pid_t process;
static char path[PATH_MAX];

__attribute__((constructor)) static void record_load(void) { loaded = now(); }

__attribute__((destructor)) static void record_exit(void) {
  if (header && process == getpid()) atomic_store(&header->left, now());
}

static void stop_in_child(void) {
  recording = NULL;
  header = NULL;
}

static int number_from(const char *const *names) {
  for (; *names; names++) {
    const char *text = getenv(*names);
    if (text && *text >= '0' && *text <= '9') return atoi(text);
  }
  return -1;
}

static void copy_text(char *into, const char *text) { snprintf(into, TEXT_BYTES, "%s", text ? text : ""); }

static void fill_header(void) {
  static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
  static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL};
  header->names = CALLS;
  header->block_offset = BLOCK_OFFSET;
  header->block_bytes = BLOCK_BYTES;
  header->entries = ENTRIES;
  header->longest = LONGEST;
  header->bins = BINS;
  header->rank = number_from(ranks);
  header->size = number_from(sizes);
  header->pid = process;
  header->thread_level = -1;
  header->loaded = loaded;
  gethostname(header->host, TEXT_BYTES - 1);
  copy_text(header->program, program_invocation_name);
  copy_text(header->job, getenv("PMIX_NAMESPACE"));
  struct name *names = (struct name *)(header + 1);
  for (unsigned at = 0; at < CALLS; at++) {
    snprintf(names[at].kind, sizeof names[at].kind, "%s", kinds[calls[at].kind]);
    snprintf(names[at].text, sizeof names[at].text, "%s", calls[at].name);
  }
  // Last: the magic marks a valid header.
  memcpy(header->magic, PROFILE_MAGIC, sizeof PROFILE_MAGIC);
}

static struct header *map_file(const char *directory) {
  char host[HOST_NAME_MAX + 1] = "host";
  gethostname(host, sizeof host - 1);
  if (snprintf(path, sizeof path, "%s/%s.%d.%llx.rank", directory, host, (int)process, (unsigned long long)now()) >=
      (int)sizeof path) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return NULL;
  // Allocated in advance, because touching a page on a full disk would kill the program with SIGBUS.
  int error = ftruncate(file, FILE_BYTES) ? errno : posix_fallocate(file, 0, BLOCK_OFFSET + BLOCK_BYTES);
  void *mapped = error ? MAP_FAILED : mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (!error && mapped == MAP_FAILED) error = errno;
  close(file);
  if (!error) return mapped;
  unlink(path);
  errno = error;
  return NULL;
}

// Blocks of finished threads are reused, so that only the number of concurrent threads is limited.
static _Atomic bool is_free[THREADS_MAX];
static pthread_key_t at_thread_end;

static void release_block(void *block) {
  if (!header) return;
  size_t number = (size_t)((char *)block - (char *)header - BLOCK_OFFSET) / BLOCK_BYTES;
  atomic_store(&is_free[number], true);
}

void begin_process(void) {
  const char *directory = getenv("BAREWIRE_PROFILE"), *mode = getenv("BAREWIRE_PROFILE_MODE");
  if (header || !directory || !*directory) return;
  process = getpid();
  header = map_file(directory);
  if (!header) {
    fprintf(stderr, "barewire profiler: this rank is not profiled: cannot write in %s: %s\n", directory,
            strerror(errno));
    return;
  }
  pthread_atfork(NULL, NULL, stop_in_child);
  pthread_key_create(&at_thread_end, release_block);
  fill_header();
  header->light = mode && strcmp(mode, "light") == 0;
  header->init_begin = now();
  if (header->light) return;
  struct block *scratch = (struct block *)((char *)header + BLOCK_OFFSET);
  header->cost_ps = cost_of_recording_ps(header, scratch);
  memset((void *)scratch, 0, sizeof *scratch);
  header->init_begin = now();
  recording = header;
}

// The world and sessions that have begun and not ended.
static _Atomic unsigned users;

// A process that begins anew after its last end is running again.
static void join(void) {
  atomic_fetch_add(&users, 1);
  if (!atomic_load(&header->init_end)) atomic_store(&header->init_end, now());
  atomic_store(&header->state, RUNNING);
  atomic_store(&header->finalize_begin, 0);
  atomic_store(&header->finalize_end, 0);
}

void session_begun(void) {
  if (header) join();
}

void initialised(void) {
  if (!header) return;
  join();
  slot all = comm_world();
  int32_t value = 0;
  ((int (*)(slot, int *))library_function("MPI_Comm_rank"))(all, &header->rank);
  ((int (*)(slot, int *))library_function("MPI_Comm_size"))(all, &header->size);
  ((int (*)(int *))library_function("MPI_Query_thread"))(&header->thread_level);
  char text[65536] = "";  // MPI_MAX_LIBRARY_VERSION_STRING is 8192 in MPICH
  ((int (*)(char *, int *))library_function("MPI_Get_library_version"))(text, &value);
  text[strcspn(text, "\n")] = '\0';
  copy_text(header->library, text);
  slot parent = 0, null = 0;
  ((int (*)(slot *))library_function("MPI_Comm_get_parent"))(&parent);
  if (is_open_mpi()) null = (slot)find_variable("ompi_mpi_comm_null");
  else null = handles_are_pointers() ? 0x100 : 0x04000000;
  header->spawned = handles_are_pointers() ? parent != null : (uint32_t)parent != null;
}

bool before_finalize(void) {
  bool is_last = header && atomic_fetch_sub(&users, 1) == 1;
  if (is_last) atomic_store(&header->finalize_begin, now());
  return is_last;
}

void finalised(void) {
  // Another session may have begun meanwhile.
  if (!header || atomic_load(&users)) return;
  atomic_store(&header->finalize_end, now());
  atomic_store(&header->state, FINALISED);
}

void aborting(int code) {
  if (!header) return;
  header->abort_code = code;
  atomic_store(&header->state, ABORTED);
}

static struct block *reused_block(struct header *of) {
  uint64_t begun = atomic_load(&of->threads);
  for (uint64_t number = 0; number < begun && number < THREADS_MAX; number++) {
    bool expected = true;
    if (atomic_compare_exchange_strong(&is_free[number], &expected, false))
      return (struct block *)((char *)of + BLOCK_OFFSET + number * BLOCK_BYTES);
  }
  return NULL;
}

static struct block *fresh_block(struct header *of) {
  uint64_t number = atomic_fetch_add(&of->threads, 1);
  if (number >= THREADS_MAX) return NULL;
  size_t offset = BLOCK_OFFSET + number * BLOCK_BYTES;
  if (number > 0) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    int error = file < 0 ? errno : posix_fallocate(file, (off_t)offset, BLOCK_BYTES);
    if (file >= 0) close(file);
    if (error) return NULL;
  }
  struct block *block = (struct block *)((char *)of + offset);
  atomic_store(&block->bin_shift, 16);  // 65 µs
  return block;
}

struct block *new_block(void) {
  struct header *of = recording;
  if (!of) return NULL;
  struct block *block = reused_block(of);
  if (!block) block = fresh_block(of);
  if (!block) atomic_fetch_add(&of->threads_unrecorded, 1);
  else pthread_setspecific(at_thread_end, block);
  return block;
}
