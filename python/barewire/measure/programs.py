# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the native programs are."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from barewire.errors import MachineCannot, WrongUse
from barewire.results.tuning import TUNING_VARIABLE

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


def read_tuning(file: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The defaults of all values that endpoints follow, and what a tuning file makes of them, if it is there.

    The probe itself says both. WrongUse for a file that is none.
    """
    environment = {**os.environ, TUNING_VARIABLE: str(file)} if file.exists() else None
    command = [find_program(PROBE), "tuning"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise WrongUse(done.stderr.strip().removeprefix(f"{PROBE}: "))
    values = json.loads(done.stdout)
    defaults = {name: one["default"] for name, one in values.items()}
    return defaults, defaults if environment is None else {name: one["tuned"] for name, one in values.items()}


def expand_sizes(sizes: str, perturbation: int) -> tuple[int, ...]:
    """The message sizes in bytes that `64,1400` or `1..64KiB` mean; the probe itself decides. WrongUse if none."""
    command = [find_program(PROBE), "sizes", "--sizes", sizes, "--perturbation", str(perturbation)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WrongUse(done.stderr.strip().removeprefix(f"{PROBE}: "))
    return tuple(int(size) for size in done.stdout.strip().split(","))
