// SPDX-License-Identifier: Apache-2.0 OR MIT
// random_programs FIRST COUNT ROUNDS: two ranks run COUNT programs, each a few random steps drawn from its seed:
// computing, bursts, exchanges, overlapped and synchronous sends, collectives. A first round checks what arrives; then
// ROUNDS rounds are timed. For each program rank 0 prints a line of JSON: the median of the slower rank's time.
#include "check.h"

enum {
  STEPS_MAX = 6,
  LONGEST = 1000000,
  BURST_MAX = 2000000,
  ROUNDS_MAX = 1000
};

typedef enum {
  COMPUTE,
  BURST,
  EXCHANGE,
  SEND_COMPUTE,
  RECEIVE_COMPUTE,
  SYNCHRONOUS,
  PROBE,
  ALLREDUCE,
  BROADCAST,
  ALL_TO_ALL
} kind_t;

static const char *const names[] = {
    "compute",   "burst", "exchange", "isend, compute, wait", "irecv, compute, wait", "ssend", "probed",
    "allreduce", "bcast", "alltoall"};
static const int sizes[] = {8, 200, 1000, 2000, 4096, 8192, 16384, 32768, 60000, 100000, 200000, 500000, LONGEST};
static const int computing_us[] = {20, 100, 300, 1000, 3000};
static const int bursts[] = {1, 1, 4, 20, 60};

// `actor` computes, sends, or is the root; messages have `bytes`, a burst `count` of them.
typedef struct {
  kind_t kind;
  int actor, bytes, count, computing_us;
} step_t;

static char *out, *in;

static int draw_step(uint64_t *state, step_t *step) {
  step->kind = draw(state) % 3 ? (kind_t)(draw(state) % 10) : COMPUTE;
  step->actor = (int)(draw(state) % 2);
  step->bytes = sizes[draw(state) % (sizeof sizes / sizeof *sizes)];
  step->count = bursts[draw(state) % 5];
  while (step->count > 1 && step->count * step->bytes > BURST_MAX) step->count /= 4;
  step->count += !step->count;
  step->computing_us = computing_us[draw(state) % 5];
  return step->kind != COMPUTE;
}

static void compute(int us) {
  double end = MPI_Wtime() + 1e-6 * us;
  while (MPI_Wtime() < end) {
  }
}

