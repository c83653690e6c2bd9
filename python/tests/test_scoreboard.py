# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard without MPI: ratios to the best competitor, their order and means, and launches with known costs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_mpi import sample_record, subject
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import MeasurementFailed, WrongUse
from barewire.measure.mpi import MpiSite
from barewire.measure.patterns import PATTERNS, SIZES_FULL, TESTBEDS, Pattern, parse_patterns, parse_testbeds
from barewire.measure.scoreboard import SEVERAL, ScoreCampaign, ScoreOrder, ScorePlan, measure_testbed
from barewire.measure.scoreboard_plan import BoardPlan
from barewire.measure.scoreboard_runs import Board, directory_for, is_measured, read_board
from barewire.models.wire import Link
from barewire.mpi import HostSlots, suite
from barewire.report.scoreboard import headlines, markdown, notes, worst_beside_the_same_library
from barewire.report.scoreboard_page import render_board
from barewire.results.bounds import judge
from barewire.results.run import Run, Series
from barewire.results.scoreboard import SLOWER, Missing, Scoreboard, ScoreRow, scoreboard
from barewire.results.store import read_run, samples
from barewire.stats.best import geometric_mean, ratio_to_best

SUBJECTS = (
    subject("openmpi", "barewire"),
    subject("openmpi", "tcp"),
    subject("mpich-5", "barewire"),
    subject("mpich-5", "ucx"),
)
# ns of a ping-pong of 8 B: the best TCP is another library's.
COST_NS = {"openmpi/barewire": 2000.0, "openmpi/tcp": 4000.0, "mpich-5/barewire": 6000.0, "mpich-5/ucx": 5000.0}
PINGPONG = Pattern("pingpong", ("blocking-standard",), quick=("blocking-standard",))
STREAM = Pattern("stream", ("blocking-receive",), quick=("blocking-receive",))


@dataclass(frozen=True)
class Synthetic(ScoreCampaign):
    """Launches that only write records: all patterns into one file. Those in `broken` end with an error afterwards,
    those in `silent` with one and without records."""

    silent: tuple[int, ...] = ()
    broken: tuple[int, ...] = ()
    interrupted: int | None = None
    asked: list[str] = field(default_factory=list)

    def launch(self, order: ScoreOrder, records: Path) -> None:
        """Write records like mpi/several."""
        if order.number in self.silent:
            raise MeasurementFailed(f"launch {order.number} ({order.label}) ended with code 53")
        generator = np.random.default_rng(order.seed)
        lines = []
        for pattern in self.plan.groups()[order.test]:
            lines.append({"record": "start", "schema": "barewire-mpi/1", "test": pattern.test, "ranks": order.ranks})
            for size in self.plan.sizes or (8,):
                ns = COST_NS[order.subject.name] * (1 + size / 1e4) * generator.normal(1, 0.003)
                quantity = "half_round_trip" if pattern.test == "pingpong" else "arrival_interval"
                lines.append(sample_record(pattern.variants[0], quantity, size, 0, [9 * ns], phase="warmup"))
                lines.append(sample_record(pattern.variants[0], quantity, size, 0, [ns, ns, ns]))
            lines.append({"record": "end", "complete": True})
        records.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if order.number in self.broken:
            raise MeasurementFailed(f"launch {order.number} ({order.label}) ended with code 1")
        if order.number == self.interrupted:
            raise KeyboardInterrupt


def campaign(plan: ScorePlan | None = None, **options: object) -> Synthetic:
    usual = ScorePlan(TESTBEDS[0], SUBJECTS, (PINGPONG, STREAM), True, seed=1, launches=6, sizes=(8, 65536))
    site = MpiSite((HostSlots("node1"), HostSlots("node2")), Link(None))
    return Synthetic(site, plan or usual, {}, **options)  # type: ignore[arg-type]


def measured(directory: Path, of: Synthetic, testbed: str = "pair", **planned: object) -> Run:
    plan = BoardPlan(quick=True, seed=1, launches=6, testbeds="pair,host", **planned)  # type: ignore[arg-type]
    plan.write(directory)
    folder = directory_for(directory, testbed)
    return measure_testbed(of, folder, command=["x"], lab=None, warnings=(), progress=lambda *_: None)


