// SPDX-License-Identifier: Apache-2.0 OR MIT
// Time from the call of MPI_Init to the end of a first barrier ("first_barrier"), of the call itself ("init"), and of a
// second barrier, for which connections exist ("next_barrier"). A launch has one value of each. Connections are set up
// on first use, so those that a barrier does not use are not included.
#include "common/suite.h"

static double init_ns, first_barrier_ns, next_barrier_ns;

static void started(uint64_t start_ns) {
  uint64_t initialised_ns = now_ns();
  MPI_Barrier(MPI_COMM_WORLD);
  uint64_t first_ns = now_ns();
  MPI_Barrier(MPI_COMM_WORLD);
  next_barrier_ns = (double)(now_ns() - first_ns);
  init_ns = (double)(initialised_ns - start_ns);
  first_barrier_ns = (double)(first_ns - start_ns);
}

int main(int argc, char **argv) {
  static const char *const variants[] = {"barrier", NULL};
  begin(argc, argv,
        &(struct program){
            .name = "startup",
            .summary = "from MPI_Init to the end of a first barrier; one value per launch, regardless of sizes",
            .variants = variants,
            .threads = MPI_THREAD_SINGLE,
            .ranks_min = 1,
            .started = started});
  struct point point = {.variant = variants[0], .quantity = "first_barrier", .inner = 1};
  record(&point, MEASURE, &first_barrier_ns, 1);
  point.quantity = "init";
  record(&point, MEASURE, &init_ns, 1);
  point.quantity = "next_barrier";
  record(&point, MEASURE, &next_barrier_ns, 1);
  finish();
}
