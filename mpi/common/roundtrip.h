// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ping-pong, with a computation on the first rank only, between its Send and its Recv.
#pragma once
#include "sweep.h"

struct stretch roundtrip(struct ends *ends, int inner, uint64_t operations);
