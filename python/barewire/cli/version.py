# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire --version`: what this installation consists of."""

import ctypes

from barewire import __version__, installed
from barewire.mpi.fabrics import PROVIDER_FILE


def text() -> str:
    """Return the versions, one a line."""
    lines = [f"barewire {__version__}", f"commit {installed.commit() or 'unknown'}"]
    file = installed.PROVIDER / PROVIDER_FILE
    try:
        provider = ctypes.CDLL(str(file))
    except OSError as error:
        return "\n".join([*lines, f"provider cannot be loaded: {error}; {installed.FIX}"])
    number = ctypes.c_uint32.in_dll(provider, "BAREWIRE_PROVIDER_VERSION").value
    wire, address = (ctypes.c_uint8.in_dll(provider, f"BAREWIRE_{name}_VERSION").value for name in ("WIRE", "ADDRESS"))
    return "\n".join(
        [
            *lines,
            f"provider {number >> 16}.{number & 0xFFFF} ({file})",
            f"wire version {wire}, address version {address}: all hosts of a job need the same",
        ]
    )
