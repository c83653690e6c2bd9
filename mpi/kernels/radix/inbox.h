// SPDX-License-Identifier: Apache-2.0 OR MIT
// The receiving side of an exchange.
#pragma once
#include "exchange.h"

void inbox_create(struct exchange *exchange, int depth);
void inbox_destroy(struct exchange *exchange);
// Starts a pass; the number of messages follows from the expected keys.
void inbox_start_pass(struct exchange *exchange);
// Stores the keys of arrived messages; returns whether there were any.
int inbox_poll(struct exchange *exchange);