def row(ratio: float, **more: object) -> ScoreRow:
    usual = dict(
        testbed="pair", test="pingpong", variant="v", quantity="t", ranks=2, pairs=1, message_bytes=8, parameter="",
        parameter_value=None, library="openmpi", ratio=ratio, interval=(ratio * 0.99, ratio * 1.01), is_range=False,
        same_library=None, ours=ratio, theirs=1.0, unit="us", best="mpich-5/tcp", launches=6,
    )  # fmt: skip
    return ScoreRow(**(usual | more))  # type: ignore[arg-type]


def board_of(*rows: ScoreRow) -> Scoreboard:
    return Scoreboard(tuple(rows))


# Ratios


def test_the_best_competitor_has_the_smallest_median() -> None:
    found = ratio_to_best([2, 2, 2.2], {"slow": [9, 9, 9], "fast": [4, 4, 1], "middle": [5, 5, 5]})
    assert found.best == "fast" and found.ratio == 0.5


def test_few_launches_yield_their_range() -> None:
    found = ratio_to_best([2, 3], {"a": [4, 8], "b": [5, 6]})
    assert found.is_range and found.interval == (2 / 6, 3 / 4)


def test_the_interval_has_nearly_its_nominal_coverage() -> None:
    generator, held = np.random.default_rng(3), 0
    for trial in range(200):
        barewire = generator.normal(1.0, 0.02, 10)
        held += low_to_high(ratio_to_best(barewire, {"a": generator.normal(1.25, 0.02, 10)}, seed=trial).interval, 0.8)
    assert 0.9 <= held / 200 <= 1


def low_to_high(interval: tuple[float, float], value: float) -> bool:
    return interval[0] <= value <= interval[1]


def test_competitors_of_about_the_same_speed_both_contribute_to_the_interval() -> None:
    """Each resample selects the best of two anew: either alone would give a larger ratio at the low end."""
    generator = np.random.default_rng(5)
    a, b = generator.normal(1, 0.1, 8), generator.normal(1, 0.1, 8)
    ours = [1.0] * 8
    both = ratio_to_best(ours, {"a": a, "b": b})
    alone = [ratio_to_best(ours, {"a": a}), ratio_to_best(ours, {"b": b})]
    assert both.ratio == max(ratio.ratio for ratio in alone)
    assert both.interval[0] >= min(ratio.interval[0] for ratio in alone)


@pytest.mark.parametrize(("ours", "others"), [([], {"a": [1]}), ([1], {}), ([0], {"a": [1]}), ([1], {"a": [-1]})])
def test_missing_or_invalid_values_are_rejected(ours: list[float], others: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError):
        ratio_to_best(ours, others)


def test_the_geometric_mean_of_twice_and_half_is_one() -> None:
    assert geometric_mean([2, 0.5]) == pytest.approx(1)
    with pytest.raises(ValueError):
        geometric_mean([])


# Rows from runs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    directory = tmp_path_factory.mktemp("board") / "board"
    measured(directory, campaign())
    yield read_board(directory)


def test_each_library_is_compared_with_the_best_tcp_of_any(whole: Board) -> None:
    at_8 = {row.library: row for row in whole.scores.rows if row.test == "pingpong" and row.message_bytes == 8}
    assert at_8["openmpi"].best == at_8["mpich-5"].best == "openmpi/tcp"
    assert at_8["openmpi"].ratio == pytest.approx(0.5, rel=0.02)
    assert at_8["mpich-5"].ratio == pytest.approx(1.5, rel=0.02)
    assert at_8["openmpi"].same_library == at_8["openmpi"].ratio, "the best is its own library's"
    assert at_8["mpich-5"].same_library == pytest.approx(1.2, rel=0.02)
    assert not at_8["openmpi"].is_range and low_to_high(at_8["openmpi"].interval, at_8["openmpi"].ratio)


def test_a_rate_becomes_a_ratio_of_times(whole: Board) -> None:
    (row,) = [
        row
        for row in whole.scores.rows
        if (row.test, row.library, row.message_bytes) == ("stream", "mpich-5", 8)
    ]  # fmt: skip
    assert row.unit == "Mbit/s" and row.ours < row.theirs
    assert row.ratio == pytest.approx(1.5, rel=0.02) and row.verdict == "slower"


