// SPDX-License-Identifier: Apache-2.0 OR MIT
// Tells somebody outside which step comes next, and waits until they are ready for it. Knows nothing of who they are.
#pragma once

// Connects rank 0 to a Unix socket; NULL: nobody is told, and the others do nothing. Collective.
void open_steps(const char *path);
// Once all ranks are here, rank 0 sends the line "NAME NUMBER" and waits for a line; then all go on. Collective,
// outside any timed stretch. Ends the job with 3 if whoever listens is gone.
void next_step(const char *name, int number);
// Disconnects. Collective.
void close_steps(void);
