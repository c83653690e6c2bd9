# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The probe's JSON Lines, read: samples in the units that people compare."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import MeasurementFailed
from barewire.results import SAMPLE_SCHEMA

PROBE_SCHEMA = "barewire-probe/1"


@dataclass(frozen=True)
class LaunchRecords:
    """What one launch left: `samples` has the columns of `SAMPLE_SCHEMA`; start and end are as the probe wrote them."""

    samples: pl.DataFrame
    start: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    corrupt_messages: int = 0


def read_records(path: Path, launch: int, test: str, subject: str, pairs: int) -> LaunchRecords:
    """Read one launch's file; a last line that a crash cut short is left out.

    MeasurementFailed for a file of another schema.
    """
    start: dict[str, Any] = {}
    end: dict[str, Any] = {}
    corrupt = 0
    parts = []
    for record in _records(path):
        match record.get("record"):
            case "start":
                start = record
                if record.get("schema") != PROBE_SCHEMA:
                    raise MeasurementFailed(f"{path} has the schema {record.get('schema')}, not {PROBE_SCHEMA}")
            case "samples":
                corrupt += record.get("corrupt", 0)
                parts.append(_rows(record))
            case "end":
                end = record
    known = {"launch": launch, "test": test, "subject": subject, "pairs": pairs}
    rows = pl.concat(parts) if parts else pl.DataFrame(schema={name: SAMPLE_SCHEMA[name] for name in _ROW})
    frame = rows.with_columns(pl.lit(value).alias(name) for name, value in known.items())
    ordered = frame.select(pl.col(name).cast(kind) for name, kind in SAMPLE_SCHEMA.items())
    return LaunchRecords(ordered, start, end, corrupt)


_ROW = ("pair", "message_bytes", "phase", "block", "value", "unit", "lost")


def _rows(record: dict[str, Any]) -> pl.DataFrame:
    """The rows of one block. Messages lost in a round trip have no time: one row without a value counts them."""
    quantity, lost = record["quantity"], record["lost"]
    ns = pl.Series("value", record["values"], dtype=pl.Float64)
    if quantity == "stream":
        # One sample, which is the whole block; what was lost in it makes it no rate, but stays on record.
        bits = (record["messages"] - lost) * record["message_bytes"] * 8
        values, losses = bits * 1e3 / ns, [lost] * len(ns)
        unit = "Mbit/s"
    else:
        values = ns / 2e3 if quantity == "round_trip" else record["message_bytes"] * 16e3 / ns
        losses = [0] * len(ns)
        unit = "us" if quantity == "round_trip" else "Mbit/s"
    if lost and (quantity != "stream" or not len(ns)):
        values, losses = values.extend(pl.Series("value", [None], dtype=pl.Float64)), [*losses, lost]
    constant = {name: record[name] for name in ("pair", "message_bytes", "phase", "block")}
    frame = pl.DataFrame({"value": values, "lost": losses}, schema={"value": pl.Float64, "lost": pl.UInt64})
    columns = {**constant, "unit": unit}
    whole = frame.with_columns(pl.lit(value).alias(name) for name, value in columns.items())
    return whole.select(pl.col(name).cast(SAMPLE_SCHEMA[name]) for name in _ROW)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return
            raise MeasurementFailed(f"{path}, line {number} is damaged: {error}") from error
        if isinstance(record, dict):
            yield record
