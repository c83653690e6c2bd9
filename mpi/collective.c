// SPDX-License-Identifier: Apache-2.0 OR MIT
// Blocking collectives (common/collectives.h). Each rank records its own time.
#include "common/collectives.h"

static void measure_one(const struct collective *collective, size_t bytes) {
  if (!is_selected(collective->name) || !open_collective(collective, bytes)) return;
  struct pattern pattern = collective_pattern();
  pattern.point.quantity = "time";
  pattern.run = run_blocking;
  measure(&pattern);
  close_collective();
}

int main(int argc, char **argv) {
  const char *variants[COLLECTIVES + 1] = {NULL};
  for (int number = 0; number < COLLECTIVES; number++) variants[number] = collectives[number].name;
  begin(argc, argv,
        &(struct program){.name = "collective",
                          .summary = "MPI's collectives, with every rank as the root once",
                          .variants = variants,
                          .extras = (struct extra[]){MEMORY_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2});
  for (int number = 0; number < COLLECTIVES; number++) {
    // A barrier has no size.
    if (collectives[number].sends == SEND_NOTHING) measure_one(&collectives[number], 0);
    for (int size = 0; collectives[number].sends != SEND_NOTHING && size < settings.size_count; size++)
      measure_one(&collectives[number], settings.sizes[size]);
  }
  finish();
}