def test_values_that_may_be_zero_have_no_row(tmp_path: Path) -> None:
    run = measured(tmp_path, campaign())
    shares = [replace(series, quantity="hidden_share", unit="%", launch_medians=(0.0,) * 6) for series in run.series]
    assert scoreboard([("pair", shares, ("tcp", "ucx"))]).rows == ()
    assert scoreboard([("pair", run.series, ("tcp", "ucx"))]).rows


def test_the_worst_row_comes_first(whole: Board) -> None:
    ratios = [row.ratio for row in whole.scores.rows]
    assert len(ratios) == 8 and ratios == sorted(ratios, reverse=True)
    assert whole.scores.rows[0].library == "mpich-5"


def test_summaries_are_of_each_library_and_of_all(whole: Board) -> None:
    found = {summary.library: summary for summary in whole.scores.summaries()}
    assert found["openmpi"].all_sizes == pytest.approx(0.5, rel=0.02) and found["openmpi"].surely_above == 0
    assert found["mpich-5"].above == found["mpich-5"].surely_above == found["mpich-5"].rows == 4
    assert found[""].all_sizes == pytest.approx((0.5 * 1.5) ** 0.5, rel=0.02) and found[""].rows == 8


def test_raw_samples_and_warm_up_of_all_patterns_are_kept(tmp_path: Path) -> None:
    measured(tmp_path, campaign())
    frame = samples(tmp_path / "pair")
    assert {*frame["phase"]} == {"warmup", "measure"} and {*frame["test"]} == {"pingpong", "stream"}
    assert frame["launch"].n_unique() == 6 * len(SUBJECTS)


def test_without_a_competitor_there_is_no_ratio_and_the_page_shows_that(tmp_path: Path) -> None:
    alone = ScorePlan(TESTBEDS[0], SUBJECTS[:1], (PINGPONG,), True, seed=1, launches=3, sizes=(8,))
    measured(tmp_path, campaign(alone))
    board = read_board(tmp_path)
    assert not board.scores.rows and board.scores.missing[0].library == "openmpi"
    assert headlines(board.scores) == ["Nothing could be compared."]
    assert any("have no ratio" in note and "over tcp or ucx" in note for note in notes(board))
    assert "have no ratio" in render_board(board)


def pair_series(directory: Path) -> list[Series]:
    measured(directory, campaign())
    return list(read_run(directory / "pair").series)


def test_a_row_that_barewire_alone_lacks_is_missing_and_keeps_no_bound(tmp_path: Path) -> None:
    series = pair_series(tmp_path)
    failed = {"subject": "openmpi/barewire", "test": "pingpong", "message_bytes": 65536}
    left = [each for each in series if {name: getattr(each, name) for name in failed} != failed]
    assert len(left) == len(series) - 1
    for kept, expected in [(series, []), (left, [("openmpi", 65536, "no value over barewire", True)])]:
        board = scoreboard([("pair", kept, {"tcp", "ucx"})])
        assert [(each.library, each.message_bytes, each.reason, each.is_ours) for each in board.missing] == expected
    fast = [row(0.4, message_bytes=8), row(0.4, message_bytes=65536)]
    lacking = Missing("pair", "pingpong", 65536, "openmpi", "no value over barewire", is_ours=True)
    states = {each.what: each.state for each in judge(Scoreboard(tuple(fast), (lacking,)))}
    assert states["pair, up to 8 KiB: mean"] == "kept" and states["pair, all sizes: mean"] == "undecided"
    assert states["pair, above 32 KiB: each row"] == "undecided"


def test_a_competitor_with_one_launch_decides_nothing(tmp_path: Path) -> None:
    def alone(each: Series) -> Series:
        fast = min(each.launch_medians) / 99
        return replace(each, launch_medians=(fast,), launches=1, median=fast)

    series = [alone(each) if each.subject == "openmpi/tcp" else each for each in pair_series(tmp_path)]
    rows = [each for each in scoreboard([("pair", series, {"tcp", "ucx"})]).rows if each.test == "pingpong"]
    assert rows and all(each.best == "openmpi/tcp" and each.interval[0] > 2 for each in rows)
    assert {(each.verdict, each.launches) for each in rows} == {("undecided", 1)}


