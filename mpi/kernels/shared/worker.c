// SPDX-License-Identifier: Apache-2.0 OR MIT
#define _GNU_SOURCE
#include "worker.h"

#include <sched.h>
#include <string.h>

#include "common/suite.h"

static void *serve(void *given) {
  struct worker *worker = given;
  pthread_mutex_lock(&worker->lock);
  for (;;) {
    while (worker->state == IDLE) pthread_cond_wait(&worker->changed, &worker->lock);
    if (worker->state == LEAVING) break;
    pthread_mutex_unlock(&worker->lock);
    worker->job(worker->argument);
    pthread_mutex_lock(&worker->lock);
    worker->state = IDLE;
    pthread_cond_signal(&worker->changed);
  }
  pthread_mutex_unlock(&worker->lock);
  return NULL;
}

void worker_begin(struct worker *worker, void (*job)(void *), void *argument) {
  *worker = (struct worker){.job = job, .argument = argument, .state = IDLE};
  pthread_mutex_init(&worker->lock, NULL);
  pthread_cond_init(&worker->changed, NULL);
  int error = pthread_create(&worker->thread, NULL, serve, worker);
  if (error) unsupported_here("no second thread: %s", strerror(error));
}

static void change(struct worker *worker, int state) {
  pthread_mutex_lock(&worker->lock);
  worker->state = state;
  pthread_cond_signal(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}

void worker_start(struct worker *worker) { change(worker, BUSY); }

void worker_wait(struct worker *worker) {
  pthread_mutex_lock(&worker->lock);
  while (worker->state == BUSY) pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
}

void worker_end(struct worker *worker) {
  change(worker, LEAVING);
  pthread_join(worker->thread, NULL);
  pthread_cond_destroy(&worker->changed);
  pthread_mutex_destroy(&worker->lock);
}

int shares_one_core(void) {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) == 1;
}
