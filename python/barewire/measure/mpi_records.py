# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The JSON Lines of the C suite in mpi/, read: samples in the units that people compare."""

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
    """Read one launch's file; MeasurementFailed for a file of another schema.

    Of several measurements in one launch, `start` is the first one's and `end` the last one's, if all have theirs; a
    job that is no measurement of MPI has an end alone.
    `block` counts a rank's values of one point and phase: what ranks did at once has the same number.
    """
    starts: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    counts: dict[tuple[Any, ...], int] = {}
    told: dict[str, list[dict[str, Any]]] = {"choice": [], "left_out": []}
    for record in records_in(path):
        match record.get("record"):
            case "start":
                starts.append(record)
                if record.get("schema") != MPI_RECORDS_SCHEMA:
                    raise MeasurementFailed(f"{path} has the schema {record.get('schema')}, not {MPI_RECORDS_SCHEMA}")
            case "samples":
                _append(columns, counts, starts[-1], record)
            case "choice" | "left_out" as kind:
                told[kind].append({name: value for name, value in record.items() if name != "record"})
            case "end":
                ends.append(record)
    start = starts[0] if starts else {}
    end = ends[-1] if ends and len(ends) >= len(starts) else {}
    samples = sample_frame(columns, launch=launch, subject=subject)
    return LaunchRecords(samples, start, end, choices=tuple(told["choice"]), left_out=tuple(told["left_out"]))


def _append(
    columns: dict[str, list[Any]], counts: dict[tuple[Any, ...], int], start: dict[str, Any], record: dict[str, Any]
) -> None:
    parameter, value = next(((name, value) for name, value in record.items() if name not in _KNOWN), ("", None))
    test = start["test"]
    same = {"test": test, "ranks": start.get("ranks", 0)}
    same |= {name: record[name] for name in ("variant", "quantity", "message_bytes", "pairs", "rank", "phase")}
    same |= {"parameter": parameter, "parameter_value": value}
    values, unit = converted(test, record["quantity"], record["unit"], record["message_bytes"], record["values"])
    point = tuple(same.values())
    first = counts.get(point, 0)
    counts[point] = first + len(values)
    columns["value"] += values
    columns["block"] += range(first, first + len(values))
    for name, known in (same | {"unit": unit, "inner": record["inner"]}).items():
        columns[name] += [known] * len(values)
