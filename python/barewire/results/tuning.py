# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tuning file: what was measured on this machine and endpoints follow instead of their defaults."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from barewire.errors import MachineCannot
from barewire.results.host import Crossover
from barewire.results.store import write_atomically

TUNING_VARIABLE = "BAREWIRE_TUNING"
_CROSSOVER = "copy crossover"


def tuning_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The file of this user, or the one that `BAREWIRE_TUNING` names."""
    named = environment.get(TUNING_VARIABLE)
    if named:
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config"
    return Path(folder) / "barewire" / "tuning.toml"


def write_tuning(crossovers: Iterable[Crossover], *, source: str, path: Path | None = None) -> Path:
    """Write the copy crossover, in bytes, with the run it is from; MachineCannot if that run has none."""
    found = next((one for one in crossovers if one.name == _CROSSOVER), None)
    if found is None:
        raise MachineCannot("no copy crossover was measured, which needs a lab: see `barewire doctor`")
    path = path or tuning_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"# Measured by barewire bench host, run {source}.\ncopy_crossover_bytes = {round(found.bytes)}\n"
    write_atomically(path, text.encode())
    return path
