# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A rank that opens its MPI library late and for itself alone, as Python's extensions do: late.py LIBRARY."""

import ctypes
import os
import sys

library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LOCAL | os.RTLD_NOW)
open_mpi = hasattr(library, "ompi_mpi_comm_world")


def handle(name: str, mpich: int) -> object:
    """A predefined handle: an address in Open MPI, a number in MPICH."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, name))) if open_mpi else ctypes.c_int(mpich)


world, doubles = handle("ompi_mpi_comm_world", 0x44000000), handle("ompi_mpi_double", 0x4C00080B)
total = handle("ompi_mpi_op_sum", 0x58000003)
rank, mine, everyones = ctypes.c_int(), (ctypes.c_double * 100)(), (ctypes.c_double * 100)()
library.MPI_Init(None, None)
library.MPI_Comm_rank(world, ctypes.byref(rank))
mine[0] = rank.value + 1
for _ in range(10):
    library.MPI_Allreduce(mine, everyones, 100, doubles, total, world)
if rank.value == 0:
    print("sum", everyones[0])
library.MPI_Finalize()
