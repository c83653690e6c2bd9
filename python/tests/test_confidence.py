# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run at another confidence: its intervals, what stops it, what is printed; on disk it stays at 95 %."""

import io
import json
import math
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from synthetic import synthetic_run
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.cli.options import read_confidence
from barewire.data import Run as Data
from barewire.errors import WrongUse
from barewire.measure.session import StoppingRule
from barewire.report.captions import size_caption
from barewire.results.confidence import asked_confidence, at_confidence
from barewire.results.run import Run, Series
from barewire.results.store import read_run, samples, write_run
from barewire.results.tables import series_frame
from barewire.stats.confidence import (
    interval_name,
    launches_for_interval,
    with_interval_names,
    without_interval_names,
)
from barewire.stats.convergence import launches_to_converge
from barewire.stats.intervals import is_precise, mean_interval, median_interval


def test_intervals_of_99_are_those_of_scipy_and_need_eight_launches() -> None:
    values = [10.0, 11.0, 9.5, 10.2, 10.8, 9.9, 10.1, 10.4, 9.7]
    found = median_interval(values, 0.99)
    expected = stats.quantile_test(np.array(values), q=0, p=0.5).confidence_interval(0.99)
    assert found == (expected.low, expected.high)
    assert median_interval(values[:7], 0.99) is None and median_interval(values[:7]) is not None
    student = stats.ttest_1samp(values, 0.0).confidence_interval(0.99)
    assert mean_interval(values, 0.99) == pytest.approx((student.low, student.high))
    with pytest.raises(ValueError, match="confidence must be from"):
        median_interval(values, 1.0)


@pytest.mark.parametrize(("confidence", "launches"), [(0.5, 2), (0.75, 3), (0.875, 4), (0.9375, 5)])
def test_the_whole_range_of_the_fewest_launches_may_have_exactly_the_confidence(
    confidence: float, launches: int
) -> None:
    values = [float(value) for value in range(launches)]
    assert median_interval(values, confidence) == (0, launches - 1)
    assert median_interval(values[1:], confidence) is None
    assert launches_to_converge([5.0] * 10, confidence=confidence) == max(launches, 2)


def test_intervals_are_those_of_scipy_at_all_numbers_of_launches() -> None:
    for confidence in (0.6, 0.9, 0.95, 0.99, 0.999):
        for launches in range(2, 60):
            values = np.arange(float(launches))
            found = median_interval([*values], confidence)
            expected = stats.quantile_test(values, q=0, p=0.5).confidence_interval(confidence)
            # scipy's are no numbers where there is no interval.
            wanted = None if math.isnan(expected.low) else (expected.low, expected.high)
            assert found == wanted, (confidence, launches)


def test_a_run_is_precise_later_at_99() -> None:
    values = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.0]
    assert is_precise(values[:6]) and not is_precise(values[:6], confidence=0.99)
    assert (launches_to_converge(values), launches_to_converge(values, confidence=0.99)) == (6, 8)
    assert StoppingRule().confidence == 0.95


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("synthetic")
    synthetic_run(directory, launches=9)
    return directory


@pytest.fixture
def run_directory(synthetic: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(synthetic, tmp_path / "run"))


def at_99(directory: Path) -> tuple[Run, Run]:
    run = read_run(directory)
    return run, at_confidence(run, samples(directory), 0.99)


def test_a_run_at_99_has_wider_intervals_and_the_same_values(run_directory: Path) -> None:
    run, sure = at_99(run_directory)
    assert (run.confidence, sure.confidence) == (0.95, 0.99)
    pairs = [(a, b) for a, b in zip(run.series, sure.series, strict=True) if a.interval and b.interval]
    assert pairs
    for a, b in pairs:
        assert a.interval and b.interval and a.mean_interval and b.mean_interval and a.mean is not None
        assert b.interval[0] <= a.interval[0] <= a.interval[1] <= b.interval[1] and b.interval != a.interval
        factor = stats.t.ppf(0.995, a.launches - 1) / stats.t.ppf(0.975, a.launches - 1)
        assert b.mean_interval[1] - a.mean == pytest.approx(factor * (a.mean_interval[1] - a.mean))
        same = {item.name for item in fields(Series)} - {"interval", "mean_interval", "confidence"}
        assert all(getattr(a, name) == getattr(b, name) for name in same)


def test_names_say_the_confidence_and_files_stay_at_95(run_directory: Path) -> None:
    run, sure = at_99(run_directory)
    assert (interval_name(), interval_name(0.99), interval_name(0.999)) == ("ci95", "ci99", "ci99.9")
    plain = with_interval_names({"mean_interval": (1.0, 2.0), "of": [{"interval": None}], "interval_ns": 1}, 0.99)
    assert plain == {"mean_ci99": [1.0, 2.0], "of": [{"ci99": None}], "interval_ns": 1}
    assert without_interval_names({"ci99": 1, "mean_ci99": 2, "ci95": 3}, 0.99) == {
        "interval": 1, "mean_interval": 2, "ci95": 3,
    }  # fmt: skip
    document = sure.to_json()
    assert document["confidence"] == 0.99
    assert {"ci99", "mean_ci99"} <= set(document["series"][0]) and "ci95" not in document["series"][0]
    assert {"ci99_low", "mean_ci99_high"} <= set(series_frame(sure.series).columns)
    stored = json.loads((run_directory / "run.json").read_text())
    assert "ci95" in stored["series"][0] and "confidence" not in stored["series"][0]
    assert Run.from_json(stored) == run
    assert "ci95_low" in series_frame([]).columns