def test_intervals_have_the_confidence_that_is_asked_for(tmp_path: Path) -> None:
    """Six launches give an interval at 90 and 95 %, and a range at 99 %; the plan's confidence is the default."""
    measured(tmp_path, campaign())
    narrow, usual, wide = (read_board(tmp_path, confidence) for confidence in (0.5, None, 0.99))
    for within, around, row in zip(narrow.scores.rows, usual.scores.rows, wide.scores.rows, strict=True):
        assert within.interval[0] >= around.interval[0] and within.interval[1] <= around.interval[1]
        assert within.ratio == around.ratio == row.ratio and row.is_range and not around.is_range
    assert narrow.scores.rows[0].interval != usual.scores.rows[0].interval
    assert (usual.scores.confidence, wide.scores.to_json()["confidence"]) == (0.95, 0.99)
    assert any("Fewer than 8 launches" in note and "99 %" in note for note in notes(wide))
    plan = replace(BoardPlan.read(tmp_path), confidence=0.99)
    plan.write(tmp_path)
    assert read_board(tmp_path).scores.confidence == 0.99
    file = tmp_path / "plan.json"
    file.write_text(file.read_text().replace('"confidence": 0.99', '"confidence": 99'))
    with pytest.raises(WrongUse, match="is damaged"):
        read_board(tmp_path)


def test_the_worst_rows_beside_the_same_library_are_the_losing_ones(whole: Board) -> None:
    rows = worst_beside_the_same_library(whole.scores)
    ratios = [row.same_library for row in rows if row.same_library is not None]
    assert rows and len(ratios) == len(rows) and min(ratios) > SLOWER and ratios == sorted(ratios, reverse=True)
    assert {row.library for row in rows} == {"mpich-5"}, "openmpi is faster over Barewire"


def test_a_subjects_omission_is_reported_once(whole: Board) -> None:
    reason = "vector-512, 8 bytes is left out: its messages are multiples of 512 bytes"
    run = whole.runs["pair"]
    warnings = tuple(f"several {subject}: {reason}" for subject in ("openmpi/tcp", "mpich-5/barewire"))
    board_notes = notes(
        replace(whole, runs={"pair": replace(run, warnings=warnings), "host": replace(run, warnings=warnings[:1])})
    )
    assert [note for note in board_notes if reason in note] == [f"mpich-5/barewire, openmpi/tcp: {reason}."]


def test_launches_are_shuffled_by_the_seed_and_each_round_is_complete() -> None:
    rounds = [[order.subject.name for order in orders] for orders in campaign().rounds()]
    assert rounds == [[order.subject.name for order in orders] for orders in campaign().rounds()]
    assert len(rounds) == 6 and all(sorted(names) == sorted(rounds[0]) for names in rounds)
    assert len({tuple(names) for names in rounds}) > 1


def test_no_round_begins_that_would_exceed_the_time() -> None:
    plan = replace(campaign().plan, seconds=100.0)
    now = iter((0.0, 0.0, 40.0, 80.0, 120.0))
    assert len(list(campaign(plan, clock=lambda: next(now)).rounds())) == 2
    now = iter((0.0, 1.0, 200.0))
    first = campaign(replace(plan, seconds=0.1), clock=lambda: next(now))
    assert len(list(first.rounds())) == 1, "the first is always made"


@pytest.mark.parametrize("failing", [{"broken": (3,)}, {"silent": (3,)}])
def test_a_failed_launch_is_reported_and_the_others_continue(tmp_path: Path, failing: dict[str, object]) -> None:
    run = measured(tmp_path, campaign(**failing))
    assert run.complete and len(run.launches) == 6 * len(SUBJECTS)
    assert [launch.index for launch in run.launches if launch.error] == [3]
    assert any("launch 3" in warning for warning in run.warnings)
    assert any("launch 3" in note for note in notes(read_board(tmp_path)))


def test_an_interrupted_testbed_is_measured_again_and_keeps_its_samples(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, campaign(interrupted=9))
    broken = read_board(tmp_path)
    assert not broken.runs["pair"].complete and broken.scores.rows and not is_measured(tmp_path, "pair")
    assert any("incomplete" in note for note in notes(broken)) and broken.unmeasured == ["host"]
    measured(tmp_path, campaign())
    again = read_board(tmp_path)
    assert again.runs["pair"].complete and is_measured(tmp_path, "pair")
    assert (tmp_path / "pair" / "samples.parquet").exists() and (tmp_path / "pair.2" / "samples.parquet").exists()


# Verdicts and bounds


