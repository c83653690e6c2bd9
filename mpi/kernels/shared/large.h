// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory for whole arrays.
#pragma once
#include <stddef.h>

// Ends the job unless this rank and the others of its host find so many bytes each in its memory: what a system
// promises beyond that ends some process once it is touched. Collective.
void need_memory(size_t bytes);
// Zeroed and touched, in huge pages where the system gives them: a transposition touches a page for each few lines. For
// free(). Ends the job when there is no memory.
void *allocate_large(size_t bytes);
