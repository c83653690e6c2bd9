# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the JSON Lines of the C suite in mpi/ into samples in the units of results."""

from pathlib import Path
from typing import Any

from barewire.errors import MeasurementFailed
from barewire.measure.records import LaunchRecords, records_in
from barewire.results import sample_frame
from barewire.results.quantities import converted

MPI_RECORDS_SCHEMA = "barewire-mpi/1"
_COLUMNS = (
    "test",
    "ranks",
    "variant",
    "quantity",
    "parameter",
    "parameter_value",
    "message_bytes",
    "pairs",
    "rank",
    "phase",
    "block",
    "inner",
    "value",
    "unit",
)
_KNOWN = {"record", "variant", "quantity", "unit", "message_bytes", "pairs", "rank", "phase", "inner", "values"}


def read_mpi_records(path: Path, launch: int, subject: str) -> LaunchRecords:
    """Read one launch's file; MeasurementFailed if its schema is another.

    With several measurements in one launch, `start` is the first one's and `end` the last one's, provided that each has
    an end. A job that is not an MPI measurement has only an end. `block` counts a rank's values of one point and phase:
    values measured by several ranks at once have the same number.
    """
    starts: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    counts: dict[tuple[Any, ...], int] = {}
    notes: dict[str, list[dict[str, Any]]] = {"choice": [], "left_out": []}
    for record in records_in(path):
        match record.get("record"):
            case "start":
                starts.append(record)
                if record.get("schema") != MPI_RECORDS_SCHEMA:
                    raise MeasurementFailed(f"{path} has the schema {record.get('schema')}, not {MPI_RECORDS_SCHEMA}")
            case "samples":
                _append(columns, counts, starts[-1], record)
            case "choice" | "left_out" as kind:
                notes[kind].append({name: value for name, value in record.items() if name != "record"})
            case "end":
                ends.append(record)
    start = starts[0] if starts else {}
    end = ends[-1] if ends and len(ends) >= len(starts) else {}
    samples = sample_frame(columns, launch=launch, subject=subject)
    return LaunchRecords(samples, start, end, choices=tuple(notes["choice"]), left_out=tuple(notes["left_out"]))


def _append(
    columns: dict[str, list[Any]], counts: dict[tuple[Any, ...], int], start: dict[str, Any], record: dict[str, Any]
) -> None:
    parameter, value = next(((name, value) for name, value in record.items() if name not in _KNOWN), ("", None))
    test = start["test"]
    constants = {"test": test, "ranks": start.get("ranks", 0)}
    constants |= {name: record[name] for name in ("variant", "quantity", "message_bytes", "pairs", "rank", "phase")}
    constants |= {"parameter": parameter, "parameter_value": value}
    values, unit = converted(test, record["quantity"], record["unit"], record["message_bytes"], record["values"])
    point = tuple(constants.values())
    first = counts.get(point, 0)
    counts[point] = first + len(values)
    columns["value"] += values
    columns["block"] += range(first, first + len(values))
    for name, constant in (constants | {"unit": unit, "inner": record["inner"]}).items():
        columns[name] += [constant] * len(values)
