# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Becomes a program on this rank's share of the host's cores: place.py PROGRAM ARGUMENTS. Started by an MPI launcher.

The launcher inherits a lab's cores from whoever entered the host; libraries bind by the machine's topology, which knows
nothing of labs, so they are told not to.
"""

import os
import sys

# By Open MPI; by hydra, MPICH's and Intel's launcher.
_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_COUNT = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def share(cpus: list[int], rank: int, count: int) -> list[int]:
    """Return the cores of one of `count` ranks: equally many each, shared in turn where there are too few."""
    each = len(cpus) // count
    return cpus[rank * each : (rank + 1) * each] if each else [cpus[rank % len(cpus)]]


if __name__ == "__main__":
    program = sys.argv[1:]
    rank, count = (
        next((int(os.environ[name]) for name in names if name in os.environ), None) for names in (_RANK, _COUNT)
    )
    if rank is None or count is None:
        sys.exit("barewire: the MPI launcher does not say which of the host's ranks this is")
    os.sched_setaffinity(0, share(sorted(os.sched_getaffinity(0)), rank, count))
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"barewire: {program[0]}: {error.strerror}")
