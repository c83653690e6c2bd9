# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tuning file: values measured on this machine that replace endpoints' defaults."""

import os
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from barewire.errors import MachineCannot, WrongUse

if TYPE_CHECKING:
    from barewire.results.host import Crossover

TUNING_VARIABLE = "BAREWIRE_TUNING"
COPY_CROSSOVER = "copy_crossover_bytes"
_CROSSOVER = "copy crossover"


def tuning_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return this user's file, or the one in `BAREWIRE_TUNING`."""
    named = environment.get(TUNING_VARIABLE)
    if named:
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config"
    return Path(folder) / "barewire" / "tuning.toml"


def write_crossover(crossovers: Iterable["Crossover"], *, source: str, path: Path | None = None) -> Path:
    """Write the copy crossover, in bytes, with its run as the source; MachineCannot if that run has none."""
    found = next((each for each in crossovers if each.name == _CROSSOVER), None)
    if found is None:
        raise MachineCannot("no copy crossover was measured, which needs a lab: see `barewire doctor`")
    source = f"barewire bench host, run {source}"
    return write_tuning({COPY_CROSSOVER: round(found.bytes)}, measured=(COPY_CROSSOVER,), source=source, path=path)


def write_tuning(
    values: Mapping[str, int], *, measured: Collection[str], source: str, path: Path | None = None
) -> Path:
    """Write `values` with their source, for all that was `measured`: measured names without a value are reset.

    Values that were not measured stay as they are, with their sources. WrongUse if the file is invalid.
    """
    path = path or tuning_path()
    lines = {**_kept(path, measured), **{name: f"{name} = {value}  # {source}" for name, value in values.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Imported late: endpoints' programs and `barewire run` only read the file, and need no samples.
    from barewire.results.store import write_atomically

    write_atomically(path, "".join(f"{lines[name]}\n" for name in sorted(lines)).encode())
    return path


def check_target(path: Path) -> None:
    """Raise WrongUse if `write_tuning` could not write this file: what is measured takes long. Creates its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise WrongUse(f"{path} cannot be written: {error.strerror}; name another file") from error
    if path.is_dir():
        raise WrongUse(f"{path} is a directory; name a file")


def _kept(path: Path, measured: Collection[str]) -> dict[str, str]:
    try:
        text = path.read_text()
        tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise WrongUse(f"{path} is not a tuning file: {error}; remove it, or name another") from error
    lines = {line.partition("=")[0].strip(): line for line in text.splitlines() if not line.startswith("#")}
    return {name: line for name, line in lines.items() if name and name not in measured}
