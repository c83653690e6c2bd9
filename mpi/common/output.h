// SPDX-License-Identifier: Apache-2.0 OR MIT
// The file of records, written by rank 0: JSON Lines, a "start" record, then "samples", then "end".
#pragma once

// Returns 0, or the errno if the file cannot be opened. Rank 0 only.
int open_output(const char *path, int append);
// Collective: gathers hosts and cores of all ranks.
void write_start(const char *test, int argc, char **argv);
// Closes the file. Returns 0 after a write error.
int write_end(void);
