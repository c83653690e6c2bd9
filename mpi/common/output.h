// SPDX-License-Identifier: Apache-2.0 OR MIT
// The file of records, which rank 0 writes: JSON Lines, first one "start", then "samples", last one "end".
#pragma once

// Returns 0, or the errno for which the file cannot be opened. Rank 0 only.
int open_output(const char *path, int append);
// Collective: gathers who takes part.
void write_start(const char *test, int argc, char **argv);
// Closes the file. Returns 0 if something could not be written.
int write_end(void);
