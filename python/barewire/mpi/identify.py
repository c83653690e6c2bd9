# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prints an MPI library's version string: identify.py FILE. Runs as a separate process: loading executes its code."""

import ctypes
import sys

# MPI_MAX_LIBRARY_VERSION_STRING is 8192 in MPICH and less elsewhere.
_TEXT_BYTES_MAX = 65536

if __name__ == "__main__":
    library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
    text, length = ctypes.create_string_buffer(_TEXT_BYTES_MAX), ctypes.c_int()
    # One of the few functions that MPI allows before MPI_Init.
    if library.MPI_Get_library_version(text, ctypes.byref(length)) != 0:
        sys.exit("MPI_Get_library_version failed")
    sys.stdout.write(text.value.decode(errors="replace"))
