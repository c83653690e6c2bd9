# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The gate of `barewire compare`: what fails it, what does not, and what it writes."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from synthetic import run_of, series_of, synthetic_run
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.cli.compare import read_share
from barewire.errors import MeasurementFailed, WrongUse
from barewire.report.gate import judge, missing_rows
from barewire.report.gate_page import gate_lines, gate_markdown
from barewire.report.junit import junit
from barewire.report.versus import Settings, compare_runs
from barewire.results.store import write_run

SMALL = {"launches": 10, "samples_per_launch": 20, "tests": ("pingpong", "stream"), "sizes": (64, 1400)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    synthetic_run(root / "old", seed=1, **SMALL)
    synthetic_run(root / "same", seed=2, slowdown=1.2, **SMALL)
    synthetic_run(root / "slower", seed=3, slower={"raw": 1.12}, **SMALL)
    return root


def test_nothing_slower_passes_even_on_a_slower_machine(runs):
    done = _compare(runs / "old", runs / "same", "--fail-if-slower", "5%")
    assert done.exit_code == 0
    assert "gate passed: 0 of 12 rows slower by more than 5 %" in _words(done)


def test_one_slower_subject_fails_and_is_named(runs):
    done = _compare(runs / "old", runs / "slower", "--fail-if-slower", "5%", "--confidence", "99")
    assert isinstance(done.exception, MeasurementFailed)
    assert "4 of 12 rows slower by more than 5 %" in str(done.exception) and "raw Ethernet" in str(done.exception)
    assert "slower: Latency, one way: raw Ethernet, 64 B: 1.1" in _words(done)
    assert "gate failed" in _words(done)


def test_the_document_has_every_row_and_its_state(runs):
    done = _compare(runs / "old", runs / "slower", "--fail-if-slower", "0.05", "--json")
    gate = json.loads(done.stdout)["gate"]
    assert gate["limit"] == 0.05 and gate["passed"] is False
    states = {(row["test"], row["subject"], row["message_bytes"]): row for row in gate["rows"]}
    assert len(states) == 12 and not any(subject == "floor" for _, subject, _ in states)
    assert {key[1] for key, row in states.items() if row["state"] == "slower"} == {"raw"}
    stream = states["stream", "raw", 64]
    assert stream["slowdown"] == pytest.approx(1.12, abs=0.03), "a lower rate is slower, too"
    assert stream["interval"][0] > 1.05 and stream["normalised"] is True
    assert json.loads(_compare(runs / "old", runs / "slower", "--json").stdout)["gate"] is None


def test_junit_has_a_case_for_every_row(runs, tmp_path):
    file = tmp_path / "made" / "gate.xml"
    _compare(runs / "old", runs / "slower", "--fail-if-slower", "5%", "--junit", str(file))
    suite = ElementTree.parse(file).getroot().find("testsuite")
    cases = suite.findall("testcase")
    assert suite.get("name") == "barewire compare synthetic-1 synthetic-3"
    assert (int(suite.get("tests")), int(suite.get("failures"))) == (12, 4) and len(cases) == 12
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == 12
    failed = [case for case in cases if case.find("failure") is not None]
    assert {case.get("classname") for case in failed} == {"pingpong.raw", "stream.raw"}
    assert "more than the 1.05 allowed" in failed[0].find("failure").get("message")
    assert int(suite.get("skipped")) == len([case for case in cases if case.find("skipped") is not None])


def test_the_comment_has_slower_rows_first_and_the_floor(runs, tmp_path):
    file = tmp_path / "gate.md"
    _compare(runs / "old", runs / "slower", "--fail-if-slower", "5%", "--markdown", str(file))
    text = file.read_text()
    assert text.startswith("### Performance: ❌ slower\n")
    assert text.index("| Latency, one way: raw Ethernet, 64 B |") < text.index("- Latency, one way: the floor")
    assert "<details><summary>8 surely not slower</summary>" in text
    file.unlink()
    _compare(runs / "old", runs / "same", "--fail-if-slower", "5%", "--markdown", str(file))
    assert file.read_text().startswith("### Performance: ✅") and "floor itself moved: 1.2" in file.read_text()


def test_in_one_run_the_gate_is_the_baseline(runs):
    assert _compare(runs / "old", "--baseline", "raw", "--fail-if-slower", "20%").exit_code == 1
    passed = _compare(runs / "old", "--baseline", "udp", "--fail-if-slower", "400%")
    assert passed.exit_code == 0 and "gate passed" in passed.stdout


def test_in_one_run_what_cannot_be_compared_is_undecided_and_noted(tmp_path):
    lost = series_of([], message_bytes=128)
    series = [_series(1, 64), lost, _series(1, 256), _series(0, 512), _series(1, 64, subject="floor")]
    base = [_series(3, size, subject="tcp") for size in (64, 128, 512)]
    write_run(tmp_path, run_of("run", [*series, *base]))
    done = _compare(tmp_path, "--fail-if-slower", "5%", "--json")
    rows = {row["message_bytes"]: (row["state"], row["reason"]) for row in json.loads(done.stdout)["gate"]["rows"]}
    assert rows == {
        64: ("kept", ""),
        128: ("undecided", "no launch has a usable value"),
        256: ("undecided", "tcp was not measured there"),
        512: ("undecided", "values at or below 0 have no ratio"),
    }
    noted = _words(_compare(tmp_path))
    assert "! Not compared: Latency, one way: raw Ethernet, 128 B (no launch has a usable value);" in noted


def test_few_launches_are_undecided_not_passed_over(tmp_path):
    few = SMALL | {"launches": 2}
    synthetic_run(tmp_path / "old", seed=1, **few)
    synthetic_run(tmp_path / "new", seed=2, slowdown=1.05, **few)
    done = _compare(tmp_path / "old", tmp_path / "new", "--fail-if-slower", "5%")
    assert done.exit_code == 0
    assert "2 launches are too few: 6 give an interval" in _words(done)


def test_what_the_new_run_lacks_is_undecided():
    old = run_of("old", [_series(1, 64), _series(1, 128), _series(1, 256), _series(0, 512)])
    new = run_of("new", [_series(1, 64, seed=1), series_of([], message_bytes=256), _series(0, 512)])
    found = compare_runs(new, old)
    gate = judge(found, 0.05, Settings(), seed=0, missing=missing_rows(new, old, found, Settings()))
    reasons = {row.series.message_bytes: row.reason for row in gate.of("undecided")}
    assert reasons == {
        128: "not measured in new",
        256: "no launch has a usable value",
        512: "values at or below 0 have no ratio",
    }
    assert [row.series.message_bytes for row in gate.of("kept")] == [64]
    assert "undecided: Latency, one way: raw Ethernet, 128 B: –: not measured in new" in gate_lines(gate)


def test_the_reference_of_mpi_libraries_is_not_judged():
    names = ("openmpi/barewire", "openmpi/tcp")
    old = run_of("old", [_series(5, 64, subject=name) for name in names])
    new = run_of("new", [_series(6, 64, subject=name, seed=1) for name in names])
    settings = Settings(floor="tcp")
    (row,) = judge(compare_runs(new, old, settings), 0.05, settings, seed=0).rows
    assert row.series.subject == "openmpi/barewire" and row.normalised and row.state == "kept"


@pytest.mark.parametrize(("slowdown", "state"), [(1.0, "kept"), (1.05, "undecided"), (1.12, "slower")])
def test_a_row_is_judged_by_where_its_interval_lies(slowdown, state):
    old, new = run_of("old", [_series(5, 64)]), run_of("new", [_series(5 * slowdown, 64, seed=1)])
    (row,) = judge(compare_runs(new, old), 0.05, Settings(), seed=0).rows
    assert row.state == state
    assert row.slowdown == pytest.approx(slowdown, abs=0.02) and row.interval[0] < row.slowdown < row.interval[1]


def test_names_from_a_file_cannot_break_the_documents():
    name = 'a|b<script>&"\x01\n@team'
    old = run_of("old", [_series(5, 64, subject=name)])
    new = run_of("new", [_series(6, 64, subject=name, seed=1)])
    gate = judge(compare_runs(new, old), 0.05, Settings(), seed=0)
    assert ElementTree.fromstring(junit(gate, name)).find("testsuite/testcase/failure") is not None
    text = gate_markdown(gate, a=name, b="old", notes=[name])
    assert "<script>" not in text and "@team" not in text
    assert all(line.count("|") == 3 for line in text.splitlines() if line.startswith("|"))


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), ("0%", 0), ("150%", 1.5)])
def test_shares_are_read_with_and_without_percent(text, share):
    assert read_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "-5%", "five", "", "nan", "1e3%", "%"])
