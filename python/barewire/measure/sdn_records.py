# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads one launch of an experiment on switches: its facts, then rings of mpi/beff, or a shuffle."""

from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import MeasurementFailed
from barewire.measure.mpi_records import read_mpi_records
from barewire.measure.records import LaunchRecords, records_in
from barewire.results import sample_frame

SCHEMA = "barewire-sdn/1"
TEST = "shuffle"


def read_sdn_records(path: Path, launch: int, subject: str) -> LaunchRecords:
    """Read one launch's file; the start record has the launch's facts under `sdn`.

    MeasurementFailed if its schema is another.
    """
    facts: dict[str, Any] = {}
    jobs: list[dict[str, Any]] = []
    for record in records_in(path):
        match record.get("record"):
            case "launch":
                facts = record
                if record.get("schema") != SCHEMA:
                    raise MeasurementFailed(f"{path} has the schema {record.get('schema')}, not {SCHEMA}")
            case "job":
                jobs.append(record)
    rings = read_mpi_records(path, launch, subject)
    shuffles = [_samples(job, launch, subject, facts["hosts"]) for job in jobs]
    frame = pl.concat([rings.samples, *shuffles])
    return LaunchRecords(frame, {**rings.start, "sdn": facts}, rings.end)


def _samples(job: dict[str, Any], launch: int, subject: str, hosts: int) -> pl.DataFrame:
    fetched = [ended - started for _, _, started, ended in job["fetched"]]
    columns = {
        "quantity": ["job", *["fetch"] * len(fetched)],
        "value": [job["duration_s"], *fetched],
        "block": [0, *range(len(fetched))],
    }
    constants = {"launch": launch, "test": TEST, "subject": subject, "ranks": hosts}
    return sample_frame(columns, **constants, phase="measure", unit="s", message_bytes=0)
