# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How a run ends when its samples cannot be used."""

from typing import Any, cast

import polars as pl

from barewire.interrupts import Hold
from barewire.measure.runner import Plan, ProbeCampaign
from barewire.measure.session import Session
from barewire.measure.subjects import parse_subjects
from barewire.results import sample_frame, series_from_samples


def test_a_series_whose_every_block_lost_a_message_ends_with_the_budget(tmp_path):
    row = {"launch": 0, "test": "stream", "subject": "llc1", "pairs": 1, "pair": 0, "processes": 1, "process": 0,
           "message_bytes": 100_000, "phase": "measure", "block": 0, "value": 900.0, "unit": "Mbit/s",
           "lost": 1}  # fmt: skip
    (one,) = series_from_samples(sample_frame(pl.DataFrame([row])))
    assert one.median is None
    plan = Plan(tests=("stream",), subjects=parse_subjects("llc1", "spin"), sizes=(100_000,), seed=1)
    session = Session(ProbeCampaign(cast(Any, None), plan), tmp_path, cast(Any, None), Hold())
    session.stop_reason = "budget"
    assert session.stamped(one).stop == "budget"
