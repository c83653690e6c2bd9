# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One launch of the two sides of a measurement, with programs that fail."""

from pathlib import Path

import pytest

from barewire.errors import MeasurementFailed
from barewire.measure.launch import Order, launch
from barewire.measure.sites import RemoteSite, Station
from barewire.measure.subjects import Subject

FLOOR = """#!/bin/sh
case "$*" in
*passive*) echo '{"record":"ready"}'; echo 'barewire-floor: send: No such device' >&2; exit 1;;
esac
"""


def test_a_floor_whose_passive_side_fails_is_a_failed_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It records a stream's samples, while the active side sends to nobody and does not notice."""
    program = tmp_path / "barewire-floor"
    program.write_text(FLOOR)
    program.chmod(0o755)
    monkeypatch.setenv("BAREWIRE_BIN", str(tmp_path))
    station = Station("localhost", "lo", mac="00:00:00:00:00:00", cpus=(0,))
    site = RemoteSite(station, station)
    order = Order(0, "stream", Subject("floor"), (64,), seed=1)
    with pytest.raises(MeasurementFailed, match="No such device"):
        launch(site, order, tmp_path / "samples.jsonl")
