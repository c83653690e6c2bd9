# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the JSON Lines of `barewire-host` into samples in the units of results."""

from pathlib import Path
from typing import Any

from barewire.measure.records import LaunchRecords, checked_records
from barewire.results import SampleRows

HOST_RECORDS_SCHEMA = "barewire-host-records/1"
SUBJECT = "host"


def read_host_records(path: Path, launch: int) -> LaunchRecords:
    """Read one launch's file; MeasurementFailed if its schema is another.

    A sample is one stretch: MB/s (10^6), or ns for one operation. `block` counts the stretches of a phase.
    """
    start: dict[str, Any] = {}
    end: dict[str, Any] = {}
    rows = SampleRows()
    measured: dict[str, list[float]] = {}
    for kind, record in checked_records(path, HOST_RECORDS_SCHEMA):
        match kind:
            case "start":
                start = record
            case "samples":
                values = _add(rows, start["test"], record)
                if record["phase"] == "measure":
                    measured[record["subject"]] = values
            case "end":
                end = record
    if start.get("test") == "wakeup" and {"pipe/same", "pipe/self"} <= set(measured):
        _add_switches(rows, measured)
    return LaunchRecords(rows.frame(launch=launch), start, end)


def _add(rows: SampleRows, test: str, record: dict[str, Any]) -> list[float]:
    size, operations = record["block_bytes"], record["operations"]
    if record["quantity"] == "bandwidth":
        unit, values = "MB/s", [size * operations * 1e3 / max(ns, 1) for ns in record["values"]]
    else:
        unit, values = "ns", [ns / operations for ns in record["values"]]
    point = {"test": test, "subject": record["subject"], "message_bytes": size, "phase": record["phase"]}
    rows.add(values, unit=unit, block=range(len(values)), **point)
    return values


def _add_switches(rows: SampleRows, measured: dict[str, list[float]]) -> None:
    """Add context switches: a hop between two processes on one core, less the same operations in one process.

    Both were measured alternately, so values with the same index belong together.
    """
    pairs = zip(measured["pipe/same"], measured["pipe/self"], strict=False)
    values = [hop - single for hop, single in pairs]
    point = {"test": "switch", "subject": "process", "message_bytes": 0, "phase": "measure"}
    rows.add(values, unit="ns", block=range(len(values)), **point)
