# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budget of a synthetic run: its layers in order, its tables and its figure."""

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go
import pytest
from rich.console import Console
from synthetic import synthetic_run
from typer.testing import CliRunner

from barewire.cli import budget as budget_command
from barewire.cli.commands import app
from barewire.measure.budget import BudgetCampaign
from barewire.models.budget import PATH, budget
from barewire.models.wire import Link
from barewire.report.budget import fixed, headlines, sections
from barewire.report.budget_tables import print_budgets
from barewire.report.figures import DARK
from barewire.report.run_page import render
from barewire.results.budget import KIND, budgets_of, document
from barewire.results.run import Run
from barewire.results.store import read_run, samples, write_run

SIZES = (8, 16384)
LAUNCHES = 8
# (fixed cost in µs, cost per KiB): LLC 1 is faster than raw frames here, and the endpoint adds nothing.
COST_US = {
    "floor": (0.75, 0.25),
    "raw": (0.80, 0.25),
    "llc1": (0.78, 0.25),
    "llc2": (0.86, 0.26),
    "endpoint": (0.86, 0.26),
    "messages": (0.93, 0.26),
    "libfabric": (1.0, 0.26),
    "openmpi/barewire": (1.13, 0.26),
    "mpich-5/barewire": (1.32, 0.26),
    "tcp": (2.8, 0.28),
    "libfabric-tcp": (4.0, 0.28),
    "openmpi/tcp": (3.5, 0.28),
    "mpich/tcp": (3.3, 0.28),
}


def budget_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, leave_out: tuple[str, ...] = (), link: Link | None = None
) -> Run:
    monkeypatch.setattr("synthetic.COST_US", COST_US)
    subjects = tuple(name for name in COST_US if name not in leave_out)
    run = synthetic_run(
        directory, launches=LAUNCHES, tests=("pingpong",), subjects=subjects, sizes=SIZES, link=link or Link(None)
    )
    rate = None if link is None else link.rate_bit_s
    libraries = {"openmpi": "Open MPI 4.1.4", "mpich-5": "MPICH 5.0.2", "mpich": "MPICH 4.0.2"}
    parameters = {**run.parameters, "kind": KIND, "libraries": libraries, "rate_bit_s": rate, "mtu": 1500}
    run = replace(run, parameters=parameters)
    write_run(directory, run, samples(directory))
    return read_run(directory)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return budget_run(tmp_path, monkeypatch)


def test_layers_are_stacked_and_libraries_and_tcp_side_by_side(run: Run) -> None:
    short, long = budgets_of(run)
    assert (short.message_bytes, long.message_bytes) == SIZES
    assert [layer.subject for layer in short.path] == list(PATH)
    assert [layer.below for layer in short.path] == [None, *PATH[:-1]]
    assert [(layer.subject, layer.below) for layer in short.libraries] == [
        ("openmpi/barewire", "libfabric"),
        ("mpich-5/barewire", "libfabric"),
    ], "the fastest first"
    assert [layer.subject for layer in short.yardsticks] == ["tcp", "libfabric-tcp", "mpich/tcp", "openmpi/tcp"]
    assert short.best.subject == "openmpi/barewire"
    assert short.best_yardstick is not None and short.best_yardstick.subject == "mpich/tcp", (
        "a library beside a library"
    )
    steps = {layer.subject: layer.step for layer in (*short.path, *short.libraries)}
    assert steps["floor"].total == pytest.approx(0.76, abs=0.02)
    assert steps["raw"].added == pytest.approx(0.05, abs=0.02)
    assert steps["llc1"].added < 0, "a step back is one"
    assert steps["openmpi/barewire"].added == pytest.approx(0.13, abs=0.02)
    whole = steps["floor"].total + sum(steps[name].added for name in (*PATH[1:], "openmpi/barewire"))
    assert whole == pytest.approx(steps["openmpi/barewire"].total), "the steps add up to the whole"


def test_a_missing_layer_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = budget_run(tmp_path, monkeypatch, leave_out=("llc1", "libfabric", "floor"))
    (short, _) = budgets_of(run)
    assert [(layer.subject, layer.below) for layer in short.path] == [
        ("raw", None),
        ("llc2", "raw"),
        ("endpoint", "llc2"),
        ("messages", "endpoint"),
    ]
    assert {layer.below for layer in short.libraries} == {"messages"}
    assert render(run, samples(tmp_path))


def test_without_any_layer_there_is_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="floor, raw, llc1"):
        budget(8, {"tcp": [1.0]})
    run = budget_run(tmp_path, monkeypatch, leave_out=tuple(name for name in COST_US if name in PATH))
    assert budgets_of(run) == [] and sections(run) == [] and headlines(run) == []
    assert "no result: no layer was measured" in printed(run, 80)


def test_another_run_has_no_budget(tmp_path: Path) -> None:
    assert budgets_of(synthetic_run(tmp_path, launches=6, samples_per_launch=5)) == []


