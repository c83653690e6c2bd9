# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire compare`, in one run and between two."""

import json
import re

import pytest
import typer
from synthetic import synthetic_run
from typer.testing import CliRunner

from barewire.cli.compare import compare
from barewire.errors import WrongUse
from barewire.report.trajectory import trajectory
from barewire.report.versus import Settings
from barewire.results.store import read_run

SMALL = {"launches": 8, "samples_per_launch": 20, "tests": ("pingpong", "stream"), "sizes": (64, 1400)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    synthetic_run(root / "a", seed=1, **SMALL)
    synthetic_run(root / "same", seed=2, **SMALL)
    synthetic_run(root / "slower", seed=3, slowdown=1.3, complete=False, **SMALL)
    synthetic_run(root / "elsewhere", seed=4, fingerprint="beef", **SMALL)
    synthetic_run(root / "raw slower", seed=5, slowdown=1.3, slower={"raw": 1.2}, **SMALL)
    synthetic_run(root / "drifting", seed=6, drift=1.4, **SMALL)
    return root


def test_in_one_run_every_subject_is_compared_with_the_baseline_at_every_size(runs):
    document = _json(runs / "a")
    found = {(entry["test"], entry["subject"], entry["message_bytes"]): entry for entry in document["comparisons"]}
    assert set(found) == {
        (test, subject, size) for test in SMALL["tests"] for subject in ("udp", "raw", "floor") for size in (64, 1400)
    }
    raw = found["pingpong", "raw", 64]
    assert raw["against"] == "tcp"
    assert raw["verdict"] == "A faster" and raw["ratio_interval"][0] < 1.21 / 3.62 < raw["ratio_interval"][1]
    assert raw["ratio"] == raw["median_a"] / raw["median_b"]
    assert found["stream", "raw", 64]["verdict"] == "A faster", "a larger rate is faster"


def test_the_baseline_can_be_chosen_and_must_exist(runs):
    subjects = {entry["subject"] for entry in _json(runs / "a", "--baseline", "raw")["comparisons"]}
    assert subjects == {"tcp", "udp", "floor"}
    with pytest.raises(WrongUse, match="floor, raw, tcp, udp"):
        _json(runs / "a", "--baseline", "llc2")


def test_between_two_runs_each_subject_is_compared_with_itself(runs):
    document = _json(runs / "a", runs / "slower", "--floor", "none")
    assert (document["a"], document["b"]) == ("synthetic-3", "synthetic-1")
    assert document["incomplete"] == ["synthetic-3"]
    assert {entry["verdict"] for entry in document["comparisons"]} == {"B faster"}
    assert all(entry["subject"] == entry["against"] for entry in document["comparisons"])
    assert all(entry["normalised"] is None for entry in document["comparisons"])


def test_a_busy_machine_is_no_slower_subject_but_a_floor_that_moved(runs):
    document = _json(runs / "a", runs / "slower")
    entries = [entry for entry in document["comparisons"] if entry["subject"] != "floor"]
    for entry in entries:
        slowdown = entry["ratio"] if entry["test"] == "pingpong" else 1 / entry["ratio"]
        assert slowdown == pytest.approx(1.3, abs=0.05), "the plain ratio stays beside the normalised one"
        assert entry["normalised"]["ratio"] == pytest.approx(1, abs=0.03)
        assert entry["verdict"] == entry["normalised"]["verdict"] in ("no difference", "undecided")
    moved = {entry["test"]: entry for entry in document["floors"]}
    assert moved["pingpong"]["ratio"] == pytest.approx(1.3, abs=0.05)
    assert moved["pingpong"]["verdict"] == "B faster"
    text = " ".join(_invoke(runs / "a", runs / "slower").stdout.split())
    assert "the floor itself moved: 1.3" in text and "normalised by the floor" in text


def test_what_became_slower_on_a_busy_machine_is_found(runs):
    document = _json(runs / "a", runs / "raw slower", "--confidence", "99")
    slower = {entry["subject"] for entry in document["comparisons"] if entry["verdict"] == "B faster"}
    assert slower == {"raw", "floor"}
    raw = next(entry for entry in document["comparisons"] if entry["subject"] == "raw" and entry["test"] == "pingpong")
    low, high = raw["normalised"]["ratio_interval"]
    assert low < 1.2 < high and raw["normalised"]["confidence"] == 0.99


def test_another_subject_can_be_the_floor_and_must_exist(runs):
    document = _json(runs / "a", runs / "raw slower", "--floor", "tcp")
    assert {entry["subject"] for entry in document["floors"]} == {"tcp"}
    by_subject = {(entry["test"], entry["subject"], entry["message_bytes"]): entry for entry in document["comparisons"]}
    assert by_subject["pingpong", "raw", 64]["normalised"]["ratio"] == pytest.approx(1.2, abs=0.03)
    assert by_subject["pingpong", "tcp", 64]["normalised"] is None
    with pytest.raises(WrongUse, match="give the newer run"):
        _json(runs / "a", "--floor", "tcp")
    with pytest.raises(WrongUse, match=r"'llc2' to normalise by; it has floor, raw, tcp, udp"):
        _json(runs / "a", runs / "same", "--floor", "llc2")


def test_without_a_floor_that_is_said(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        synthetic_run(tmp_path / name, seed=seed, subjects=("tcp", "raw"), **SMALL)
    done = _invoke(tmp_path / "a", tmp_path / "b")
    assert "Not both runs have a floor" in done.stdout
    compared = _json(tmp_path / "a", tmp_path / "b")["comparisons"]
    assert compared and all(entry["normalised"] is None for entry in compared)


def test_drift_within_a_run_is_named(runs):
    (floor,) = [
        entry for entry in _json(runs / "a", runs / "drifting")["drifts"] if entry["subject"] == "floor"
        and entry["test"] == "pingpong"
    ]  # fmt: skip
    assert floor["run"] == "synthetic-6" and floor["change"] == pytest.approx(1.3, abs=0.15) and floor["tau"] > 0.8
    assert "Drift within synthetic-6: Latency, one way, floor rose by" in " ".join(
        _invoke(runs / "a", runs / "drifting").stdout.split()
    )
    assert _json(runs / "a", runs / "same")["drifts"] == []


def test_the_tests_are_printed_as_papers_do(runs):
    text = _invoke(runs / "a", runs / "slower", "--p-values", "--confidence", "99").stdout
    for expected in ("by floors [99 %]", " df ", " U ", "TOST p", "of means, Welch", "in µs"):
        assert expected in text
    entry = _json(runs / "a")["comparisons"][0]
    welch = entry["welch"]
    assert welch["interval"][0] < welch["difference"] < welch["interval"][1]
    assert welch["difference"] == pytest.approx(entry["median_a"] - entry["median_b"], rel=0.05)
    assert entry["rank_test"]["u"] in (0, 64) and entry["rank_test"]["p"] < 0.001
    # The number of ranks stays beside it.
    assert entry["ranks"] == 0


def test_two_runs_of_the_same_costs_show_no_difference(runs):
    verdicts = [entry["verdict"] for entry in _json(runs / "a", runs / "same")["comparisons"]]
    assert verdicts.count("no difference") >= len(verdicts) * 0.8
    assert not any(verdict.endswith("faster") for verdict in verdicts)


def test_runs_of_different_environments_are_rejected_unless_allowed(runs):
    with pytest.raises(WrongUse, match="--across-environments"):
        _json(runs / "a", runs / "elsewhere")
    assert _json(runs / "a", runs / "elsewhere", "--across-environments")["comparisons"]


def test_the_rejection_lists_the_differences(runs, tmp_path):
    data = json.loads((runs / "elsewhere" / "run.json").read_text())
    data["environment"]["cpu"]["cores"] = 64
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(WrongUse, match=r"cpu\.cores 64 and 2"):
        _json(runs / "a", tmp_path)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"cache": "off"}, "cache 'off' and 'on'"),
        ({"walk_bytes": 1 << 20}, "walk_bytes 1048576 and None"),
        ({"tuned": {"window": 2}}, "tuned {'window': 2} and {}"),
        ({"options": ["--delay", "5"]}, "options ['--delay', '5'] and []"),
    ],
)
def test_runs_with_different_settings_are_rejected_unless_allowed(runs, tmp_path, setting, said):
    """These are in no row's name; a parameter that an older run lacks has its default."""
    data = json.loads((runs / "same" / "run.json").read_text())
    data["parameters"] |= setting
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(WrongUse, match=f"with different settings.*{re.escape(said)}.*--across-environments"):
        _json(runs / "a", tmp_path)
    assert _json(runs / "a", tmp_path, "--across-environments")["comparisons"]
    with pytest.raises(WrongUse, match="with different settings"):
        trajectory([read_run(runs / "a"), read_run(tmp_path)], Settings())


