// SPDX-License-Identifier: Apache-2.0 OR MIT
// Non-blocking collectives: the time of call and wait ("time"), the same with an equally long computation between them
// ("beside"), and the computation alone, on all ranks at once ("computation"). The hidden share follows from these.
#include "common/collectives.h"
#include "common/compute.h"

static double slowest_ns(double mine_ns) {
  double slowest;
  MPI_Allreduce(&mine_ns, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static void compute_alone(int count) {
  for (int number = 0; number < count; number++) compute(collective_operations);
}

static void measure_one(const struct collective *collective, size_t bytes) {
  if (!is_selected(collective->name) || !open_collective(collective, bytes)) return;
  struct pattern pattern = collective_pattern();
  pattern.point.quantity = "time";
  pattern.run = run_nonblocking;
  collective_operations = 0;
  collective_operations = operations_for(slowest_ns(measure(&pattern)));
  pattern.point.quantity = "beside";
  measure(&pattern);
  struct pattern alone = {.point = pattern.point, .timed = 1, .divide_by = 1, .unit = 1, .run = compute_alone};
  alone.point.quantity = "computation";
  measure(&alone);
  close_collective();
}

int main(int argc, char **argv) {
  const char *variants[COLLECTIVES + 1] = {NULL};
  for (int number = 0; number < COLLECTIVES; number++) variants[number] = collectives[number].name;
  begin(argc, argv,
        &(struct program){.name = "nonblocking",
                          .summary = "non-blocking collectives, alone and beside an equally long computation",
                          .variants = variants,
                          .extras = (struct extra[]){MEMORY_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2});
  calibrate_computation();
  for (int number = 0; number < COLLECTIVES; number++) {
    // A barrier has no size.
    if (collectives[number].sends == SEND_NOTHING) measure_one(&collectives[number], 0);
    for (int size = 0; collectives[number].sends != SEND_NOTHING && size < settings.size_count; size++)
      measure_one(&collectives[number], settings.sizes[size]);
  }
  finish();
}
