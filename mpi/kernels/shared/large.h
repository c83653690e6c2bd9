// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory for whole arrays.
#pragma once
#include <stddef.h>

// Zeroed and touched, in huge pages where the system gives them: a transposition touches a page for each few lines. For
// free(). Ends the job when there is no memory.
void *allocate_large(size_t bytes);
