# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes what is generated from the commands: manual pages, completion, modulefiles. pages.py VERSION ROOT.

It runs with the Python packages of the root that is being packed.
"""

import gzip
import subprocess
import sys
from pathlib import Path

from barewire.cli.manual import write_all

ABOUT = "part of Barewire, which carries MPI over plain Ethernet frames"
PROVIDER = "/usr/lib/x86_64-linux-gnu/libfabric"


def zip_file(file: Path) -> None:
    """Replace a file by a zipped one that holds no time and no name."""
    with Path(f"{file}.gz").open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as zipped:
        zipped.write(file.read_bytes())
    file.unlink()


def main(version: str, root: Path) -> None:
    """Write everything."""
    share = root / "usr/share"
    write_all(share)
    pages = share / "man/man1"
    for program in ("barewire-probe", "barewire-broker"):
        options = ["--no-info", f"--version-string={version}", "--source=Barewire", f"--name={ABOUT}"]
        command = ["help2man", *options, f"--output={pages / program}.1", str(root / "usr/bin" / program)]
        subprocess.run(command, check=True)
    for page in pages.iterdir():
        zip_file(page)
    for form, suffix in (("tcl", ""), ("lua", ".lua")):
        command = [sys.executable, "-m", "barewire", "modulefile", form, "--provider", PROVIDER]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        file = share / "modules/modulefiles/barewire" / f"{version}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


main(sys.argv[1], Path(sys.argv[2]))
