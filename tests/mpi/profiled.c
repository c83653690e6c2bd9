// SPDX-License-Identifier: Apache-2.0 OR MIT
// Programs as the profiler meets them, by name: profiled MODE. Two ranks, but for spawn.
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 50
#define THREADS 3

static int rank, size;

static void exchange(int bytes, int tag) {
  char *buffer = calloc(1, bytes);
  for (int round = 0; round < ROUNDS; round++) {
    if (rank == 0) MPI_Send(buffer, bytes, MPI_CHAR, 1, tag, MPI_COMM_WORLD);
    else MPI_Recv(buffer, bytes, MPI_CHAR, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  free(buffer);
}

static void *in_thread(void *tag) {
  exchange(64, (int)(long)tag);
  return NULL;
}

static void threads(void) {
  pthread_t all[THREADS];
  for (long at = 0; at < THREADS; at++) pthread_create(&all[at], NULL, in_thread, (void *)at);
  for (int at = 0; at < THREADS; at++) pthread_join(all[at], NULL);
}

static void forks(void) {
  exchange(8, 0);
  fflush(stdout);
  pid_t child = fork();
  // Writes what would be a rank's own record, if the child shared it, and leaves by every destructor.
  if (child == 0) exit(5);
  int status;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) != 5) MPI_Abort(MPI_COMM_WORLD, 9);
  exchange(8, 0);
}

