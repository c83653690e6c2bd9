# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where this installation's native files are.

                     checkout                     installed by a package
programs             target/release               native
provider             target/release/libfabric     native/libfabric
sources of mpi/      mpi                          native/mpi
built MPI programs   target/mpi                   ~/.cache/barewire/mpi, below $XDG_CACHE_HOME if that is set
kernels to emulate   target/guests                ~/.cache/barewire/guests
MPI libraries        .mpi/NAME                    of the Python environment

`native` is a folder of this package; a checkout has none.
"""

import os
import subprocess
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_NATIVE = _PACKAGE / "native"
_ROOT = _PACKAGE.parents[1]

IS_PACKAGE = _NATIVE.is_dir()
PROGRAMS = _NATIVE if IS_PACKAGE else _ROOT / "target" / "release"
# Without links, as /proc names a mapped file.
PROVIDER = (PROGRAMS / "libfabric").resolve()
MPI_SOURCES = (_NATIVE if IS_PACKAGE else _ROOT) / "mpi"
# A folder, a pattern below it, and a format for the name of what matches; the last is empty for the library's own name.
MPI_LIBRARIES = (Path(sys.prefix), "lib", "") if IS_PACKAGE else (_ROOT / ".mpi", "*/lib", "{}")
# What to do where a native file or an MPI library is missing.
FIX = "reinstall Barewire's package" if IS_PACKAGE else "run `make build`"
MPI_FIX = (
    "apt install openmpi-bin libopenmpi-dev" if IS_PACKAGE else "make setup, or apt install openmpi-bin libopenmpi-dev"
)
MPICH_FIX = "`pip install mpich` into an environment" if IS_PACKAGE else "`make setup` installs it"
NOT_WRITABLE = "; set XDG_CACHE_HOME to a folder that you may write to" if IS_PACKAGE else ""
SOURCE = "this installation" if IS_PACKAGE else "this checkout"


def cache_folder() -> Path:
    """Return the user's folder for files that can be made again; it may not exist."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or "/nonexistent") / ".cache"
    return Path(folder) / "barewire"


def built_mpi() -> Path:
    """Return the folder of MPI programs that are built on demand."""
    return cache_folder() / "mpi" if IS_PACKAGE else _ROOT / "target" / "mpi"


def guests() -> Path:
    """Return the folder of kernels for emulated machines, which are fetched on demand."""
    return cache_folder() / "guests" if IS_PACKAGE else _ROOT / "target" / "guests"


def sources_version() -> str:
    """Return what tells the native sources of two packages apart, whose files may all be older than what they built.

    Empty in a checkout: there `make` sees what is newer, and another commit need not change anything.
    """
    return (commit() or "") if IS_PACKAGE else ""


def commit() -> str | None:
    """Return the git commit that this installation was built from; None if it is unknown."""
    if IS_PACKAGE:
        return (_NATIVE / "commit").read_text().strip()
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return completed.stdout.strip() or None
