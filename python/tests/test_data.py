# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`import barewire`: the same numbers as the command line's, as frames and figures; clear errors; a fast import."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from synthetic import SIZES, SUBJECTS, synthetic_run
from synthetic_mpi import synthetic_mpi

import barewire
from barewire.errors import MachineCannot, WrongUse
from barewire.report.svg import svg
from barewire.report.versus import compare_in_run, compare_runs
from barewire.results.laws import laws_of
from barewire.results.store import samples

MANY_SIZES = (*SIZES, 131072)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run")
    synthetic_run(path, launches=6, samples_per_launch=20, sizes=MANY_SIZES)
    return path


@pytest.fixture(scope="module")
def run(directory) -> barewire.Run:
    return barewire.load(directory)


def test_a_run_has_all_samples_and_series(run, directory):
    assert run.samples.equals(samples(directory))
    frame = run.series()
    assert frame.height == len(run.record.series) == 2 * len(SUBJECTS) * len(MANY_SIZES)
    for row, series in zip(frame.iter_rows(named=True), run.record.series, strict=True):
        assert (row["median"], row["ci95_low"], row["ci95_high"]) == (series.median, *series.interval)
        assert row["launch_medians"] == list(series.launch_medians)
    assert repr(run) == f"<Run {run.record.id}: 48 launches, 64 series>"


def test_series_are_selected_by_their_columns(run):
    frame = run.series(test="pingpong", message_bytes=64)
    assert set(frame["subject"]) == set(SUBJECTS)
    assert run.series(test="nothing").is_empty()
    assert run.series(test="nothing").columns == frame.columns
    with pytest.raises(WrongUse, match="series have no column size; they have test, subject"):
        run.series(size=64)


def test_comparisons_are_those_of_the_command_line(run, tmp_path):
    frame = run.compare("tcp")
    expected = [versus.to_json() for versus in compare_in_run(run.record, "tcp")]
    for name in ("subject", "message_bytes", "median_a", "ratio", "verdict"):
        assert frame[name].to_list() == [each[name] for each in expected]
    low, high = (frame.select(pl.col(f"^ratio_.*{end}$")).to_series() for end in ("low", "high"))
    assert ((low <= frame["ratio"]) & (frame["ratio"] <= high)).all()
    synthetic_run(tmp_path, seed=2, launches=6, samples_per_launch=20, sizes=MANY_SIZES, slowdown=1.2)
    other = barewire.load(tmp_path)
    assert other.compare(run)["ratio"].to_list() == [
        versus.result.ratio for versus in compare_runs(other.record, run.record)
    ]
    with pytest.raises(WrongUse, match="no subject 'ib'"):
        run.compare("ib")


def test_a_run_is_read_with_another_confidence(directory):
    assert {"ci99_low", "ci99_high"} <= set(barewire.load(directory, confidence=0.99).series().columns)
    with pytest.raises(ValueError, match=r"0\.5 to 0\.999"):
        barewire.load(directory, confidence=2.0)


def test_fits_are_those_of_the_report(run):
    frame = run.fit()
    laws = laws_of(run.record)
    assert frame.height == sum(len(law.fit.pieces) for law in laws) > 0
    first = laws[0].fit.pieces[0]
    row = frame.row(0, named=True)
    assert (row["alpha_us"], row["beta_ns_per_byte"]) == (first.alpha, pytest.approx(first.per_byte * 1e3))
    # The model is 0.27 µs for each KiB.
    raw = frame.filter(pl.col("subject") == "raw").row(-1, named=True)
    assert raw["beta_ns_per_byte"] == pytest.approx(0.27 / 1024 * 1e3, rel=0.1)


def test_an_eager_limit_is_a_break_between_two_pieces(tmp_path):
    synthetic_mpi(tmp_path, "pingpong", launches=6)
    frame = barewire.load(tmp_path).fit()
    broken = frame.filter((pl.col("subject") == "openmpi/barewire") & pl.col("step_us").is_not_null())
    assert broken["break_low_bytes"][0] <= 65536 < broken["break_high_bytes"][0]
    assert broken["step_us"][0] > 20


def test_a_run_without_many_sizes_has_no_fit_but_its_columns(tmp_path):
    synthetic_run(tmp_path, launches=3, samples_per_launch=10, sizes=(64,))
    frame = barewire.load(tmp_path).fit()
    assert frame.is_empty() and "alpha_us" in frame.columns


def test_figures_show_medians_ratios_and_samples(run):
    sizes = run.plot(test="pingpong")
    curve = next(trace for trace in sizes.data if trace.name == "raw Ethernet")
    medians = run.series(test="pingpong", subject="raw")["median"].to_list()
    assert list(curve.y) == pytest.approx(medians, rel=1e-4)
    ratios = run.plot("ratio", test="pingpong")
    assert {trace.name for trace in ratios.data} == {"UDP", "raw Ethernet", "floor"}
    distribution = run.plot("distribution", test="pingpong", message_bytes=64)
    assert all(len(trace.x) == len(trace.y) for trace in distribution.data)


def test_a_figure_of_several_tables_names_the_choices(run):
    with pytest.raises(WrongUse, match="one of these: test='pingpong'; test='stream'"):
        run.plot()
    with pytest.raises(WrongUse, match="message_bytes=…, one of 1, 64"):
        run.plot("distribution", test="pingpong")
    with pytest.raises(WrongUse, match="no series is selected"):
        run.plot(test="origami")
    with pytest.raises(WrongUse, match="size, ratio or distribution"):
        run.plot("time", test="pingpong")  # type: ignore[arg-type]


def test_pandas_frames_hold_the_same(run):
    pandas = pytest.importorskip("pandas", reason="pandas is missing: make setup")
    frame = run.to_pandas()
    assert list(frame.columns) == run.samples.columns and len(frame) == run.samples.height
    assert frame["value"].to_list() == run.samples["value"].to_list()
    assert isinstance(frame["subject"].dtype, pandas.CategoricalDtype)
    assert frame["subject"].to_list() == run.samples["subject"].cast(pl.String).to_list()
    medians = run.to_pandas(run.series(test="pingpong"))
    assert medians["median"].to_list() == run.series(test="pingpong")["median"].to_list()


def test_without_pandas_the_error_says_what_to_do(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MachineCannot, match="pip install pandas"):
        run.to_pandas()


def test_without_plotly_the_error_says_what_to_do_and_figures_are_drawn(run, monkeypatch):
    for name in ("plotly", "plotly.graph_objs", "plotly.graph_objs._figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MachineCannot, match="pip install plotly"):
        run.plot(test="pingpong")
    assert svg(run.figure(test="pingpong"), "x").startswith("<svg")


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(WrongUse, match=r"no run\.json"):
        barewire.load(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'Walk'"):
        barewire.Walk  # noqa: B018


def test_importing_barewire_imports_nothing_heavy():
    code = "import sys, barewire; print(sorted({'polars', 'numpy', 'plotly', 'typer', 'pathlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=_path())
    assert done.stdout.strip() == "[]"


def _path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(barewire.__file__).parents[1])}
