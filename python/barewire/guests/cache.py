# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Folders that take some seconds to make and are kept."""

import tempfile
from collections.abc import Callable
from pathlib import Path


def make_once(directory: Path, make: Callable[[Path, Path], None]) -> Path:
    """Return `directory`. If it does not exist, `make` fills a new folder, given that and a scratch folder, first."""
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix="making-") as name:
            made = Path(name) / "image"
            made.mkdir()
            make(made, Path(name))
            try:
                made.rename(directory)
            except OSError:
                if not directory.is_dir():  # somebody else was faster; theirs is the same
                    raise
    return directory
