# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Recovers a run that was killed: makes samples and series from its launches' files."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from barewire.measure.host_records import read_host_records
from barewire.measure.mpi_records import read_mpi_records
from barewire.measure.records import LaunchRecords, read_records
from barewire.measure.sdn_records import read_sdn_records
from barewire.measure.session import LAUNCHES_DIRECTORY, parse_launch_file_name
from barewire.models.naming import read_mpi_subject
from barewire.models.wire import Link
from barewire.results.confidence import asked_confidence
from barewire.results.run import Launch, Run
from barewire.results.schema import SAMPLE_SCHEMA
from barewire.results.series import series_from_samples
from barewire.results.sharing import shared_from_samples
from barewire.results.store import exclusive, read_run, write_run
from barewire.stats.intervals import PRECISION


def recover_run(directory: Path) -> Run:
    """Return the run in `directory`, an interrupted one completed from `launches/*.jsonl` and still marked incomplete.

    The launches' files are kept: the run may still be measured, and is recovered again when there are more of them.
    Raises the errors of `read_run`.
    """
    with exclusive(directory):
        return _recovered(directory)


def _recovered(directory: Path) -> Run:
    run = read_run(directory)
    files = sorted((directory / LAUNCHES_DIRECTORY).glob("*.jsonl"))
    if run.complete or len(files) <= len(run.launches):
        return run
    launches, frames = [], [pl.DataFrame(schema=SAMPLE_SCHEMA)]
    for file in files:
        parsed = parse_launch_file_name(file.name)
        if parsed is None:
            continue
        number, test, subject = parsed
        records = _read(run, file, number, test, subject)
        complete = bool(records.end.get("complete"))
        error = None if complete else "the run was killed"
        launches.append(Launch(number, subject, test, complete, error, details={"start": records.start}))
        frames.append(records.samples)
    frame = pl.concat(frames)
    link = None if run.kind == "host" else _link(run)
    precision = run.parameters.get("precision", PRECISION)
    series = series_from_samples(
        frame, link, hosts=run.parameters.get("hosts"), precision=precision, confidence=asked_confidence(run)
    )
    recovered = replace(
        run,
        stopped_by="the run was killed",
        launches=tuple(launches),
        series=tuple(replace(entry, stop="incomplete") for entry in series),
        shared=shared_from_samples(frame, series) if run.parameters.get("processes") else (),
    )
    write_run(directory, recovered, frame)
    return recovered


def _link(run: Run) -> Link:
    """Return the run's link; the subjects of a run of several MTUs have theirs in their names."""
    mtu = run.parameters["mtu"]
    return Link(run.parameters["rate_bit_s"], mtu[0] if isinstance(mtu, list) else mtu)


def _read(run: Run, file: Path, number: int, test: str, subject: str) -> LaunchRecords:
    if run.kind == "host":
        return read_host_records(file, number)
    if run.kind == "sdn":
        return read_sdn_records(file, number, subject)
    if read_mpi_subject(subject) is not None:
        return read_mpi_records(file, number, subject)
    return read_records(file, number, test, subject, run.parameters["pairs"])