def test_a_shaped_link_has_the_wires_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = budget_run(tmp_path, monkeypatch, link=Link(1e9), leave_out=("floor",))
    short, long = budgets_of(run)
    assert short.limit_us == pytest.approx(84 * 8 / 1000)
    assert long.limit_us is not None and long.limit_us > 130
    assert "The wire's limit is 0.672 µs" in printed(run, 100)
    (section,) = sections(run)
    assert any("wire" in note for table in section["tables"] for note in table["notes"])


def printed(run: Run, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_budgets(console, run, budgets_of(run))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_fit_and_name_every_layer_with_its_step(run: Run, width: int) -> None:
    text = printed(run, width)
    assert max(len(line) for line in text.splitlines()) <= width
    for words in ("frames", "+ raw Ethernet", "+ LLC 1", "+ libfabric", "+ Open MPI 4.1.4", "MPICH 4.0.2 over TCP"):
        assert words in text
    for latency in budgets_of(run):
        for layer in latency.path:
            assert fixed(layer.step.total, latency.best.step.total) in text
    assert "≈" in text, "the endpoint's step is not significantly different from 0"
    assert "×" in text and "−" in text


def test_the_page_has_the_figures_and_every_number(run: Run, tmp_path: Path) -> None:
    page = render(run, samples(tmp_path))
    assert "Latency budget: what each layer adds" in page
    (section,) = sections(run)
    for picture in section["figures"]:
        assert [choice["label"] for choice in picture["figure"]["choices"]] == ["8 B", "16 KiB"]
        for choice in picture["figure"]["choices"]:
            go.Figure({"data": choice["data"], "layout": {**picture["figure"]["layout"]}})
            bars = choice["data"][0]
            assert bars["type"] == "bar"
            assert {colour[:7] for colour in bars["marker"]["color"]} <= {*DARK, "#6B7682"}
    whole, close = (picture["figure"]["choices"][0]["data"][0] for picture in section["figures"])
    # Each bar of the path begins where the previous one ends.
    for number in range(1, len(PATH)):
        assert whole["base"][number] == pytest.approx(whole["base"][number - 1] + whole["x"][number - 1], abs=1e-4)
    assert whole["x"][2] < 0 and whole["marker"]["pattern"]["shape"][2] == "/", "LLC 1 takes time away"
    assert len(whole["y"]) == len(COST_US) and len(close["y"]) == len(COST_US) - 4
    for latency in budgets_of(run):
        assert fixed(latency.best.step.total, latency.best.step.total) in page


def test_the_headlines_have_the_time_of_frames_and_of_the_layers_above(run: Run) -> None:
    short, long = headlines(run)
    assert "8\u00a0B take" in short and "Open MPI 4.1.4" in short and "the frames themselves" in short
    assert "The best over TCP, MPICH 4.0.2 over TCP" in short and "16\u00a0KiB" in long


def test_the_document_has_all_data_of_the_figure(run: Run) -> None:
    short, _ = document(budgets_of(run))
    assert short["unit"] == "us" and short["limit"] is None
    assert [layer["subject"] for layer in short["path"]] == list(PATH)
    assert all(layer["added_ci95"][0] <= layer["added"] <= layer["added_ci95"][1] for layer in short["path"])


@pytest.mark.parametrize(
    ("value", "whole", "text"),
    [
        (0.0624, 1.0, "0.062"),
        (-0.0004, 1.0, "0.000"),
        (-0.0624, 1.0, "−0.062"),
        (0.5, 26.0, "0.50"),
        (1234.5, 2000.0, "1234"),
    ],
)
def test_parts_of_a_total_have_equal_decimals(value: float, whole: float, text: str) -> None:
    assert fixed(value, whole) == text


def test_samples_and_warm_up_hold_for_the_probe_and_the_libraries_and_each_has_its_own_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured: list[BudgetCampaign] = []

    class EnoughError(Exception):
        pass

    def measure(campaign: BudgetCampaign, *_: Any, **__: Any) -> Any:
        measured.append(campaign)
        raise EnoughError

    site: Any = SimpleNamespace(
        active=SimpleNamespace(host="a"), passive=SimpleNamespace(host="b"), link=None, shares_core=False
    )
    monkeypatch.setattr(budget_command.RemoteSite, "parse", lambda *_, **__: site)
    monkeypatch.setattr(budget_command, "available_subjects", lambda _, subjects: (subjects, ()))
    monkeypatch.setattr(budget_command, "subjects_of", lambda *_, **__: ((), ()))
    monkeypatch.setattr(budget_command, "exclude_failing", lambda subjects, *_, **__: (subjects, ()))
    monkeypatch.setattr(budget_command, "measure_budget", measure)
    for number, words in enumerate(((), ("--samples", "70", "--warmup", "7"))):
        command = ["bench", "budget", "--hosts", "a,b", "-o", str(tmp_path / str(number)), *words]
        assert isinstance(CliRunner().invoke(app, command).exception, EnoughError)
    efforts = [(one.probe.plan.effort.samples, one.probe.plan.effort.warmup) for one in measured]
    assert efforts == [(3000, 200), (70, 7)]
    of_libraries = [(one.mpi.plan.samples, one.mpi.plan.warmup) for one in measured if one.mpi is not None]
    assert of_libraries == [(None, None), (70, 7)], "None leaves them to the C suite"
