// SPDX-License-Identifier: Apache-2.0 OR MIT
// A second thread that repeats one job on demand; created outside the timed region.
#pragma once
#include <pthread.h>

struct worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  void (*job)(void *);
  void *argument;
  enum {
    IDLE,
    BUSY,
    LEAVING
  } state;
};

void worker_begin(struct worker *worker, void (*job)(void *), void *argument);
// Starts the job; it must not be running.
void worker_start(struct worker *worker);
// Returns when the job has ended.
void worker_wait(struct worker *worker);
void worker_end(struct worker *worker);

// Whether this process's threads share one core. Polling threads must then yield it.
int shares_one_core(void);
