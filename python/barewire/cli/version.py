# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire --version`: what this installation consists of."""

import ctypes
from pathlib import Path

from barewire import __version__, installed
from barewire.mpi.fabrics import PROVIDER_FILE


def text() -> str:
    """Return the versions, one a line."""
    try:
        provider = _provider(installed.PROVIDER / PROVIDER_FILE)
    # A file that is missing, or of a version that did not state these numbers.
    except (OSError, ValueError) as error:
        provider = f"provider cannot be read: {error}; {installed.FIX}"
    return f"barewire {__version__}\ncommit {installed.commit() or 'unknown'}\n{provider}"


def _provider(file: Path) -> str:
    library = ctypes.CDLL(str(file))
    number = ctypes.c_uint32.in_dll(library, "BAREWIRE_PROVIDER_VERSION").value
    wire, address = (ctypes.c_uint8.in_dll(library, f"BAREWIRE_{name}_VERSION").value for name in ("WIRE", "ADDRESS"))
    return (
        f"provider {number >> 16}.{number & 0xFFFF} ({file})\n"
        f"wire version {wire}, address version {address}: all hosts of a job need the same"
    )