def test_a_row_is_slower_only_with_its_whole_interval() -> None:
    assert row(1.2).verdict == "slower"
    assert row(1.2, interval=(1.0, 1.4)).verdict == "undecided"
    assert row(0.9, interval=(0.8, 1.1)).verdict == "undecided"
    assert row(1.04, interval=(1.03, SLOWER)).verdict == "not slower"
    assert row(1.2, launches=2, is_range=True).verdict == "undecided", "two launches decide nothing"


def test_bounds_apply_to_the_rows_that_they_name() -> None:
    rows = [row(0.4), row(1.1, message_bytes=1 << 20), row(1.2, testbed="host"), row(1.04, testbed="pair-1gbit")]
    states = {bound.what: bound.state for bound in judge(board_of(*rows))}
    assert states["pair, up to 8 KiB: mean"] == "kept" and states["pair, up to 32 KiB: each row"] == "kept"
    assert states["pair, above 32 KiB: each row"] == "kept" and states["one host: each row"] == "kept"
    assert states["one host: mean"] == "missed" and states["1 Gb/s: each row"] == "missed"
    beside = judge(board_of(row(0.4), row(0.9, testbed="pair-offloads"), row(0.7, testbed="pair-9000")))
    means = {bound.what: bound.state for bound in beside if bound.what.endswith("all sizes: mean")}
    assert means == {
        "pair, all sizes: mean": "kept",
        "pair-9000, all sizes: mean": "kept",
        "pair-offloads, all sizes: mean": "missed",
    }
    (perhaps,) = [
        bound for bound in judge(board_of(row(1.04, interval=(0.9, 1.2)))) if bound.what.endswith("32 KiB: each row")
    ]
    assert perhaps.state == "undecided"


# The tables of patterns and testbeds


def test_every_pattern_names_a_test_of_the_suite_and_its_variants() -> None:
    for pattern in PATTERNS:
        assert pattern.test in (*suite.tests(), *suite.kernels())
        folder = suite.SOURCES if pattern.test in suite.tests() else suite.SOURCES / "kernels"
        source = (folder / f"{pattern.test}.c").read_text() + "".join(
            file.read_text() for file in [*suite.SOURCES.glob("common/*.c"), *suite.SOURCES.glob("kernels/*/*.c")]
        )
        for variant in (*pattern.variants, *pattern.quick):
            assert all(part in source for part in variant.split("-")), f"{pattern.test} has no variant {variant}"


def test_the_full_form_measures_everything_that_the_quick_form_does() -> None:
    for pattern in PATTERNS:
        assert not pattern.variants or {*pattern.quick} <= {*pattern.variants}
        for ranks in (2, 8):
            assert {*pattern.sizes(ranks, quick=True)} <= {*pattern.sizes(ranks, quick=False)} <= {*SIZES_FULL}
    assert any(testbed.quick for testbed in TESTBEDS)


def test_names_are_parsed_and_unknown_ones_are_rejected_with_the_known_ones() -> None:
    assert [testbed.name for testbed in parse_testbeds("host,pair", quick=True)] == ["host", "pair"]
    assert {pattern.test for pattern in parse_patterns("exchange")} == {"exchange"}
    assert len(parse_testbeds(None, quick=False)) == len(TESTBEDS)
    with pytest.raises(WrongUse, match="there are: pair, "):
        parse_testbeds("nosuch", quick=True)
    with pytest.raises(WrongUse, match="unknown pattern 'nosuch'; there are: pingpong, exchange, "):
        parse_patterns("nosuch")


def test_the_quick_form_measures_every_pattern_that_is_named() -> None:
    """Also those that it omits otherwise and that list no variants."""
    for test in dict.fromkeys(pattern.test for pattern in PATTERNS):
        plan = BoardPlan(quick=True, seed=1, launches=1, patterns=test)
        scores = replace(campaign().plan, patterns=plan.chosen_patterns())
        many = replace(scores, testbed=replace(scores.testbed, ranks=4))
        assert scores.groups() or many.groups(), test
    assert not replace(campaign().plan, patterns=parse_patterns("incast,persistent")).groups()


def test_patterns_with_separate_launches_are_separate_groups() -> None:
    plan = replace(campaign().plan, patterns=PATTERNS)
    groups = plan.groups()
    assert {*groups} == {SEVERAL, "radix"} and all(not pattern.alone for pattern in groups[SEVERAL])
    arguments = campaign(plan)._arguments(next(campaign(plan).rounds())[0], Path("/nowhere/file"))
    assert "+" in arguments or arguments[0].startswith("--")


