# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MPI jobs: finds the library, selects its path, starts the job in a lab or on real hosts, and verifies the path."""

from barewire.mpi.fabrics import FabricOptions
from barewire.mpi.job import Job
from barewire.mpi.libraries import Family, Library, find_library, installed_libraries, library_of_program
from barewire.mpi.placement import HostSlots, parse_hostfile, parse_hosts, spread

__all__ = [
    "FabricOptions",
    "Family",
    "HostSlots",
    "Job",
    "Library",
    "find_library",
    "installed_libraries",
    "library_of_program",
    "parse_hostfile",
    "parse_hosts",
    "spread",
]