static void spawns(char *self) {
  MPI_Comm children;
  char *arguments[] = {(char *)"child", NULL};
  MPI_Comm_spawn(self, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
  MPI_Barrier(children);
  MPI_Comm_disconnect(&children);
}

static void child(void) {
  MPI_Comm parent;
  MPI_Comm_get_parent(&parent);
  MPI_Barrier(parent);
  MPI_Comm_disconnect(&parent);
}

static void requests(void) {
  int values[4] = {rank}, sums[4];
  MPI_Request pending[2];
  for (int round = 0; round < ROUNDS; round++) {
    MPI_Irecv(sums, 4, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, &pending[0]);
    MPI_Isend(values, 4, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, &pending[1]);
    MPI_Waitall(2, pending, MPI_STATUSES_IGNORE);
  }
  MPI_Allreduce(MPI_IN_PLACE, values, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int gathered[8] = {0};
  // What is ignored beside MPI_IN_PLACE need not be a type.
  MPI_Allgather(MPI_IN_PLACE, 7, MPI_DATATYPE_NULL, gathered, 4, MPI_INT, MPI_COMM_WORLD);
  if (rank == 0) usleep(100000);
  MPI_Barrier(MPI_COMM_WORLD);
}

#define MESSAGES 3

static MPI_Request pending[MESSAGES];
static char *data[MESSAGES];

static int bytes_of(int message) { return message == 0 ? 16 : message == 1 ? 1600 : 160000; }

static void post(int persistent) {
  for (int at = 0; at < MESSAGES; at++) {
    data[at] = calloc(1, bytes_of(at));
    if (persistent) MPI_Recv_init(data[at], bytes_of(at), MPI_CHAR, 0, at, MPI_COMM_WORLD, &pending[at]);
    else MPI_Irecv(data[at], bytes_of(at), MPI_CHAR, 0, at, MPI_COMM_WORLD, &pending[at]);
  }
  if (persistent) MPI_Startall(MESSAGES, pending);
}

static void wait_any(void) {
  int index;
  do MPI_Waitany(MESSAGES, pending, &index, MPI_STATUS_IGNORE);
  while (index != MPI_UNDEFINED);
}

static void wait_some(void) {
  int count, indices[MESSAGES];
  do MPI_Waitsome(MESSAGES, pending, &count, indices, MPI_STATUSES_IGNORE);
  while (count != MPI_UNDEFINED);
}

static void test_any(void) {
  int index, done;
  do MPI_Testany(MESSAGES, pending, &index, &done, MPI_STATUS_IGNORE);
  while (!done || index != MPI_UNDEFINED);
}

static void test_some(void) {
  int count, indices[MESSAGES];
  do MPI_Testsome(MESSAGES, pending, &count, indices, MPI_STATUSES_IGNORE);
  while (count != MPI_UNDEFINED);
}

static void test_each(void) {
  for (int at = 0, done; at < MESSAGES; at++) {
    do MPI_Test(&pending[at], &done, MPI_STATUS_IGNORE);
    while (!done);
  }
}

static void test_all(void) {
  int done;
  do MPI_Testall(MESSAGES, pending, &done, MPI_STATUSES_IGNORE);
  while (!done);
}

static void look_and_wait(void) {
  for (int at = 0, done; at < MESSAGES; at++) {
    do MPI_Request_get_status(pending[at], &done, MPI_STATUS_IGNORE);
    while (!done);
    MPI_Wait(&pending[at], MPI_STATUS_IGNORE);
  }
}

// Rank 1 asks for rank 0's messages before they are sent.
static void completions(void) {
  void (*const waits[])(void) = {wait_any,  wait_any,  wait_some, test_any,
                                 test_some, test_each, test_all,  look_and_wait};
  for (int each = 0; each < (int)(sizeof waits / sizeof *waits); each++) {
    int persistent = each == 0;
    if (rank == 1) {
      post(persistent);
      waits[each]();
    } else {
      char *from = calloc(1, bytes_of(MESSAGES - 1));
      usleep(5000);
      for (int at = 0; at < MESSAGES; at++) MPI_Send(from, bytes_of(at), MPI_CHAR, 1, at, MPI_COMM_WORLD);
      free(from);
    }
    for (int at = 0; rank == 1 && at < MESSAGES; at++) {
      if (persistent) MPI_Request_free(&pending[at]);
      free(data[at]);
    }
  }
}

// Operations whose size no argument tells.
static void unsized(void) {
  int counts[2] = {1000, 1000}, displacements[2] = {0, 1000};
  MPI_Datatype types[2] = {MPI_CHAR, MPI_CHAR};
  char from[2000] = {0}, into[2000];
  MPI_Request request;
  for (int round = 0; round < ROUNDS; round++) {
    MPI_Ialltoallw(from, counts, displacements, types, into, counts, displacements, types, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

static void result(const char *mode) {
  const char *provider = getenv("FI_PROVIDER");
  int over_barewire = provider && strcmp(provider, "barewire") == 0;
  if (rank == 0) {
    printf("iterations 12\nenergy %d.25\n", strcmp(mode, "differs") == 0 && over_barewire ? -5 : -4);
    printf("elapsed %.6f s\n", MPI_Wtime());
  }
  if (strcmp(mode, "fails-over-barewire") == 0 && over_barewire) {
    fprintf(stderr, "a check of the program failed\n");
    MPI_Abort(MPI_COMM_WORLD, 4);
  }
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "requests";
  int provided, wanted = strcmp(mode, "threads") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
  MPI_Init_thread(&count, &arguments, wanted, &provided);
  if (provided < wanted) MPI_Abort(MPI_COMM_WORLD, 8);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (strcmp(mode, "child") == 0) child();
  else exchange(1024, 1);
  if (strcmp(mode, "requests") == 0) requests();
  if (strcmp(mode, "completions") == 0) completions();
  if (strcmp(mode, "unsized") == 0) unsized();
  if (strcmp(mode, "threads") == 0) threads();
  if (strcmp(mode, "forks") == 0) forks();
  if (strcmp(mode, "spawns") == 0) spawns(arguments[0]);
  if (strcmp(mode, "killed") == 0 && rank == 1) raise(SIGKILL);
  if (strcmp(mode, "aborts") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 6);
  if (strcmp(mode, "leaves") == 0) _exit(7);
  if (strcmp(mode, "fails") == 0) exit(3);
  // Until somebody ends it: the other rank does not send.
  if (strcmp(mode, "hangs") == 0 && rank == 1) MPI_Recv(&rank, 1, MPI_INT, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(mode, "hangs") == 0) sleep(1000);
  result(mode);
  MPI_Finalize();
  return 0;
}
