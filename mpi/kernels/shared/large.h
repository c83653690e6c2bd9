// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory for whole arrays.
#pragma once
#include <stddef.h>

// Aborts the job unless the host has this many bytes of memory for each of its ranks: with overcommitted memory the
// kernel would kill a process when the memory is touched. Collective.
void require_memory(size_t bytes);
// Zeroed memory, in huge pages if available, because a transposition touches a page for every few cache lines. Release
// it with free(). Aborts the job if there is no memory.
void *allocate_large(size_t bytes);
