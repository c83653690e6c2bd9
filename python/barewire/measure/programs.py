# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds and queries the native programs."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from barewire import installed
from barewire.errors import MachineCannot, WrongUse
from barewire.results.tuning import TUNING_VARIABLE

PROBE = "barewire-probe"
FLOOR = "barewire-floor"
XDP_FLOOR = "barewire-floor-xdp"
HOST = "barewire-host"
# The exit code of a shell that does not find a program, and what helps.
NOT_FOUND = 127
INSTALL_THERE = f"install {PROBE} in the PATH there"


def find_program(name: str) -> str:
    """Return the path of a native program: in $BAREWIRE_BIN, here or on the PATH; MachineCannot if missing."""
    for directory in filter(None, (os.environ.get("BAREWIRE_BIN"), str(installed.PROGRAMS))):
        path = Path(directory) / name
        if os.access(path, os.X_OK):
            return str(path)
    on_path = shutil.which(name)
    if on_path is None:
        raise MachineCannot(f"{name} is missing: {installed.FIX}, or name its directory in BAREWIRE_BIN")
    return on_path


def read_tuning(file: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the defaults of all tuning values of endpoints, and the values with a tuning file, if it exists.

    The probe reports both. WrongUse if the file is invalid.
    """
    environment = {**os.environ, TUNING_VARIABLE: str(file)} if file.exists() else None
    command = [find_program(PROBE), "tuning"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if completed.returncode != 0:
        raise WrongUse(completed.stderr.strip().removeprefix(f"{PROBE}: "))
    values = json.loads(completed.stdout)
    defaults = {name: entry["default"] for name, entry in values.items()}
    return defaults, defaults if environment is None else {name: entry["tuned"] for name, entry in values.items()}


def expand_sizes(sizes: str, perturbation: int) -> tuple[int, ...]:
    """Return the message sizes in bytes of `64,1400` or `1..64KiB`, expanded by the probe. WrongUse if invalid."""
    command = [find_program(PROBE), "sizes", f"--sizes={sizes}", f"--perturbation={perturbation}"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise WrongUse(completed.stderr.strip().removeprefix(f"{PROBE}: "))
    return tuple(int(size) for size in completed.stdout.strip().split(","))
