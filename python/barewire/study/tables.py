# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Published tables: CSV files whose lines beginning with # say where they are from, and what is odd about them."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barewire.errors import WrongUse, unknown
from barewire.results.quantities import US_OF
from barewire.sdn import published

# The controller's own tables stay with it.
_FOLDERS = (Path(__file__).parent / "published", Path(published.__file__).parent)


@dataclass(frozen=True)
class Table:
    """A table: `source` describes it, `rows` have a text for each column."""

    name: str
    source: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]

    def only(self, wanted: Mapping[str, Any]) -> "Table":
        """Return the rows whose columns have these values."""
        rows = tuple(row for row in self.rows if all(row.get(key) == str(value) for key, value in wanted.items()))
        return Table(self.name, self.source, self.columns, rows)

    def row(self, key: str, at: float) -> Mapping[str, str]:
        """Return the row whose `key` is `at`; an empty one if there is none."""
        return next((row for row in self.rows if as_number(row[key]) == at), {})

    def value(self, column: str, key: str, at: float) -> float | None:
        """Return a column's number in the row whose `key` is `at`; None if there is none, or it is empty."""
        return as_number(self.row(key, at).get(column))


def rows_in_words(only: Mapping[str, Any]) -> str:
    """Return what selects rows in words: texts, and numbers with the name of their column."""
    words = (value if isinstance(value, str) else f"{name.replace('_', ' ')} {value}" for name, value in only.items())
    return " ".join(words)


def as_number(text: str | None) -> float | None:
    """Return a number of a table; None for an empty field and for words."""
    try:
        return float(text or "")
    except ValueError:
        return None


def time_factor(column: str) -> float | None:
    """Return the factor to µs of a column of times by the unit in which its name ends; None for any other column."""
    unit = column.rpartition("_")[2]
    return {"s": 1e6, "ms": 1e3, "us": 1.0}.get(unit) if not column.endswith("bit_s") else None


def is_round_trip(column: str) -> bool:
    """Whether a column has times of round trips, of which one way is half."""
    return column.startswith("round_trip")


def factor_to(unit: str, column: str) -> float:
    """Return the factor from a column's times to those of `unit`, one way; 1 for anything but times."""
    factor = time_factor(column)
    if factor is None or unit not in US_OF:
        return 1.0
    return factor / US_OF[unit] / (2 if is_round_trip(column) else 1)


def read_table(name: str) -> Table:
    """Return a published table by its file's name; WrongUse if there is none, or it has no rows."""
    paths = {path.name: path for folder in _FOLDERS for path in sorted(folder.glob("*.csv"))}
    if name not in paths:
        raise unknown("published table", name, paths)
    lines = paths[name].read_text(encoding="utf-8").splitlines()
    source = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    reader = csv.DictReader(line for line in lines if line and not line.startswith("#"))
    rows = tuple(reader)
    if not rows or any(None in row or None in row.values() for row in rows):
        raise WrongUse(f"{name} is no table: each row needs a field for each column")
    return Table(name, source, tuple(reader.fieldnames or ()), rows)
