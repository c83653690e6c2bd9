# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the probe's JSON Lines into samples in the units of results."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import MeasurementFailed
from barewire.results import sample_frame

PROBE_SCHEMA = "barewire-probe/1"


@dataclass(frozen=True)
class LaunchRecords:
    """The records of one launch: `samples` has the columns of `SAMPLE_SCHEMA`; the rest is as the program wrote it."""

    samples: pl.DataFrame
    start: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    corrupt_messages: int = 0
    # Decisions that a program reports.
    choices: tuple[dict[str, Any], ...] = ()
    # Points that a program did not measure, with reasons.
    left_out: tuple[dict[str, Any], ...] = ()


def read_records(path: Path, launch: int, test: str, subject: str, pairs: int) -> LaunchRecords:
    """Read one launch's file without a truncated last line; MeasurementFailed if its schema is another."""

    start: dict[str, Any] = {}
    end: dict[str, Any] = {}
    corrupt = 0
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for record in records_in(path):
        match record.get("record"):
            case "start":
                start = record
                if record.get("schema") != PROBE_SCHEMA:
                    raise MeasurementFailed(f"{path} has the schema {record.get('schema')}, not {PROBE_SCHEMA}")
            case "samples":
                corrupt += record.get("corrupt", 0)
                _append(columns, record)
            case "end":
                end = record
    # With processes there is one pair each; the column holds the process number.
    process_column = {"process": columns.pop("pair")} if pairs == 1 else {}
    frame = sample_frame(
        columns | process_column,
        launch=launch,
        test=test,
        subject=subject,
        pairs=pairs,
        processes=start.get("processes", 1),
    )
    return LaunchRecords(frame, start, end, corrupt)


_COLUMNS = ("pair", "message_bytes", "phase", "block", "value", "unit", "lost")


def _append(columns: dict[str, list[Any]], record: dict[str, Any]) -> None:
    """Append the samples of one block, in the units of results.

    Lost round trips have no time: one sample without a value counts them. A stream's block is one sample; its losses
    are recorded, and exclude it from rates.
    """
    quantity, lost, size = record["quantity"], record["lost"], record["message_bytes"]
    values: list[float | None]
    match quantity:
        case "round_trip":
            unit, values = "us", [ns / 2e3 for ns in record["values"]]
        case "exchange":
            unit, values = "Mbit/s", [size * 16e3 / ns for ns in record["values"]]
        case _:
            unit, values = "Mbit/s", [(record["messages"] - lost) * size * 8e3 / ns for ns in record["values"]]
    losses = [lost if quantity == "stream" else 0] * len(values)
    if lost and (quantity != "stream" or not values):
        values, losses = [*values, None], [*losses, lost]
    columns["value"] += values
    columns["lost"] += losses
    columns["unit"] += [unit] * len(values)
    for name in ("pair", "message_bytes", "phase", "block"):
        columns[name] += [record[name]] * len(values)


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """Return the JSON objects of a file, one per line; a truncated last line is omitted."""
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
