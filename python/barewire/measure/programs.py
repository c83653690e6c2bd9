# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the native programs are."""

import os
import shutil
import subprocess
from pathlib import Path

from barewire.errors import MachineCannot, WrongUse

PROBE = "barewire-probe"
FLOOR = "barewire-floor"
XDP_FLOOR = "barewire-floor-xdp"
HOST = "barewire-host"


def find_program(name: str) -> str:
    """The path of a native program: in $BAREWIRE_BIN, in this checkout, or on the PATH; MachineCannot if nowhere."""
    checkout = Path(__file__).resolve().parents[3] / "target" / "release"
    for directory in filter(None, (os.environ.get("BAREWIRE_BIN"), str(checkout))):
        path = Path(directory) / name
        if os.access(path, os.X_OK):
            return str(path)
    found = shutil.which(name)
    if found is None:
        raise MachineCannot(f"{name} is not built: run `make build`, or name its directory in BAREWIRE_BIN")
    return found


def expand_sizes(sizes: str, perturbation: int) -> tuple[int, ...]:
    """The message sizes in bytes that `64,1400` or `1..64KiB` mean; the probe itself decides. WrongUse if none."""
    command = [find_program(PROBE), "sizes", "--sizes", sizes, "--perturbation", str(perturbation)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WrongUse(done.stderr.strip().removeprefix(f"{PROBE}: "))
    return tuple(int(size) for size in done.stdout.strip().split(","))
