# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs on disk: their description, raw samples, and the series derived from these."""

from barewire.results.run import SCHEMA, Launch, Place, Row, Run, Series, Shared, Stop
from barewire.results.schema import SAMPLE_SCHEMA, SampleRows, sample_frame
from barewire.results.series import series_from_samples, series_key
from barewire.results.sharing import shared_from_samples
from barewire.results.store import read_run, samples, write_run

__all__ = [
    "SAMPLE_SCHEMA",
    "SCHEMA",
    "Launch",
    "Place",
    "Row",
    "Run",
    "SampleRows",
    "Series",
    "Shared",
    "Stop",
    "read_run",
    "sample_frame",
    "samples",
    "series_from_samples",
    "series_key",
    "shared_from_samples",
    "write_run",
]
