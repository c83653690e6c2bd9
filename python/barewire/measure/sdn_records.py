# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads one launch of an experiment on switches: its facts, then rings of mpi/beff, or shuffles and training jobs."""

from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from barewire.measure.mpi_records import read_mpi_records
from barewire.measure.records import LaunchRecords, checked_records
from barewire.results.schema import SampleRows
from barewire.results.sdn import JOB, MEAN_COMPLETION

SCHEMA = "barewire-sdn/1"
TEST = "shuffle"


def read_sdn_records(path: Path, launch: int, subject: str) -> LaunchRecords:
    """Read one launch's file; the start record has the launch's facts under `sdn`.

    MeasurementFailed if its schema is another.
    """
    facts: dict[str, Any] = {}
    jobs, durations_s = SampleRows(), list[float]()
    for kind, record in checked_records(path, SCHEMA, first="launch"):
        match kind:
            case "launch":
                facts = record
            case "job":
                fetched = [ended - started for _, _, started, ended in record["fetched"]]
                durations_s.append(record["duration_s"])
                # Files of earlier versions have one job, and do not name it.
                jobs.add([record["duration_s"]], quantity=record.get("quantity", JOB), block=0)
                jobs.add(fetched, quantity="fetch", block=range(len(fetched)))
    if len(durations_s) > 1:
        jobs.add([fmean(durations_s)], quantity=MEAN_COMPLETION, block=0)
    constants = {"launch": launch, "test": TEST, "subject": subject, "ranks": facts.get("hosts", 0)}
    rings = read_mpi_records(path, launch, subject)
    frame = pl.concat([rings.samples, jobs.frame(**constants, phase="measure", unit="s", message_bytes=0)])
    return LaunchRecords(frame, {**rings.start, "sdn": facts}, rings.end)
