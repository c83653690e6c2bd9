# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the JSON Lines of `barewire-host` into samples in the units of results."""

from pathlib import Path
from typing import Any

from barewire.errors import MeasurementFailed
from barewire.measure.records import LaunchRecords, records_in
from barewire.results import sample_frame

HOST_RECORDS_SCHEMA = "barewire-host-records/1"
SUBJECT = "host"
_COLUMNS = ("test", "subject", "message_bytes", "phase", "block", "value", "unit")


def read_host_records(path: Path, launch: int) -> LaunchRecords:
    """Read one launch's file; MeasurementFailed if its schema is another.

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
    """Append context switches: a hop between two processes on one core, less the same operations in one process.

    Both were measured alternately, so values with the same index belong together.
    """
    pairs = zip(measured["pipe/same"], measured["pipe/self"], strict=False)
    _extend(columns, "switch", "process", 0, "measure", "ns", [hop - single for hop, single in pairs])


def _extend(
    columns: dict[str, list[Any]], test: str, subject: str, size: int, phase: str, unit: str, values: list[float]
) -> None:
    columns["value"] += values
    columns["block"] += range(len(values))
    constants = {"test": test, "subject": subject, "message_bytes": size, "phase": phase, "unit": unit}
    for name, value in constants.items():
        columns[name] += [value] * len(values)
