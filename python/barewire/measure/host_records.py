# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The JSON Lines of `barewire-host`, read: samples in the units that people compare."""

from pathlib import Path
from typing import Any

from barewire.errors import MeasurementFailed
from barewire.measure.records import LaunchRecords, records_in
from barewire.results import sample_frame

HOST_RECORDS_SCHEMA = "barewire-host-records/1"
SUBJECT = "host"
_COLUMNS = ("test", "subject", "message_bytes", "phase", "block", "value", "unit")


def read_host_records(path: Path, launch: int) -> LaunchRecords:
    """Read one launch's file; MeasurementFailed for a file of another schema.

    A sample is one stretch: MB/s (10^6), or ns for one operation. `block` counts the stretches of a phase.
    """
    start: dict[str, Any] = {}
    end: dict[str, Any] = {}
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    measured: dict[str, list[float]] = {}
    for record in records_in(path):
        match record.get("record"):
            case "start":
                start = record
                if record.get("schema") != HOST_RECORDS_SCHEMA:
                    raise MeasurementFailed(f"{path} has the schema {record.get('schema')}, not {HOST_RECORDS_SCHEMA}")
            case "samples":
                values = _append(columns, start["test"], record)
                if record["phase"] == "measure":
                    measured[record["subject"]] = values
            case "end":
                end = record
    if start.get("test") == "wakeup" and {"pipe/same", "pipe/self"} <= set(measured):
        _append_switches(columns, measured)
    return LaunchRecords(sample_frame(columns, launch=launch), start, end)


def _append(columns: dict[str, list[Any]], test: str, record: dict[str, Any]) -> list[float]:
    size, operations = record["block_bytes"], record["operations"]
    if record["quantity"] == "bandwidth":
        unit, values = "MB/s", [size * operations * 1e3 / max(ns, 1) for ns in record["values"]]
    else:
        unit, values = "ns", [ns / operations for ns in record["values"]]
    _extend(columns, test, record["subject"], size, record["phase"], unit, values)
    return values


def _append_switches(columns: dict[str, list[Any]], measured: dict[str, list[float]]) -> None:
    """A context switch: a hop between two processes on one core, less writing and reading the same byte alone.

    The two were measured in turn, so those of one turn belong together.
    """
    pairs = zip(measured["pipe/same"], measured["pipe/self"], strict=False)
    _extend(columns, "switch", "process", 0, "measure", "ns", [hop - alone for hop, alone in pairs])


def _extend(
    columns: dict[str, list[Any]], test: str, subject: str, size: int, phase: str, unit: str, values: list[float]
) -> None:
    columns["value"] += values
    columns["block"] += range(len(values))
    same = {"test": test, "subject": subject, "message_bytes": size, "phase": phase, "unit": unit}
    for name, value in same.items():
        columns[name] += [value] * len(values)
