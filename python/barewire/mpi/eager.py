# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where eager messages end: what each library calls that limit on each fabric; pure.

Up to it a message is sent before its receive is known, above it there is a rendezvous first.
"""

from barewire.errors import MachineCannot, WrongUse
from barewire.mpi.libraries import Family, Library

# Of our provider: a receiver keeps room for four such messages of each peer.
_BAREWIRE_BYTES_MAX = 1 << 20
# Its rendezvous threshold over libfabric came with this version.
_MPICH_WITH_OFI_LIMIT = 5


def eager_settings(library: Library, fabric: str, eager_bytes: int) -> dict[str, str]:
    """Return what sets the limit; MachineCannot where a library has none on this fabric, WrongUse beyond its bounds."""
    names = _limits(library, fabric)
    if not names:
        raise MachineCannot(
            f"{library} has no eager limit over {fabric}: measure it without --eager, "
            "or name with --library and --fabric those that have one"
        )
    if fabric == "barewire" and eager_bytes > _BAREWIRE_BYTES_MAX:
        raise WrongUse(
            f"over barewire messages are eager up to {_BAREWIRE_BYTES_MAX} bytes at most: --eager {eager_bytes}"
        )
    return {name: str(eager_bytes) for name in names}


def _limits(library: Library, fabric: str) -> tuple[str, ...]:
    if fabric == "barewire":
        return ("FI_BAREWIRE_EAGER",)
    if library.family is Family.OPEN_MPI:
        shared = "vader" if library.major < 5 else "sm"
        of_open_mpi = {"tcp": ("OMPI_MCA_btl_tcp_eager_limit",), "shm": (f"OMPI_MCA_btl_{shared}_eager_limit",)}
        return of_open_mpi.get(fabric, ("UCX_RNDV_THRESH",) if fabric == "ucx" else ())
    if library.family is Family.MPICH:
        over_ucx = fabric == "ucx" or (fabric in ("tcp", "shm") and "ofi" not in library.netmods)
        if over_ucx:
            return ("UCX_RNDV_THRESH",)
        if fabric != "shm" and library.major >= _MPICH_WITH_OFI_LIMIT:
            return ("MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD",)
    return ()
