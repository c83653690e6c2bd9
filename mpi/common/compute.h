// SPDX-License-Identifier: Apache-2.0 OR MIT
// The computation that a message may hide: a chain of multiply-adds over two arrays. Each operation waits for the one
// before, so that its time is the processor's and not the memory's. Each call goes on in the arrays where the last one
// ended: a cache line comes back only after all others.
#pragma once
#include <stdint.h>

// Prepares the arrays, measures what an operation takes, and what a reading of the clock takes; records both under the
// variant "calibration". Collective.
void calibrate_computation(void);
// How many operations take so long here; of this rank's calibration.
uint64_t operations_for(double computation_ns);
void compute(uint64_t operations);
// What so many calls of compute take now, in ns all together, with nothing besides: the machine's speed changes, so
// each measurement has its own.
double computation_alone_ns(uint64_t operations, int calls);