static void receive(const step_t *step, int from, uint64_t key) {
  MPI_Recv(in, step->bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (key) check(in, (size_t)step->bytes, key, names[step->kind]);
}

// With `number`, fills and checks the messages.
static void run(const step_t *step, int number) {
  int is_actor = rank == step->actor, other = 1 - rank, bytes = step->bytes;
  uint64_t mine = number ? key_of(rank, other, number) : 0, its = number ? key_of(other, rank, number) : 0;
  if (number && step->kind != ALLREDUCE) fill(out, (size_t)bytes * (step->kind == ALL_TO_ALL ? 2 : 1), mine);
  MPI_Request requests[2];
  switch (step->kind) {
    case COMPUTE:
      if (is_actor) compute(step->computing_us);
      break;
    case BURST:
      for (int message = 0; message < step->count; message++) {
        if (is_actor) MPI_Send(out, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
        else receive(step, other, its);
      }
      break;
    case EXCHANGE:
      MPI_Irecv(in, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, requests);
      MPI_Isend(out, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, requests + 1);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      if (number) check(in, (size_t)bytes, its, names[step->kind]);
      break;
    case SEND_COMPUTE:
      if (is_actor) {
        MPI_Isend(out, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, requests);
        compute(step->computing_us);
        MPI_Wait(requests, MPI_STATUS_IGNORE);
      } else {
        receive(step, other, its);
      }
      break;
    case RECEIVE_COMPUTE:
      if (is_actor) {
        MPI_Irecv(in, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, requests);
        compute(step->computing_us);
        MPI_Wait(requests, MPI_STATUS_IGNORE);
        if (number) check(in, (size_t)bytes, its, names[step->kind]);
      } else {
        MPI_Send(out, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
      }
      break;
    case SYNCHRONOUS:
      if (is_actor) MPI_Ssend(out, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
      else receive(step, other, its);
      break;
    case PROBE:
      if (is_actor) {
        MPI_Send(out, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
      } else {
        MPI_Status status;
        int found;
        MPI_Probe(other, 1, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &found);
        if (found != bytes) fail("a probed message of %d bytes has %d", bytes, found);
        receive(step, other, its);
      }
      break;
    case ALLREDUCE: {
      int64_t *numbers = (int64_t *)out, *sums = (int64_t *)in;
      int count = bytes / 8;
      for (int at = 0; number && at < count; at++) numbers[at] = (int64_t)at * (rank + number);
      MPI_Allreduce(out, in, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      for (int at = 0; number && at < count; at++)
        if (sums[at] != (int64_t)at * (1 + 2 * number)) fail("a sum of two numbers is wrong at %d of %d", at, count);
      break;
    }
    case BROADCAST:
      MPI_Bcast(is_actor ? out : in, bytes, MPI_BYTE, step->actor, MPI_COMM_WORLD);
      if (number && !is_actor) check(in, (size_t)bytes, its, names[step->kind]);
      break;
    case ALL_TO_ALL:
      // The part for rank 1 is the second of rank 0, and the part for rank 0 the first of rank 1.
      if (number) fill(out + (size_t)other * (size_t)bytes, (size_t)bytes, mine);
      MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
      if (number) check(in + (size_t)other * (size_t)bytes, (size_t)bytes, its, names[step->kind]);
      break;
  }
}

static int compare(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

static void print(uint64_t program, const step_t *steps, int count, double median_s) {
  printf("{\"program\": %" PRIu64 ", \"us\": %.2f, \"steps\": \"", program, 1e6 * median_s);
  for (int number = 0; number < count; number++) {
    const step_t *step = steps + number;
    printf("%s%s", number ? "; " : "", names[step->kind]);
    if (step->kind == EXCHANGE || step->kind == ALLREDUCE || step->kind == ALL_TO_ALL) printf(" %d B", step->bytes);
    else if (step->kind != COMPUTE)
      printf(" of %d, %d x %d B", step->actor, step->kind == BURST ? step->count : 1, step->bytes);
    if (step->kind == COMPUTE) printf(" of %d, %d us", step->actor, step->computing_us);
    if (step->kind == SEND_COMPUTE || step->kind == RECEIVE_COMPUTE) printf(", %d us", step->computing_us);
  }
  printf("\"}\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  uint64_t first = argument(argc, argv, 1, 0), count = argument(argc, argv, 2, 100);
  int rounds = (int)argument(argc, argv, 3, 15);
  if (ranks != 2) fail("needs 2 ranks");
  if (rounds < 1 || rounds > ROUNDS_MAX) fail("1 to %d rounds are possible, not %d", ROUNDS_MAX, rounds);
  out = allocate(2 * LONGEST);
  in = allocate(2 * LONGEST);
  for (uint64_t program = first; program < first + count; program++) {
    seed = program;
    uint64_t state = program;
    step_t steps[STEPS_MAX];
    int step_count = 2 + (int)(draw(&state) % (STEPS_MAX - 1)), has_messages = 0;
    for (int number = 0; number < step_count; number++) has_messages |= draw_step(&state, steps + number);
    if (!has_messages) continue;
    static double times[ROUNDS_MAX];
    // The second round is not checked, and warms up.
    for (int round = -2; round < rounds; round++) {
      MPI_Barrier(MPI_COMM_WORLD);
      double began = MPI_Wtime();
      for (int number = 0; number < step_count; number++) run(steps + number, round == -2 ? number + 1 : 0);
      double time = MPI_Wtime() - began, slower;
      MPI_Allreduce(&time, &slower, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (round >= 0) times[round] = slower;
    }
    qsort(times, (size_t)rounds, sizeof *times, compare);
    if (rank == 0) print(program, steps, step_count, times[rounds / 2]);
  }
  MPI_Finalize();
}
