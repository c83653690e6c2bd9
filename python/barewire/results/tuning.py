# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tuning file: what was measured on this machine and endpoints follow instead of their defaults."""

import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from barewire.errors import MachineCannot, WrongUse
from barewire.results.host import Crossover
from barewire.results.store import write_atomically

TUNING_VARIABLE = "BAREWIRE_TUNING"
COPY_CROSSOVER = "copy_crossover_bytes"
_CROSSOVER = "copy crossover"


def tuning_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The file of this user, or the one that `BAREWIRE_TUNING` names."""
    named = environment.get(TUNING_VARIABLE)
    if named:
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config"
    return Path(folder) / "barewire" / "tuning.toml"


def write_crossover(crossovers: Iterable[Crossover], *, source: str, path: Path | None = None) -> Path:
    """Write the copy crossover, in bytes, with the run it is from; MachineCannot if that run has none."""
    found = next((one for one in crossovers if one.name == _CROSSOVER), None)
    if found is None:
        raise MachineCannot("no copy crossover was measured, which needs a lab: see `barewire doctor`")
    source = f"barewire bench host, run {source}"
    return write_tuning({COPY_CROSSOVER: round(found.bytes)}, measured=(COPY_CROSSOVER,), source=source, path=path)


def write_tuning(
    values: Mapping[str, int], *, measured: Collection[str], source: str, path: Path | None = None
) -> Path:
    """Write `values`, each with its source, for all that was `measured`: one without a value gets its default back.

    Values that were not measured stay as they are, with the source that they name. WrongUse for a file that is none.
    """
    path = path or tuning_path()
    lines = {**_kept(path, measured), **{name: f"{name} = {value}  # {source}" for name, value in values.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(f"{lines[name]}\n" for name in sorted(lines)).encode())
    return path


def _kept(path: Path, measured: Collection[str]) -> dict[str, str]:
    try:
        text = path.read_text()
        tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise WrongUse(f"{path} is no tuning file: {error}; remove it, or name another") from error
    lines = {line.partition("=")[0].strip(): line for line in text.splitlines() if not line.startswith("#")}
    return {name: line for name, line in lines.items() if name and name not in measured}
