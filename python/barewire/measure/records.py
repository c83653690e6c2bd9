# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the probe's JSON Lines into samples in the units of results."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import MeasurementFailed
from barewire.results.schema import SampleRows

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
    rows = SampleRows()
    for kind, record in checked_records(path, PROBE_SCHEMA):
        match kind:
            case "start":
                start = record
            case "samples":
                corrupt += record.get("corrupt", 0)
                # With processes there is one pair each; its number is the process's.
                _add(rows, record, "process" if pairs == 1 else "pair")
            case "end":
                end = record
    processes = start.get("processes", 1)
    frame = rows.frame(launch=launch, test=test, subject=subject, pairs=pairs, processes=processes)
    return LaunchRecords(frame, start, end, corrupt)


def _add(rows: SampleRows, record: dict[str, Any], party: str) -> None:
    """Add the samples of one block, in the units of results.

    Lost round trips have no time: one sample without a value counts them. A stream's block is one sample; its losses
    are recorded, and exclude it from rates. A block that gave no value, as the processes did not work at the same time
    for long enough, is one sample without a value, so that what was measured in vain is on record.
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
    if not values or (lost and quantity != "stream"):
        values, losses = [*values, None], [*losses, lost]
    point = {name: record[name] for name in ("message_bytes", "phase", "block")}
    rows.add(values, unit=unit, lost=losses, **{party: record["pair"]}, **point)


def checked_records(path: Path, schema: str, *, first: str = "start") -> Iterator[tuple[Any, dict[str, Any]]]:
    """Return kind and content of each record; MeasurementFailed if a `first` one names another schema."""
    for record in records_in(path):
        kind = record.get("record")
        if kind == first and record.get("schema") != schema:
            raise MeasurementFailed(f"{path} has the schema {record.get('schema')}, not {schema}")
        yield kind, record


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """Return the JSON objects of a file, one per line; a truncated last line is omitted."""
    # Not splitlines, which ends a line also at characters that JSON has in its strings, such as U+2028.
    lines = path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                return
            raise MeasurementFailed(f"{path}, line {number} is damaged: {error}") from error
        if isinstance(record, dict):
            yield record