# Output


def test_the_page_and_the_document_contain_every_row(whole: Board) -> None:
    page, document = render_board(whole), whole.scores.to_json()
    assert page.count('<tr data-testbed="pair"') == len(document["rows"]) == 8
    assert "Not measured: One host" in page and "https://" not in page
    assert "95 % bootstrap over launches" in page and "fewer than 6 launches" in page
    sure = render_board(replace(whole, scores=replace(whole.scores, confidence=0.99)))
    assert "99 % bootstrap over launches" in sure and "fewer than 8 launches" in sure
    json.dumps(document, allow_nan=False)
    text = markdown(whole, source="a command")
    assert "Made by `a command`" in text and "| 1.5" in text and "openmpi (Open MPI 4.1.4)" in text


def test_the_command_shows_an_existing_scoreboard(tmp_path: Path) -> None:
    measured(tmp_path, campaign())
    shown = CliRunner().invoke(
        app, ["mpi", "scoreboard", str(tmp_path), "--json", "--markdown", str(tmp_path / "x.md")]
    )
    assert shown.exit_code == 0, shown.output
    document = json.loads(shown.stdout)
    assert document["schema"] == "barewire-scoreboard/1" and document["rows"][0]["library"] == "mpich-5"
    assert (tmp_path / "scoreboard.html").exists() and (tmp_path / "x.md").read_text().startswith("# Scoreboard")
    # Its exit code is not that of slower rows.
    refused = CliRunner().invoke(app, ["mpi", "scoreboard", str(tmp_path), "--markdown", str(tmp_path / "x.md" / "x")])
    assert isinstance(refused.exception, WrongUse) and "cannot write" in str(refused.exception)
    gate = CliRunner().invoke(app, ["mpi", "scoreboard", str(tmp_path), "--fail-above", "1.05"])
    assert isinstance(gate.exception, MeasurementFailed) and "4 rows are slower than 1.05" in str(gate.exception)
    assert CliRunner().invoke(app, ["mpi", "scoreboard", str(tmp_path), "--fail-above", "1.6"]).exit_code == 0


@pytest.mark.parametrize("existing", [[], ["--resume"]])
@pytest.mark.parametrize(
    "planned",
    [
        *(["--quick"], ["--testbeds", "pair"], ["--patterns", "pingpong"], ["--library", "openmpi"]),
        *(["--sizes", "8"], ["--launches", "3"], ["--budget", "60"], ["--seed", "0"]),
    ],
)
def test_a_plan_that_was_made_is_not_changed(existing: list[str], planned: list[str], tmp_path: Path) -> None:
    """They would be ignored."""
    done = CliRunner().invoke(app, ["mpi", "scoreboard", *existing, str(tmp_path), *planned])
    assert isinstance(done.exception, WrongUse) and f"omit {planned[0]} with a scoreboard" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere/at-all"], "contains no scoreboard"),
        (["--resume", "/nowhere/at-all"], "contains no scoreboard"),
        (["/nowhere", "--resume", "/nowhere"], "give one of"),
        (["--testbeds", "nosuch"], "unknown testbed"),
        (["--patterns", "nosuch"], "unknown pattern"),
        (["--fail-above", "-1"], "ratio above 0"),
        (["--library", "nosuch"], "unknown MPI library"),
    ],
)
def test_bad_input_is_rejected_with_advice(arguments: list[str], message: str, tmp_path: Path) -> None:
    where = [] if arguments[0] in ("/nowhere/at-all", "--resume", "/nowhere") else ["-o", str(tmp_path / "b")]
    done = CliRunner().invoke(app, ["mpi", "scoreboard", *arguments, *where])
    assert isinstance(done.exception, WrongUse) and message in str(done.exception)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("change", [{}, "x", [], {"testbeds": 5}, {"launches": "3"}, {"launches": 0}])
def test_a_damaged_plan_is_rejected(change: object, tmp_path: Path) -> None:
    BoardPlan(quick=True, seed=1, launches=3).write(tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(plan | change if change and isinstance(change, dict) else change))
    with pytest.raises(WrongUse, match=r"damaged|must be 1 or more"):
        BoardPlan.read(tmp_path)
