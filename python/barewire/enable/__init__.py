# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Plain `mpirun` over Barewire: parameter files that MPI libraries read by themselves, and modulefiles.

settings: what each library must be told. files: where it reads that from. block: the marked lines in such a file.
changes: what enabling and disabling do. state: what is in force, and what overrides it. modulefile: one shell's part.
"""
