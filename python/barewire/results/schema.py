# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The one schema of all samples: columns with types, units, meanings and the version that introduced them.

docs/data.md has this table; a test compares the two. Samples of older versions are converted when they are read: the
columns that they lack get their defaults. A new column is a new version, and needs a default.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from barewire.errors import WrongUse

SAMPLES_SCHEMA_NAME = "barewire-samples"
# Key of the schema in the metadata of samples.parquet. Files from before it was recorded have none.
METADATA_KEY = "barewire-schema"


class _Required:
    """Marks columns without a default."""


_REQUIRED: Final = _Required()


class Column(NamedTuple):
    """One column of samples; `default` is the value where a program or an older version has none."""

    name: str
    kind: pl.DataType
    unit: str
    meaning: str
    default: Any = _REQUIRED
    since: int = 1


# Text columns are categorical: a long run keeps half a million samples in memory until its end.
COLUMNS = (
    Column("launch", pl.UInt32(), "", "the launch, by its number in run.json"),
    Column("test", pl.Categorical(), "", "what was measured: pingpong, stream …"),
    Column("subject", pl.Categorical(), "", "over what: a transport, an MPI library over a fabric, a floor"),
    Column("pairs", pl.UInt32(), "", "pairs that communicate at once", 1),
    Column("pair", pl.UInt32(), "", "this value's pair, from 0", 0),
    Column("processes", pl.UInt32(), "", "processes that share the interface", 1, 2),
    Column("process", pl.UInt32(), "", "this value's process, from 0", 0, 2),
    Column("ranks", pl.UInt32(), "", "ranks of the MPI job; 0 without one, or if unknown", 0, 3),
    Column("rank", pl.UInt32(), "", "the rank that measured this value", 0, 3),
    Column("variant", pl.Categorical(), "", "which of the test's variants, such as blocking-standard", "", 3),
    Column("quantity", pl.Categorical(), "", "which of the test's quantities, such as half_round_trip", "", 3),
    Column("parameter", pl.Categorical(), "", "name of a further coordinate; its unit is last in the name", "", 3),
    Column("parameter_value", pl.Float64(), "the name's", "that coordinate", None, 3),
    Column("message_bytes", pl.UInt64(), "B", "message size, without headers"),
    Column("phase", pl.Categorical(), "", "warmup or measure; only measure enters results"),
    Column("block", pl.UInt32(), "", "counts the values of one launch, point and party"),
    Column("inner", pl.UInt32(), "", "operations whose mean this value is", 1, 4),
    Column("value", pl.Float64(), "unit's", "the value; null for lost messages, or a block without one"),
    Column("unit", pl.Categorical(), "", "us, ns, ms, s (times); Mbit/s (10^6 bit/s), MB/s (10^6 B/s), messages/s …"),
    Column("lost", pl.UInt64(), "", "messages lost in this value", 0),
)
SAMPLES_VERSION = max(column.since for column in COLUMNS)
SAMPLES_SCHEMA = f"{SAMPLES_SCHEMA_NAME}/{SAMPLES_VERSION}"
SAMPLE_SCHEMA: dict[str, pl.DataType] = {column.name: column.kind for column in COLUMNS}

_DEFAULTS: dict[str, Any] = {
    column.name: column.default for column in COLUMNS if not isinstance(column.default, _Required)
}


def sample_frame(data: pl.DataFrame | Mapping[str, Sequence[Any]], **constants: Any) -> pl.DataFrame:
    """Return samples with all columns of `SAMPLE_SCHEMA`: those of `data`, constant ones of `constants`, defaults.

    ValueError if a column without a default is missing.
    """
    if isinstance(data, pl.DataFrame):
        frame = data
    else:
        frame = pl.DataFrame(data, schema={name: SAMPLE_SCHEMA[name] for name in data})
    added = {
        name: value for name, value in (_DEFAULTS | constants).items() if name in constants or name not in frame.columns
    }
    frame = frame.with_columns(pl.lit(value).alias(name) for name, value in added.items())
    missing = [name for name in SAMPLE_SCHEMA if name not in frame.columns]
    if missing:
        raise ValueError(f"samples lack the columns {', '.join(missing)}")
    return frame.select(pl.col(name).cast(kind) for name, kind in SAMPLE_SCHEMA.items())


class SampleRows:
    """Collects samples from records of any program, column by column."""

    def __init__(self) -> None:
        """Start without samples."""
        self._columns: dict[str, list[Any]] = {}

    def add(self, values: Sequence[float | None], **coordinates: Any) -> None:
        """Append values; a coordinate is the same for all of them, or a list or range with one for each."""
        for name, coordinate in {**coordinates, "value": values}.items():
            each = coordinate if isinstance(coordinate, list | range) else [coordinate] * len(values)
            self._columns.setdefault(name, []).extend(each)

    def frame(self, **constants: Any) -> pl.DataFrame:
        """Return all samples, with further constant columns."""
        return sample_frame(self._columns, **constants) if self._columns else pl.DataFrame(schema=SAMPLE_SCHEMA)


def check_samples_schema(schema: str | None) -> None:
    """Reject samples of a foreign schema or a newer version; None is of a version that did not record it."""
    if schema is None:
        return
    name, _, version = schema.partition("/")
    if name != SAMPLES_SCHEMA_NAME or not version.isdecimal():
        raise WrongUse(f"the samples have the schema {schema!r}, not {SAMPLES_SCHEMA!r}")
    if int(version) > SAMPLES_VERSION:
        raise WrongUse(
            f"these samples were written by a newer Barewire ({schema}; this one reads {SAMPLES_SCHEMA}): "
            "update Barewire"
        )


def columns_table() -> str:
    """Return the columns as a Markdown table, as in docs/data.md."""
    lines = ["| column | type | unit | meaning | default | since |", "|---|---|---|---|---|---|"]
    for column in COLUMNS:
        default = "" if isinstance(column.default, _Required) else f"`{_written(column.default)}`"
        kind = str(column.kind)
        lines.append(f"| `{column.name}` | {kind} | {column.unit} | {column.meaning} | {default} | {column.since} |")
    return "\n".join(lines)


def _written(default: Any) -> str:
    return "null" if default is None else '""' if default == "" else str(default)
