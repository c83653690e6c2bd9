# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads a table of message times, as papers print them: CSV with `message_bytes` and one column of times.

The time's column ends in its unit (`_ns`, `_us`, `_ms`, `_s`); one whose name begins with `round_trip` is halved. A
column `program` or `subject` tells several subjects apart. Rows of the same subject and size are launches. Lines that
begin with # are comments.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from barewire.errors import WrongUse
from barewire.models.times import Times
from barewire.results.functions import in_us
from barewire.results.quantities import TIME_UNITS

_SUBJECTS = ("subject", "program")
_SIZE = "message_bytes"


def read_table(path: Path) -> dict[str, Times]:
    """Return each subject's one-way times; WrongUse with the line if the file is not such a table."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"cannot read {path}: {error}") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line and not line.startswith("#")]
    rows = csv.DictReader(line for _, line in lines)
    try:
        column, unit, factor = _time_column(path, rows.fieldnames or ())
        numbered = list(zip(lines[1:], rows, strict=True))
    except (csv.Error, ValueError) as error:
        raise WrongUse(
            f"{path} needs a line for each row: a quotation spans several, or a field is too long"
        ) from error
    launches: dict[str, dict[int, list[float]]] = {}
    for (number, _), row in numbered:
        subject = next((row[name] for name in _SUBJECTS if row.get(name)), "")
        size, time = _number(row[_SIZE]), _number(row[column])
        if size is None or size < 0 or size % 1 or time is None or time <= 0:
            raise WrongUse(f"{path}, line {number}: sizes are whole numbers from 0 on, and times numbers above 0")
        launches.setdefault(subject, {}).setdefault(int(size), []).append(in_us(time, unit) * factor)
    if not launches:
        raise WrongUse(f"{path} has no rows")
    return {subject: Times.of(_alike(path, subject, of_size)) for subject, of_size in launches.items()}


def _time_column(path: Path, names: Sequence[str]) -> tuple[str, str, float]:
    timed = [name for name in names if name.rpartition("_")[2] in TIME_UNITS]
    if _SIZE not in names or len(timed) != 1:
        raise WrongUse(
            f"{path} needs a column {_SIZE} and one column of times that ends in "
            f"{', '.join(f'_{unit}' for unit in TIME_UNITS)}; it has {', '.join(names) or 'none'}"
        )
    return timed[0], timed[0].rpartition("_")[2], 0.5 if timed[0].startswith("round_trip") else 1.0


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _alike(path: Path, subject: str, launches: Mapping[int, list[float]]) -> Mapping[int, list[float]]:
    if len({len(times) for times in launches.values()}) > 1:
        raise WrongUse(f"{path}: {subject or 'the table'} has more rows of some sizes than of others")
    return launches