def test_text_output_has_tables_and_marks_incomplete_runs(runs):
    done = _invoke(runs / "a", runs / "slower", "--floor", "none")
    assert done.exit_code == 0
    for expected in ("raw Ethernet", "slower", "1400 B", "Holm", "synthetic-3 is incomplete"):
        assert expected in done.stdout


def test_few_launches_have_ratios_and_no_verdict(tmp_path):
    synthetic_run(tmp_path, launches=5, samples_per_launch=20, tests=("pingpong",), sizes=(64, 1400))
    text = " ".join(_invoke(tmp_path).stdout.split())
    assert "5 launches: no verdict, which needs the 95 % interval of 6 or more." in text
    assert "bootstrap" not in text
    rows = _json(tmp_path)["comparisons"]
    assert {row["verdict"] for row in rows} == {"undecided"} and min(row["ratio"] for row in rows) < 0.5


@pytest.mark.parametrize(("options", "expected"), [(["--margin", "2"], "--margin"), (["--margin", "0"], "--margin")])
def test_a_margin_that_is_not_a_share_is_wrong_use(runs, options, expected):
    with pytest.raises(WrongUse, match=expected):
        _json(runs / "a", *options)


@pytest.mark.parametrize("confidence", ["0.99", "100", "0", "-5", "nan"])
def test_a_confidence_that_is_no_percentage_is_wrong_use(runs, confidence):
    with pytest.raises(WrongUse, match="--confidence"):
        _json(runs / "a", f"--confidence={confidence}")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda series: series.update(unit="ms"), "in ms on one side and in us on the other"),
        (lambda series: series.update(launch_medians=[1.0, float("nan")] * 4), "NaN is no number"),
    ],
)
def test_what_cannot_be_compared_is_a_clear_error(runs, tmp_path, change, expected):
    data = json.loads((runs / "same" / "run.json").read_text())
    change(next(series for series in data["series"] if series["subject"] == "raw" and series["test"] == "pingpong"))
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(WrongUse, match=expected):
        _json(runs / "a", tmp_path)


def test_two_runs_that_share_nothing_are_wrong_use(runs, tmp_path):
    synthetic_run(tmp_path / "other", seed=1, launches=2, samples_per_launch=5, tests=("pingpong",), sizes=(2,))
    with pytest.raises(WrongUse, match="in common"):
        _json(runs / "a", tmp_path / "other")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_with_nothing_to_compare_is_wrong_use_in_text_and_json(tmp_path, options):
    synthetic_run(tmp_path, launches=2, samples_per_launch=5, tests=("pingpong",), subjects=("tcp",), sizes=(64,))
    done = _invoke(tmp_path, *options)
    assert isinstance(done.exception, WrongUse) and "nothing to compare" in str(done.exception)


def test_a_baseline_between_two_runs_is_wrong_use(runs):
    with pytest.raises(WrongUse, match="--baseline"):
        _json(runs / "a", runs / "same", "--baseline", "tcp")


def _json(*arguments) -> dict:
    done = _invoke(*arguments, "--json")
    if done.exception:
        raise done.exception
    return json.loads(done.stdout)


def _invoke(*arguments):
    app = typer.Typer()
    app.command()(compare)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
