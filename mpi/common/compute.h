// SPDX-License-Identifier: Apache-2.0 OR MIT
// A computation to overlap with messages: a chain of multiply-adds over two arrays. Each operation depends on the
// previous one, so that latency of the processor bounds it, not memory. Each call continues in the arrays where the
// previous call ended, so a cache line is reused only after all others.
#pragma once
#include <stdint.h>

// Prepares the arrays, measures the time of an operation and of a clock reading, and records both under the variant
// "calibration". Collective.
void calibrate_computation(void);
// Number of operations that take this long, by this rank's calibration.
uint64_t operations_for(double computation_ns);
void compute(uint64_t operations);
// Total time in ns of `calls` calls of compute without messages. Measured beside each point, because the processor's
// speed changes.
double computation_alone_ns(uint64_t operations, int calls);
