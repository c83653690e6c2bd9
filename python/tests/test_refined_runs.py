# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs whose sizes are refined, on synthetic MPI libraries with a known eager limit: from launches to the page."""

import io
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from synthetic_mpi import EAGER_BYTES, subject, synthetic_mpi

from barewire.errors import MeasurementFailed, WrongUse
from barewire.measure.mpi import MpiPlan
from barewire.measure.runner import Plan
from barewire.measure.session import StoppingRule
from barewire.measure.subjects import parse_subjects
from barewire.models.causes import Limit
from barewire.report.run_page import render
from barewire.report.terminal import print_run
from barewire.report.words import convergence
from barewire.results.laws import laws_of
from barewire.results.run import Run
from barewire.results.store import read_run, samples
from barewire.stats.refinement import Refinement

RULE = StoppingRule(6, 12, refinement=Refinement(0.1, 2048))
SIZES = tuple(1 << n for n in range(3, 19))
SUBJECTS = (subject("openmpi", "tcp"), subject("mpich-5", "barewire"))


def refined(directory: Path, rule: StoppingRule = RULE, **options) -> Run:
    return synthetic_mpi(directory, "pingpong", subjects=SUBJECTS, sizes=SIZES, stopping_rule=rule, **options)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A refined run, for tests that only read it."""
    path = tmp_path_factory.mktemp("refined") / "run"
    refined(path)
    return path


def test_the_eager_limit_is_located_and_all_subjects_have_the_same_sizes(directory: Path) -> None:
    run = read_run(directory)
    by_subject = {name: {one.message_bytes for one in run.series if one.subject == name} for name in run_subjects(run)}
    assert len(by_subject) == 2 and len({frozenset(sizes) for sizes in by_subject.values()}) == 1
    sizes = sorted(by_subject["openmpi/tcp"])
    low, high = next((low, high) for low, high in pairwise(sizes) if low <= EAGER_BYTES < high)
    assert high - low <= 2048
    assert run.parameters["refinement"] == {"threshold": 0.1, "smallest_bytes": 2048}
    assert run.parameters["sizes"] == list(SIZES)
    law = next(law for law in laws_of(run) if law.subject == "openmpi/tcp")
    assert [Limit("", EAGER_BYTES).explains(one) for one in law.fit.breaks] == [True]
    assert law.fit.breaks[0].high - law.fit.breaks[0].low <= 2 * 2048
    assert not run.warnings


def test_each_size_says_why_it_ended_and_after_how_many_repetitions(directory: Path) -> None:
    run = read_run(directory)
    for one in run.series:
        assert one.stop == "converged" and one.launches_to_converge == 6 <= one.launches
        assert one.samples_to_converge is not None and 1 <= one.samples_to_converge <= 10
    # Far from the eager limit the fewest launches are enough.
    assert {one.launches for one in run.series if one.message_bytes <= 4096} == {6}
    one = run.series[0]
    assert convergence(one) == f"6 × {one.samples_to_converge}"
    text, page = printed(run), render(run, samples(directory))
    assert "launches until within ± 2.0%" in text and convergence(one) in text and convergence(one) in page
    noisy = replace(one, launches=12, stop="budget", launches_to_converge=None, samples_to_converge=None)
    assert convergence(noisy) == "> 12 × –"


def test_launches_measure_sizes_in_different_orders_that_the_seed_decides(directory: Path, tmp_path: Path) -> None:
    refined(tmp_path / "again")
    orders = []
    for path in (directory, tmp_path / "again"):
        launches = samples(path).partition_by("launch", maintain_order=True)
        orders.append([tuple(dict.fromkeys(launch["message_bytes"].to_list())) for launch in launches])
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1] and sorted(orders[0][0]) == sorted(orders[0][1])


def test_a_budget_smaller_than_one_round_is_wrong_use_and_keeps_what_was_measured(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"too small for one round: 1 of its 2 launches .* --budget"):
        refined(tmp_path, replace(RULE, budget_s=1e-9))
    run = read_run(tmp_path)
    assert not run.complete and "too small" in str(run.stopped_by)
    assert len(run.launches) == 1 and run.series and {one.stop for one in run.series} == {"incomplete"}


def test_a_budget_of_a_few_rounds_ends_the_run_and_says_what_is_undecided(tmp_path: Path) -> None:
    # The second round ends far beyond the budget.
    times = iter([0.0, 0.1, 0.2, 0.3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barewire.measure.session.time", SimpleNamespace(monotonic=lambda: next(times, 100.0)))
        run = refined(tmp_path, replace(RULE, budget_s=1.0))
    assert run.complete and {one.stop for one in run.series} == {"budget"}
    assert {one.launches_to_converge for one in run.series} == {None}
    (warning,) = run.warnings
    assert "not decided whether interpolation holds within 10.0%" in warning and "65536 and 2 more" in warning


def test_a_launch_that_fails_keeps_the_others(tmp_path: Path) -> None:
    with pytest.raises(MeasurementFailed, match="died"):
        refined(tmp_path, failing={9: MeasurementFailed("rank 1 died")})
    run = read_run(tmp_path)
    assert not run.complete and len(run.launches) == 10 and run.series


def test_what_cannot_be_refined_is_wrong_use() -> None:
    tcp = parse_subjects("tcp", "spin")
    for sizes, rule, said in (
        ((64,), RULE, "a range of message sizes"),
        ((64, 2112), RULE, "no interval between the message sizes is larger than --refine-smallest 2048"),
        ((64, 8192), replace(RULE, launches_min=2, launches_max=3), "needs 4 launches"),
    ):
        with pytest.raises(WrongUse, match=said):
            Plan(("pingpong",), tcp, sizes, seed=1, stopping_rule=rule)
        with pytest.raises(WrongUse, match=said):
            MpiPlan(("pingpong",), SUBJECTS, (2,), seed=1, sizes=sizes, stopping_rule=rule)
    with pytest.raises(WrongUse, match="a range of message sizes"):
        MpiPlan(("pingpong",), SUBJECTS, (2,), seed=1, stopping_rule=RULE)
    for test in ("fft", "logp", "startup"):
        with pytest.raises(WrongUse, match=f"which {test} does not give"):
            MpiPlan(("pingpong", test), SUBJECTS, (2,), seed=1, sizes=SIZES, stopping_rule=RULE)


def run_subjects(run: Run) -> list[str]:
    return list(dict.fromkeys(one.subject for one in run.series))


def printed(run: Run) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    print_run(console, run)
    return console.export_text()
