// SPDX-License-Identifier: Apache-2.0 OR MIT
// Announces each step to an external listener, and waits until the listener is ready for it.
#pragma once

// Connects rank 0 to a Unix socket; with NULL the other functions do nothing. Collective.
void open_steps(const char *path);
// After a barrier rank 0 sends the line "NAME NUMBER" and waits for a line; then all ranks continue. Collective,
// outside any timed stretch. Ends the job with exit code 3 if the listener has closed the connection.
void next_step(const char *name, int number);
// Disconnects. Collective.
void close_steps(void);
