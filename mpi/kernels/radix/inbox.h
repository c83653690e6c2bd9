// SPDX-License-Identifier: Apache-2.0 OR MIT
// The receiving side of a carrier.
#pragma once
#include "carry.h"

void inbox_begin(struct carrier *carrier, int depth);
void inbox_end(struct carrier *carrier);
// A pass: as many messages come as follow from the keys that are expected.
void inbox_open(struct carrier *carrier);
// Places what has arrived; returns whether anything had.
int inbox_look(struct carrier *carrier);
