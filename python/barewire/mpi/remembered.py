# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What libraries said of themselves, remembered for this user: to load one just to ask it takes 60 ms.

<cache>/barewire/mpi-libraries.json     {"/…/libmpi.so.40": [identity of the file, what it said], …}

An entry holds as long as the file is the same: its device, inode, size and time of change. Whatever is wrong with the
cache costs time only, so it is never an error.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

_FILE = "mpi-libraries.json"


def recall(library: Path) -> str | None:
    """Return what a library said when it was last asked; None if it was not, or has changed since."""
    try:
        entry = _entries().get(str(library.resolve()))
        if isinstance(entry, list) and len(entry) == 2 and entry[0] == _identity(library) and isinstance(entry[1], str):
            return entry[1]
    except OSError:
        pass
    return None


def remember(library: Path, said: str) -> None:
    """Keep what a library said."""
    with suppress(OSError):
        file = _cache_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Several runs may start at once: each writes a whole file, and the last one stays.
        mine = file.with_name(f"{_FILE}.{os.getpid()}")
        entries = _entries() | {str(library.resolve()): [_identity(library), said]}
        mine.write_text(json.dumps(entries))
        mine.replace(file)


def _entries() -> dict[str, Any]:
    with suppress(OSError, ValueError):
        file = _cache_file()
        # Under sudo HOME may be somebody else's, whose word is not taken for what root loads.
        if file.stat().st_uid == os.geteuid():
            entries = json.loads(file.read_text())
            return entries if isinstance(entries, dict) else {}
    return {}


def _identity(library: Path) -> list[int]:
    state = library.stat()
    return [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]


def _cache_file() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or "/nonexistent") / ".cache"
    return Path(folder) / "barewire" / _FILE
