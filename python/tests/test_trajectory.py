# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire trajectory`: many runs in one look."""

import json

import numpy as np
import pytest
from synthetic import run_of, series_of, synthetic_run
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import WrongUse
from barewire.report.trajectory import trajectory
from barewire.report.trajectory_page import steps
from barewire.report.versus import Settings

SMALL = {"launches": 8, "samples_per_launch": 20, "tests": ("pingpong", "stream"), "sizes": (64, 1400)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Five runs: the machine is slower from the third on, raw frames from the fourth, and the last was interrupted."""
    root = tmp_path_factory.mktemp("runs")
    for number in range(5):
        synthetic_run(
            root / str(number),
            seed=number,
            slowdown=1.3 if number >= 2 else 1.0,
            slower={"raw": 1.15} if number >= 3 else None,
            complete=number < 4,
            **SMALL,
        )
    return [str(root / str(number)) for number in range(5)]


def test_the_step_of_a_subject_is_found_and_the_machines_is_only_the_floors(runs):
    document = json.loads(_invoke(*runs, "--json").stdout)
    assert document["schema"] == "barewire-trajectory/1" and document["confidence"] == 0.99
    assert [run["complete"] for run in document["runs"]] == [True] * 4 + [False]
    steps = {
        (track["test"], track["subject"], track["message_bytes"]): [(c["run"], c["is"]) for c in track["changes"]]
        for track in document["tracks"]
    }
    for test in SMALL["tests"]:
        for size in SMALL["sizes"]:
            assert steps[test, "raw", size] == [("synthetic-3", "slower")]
            assert steps[test, "tcp", size] == [] == steps[test, "udp", size]
            assert steps[test, "floor", size] == [("synthetic-2", "slower")]
    raw = next(track for track in document["tracks"] if track["subject"] == "raw" and track["test"] == "pingpong")
    assert raw["normalised"] and [point["run"] for point in raw["points"]] == [f"synthetic-{n}" for n in range(5)]
    assert [point["ratio"] for point in raw["points"]] == pytest.approx([1, 1, 1, 1.15, 1.15], abs=0.03)
    (change,) = raw["changes"]
    assert change["interval"][0] < 1.15 < change["interval"][1]


def test_the_text_has_a_table_and_a_sentence_for_each_step(runs):
    text = " ".join(_invoke(*runs).stdout.split())
    assert "5: synthetic-4, 2026-01-02T03:04:05Z, incomplete (stopped by interrupt)" in text
    assert "Latency, one way: raw Ethernet: ratio to the first run, by the floor" in text
    assert "slower from synthetic-3 on: Latency, one way: raw Ethernet, 2 rows, 64 B to 1400 B: 1.1" in text


def test_without_steps_that_is_said():
    found = trajectory([run_of("a", [_series(5)]), run_of("b", [_series(5, seed=1)])], Settings(confidence=0.99))
    assert [track.changes for track in found.tracks] == [()]
    assert found.tracks[0].normalised is False
    assert steps(found) == ["no step in 1 rows over 2 runs (99 % confidence)"]


def test_launches_without_a_spread_have_steps_or_are_not_decided():
    def followed(*levels: float, launches: int) -> list[str]:
        runs = [run_of(f"run {number}", [series_of([level] * launches)]) for number, level in enumerate(levels)]
        return steps(trajectory(runs, Settings(confidence=0.99)))

    (step,) = followed(0.25, 0.25, 0.31, launches=6)
    assert step.startswith("slower from run 2 on: ") and "1.24" in step
    (undecided,) = followed(0.25, 0.25, 0.31, launches=2)
    assert undecided.startswith("not decided over 3 runs (99 % confidence): Latency, one way: raw Ethernet, 64 B: runs")
    assert followed(0.25, 0.25, 0.251, launches=6) == ["no step in 1 rows over 3 runs (99 % confidence)"]


def test_a_row_is_followed_over_the_runs_that_have_it():
    old, new = _series(5), _series(6, seed=1)
    few = series_of([5.0])
    found = trajectory([run_of("a", [old]), run_of("gap", []), run_of("few", [few]), run_of("d", [new])], Settings())
    (track,) = found.tracks
    assert [point.run for point in track.points] == [0, 3]
    (sentence,) = steps(found)
    assert sentence.startswith("slower from d on: Latency, one way: raw Ethernet, 64 B: 1.2")
    assert found.to_json()["tracks"][0]["changes"][0]["run"] == "d"


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ([series_of([5.0, 5.1], message_bytes=65)], "in common"),
        ([series_of([5.0])], "in common"),
        ([series_of([5.0, 5.1], unit="ms")], "in us on one side and in ms"),
        ([series_of([5.0, float("nan")])], "without a finite value"),
    ],
)
def test_runs_without_a_common_row_are_wrong_use(series, expected):
    with pytest.raises(WrongUse, match=expected):
        trajectory([run_of("a", [series_of([5.0, 5.1])]), run_of("b", series)], Settings())


def test_one_run_or_the_same_twice_or_another_machine_is_wrong_use(runs, tmp_path):
    for arguments, expected in (
        (runs[:1], "two or more"),
        ([runs[0], runs[0]], "given twice"),
        ([runs[0], str(tmp_path / "none")], "no directory"),
        ([runs[0], "--confidence", "1"], "--confidence"),
    ):
        done = _invoke(*arguments)
        assert isinstance(done.exception, WrongUse) and expected in str(done.exception)
    synthetic_run(tmp_path / "elsewhere", seed=9, fingerprint="beef", **SMALL)
    done = _invoke(runs[0], str(tmp_path / "elsewhere"))
    assert isinstance(done.exception, WrongUse) and "--across-environments" in str(done.exception)
    assert _invoke(runs[0], str(tmp_path / "elsewhere"), "--across-environments").exit_code == 0


def _series(level, seed=0):
    return series_of([float(v) for v in level * np.exp(np.random.default_rng(seed).normal(0, 0.01, 8))])


def _invoke(*arguments):
    return CliRunner().invoke(app, ["trajectory", *arguments])
