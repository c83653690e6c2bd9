# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the JSON Lines of the C suite in mpi/ into samples in the units of results."""

from pathlib import Path
from typing import Any

from barewire.measure.records import LaunchRecords, checked_records
from barewire.results.quantities import converted
from barewire.results.schema import SampleRows

MPI_RECORDS_SCHEMA = "barewire-mpi/1"
_KNOWN = {"record", "variant", "quantity", "unit", "message_bytes", "pairs", "rank", "phase", "inner", "values"}


def read_mpi_records(path: Path, launch: int, subject: str) -> LaunchRecords:
    """Read one launch's file; MeasurementFailed if its schema is another.

    With several measurements in one launch, `start` is the first one's and `end` the last one's, provided that each has
    an end. A job that is not an MPI measurement has only an end. `block` counts a rank's values of one point and phase:
    values measured by several ranks at once have the same number.
    """
    starts: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    rows = SampleRows()
    counts: dict[tuple[Any, ...], int] = {}
    notes: dict[str, list[dict[str, Any]]] = {"choice": [], "left_out": []}
    for kind, record in checked_records(path, MPI_RECORDS_SCHEMA):
        match kind:
            case "start":
                starts.append(record)
            case "samples":
                _add(rows, counts, starts[-1], record)
            case "choice" | "left_out":
                notes[kind].append({name: value for name, value in record.items() if name != "record"})
            case "end":
                ends.append(record)
    start = starts[0] if starts else {}
    end = ends[-1] if ends and len(ends) >= len(starts) else {}
    samples = rows.frame(launch=launch, subject=subject)
    return LaunchRecords(samples, start, end, choices=tuple(notes["choice"]), left_out=tuple(notes["left_out"]))


def _add(rows: SampleRows, counts: dict[tuple[Any, ...], int], start: dict[str, Any], record: dict[str, Any]) -> None:
    parameter, value = next(((name, value) for name, value in record.items() if name not in _KNOWN), ("", None))
    test = start["test"]
    point = {"test": test, "ranks": start.get("ranks", 0), "parameter": parameter, "parameter_value": value}
    point |= {name: record[name] for name in ("variant", "quantity", "message_bytes", "pairs", "rank", "phase")}
    values, unit = converted(test, record["quantity"], record["unit"], record["message_bytes"], record["values"])
    key = tuple(point.values())
    first = counts.get(key, 0)
    counts[key] = first + len(values)
    rows.add(values, unit=unit, inner=record["inner"], block=range(first, counts[key]), **point)
