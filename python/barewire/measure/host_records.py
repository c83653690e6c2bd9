# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the JSON Lines of `barewire-host` into samples in the units of results."""

from pathlib import Path
from typing import Any

from barewire.measure.records import LaunchRecords, checked_records
from barewire.results.schema import SampleRows

HOST_RECORDS_SCHEMA = "barewire-host-records/1"
SUBJECT = "host"
# Of a test: the subject that does the same in one process, and those with switches by the name of the difference.
_SWITCHES = {
    "wakeup": ("pipe/self", {"process": "pipe/same"}),
    "context": ("alone", {name: name for name in ("processes-2", "processes-8", "processes-16")}),
}


def read_host_records(path: Path, launch: int) -> LaunchRecords:
    """Read one launch's file; MeasurementFailed if its schema is another.

    A sample is one stretch: MB/s (10^6), or ns for one operation. `block` counts the stretches of a phase.
    """
    start: dict[str, Any] = {}
    end: dict[str, Any] = {}
    rows = SampleRows()
    measured: dict[tuple[str, int], list[float]] = {}
    for kind, record in checked_records(path, HOST_RECORDS_SCHEMA):
        match kind:
            case "start":
                start = record
            case "samples":
                values = _add(rows, start["test"], record)
                if record["phase"] == "measure":
                    measured[record["subject"], record["block_bytes"]] = values
            case "end":
                end = record
    if start.get("test") in _SWITCHES:
        _add_switches(rows, start["test"], measured)
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


def _add_switches(rows: SampleRows, test: str, measured: dict[tuple[str, int], list[float]]) -> None:
    """Add context switches: a hop between processes on one core, less the same operations in one process.

    Both were measured alternately, so values with the same index belong together. A launch that ended early may lack
    some of them.
    """
    alone, hops = _SWITCHES[test]
    for subject, hop in hops.items():
        for size in sorted({size for name, size in measured if name == hop and (alone, size) in measured}):
            pairs = zip(measured[hop, size], measured[alone, size], strict=False)
            values = [between - single for between, single in pairs]
            point = {"test": "switch", "subject": subject, "message_bytes": size, "phase": "measure"}
            rows.add(values, unit="ns", block=range(len(values)), **point)