def test_captions_and_pages_say_the_confidence_of_their_run(run_directory: Path, tmp_path: Path) -> None:
    run, sure = at_99(run_directory)
    assert "95 % intervals" in size_caption(run.series) and "99 % intervals" in size_caption(sure.series)
    pages = {}
    for percent in (95, 99):
        path = tmp_path / f"{percent}.html"
        done = CliRunner().invoke(app, ["report", str(run_directory), "--confidence", str(percent), "-o", str(path)])
        assert done.exit_code == 0, done.output
        pages[percent] = path.read_text().replace("\u00a0", " ")
    assert "95 % interval" in pages[95] and "99 % interval" not in pages[95]
    assert "99 % interval" in pages[99] and "95 % interval" not in pages[99]
    assert "is below 0.025 after" in pages[95] and "is below 0.005 after" in pages[99]


def test_a_report_uses_what_the_run_was_measured_for(run_directory: Path) -> None:
    run = read_run(run_directory)
    asked = replace(run, parameters={**run.parameters, "confidence": 0.99})
    assert (asked_confidence(run), asked_confidence(asked)) == (0.95, 0.99)
    write_run(run_directory, asked)
    done = CliRunner().invoke(app, ["report", str(run_directory)])
    assert done.exit_code == 0, done.output
    assert "99 % interval" in (run_directory / "report.html").read_text()


def test_exported_tables_and_comparisons_have_the_confidence(run_directory: Path) -> None:
    tables = {}
    for table in ("series", "comparisons"):
        options = ["--table", table, "--baseline", "tcp", "--confidence", "99"]
        done = CliRunner().invoke(app, ["export", str(run_directory), *options])
        assert done.exit_code == 0, done.output
        tables[table] = pl.read_csv(io.StringIO(done.stdout))
    assert "ci99_low" in tables["series"].columns and "ci95_low" not in tables["series"].columns
    at_95, at_99 = (Data.load(run_directory, confidence=share).compare("tcp") for share in (0.95, 0.99))
    widths = [(frame["ratio_interval_high"] - frame["ratio_interval_low"]).to_numpy() for frame in (at_95, at_99)]
    assert (widths[1] >= widths[0]).all() and widths[1].sum() > widths[0].sum()
    assert tables["comparisons"]["ratio_interval_high"].to_list() == pytest.approx(at_99["ratio_interval_high"])


def test_a_simulation_has_wider_intervals_at_99() -> None:
    series, halves = {}, {}
    for percent in (95, 99):
        options = ["--workload", "permutation", "--strategy", "ecmp", "--host-counts", "8"]
        options += ["--confidence", str(percent)]
        done = CliRunner().invoke(app, ["sdn", "simulate", *options, "--json"])
        assert done.exit_code == 0, done.output
        (series[percent], *_) = json.loads(done.stdout)["series"]
        halves[percent] = series[percent][f"ci{percent}"][1] - series[percent]["mean"]
        assert f"± {percent} %" in CliRunner().invoke(app, ["sdn", "simulate", *options]).output
    assert series[95]["mean"] == series[99]["mean"] and halves[99] > halves[95]


@pytest.mark.parametrize(
    "command",
    [
        "bench pingpong", "bench budget", "mpi pingpong", "try OPTION -- program", "sdn bench", "model RUN",
        "predict RUN --kernel pingpong", "report RUN", "compare RUN", "study run paz2010",
        "export RUN", "sdn simulate", "tune",
    ],
)  # fmt: skip
@pytest.mark.parametrize("percent", ["0.99", "100", "49"])
def test_an_impossible_confidence_is_wrong_use(synthetic: Path, command: str, percent: str) -> None:
    words = [str(synthetic) if word == "RUN" else word for word in command.split()]
    option = ["--confidence", percent]
    at = words.index("OPTION") if "OPTION" in words else len(words)
    done = CliRunner().invoke(app, [*words[:at], *option, *words[at + 1 :]])
    assert isinstance(done.exception, WrongUse), done.output
    assert str(done.exception).startswith("--confidence is in percent, from 50 to 99.9, such as 99")


@pytest.mark.parametrize("percent", [50, 97.5, 99.9])
def test_the_bounds_that_are_named_are_allowed(percent: float) -> None:
    """99.9 / 100 is more than 0.999."""
    share = read_confidence(percent)
    assert share == round(percent / 100, 4) and launches_for_interval(share) >= 2
