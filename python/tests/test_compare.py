# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire compare`, in one run and between two."""

import json

import pytest
import typer
from synthetic import synthetic_run
from typer.testing import CliRunner

from barewire.cli.compare import compare
from barewire.errors import WrongUse

SMALL = {"launches": 8, "samples_per_launch": 20, "tests": ("pingpong", "stream"), "sizes": (64, 1400)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    synthetic_run(root / "a", seed=1, **SMALL)
    synthetic_run(root / "same", seed=2, **SMALL)
    synthetic_run(root / "slower", seed=3, slowdown=1.3, complete=False, **SMALL)
    synthetic_run(root / "elsewhere", seed=4, fingerprint="beef", **SMALL)
    return root


def test_in_one_run_every_subject_is_compared_with_the_baseline_at_every_size(runs):
    document = _json(runs / "a")
    found = {(entry["test"], entry["subject"], entry["message_bytes"]): entry for entry in document["comparisons"]}
    assert set(found) == {
        (test, subject, size) for test in SMALL["tests"] for subject in ("udp", "raw", "floor") for size in (64, 1400)
    }
    raw = found["pingpong", "raw", 64]
    assert raw["against"] == "tcp"
    assert raw["verdict"] == "A faster" and raw["ratio_ci95"][0] < 1.21 / 3.62 < raw["ratio_ci95"][1]
    assert raw["ratio"] == raw["median_a"] / raw["median_b"]
    assert found["stream", "raw", 64]["verdict"] == "A faster", "a larger rate is faster"


def test_the_baseline_can_be_chosen_and_must_exist(runs):
    subjects = {entry["subject"] for entry in _json(runs / "a", "--baseline", "raw")["comparisons"]}
    assert subjects == {"tcp", "udp", "floor"}
    with pytest.raises(WrongUse, match="floor, raw, tcp, udp"):
        _json(runs / "a", "--baseline", "llc2")


def test_between_two_runs_each_subject_is_compared_with_itself(runs):
    document = _json(runs / "slower", runs / "a")
    assert document["runs"] == ["synthetic-3", "synthetic-1"]
    assert {entry["verdict"] for entry in document["comparisons"]} == {"B faster"}
    assert all(entry["subject"] == entry["against"] for entry in document["comparisons"])


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
    with pytest.raises(WrongUse, match=r"cpu\.cores 2 and 64"):
        _json(runs / "a", tmp_path)


def test_text_output_has_tables_and_marks_incomplete_runs(runs):
    done = _invoke(runs / "slower", runs / "a")
    assert done.exit_code == 0
    for expected in ("raw Ethernet", "slower", "1400 B", "Holm", "synthetic-3 is incomplete"):
        assert expected in done.stdout


@pytest.mark.parametrize(("options", "expected"), [(["--margin", "2"], "--margin"), (["--margin", "0"], "--margin")])
def test_a_margin_that_is_not_a_share_is_wrong_use(runs, options, expected):
    with pytest.raises(WrongUse, match=expected):
        _json(runs / "a", *options)


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