def test_other_shares_are_wrong_use(text):
    with pytest.raises(WrongUse, match=r"5% or 0\.05"):
        read_share(text)


def test_documents_need_a_gate_and_a_place(runs, tmp_path):
    done = _compare(runs / "old", runs / "same", "--junit", str(tmp_path / "x"))
    assert isinstance(done.exception, WrongUse) and "--fail-if-slower" in str(done.exception)
    (tmp_path / "file").write_text("")
    done = _compare(runs / "old", runs / "same", "--fail-if-slower", "5%", "--junit", str(tmp_path / "file" / "x"))
    # The exit code 1 would say that something is slower.
    assert isinstance(done.exception, WrongUse) and "cannot write" in str(done.exception)


def test_a_gate_with_nothing_to_judge_is_wrong_use(tmp_path):
    for name in ("old", "new"):
        write_run(tmp_path / name, replace(run_of(name, [_series(5, 64, subject="floor")])))
    done = _compare(tmp_path / "old", tmp_path / "new", "--fail-if-slower", "5%")
    assert isinstance(done.exception, WrongUse) and "nothing for a gate" in str(done.exception)


def _series(level, size, *, seed=0, subject="raw"):
    values = level * np.exp(np.random.default_rng(seed).normal(0, 0.01, 10))
    return series_of([float(value) for value in values], message_bytes=size, subject=subject)


def _compare(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def _words(done):
    return " ".join(done.stdout.split())
