# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The eager limit of each library on each fabric; pure.

Messages up to this limit are sent before their receive is known; longer ones use a rendezvous.
"""

from barewire.errors import MachineCannot, WrongUse
from barewire.mpi.libraries import Family, Library

# Limit of our provider: a receiver reserves space for four such messages per peer.
_BAREWIRE_BYTES_MAX = 1 << 20
# First version with a rendezvous threshold over libfabric.
_MPICH_WITH_OFI_LIMIT = 5


def eager_settings(library: Library, fabric: str, eager_bytes: int) -> dict[str, str]:
    """Return the variables that set the limit. MachineCannot if this fabric has none, WrongUse if it is exceeded."""
    names = _limits(library, fabric)
    if not names:
        raise MachineCannot(
            f"{library} has no eager limit over {fabric}: omit --eager, "
            "or select with --library and --fabric combinations that have one"
        )
    if fabric == "barewire" and eager_bytes > _BAREWIRE_BYTES_MAX:
        raise WrongUse(f"--eager {eager_bytes}: over barewire the limit is at most {_BAREWIRE_BYTES_MAX} bytes")
    return {name: str(eager_bytes) for name in names}


def _limits(library: Library, fabric: str) -> tuple[str, ...]:
    if fabric == "barewire":
        return ("FI_BAREWIRE_EAGER",)
    if library.family is Family.OPEN_MPI:
        shared = "vader" if library.major < 5 else "sm"
        by_fabric = {"tcp": ("OMPI_MCA_btl_tcp_eager_limit",), "shm": (f"OMPI_MCA_btl_{shared}_eager_limit",)}
        return by_fabric.get(fabric, ("UCX_RNDV_THRESH",) if fabric == "ucx" else ())
    if library.family is Family.MPICH:
        uses_ucx = fabric == "ucx" or (fabric in ("tcp", "shm") and "ofi" not in library.netmods)
        if uses_ucx:
            return ("UCX_RNDV_THRESH",)
        if fabric != "shm" and library.major >= _MPICH_WITH_OFI_LIMIT:
            return ("MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD",)
    return ()
