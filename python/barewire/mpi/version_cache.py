# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Per-user cache of the version strings of MPI libraries: loading one takes 60 ms.

<cache>/barewire/mpi-libraries.json     {"/…/libmpi.so.40": [identity of the file, version string], …}

An entry is valid while the file's device, inode, size and time of change are the same. Errors of the cache are
ignored: they cost time only.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from barewire.installed import cache_folder

_FILE = "mpi-libraries.json"


def cached_version(library: Path) -> str | None:
    """Return a library's cached version string; None if there is none, or the file has changed."""
    try:
        entry = _entries().get(str(library.resolve()))
        if isinstance(entry, list) and len(entry) == 2 and entry[0] == _identity(library) and isinstance(entry[1], str):
            return entry[1]
    except OSError:
        pass
    return None


def store_version(library: Path, version: str) -> None:
    """Store a library's version string."""
    with suppress(OSError):
        file = _cache_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Concurrent runs each write a whole file; the last rename wins.
        temporary = file.with_name(f"{_FILE}.{os.getpid()}")
        entries = _entries() | {str(library.resolve()): [_identity(library), version]}
        try:
            temporary.write_text(json.dumps(entries))
            temporary.replace(file)
        except OSError:
            temporary.unlink(missing_ok=True)


def _entries() -> dict[str, Any]:
    with suppress(OSError, ValueError):
        file = _cache_file()
        # Under sudo HOME may be another user's, whose file must not decide what root loads.
        if file.stat().st_uid == os.geteuid():
            entries = json.loads(file.read_text())
            return entries if isinstance(entries, dict) else {}
    return {}


def _identity(library: Path) -> list[int]:
    state = library.stat()
    return [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]


def _cache_file() -> Path:
    return cache_folder() / _FILE
