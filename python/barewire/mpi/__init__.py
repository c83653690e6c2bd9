# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MPI programs: their library found, its path chosen, started in a lab or on real hosts, and the path verified."""

from barewire.mpi.fabrics import Wishes
from barewire.mpi.job import Job
from barewire.mpi.libraries import Family, Library, find_library, installed_libraries, library_of_program
from barewire.mpi.placement import Place, parse_hostfile, parse_hosts, spread

__all__ = [
    "Family",
    "Job",
    "Library",
    "Place",
    "Wishes",
    "find_library",
    "installed_libraries",
    "library_of_program",
    "parse_hostfile",
    "parse_hosts",
    "spread",
]
