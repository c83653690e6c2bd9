# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Pins this rank to its share of the host's cores and executes a program: pin.py PROGRAM ARGUMENTS.

An MPI launcher starts it, with the cores of its lab host. Libraries are told not to bind ranks: they would use the
machine's topology, which does not include labs.
"""

import os
import sys

# Set by Open MPI, and by hydra, the launcher of MPICH and Intel MPI.
_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_COUNT = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def share(cpus: list[int], rank: int, count: int) -> list[int]:
    """Return the cores of one of `count` ranks: equally many for each, or shared round-robin if there are too few."""
    each = len(cpus) // count
    return cpus[rank * each : (rank + 1) * each] if each else [cpus[rank % len(cpus)]]


if __name__ == "__main__":
    program = sys.argv[1:]
    rank, count = (
        next((int(os.environ[name]) for name in names if name in os.environ), None) for names in (_RANK, _COUNT)
    )
    if rank is None or count is None:
        sys.exit("barewire: the MPI launcher does not report the local rank")
    os.sched_setaffinity(0, share(sorted(os.sched_getaffinity(0)), rank, count))
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"barewire: {program[0]}: {error.strerror}")
