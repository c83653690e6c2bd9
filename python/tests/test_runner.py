# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How a run ends that cannot continue as planned: unusable samples, an interrupt."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from barewire.errors import MeasurementFailed
from barewire.interrupts import Hold
from barewire.measure.records import LaunchRecords
from barewire.measure.runner import Plan, ProbeCampaign
from barewire.measure.session import Session, StoppingRule, new_run, run_campaign
from barewire.measure.subjects import parse_subjects
from barewire.results.schema import SAMPLE_SCHEMA, sample_frame
from barewire.results.series import series_from_samples
from barewire.results.store import read_run, samples

ROW = {"launch": 0, "test": "stream", "subject": "llc1", "pairs": 1, "pair": 0, "processes": 1, "process": 0,
       "message_bytes": 100_000, "phase": "measure", "block": 0, "value": 900.0, "unit": "Mbit/s",
       "lost": 0}  # fmt: skip


def test_a_series_whose_every_block_lost_a_message_ends_with_the_budget(tmp_path):
    (one,) = series_from_samples(sample_frame(pl.DataFrame([ROW | {"lost": 1}])))
    assert one.median is None
    plan = Plan(tests=("stream",), subjects=parse_subjects("llc1", "spin"), sizes=(100_000,), seed=1)
    session = Session(ProbeCampaign(cast(Any, None), plan), tmp_path, cast(Any, None), Hold())
    session.stop_reason = "budget"
    assert session.with_stop_reason(one).stop == "budget"


class Interrupted:
    """A campaign that is interrupted while it makes series from the first launch's samples."""

    stopping_rule = StoppingRule()

    def __init__(self) -> None:
        self.begun: list[int] = []

    def rounds(self):
        for number in range(3):
            yield [SimpleNamespace(number=number, test="stream", subject_name="llc1", label="a stream")]

    def launch(self, order, records):
        self.begun.append(order.number)
        records.write_text("")

    def read(self, order, records):
        return LaunchRecords(sample_frame(pl.DataFrame([ROW])), end={"complete": True})

    def series(self, frame):
        if self.begun == [0]:
            os.kill(os.getpid(), signal.SIGINT)
        return series_from_samples(frame)

    def conclude(self, run, frame):
        return run


def test_an_interrupt_while_samples_are_recorded_is_deferred(tmp_path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    campaign = Interrupted()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_campaign(
                cast(Any, campaign),
                tmp_path / "run",
                new_run(command=["test"], seed=1, parameters={}, environment={}),
                lambda *_: None,
            )
    finally:
        signal.signal(signal.SIGINT, before)
    run = read_run(tmp_path / "run")
    assert campaign.begun == [0] and not run.complete and run.stopped_by == "interrupt"
    assert [launch.complete for launch in run.launches] == [True] and len(run.series) == 1
    assert samples(tmp_path / "run").height == 1


def test_a_launch_that_leaves_nothing_has_failed(tmp_path: Path) -> None:
    campaign = Interrupted()
    campaign.read = lambda order, records: LaunchRecords(pl.DataFrame(schema=SAMPLE_SCHEMA))  # type: ignore[method-assign]
    campaign.series = lambda frame: []  # type: ignore[method-assign]
    run = new_run(command=["test"], seed=1, parameters={}, environment={})
    with pytest.raises(MeasurementFailed, match="a stream ended without an error and without results"):
        run_campaign(cast(Any, campaign), tmp_path / "run", run, lambda *_: None)
    assert not read_run(tmp_path / "run").complete
