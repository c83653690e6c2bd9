// SPDX-License-Identifier: Apache-2.0 OR MIT
// overlap [REPETITIONS [SIZE MAX [COMPUTATION]]]: does a message go on while the program computes? Rank 0 sends to the
// last, whose receive is posted: Isend or Issend, computation, Wait; then the other way round, where it is the receiver
// that computes. One line of JSON for each size, side and mode, in microseconds, medians: the message alone, the
// computation alone, both, of which the time in Wait; and overlap, the part of the shorter of the two that was hidden.
// COMPUTATION is a multiple of the message's own time, in percent.
#include "check.h"

#define CELLS 8192  // of two arrays of 64 KiB each: other lines of the cache with each call
static double left[CELLS], right[CELLS], sum;
static size_t cell;

static void compute(uint64_t operations) {
  double part = sum;
  for (uint64_t number = 0; number < operations; number++, cell = (cell + 1) % CELLS) {
    left[cell] = left[cell] * 0.999 + right[cell];
    part += left[cell];
  }
  sum = part;
}

static int by_value(const void *one, const void *other) {
  double first = *(const double *)one, second = *(const double *)other;
  return (first > second) - (first < second);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof(double), by_value);
  return values[count / 2];
}

// What the computation alone takes, measured when it is needed: the machine's speed changes.
static double computation_us(uint64_t operations) {
  double times[15];
  for (int number = 0; number < 15; number++) {
    double start = MPI_Wtime();
    compute(operations);
    times[number] = 1e6 * (MPI_Wtime() - start);
  }
  return median(times, 15);
}

enum {
  SENDER,
  RECEIVER
};

struct one {
  unsigned char *data;
  size_t size;
  int sends, computes, synchronous, number;
  uint64_t operations;
};

// One message; rank 0 sends, the last receives. Returns what it took, and in `waited` the part in Wait.
static double message(const struct one *this, double *waited) {
  char go = 0;
  MPI_Request request;
  int last = ranks - 1;
  uint64_t key = key_of(0, last, this->number);
  if (this->sends) {
    fill(this->data, this->size, key);
    // The receive is posted, and its owner on its way to Wait or to its computation.
    MPI_Recv(&go, 1, MPI_BYTE, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    memset(this->data, 0, this->size);
    MPI_Irecv(this->data, (int)this->size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
    MPI_Send(&go, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
  }
  double start = MPI_Wtime();
  if (this->sends && this->synchronous) {
    MPI_Issend(this->data, (int)this->size, MPI_BYTE, last, 1, MPI_COMM_WORLD, &request);
  } else if (this->sends) {
    MPI_Isend(this->data, (int)this->size, MPI_BYTE, last, 1, MPI_COMM_WORLD, &request);
  }
  if (this->computes) compute(this->operations);
  double computed = MPI_Wtime();
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  double end = MPI_Wtime();
  if (!this->sends) check(this->data, this->size, key, "message");
  *waited = 1e6 * (end - computed);
  return 1e6 * (end - start);
}

static void measure(struct one *this, int side, int repetitions, uint64_t percent) {
  double *alone = allocate((size_t)repetitions * sizeof(double)),
         *both = allocate((size_t)repetitions * sizeof(double));
  double *waits = allocate((size_t)repetitions * sizeof(double)), unused, per_operation = computation_us(100000) / 1e5;
  int here = rank == (side == SENDER ? 0 : ranks - 1), takes_part = rank == 0 || rank == ranks - 1;
  this->sends = rank == 0;
  MPI_Barrier(MPI_COMM_WORLD);
  this->computes = 0;
  for (int number = 0; number < repetitions && takes_part; number++, this->number++)
    alone[number] = message(this, &unused);
  double alone_us = takes_part ? median(alone, repetitions) : 0;
  this->operations = (uint64_t)(alone_us * (double)percent / 100 / per_operation);
  double computation = here ? computation_us(this->operations) : 0;
  MPI_Barrier(MPI_COMM_WORLD);
  this->computes = here;
  for (int number = 0; number < repetitions && takes_part; number++, this->number++)
    both[number] = message(this, &waits[number]);
  if (here) {
    double both_us = median(both, repetitions), shorter = alone_us < computation ? alone_us : computation;
    printf(
        "{\"test\": \"overlap\", \"side\": \"%s\", \"mode\": \"%s\", \"bytes\": %zu, \"alone_us\": %.2f, "
        "\"computation_us\": %.2f, \"both_us\": %.2f, \"wait_us\": %.2f, \"overlap\": %.3f, \"sum\": %.3g}\n",
        side == SENDER ? "sender" : "receiver", this->synchronous ? "synchronous" : "standard", this->size, alone_us,
        computation, both_us, median(waits, repetitions), (alone_us + computation - both_us) / shorter, sum);
    fflush(stdout);
  }
  free(alone);
  free(both);
  free(waits);
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  begin(MPI_THREAD_SINGLE, argc, argv);
  int repetitions = (int)argument(argc, argv, 1, 50);
  size_t most = argument(argc, argv, 2, 1 << 20);
  uint64_t percent = argument(argc, argv, 3, 200);
  for (size_t number = 0; number < CELLS; number++) left[number] = right[number] = (double)number;
  struct one one = {.data = allocate(most)};
  for (one.size = 8; one.size <= most; one.size *= one.size < 1024 ? 2048 : 4)
    for (int side = SENDER; side <= RECEIVER; side++)
      for (one.synchronous = 0; one.synchronous <= 1; one.synchronous++) measure(&one, side, repetitions, percent);
  MPI_Finalize();
}
