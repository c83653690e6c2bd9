// SPDX-License-Identifier: Apache-2.0 OR MIT
// The process's first thread exchanges rows, as the only one that calls MPI; a second thread processes them.
#include <stdlib.h>

#include "../shared/worker.h"
#include "variants.h"

struct team {
  struct transform *transform;
  struct worker worker;
  double *times;  // of the worker thread
  pthread_mutex_t lock;
  pthread_cond_t changed;
  size_t arrived, processed;  // rows, counted over all stages
};

static void add(struct team *team, size_t *counter, size_t rows) {
  pthread_mutex_lock(&team->lock);
  *counter += rows;
  pthread_cond_signal(&team->changed);
  pthread_mutex_unlock(&team->lock);
}

static void wait_for(struct team *team, const size_t *counter, size_t rows) {
  pthread_mutex_lock(&team->lock);
  while (*counter < rows) pthread_cond_wait(&team->changed, &team->lock);
  pthread_mutex_unlock(&team->lock);
}

static void process_all(void *given) {
  struct team *team = given;
  struct transform *transform = team->transform;
  struct stopwatch watch = stopwatch_for(team->times);
  size_t before = 0;
  for (int stage = 0; stage < STAGES; stage++) {
    size_t rows = transform->stages[stage].exchange;
    for (size_t first = 0; first < transform->stages[stage].rows; first += rows) {
      wait_for(team, &team->arrived, before + first + rows);
      resume(&watch);
      process(transform, stage, first, rows, &watch);
      add(team, &team->processed, rows);
    }
    before += transform->stages[stage].rows;
  }
}

void execute_with_threads(void *given, double *times) {
  struct plan *plan = given;
  struct team *team = plan->team;
  struct transform *transform = plan->transform;
  double workers[QUANTITIES_MAX] = {0};
  team->times = workers;
  team->arrived = team->processed = 0;
  worker_start(&team->worker);
  struct stopwatch watch = stopwatch_for(times);
  size_t before = 0;
  for (int stage = 0; stage < STAGES; stage++) {
    // Every row contributes to all rows of the next stage, so the stage waits for all rows.
    wait_for(team, &team->processed, before);
    resume(&watch);
    size_t rows = transform->stages[stage].exchange;
    for (size_t first = 0; first < transform->stages[stage].rows; first += rows) {
      exchange_rows(plan, stage, first, &watch);
      add(team, &team->arrived, rows);
      resume(&watch);
    }
    before += transform->stages[stage].rows;
  }
  worker_wait(&team->worker);
  for (int quantity = 0; quantity < QUANTITIES_MAX; quantity++) times[quantity] += workers[quantity];
}

struct team *team_for(struct transform *transform) {
  struct team *team = allocate(sizeof *team);
  *team = (struct team){.transform = transform};
  pthread_mutex_init(&team->lock, NULL);
  pthread_cond_init(&team->changed, NULL);
  worker_begin(&team->worker, process_all, team);
  return team;
}

void free_team(struct team *team) {
  worker_end(&team->worker);
  pthread_cond_destroy(&team->changed);
  pthread_mutex_destroy(&team->lock);
  free(team);
}
