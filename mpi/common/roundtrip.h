// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ping-pong, with a computation on the first rank only, between its Send and its Recv.
#pragma once
#include "sweep.h"

struct stretch roundtrip(struct ends *ends, int inner, uint64_t operations);
// With receives posted in advance (`posted` 1): the first rank posts the receive of the answer, sends, computes, waits;
// the last posts the next receive before it answers.
struct stretch roundtrip_irecv(struct ends *ends, int inner, uint64_t operations);
// The same with non-blocking sends; the computation is beside both requests.
struct stretch roundtrip_isend(struct ends *ends, int inner, uint64_t operations);
