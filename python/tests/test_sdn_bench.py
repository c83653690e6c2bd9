# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Experiments without switches: plans, policies, steps, records, paired ratios, summaries, the page."""

import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from synthetic_sdn import RATE, TREE, plan_of, synthetic_latencies, synthetic_sdn
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import MeasurementFailed, WrongUse
from barewire.lab.kernel import Process
from barewire.measure.sdn_records import SCHEMA, read_sdn_records
from barewire.measure.session import launch_file_name, new_run, parse_launch_file_name
from barewire.report.figure_data import figure_data
from barewire.report.sdn import headlines, tables
from barewire.report.sdn_page import parts, render_sdn
from barewire.results.run import Launch
from barewire.results.schema import sample_frame
from barewire.results.sdn import (
    JOB,
    MEAN_COMPLETION,
    MEDIAN_LATENCY,
    NATURAL,
    P99_LATENCY,
    RANDOM,
    STAR,
    WIDE,
    Ranking,
    summarised,
)
from barewire.sdn.bench.campaign import BenchCampaign
from barewire.sdn.bench.controlled import tenants_file
from barewire.sdn.bench.experiment import parameters_of
from barewire.sdn.bench.meter import Meter
from barewire.sdn.bench.outcome import calibrated, concluded
from barewire.sdn.bench.plan import controller_strategies, message_bytes_of, other_seed
from barewire.sdn.bench.stage import Stage
from barewire.sdn.bench.steps import Steps
from barewire.sdn.classify.tenants import parse_tenants
from barewire.sdn.simulate import Ring, RingPlan, Shape, Shuffle, TrainingPlan
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.simulate.reference import non_blocking, widened
from barewire.stats.intervals import geometric_interval
from barewire.stats.paired import compare_ratios, paired_ratio


def test_each_block_has_every_policy_and_both_references_once_on_equal_seeds_in_an_order_of_the_seed() -> None:
    blocks = list(plan_of().rounds())
    cells = {(policy, count) for policy in (STAR, WIDE, "stp", "isolated") for count in (4, 8)}
    assert len(blocks) == 3 and all({(order.policy, order.count) for order in block} == cells for block in blocks)
    assert all(len(block) == len(cells) and len({order.seed for order in block}) == 1 for block in blocks)
    assert len({block[0].seed for block in blocks}) == 3
    orders = [[(order.policy, order.count) for order in block] for block in blocks]
    assert orders[0] != orders[1] or orders[1] != orders[2]
    assert [list(block) for block in plan_of().rounds()] == [list(block) for block in blocks]
    assert [order.number for block in blocks for order in block] == list(range(24))


def test_both_jobs_are_measured_alone_and_beside_each_other_on_neighbouring_hosts() -> None:
    block = next(plan_of(experiment="both", counts=(8,), policies=("stp",)).rounds())
    found = {(order.test, order.policy, order.hosts[0], order.other_hosts[:1]) for order in block}
    assert found == {
        ("ring", WIDE, "h1", ()),
        ("ring", "stp", "h1", ()),
        ("ring", "stp", "h1", ("h2",)),
        ("shuffle", "stp", "h2", ()),
        ("shuffle", "stp", "h2", ("h1",)),
    }
    assert {order.subject_name for order in block} == {"wide", "stp", "stp/beside"}


def test_several_jobs_are_measured_at_once_and_alone_and_a_training_job_beside_both_references() -> None:
    block = list(next(plan_of(experiment="mixed", counts=(8,), policies=("ecmp", "planned")).rounds()))
    assert {(order.policy, bool(order.other_hosts)) for order in block} == {
        (policy, at_once) for policy in ("ecmp", "planned") for at_once in (False, True)
    }
    assert len(block) == 4 and all(order.hosts == tuple(f"h{number}" for number in range(1, 9)) for order in block)
    plan = plan_of(experiment="mixed", counts=(8,))
    jobs = plan.jobs_of("mixed", block[0].hosts, 1)
    assert [job.hosts for job in jobs.values()] == [[f"h{first}", f"h{first + 4}"] for first in (1, 2, 3, 4)]
    assert block[0].label.startswith("mixed, ") and "8 hosts" in block[0].label
    shuffles = next(plan_of(experiment="shuffles", counts=(4,)).rounds())
    assert all(order.hosts == ("h1", "h3", "h5", "h7") for order in shuffles), "where they are placed"
    alone = next(plan_of(experiment="moe", counts=(4,), policies=("ecmp",)).rounds())
    assert {order.policy for order in alone} == {STAR, WIDE, "ecmp"}
    assert list(plan.jobs_of("moe", alone[0].hosts, 1)) == [JOB]


def test_the_times_of_several_jobs_are_read_by_their_names_with_their_mean_and_bounds(tmp_path: Path) -> None:
    plan = plan_of(experiment="mixed", counts=(8,), policies=("ecmp",), blocks=1)
    launches, frames = [], []
    for order in next(plan.rounds()):
        factor = 2.0 if order.other_hosts else 1.0
        facts = {"record": "launch", "schema": SCHEMA, "test": "mixed", "policy": "ecmp", "hosts": 8, "block": 0}
        facts |= {
            "placed": list(order.hosts),
            "beside": list(order.other_hosts),
            "seed": order.seed,
            "load": None,
            "notes": [],
        }
        names = plan.jobs_of("mixed", order.hosts, order.seed)
        records = [
            {"record": "job", "quantity": name, "duration_s": 100 * factor * number, "fetched": []}
            for number, name in enumerate(names, start=1)
        ]
        file = tmp_path / f"{order.number}.jsonl"
        file.write_text("\n".join(map(json.dumps, (facts, *records, {"record": "end", "complete": True}))))
        read = read_sdn_records(file, order.number, order.subject_name)
        launches.append(
            Launch(order.number, order.subject_name, "mixed", details={"start": read.start, "end": read.end})
        )
        frames.append(read.samples)
    run, frame, _ = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39}, blocks=1)
    parameters = run.parameters | {"policies": ["ecmp"], "host_counts": [8]}
    run, frame = replace(run, launches=tuple(launches), parameters=parameters), pl.concat(frames)
    run = concluded(run, frame, plan)
    summary = summarised(run, frame)
    assert summary.quantities[0] == MEAN_COMPLETION and len(summary.quantities) == 5
    cell = summary.cell(MEAN_COMPLETION, 8, "ecmp", beside=True)
    assert cell and cell.values == (500.0,) and cell.of_alone and cell.of_alone.value == pytest.approx(0.5)
    assert cell.of_bound and 0 < cell.of_bound.value < 1
    page = render_sdn(run, frame)
    assert "ring all-reduce, s" in page and "mean completion beside the other job 0.50" in page


def test_references_have_two_message_sizes_and_their_own_networks() -> None:
    orders = {order.policy: order for order in next(plan_of(counts=(4,)).rounds())}
    assert plan_of().sizes(orders[WIDE]) == plan_of().sizes(orders[STAR]) == (8, 10_000, 50_000)
    assert plan_of().sizes(orders["stp"]) == (8, 50_000)
    assert plan_of().network_of("stp", orders["stp"].hosts) is TREE
    star = plan_of().network_of(STAR, orders[STAR].hosts)
    assert star.switches == ("s1",) and star.hosts == orders[STAR].hosts
    assert not non_blocking(replace(TREE, rates_bit_s={}), ["h1", "h2"]).rates_bit_s, (
        "a lab would not change a rate that it has"
    )
    wide = widened(TREE)
    assert wide.peers == TREE.peers
    rates = Counter(wide.rates_bit_s[port] for port in wide.peers)
    assert rates == {RATE: 2 * 17, RATE * 17: len(wide.peers) - 2 * 17}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ("stp", "fastest")}, "unknown strategy 'fastest'"),
        ({"policies": ("stp", "stp")}, "each once"),
        ({"policies": ()}, "at least one strategy"),
        ({"counts": (4, 17)}, "17 hosts are impossible"),
        ({"experiment": "both", "counts": (5,)}, "5 hosts cannot be shared"),
        ({"blocks": 0}, "at least 1"),
        ({"fabric": "ucx"}, "not over 'ucx'"),
        ({"ring": RingPlan(message_bytes=8)}, "longer messages than these"),
        ({"experiment": "latency", "ring": RingPlan(exchanges=2)}, "of single exchanges"),
        ({"experiment": "mixed", "counts": (10,)}, "a multiple of 4"),
        ({"experiment": "moe", "fabric": "barewire"}, "replayed over TCP"),
        ({"policies": ("stp/sliced",)}, "give a --workload of several: both, latency, mixed, shuffles"),
        ({"experiment": "both", "policies": ("stp/sliced",), "announce": False}, "leave out --no-announce"),
        ({"experiment": "both", "policies": ("mpi=spray+bigdata=ecmp/sliced",)}, "whose a frame is"),
        ({"experiment": "both", "policies": ("fastest/sliced",)}, "unknown strategy 'fastest'"),
        *(({"experiment": name, "shape": Shape(1, 1)}, "sends nothing") for name in ("shuffle", "both", "latency")),
    ],
)
def test_impossible_experiments_are_refused_before_measuring(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongUse, match=message):
        plan_of(**changes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--strategy", "fastest"), "unknown strategy 'fastest'"),
        (("--host-counts", "99"), "99 hosts are impossible"),
        (("--host-counts", "four"), "--host-counts takes comma-separated numbers"),
        (("--rate", "unshaped"), "such as 2500kbit"),
        (("--shape", "8"), "mappers x reducers"),
        (("--message-bytes", "9" * 20), "2.5mbit takes more than 3600 s"),
        (("--volume-bytes", "9" * 20), "2.5mbit takes more than 1000000 s"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["sdn", "bench", *words])
    assert isinstance(result.exception, WrongUse) and message in str(result.exception)


def test_without_open_vswitch_the_command_explains_its_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("barewire.lab.openvswitch.which", lambda _name: None)
    result = CliRunner().invoke(app, ["sdn", "bench", "-o", str(tmp_path / "run")])
    assert getattr(result.exception, "exit_code", None) == 3 and "apt" in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_a_policy_reaches_every_profile_of_the_controller() -> None:
    assert controller_strategies("isolated:seconds=30") == [
        f"{profile}=isolated:seconds=30" for profile in ("default", "mpi", "bigdata", "hadoop")
    ]
    assert sorted(controller_strategies("mpi=planned+bigdata=ecmp")) == [
        "bigdata=ecmp",
        "default=planned",
        "hadoop=ecmp",
        "mpi=planned",
    ]
    assert controller_strategies(STAR) == controller_strategies("stp")


@pytest.mark.parametrize(
    "policy", ["ecmp", "mpi=planned+default=ecmp", "bigdata=lanes+mpi=stp", "default=stp+bigdata=ecmp"]
)
def test_a_profile_has_the_same_strategy_on_switches_and_in_the_simulator(policy: str) -> None:
    simulated = read_policy(policy)
    on_switches = dict(word.split("=", 1) for word in controller_strategies(policy))
    for profile in ("default", "mpi", "bigdata"):
        assert on_switches[profile] == simulated.get(profile, simulated["default"]).name


def test_jobs_are_tenants_only_where_the_policy_is_sliced() -> None:
    plan = plan_of(experiment="both", counts=(8,), policies=("stp", "stp/sliced"))
    block = next(plan.rounds())
    assert {order.policy: plan.tenants_of(order) for order in block} == {
        WIDE: (),
        "stp": (),
        "stp/sliced": ("mpi", "bigdata"),
    }
    assert controller_strategies("stp/sliced") == controller_strategies("stp")
    several = plan_of(experiment="mixed", counts=(8,), policies=("ecmp/sliced",))
    order = next(several.rounds())[0]
    assert several.tenants_of(order) == tuple(several.jobs_of("mixed", order.hosts, order.seed))


def test_slices_are_equal_shares_and_each_tenant_has_a_token_of_its_own(tmp_path: Path) -> None:
    tokens = {job: tmp_path / f"token-{at}" for at, job in enumerate(("ring all-reduce", "moe", "shuffle"))}
    tenants = parse_tenants(tenants_file(tokens), "sdn.tenants.toml", [], tmp_path).all
    assert [one.name for one in tenants] == ["ring-all-reduce", "moe", "shuffle"]
    assert sum(one.share for one in tenants) == pytest.approx(1) and len({one.share for one in tenants}) == 1
    assert len({one.token for one in tenants}) == 3


def test_a_run_says_what_its_training_jobs_were() -> None:
    library: Any = "Open MPI"
    plan = plan_of(experiment="moe", training=TrainingPlan(5000, iterations=7, compute_share=0.5))
    found = parameters_of(BenchCampaign(plan, library, "beff"))["training"]
    assert found == {"message_bytes": 5000, "iterations": 7, "compute_share": 0.5, "skew": 0.5}


def test_messages_keep_their_proportion_to_the_rate() -> None:
    assert message_bytes_of(2_500_000) == 50_000


def test_a_name_with_parameters_is_a_valid_file_name() -> None:
    for subject in ("isolated:seconds=30/beside", "mpi=planned+bigdata=ecmp"):
        assert parse_launch_file_name(launch_file_name(7, "ring", subject)) == (7, "ring", subject)


def test_a_program_continues_only_after_its_step_is_prepared(tmp_path: Path) -> None:
    prepared: list[tuple[str, int]] = []
    steps = Steps(tmp_path / "steps", tmp_path / "heard", lambda name, number: prepared.append((name, number)))
    with steps, socket.socket(socket.AF_UNIX) as program:
        program.settimeout(5)
        program.connect(str(steps.path))
        for number in range(3):
            program.sendall(f"ring {number}\n".encode())
            assert program.recv(10) == b"\n" and prepared[-1] == ("ring", number)
    assert (tmp_path / "heard").read_text() == "ring 0\nring 1\nring 2\n" and not steps.path.exists()
    assert steps.failure is None


def test_a_failed_preparation_ends_the_program_and_is_recorded(tmp_path: Path) -> None:
    def fail(name: str, number: int) -> None:
        raise MeasurementFailed("no rules")

    with Steps(tmp_path / "steps", tmp_path / "heard", fail) as steps, socket.socket(socket.AF_UNIX) as program:
        program.settimeout(5)
        program.connect(str(steps.path))
        program.sendall(b"ring 0\n")
        assert program.recv(10) == b""
    assert str(steps.failure) == "no rules"


def test_a_job_that_fails_ends_the_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would run to their end, or until they count as hung; an interrupted experiment, too."""
    plan = plan_of(experiment="shuffles", counts=(8,), policies=("stp",))
    order = next(order for order in next(plan.rounds()) if order.other_hosts)
    ended, outlasted = threading.Event(), list[bool]()

    class Run:
        def __init__(self, fails: bool) -> None:
            self.fails = fails

        def run(self) -> None:
            if self.fails:
                raise MeasurementFailed("a worker is lost")
            outlasted.append(not ended.wait(2))

    @contextmanager
    def replayed(_self: Stage, _name: str, _job: object, number: int) -> Iterator[Any]:
        try:
            yield Run(fails=number == 3)
        finally:
            ended.set()

    monkeypatch.setattr(Stage, "_replayed", replayed)
    nothing: Any = SimpleNamespace(settle=lambda _patience_s: True, tick=lambda: None)
    with pytest.raises(MeasurementFailed, match="a worker is lost"):
        Stage(nothing, nothing, plan, nothing, "", nothing).measure_jobs(order)
    assert outlasted == [False] * 3


def test_listening_ends_without_a_connection(tmp_path: Path) -> None:
    with Steps(tmp_path / "steps", tmp_path / "heard", lambda name, number: None):
        pass


def test_paired_ratios_cancel_common_factors_of_blocks() -> None:
    """Blocks differ a hundredfold, the ratio within each is 2: its interval is narrow nevertheless."""
    references = [1.0, 10.0, 100.0, 3.0, 30.0, 5.0]
    ratio = paired_ratio([2 * value for value in references], references)
    assert ratio.value == pytest.approx(2) and ratio.interval == pytest.approx((2, 2))
    few = paired_ratio([1.0, 4.0], [1.0, 1.0])
    assert (few.value, few.interval, few.low, few.high) == (pytest.approx(2), None, 1, pytest.approx(4))
    assert ratio.p is not None and ratio.p < 1e-9 and few.p == pytest.approx(0.5)
    for values, wrong in (([1.0], [1.0, 2.0]), ([], []), ([0.0], [1.0])):
        with pytest.raises(ValueError, match=r"above 0|at least one"):
            paired_ratio(values, wrong)


def test_a_shuffles_launch_is_read_with_its_facts(tmp_path: Path) -> None:
    facts = {"record": "launch", "schema": SCHEMA, "hosts": 4, "policy": "stp"}
    job = {"record": "job", "duration_s": 2.5, "fetched": [[0, 100, 0.0, 1.0], [1, 100, 0.5, 2.5]]}
    file = tmp_path / "launch.jsonl"
    file.write_text("\n".join(map(json.dumps, (facts, job, {"record": "end", "complete": True}))))
    read = read_sdn_records(file, 3, "stp")
    assert read.start["sdn"] == facts and read.end["complete"]
    rows = read.samples.select(pl.col("quantity").cast(pl.String), "value", "ranks", "launch").rows()
    assert rows == [("job", 2.5, 4, 3), ("fetch", 1.0, 4, 3), ("fetch", 2.0, 4, 3)]
    file.write_text(json.dumps(facts | {"schema": "barewire-sdn/2"}))
    with pytest.raises(MeasurementFailed, match="schema"):
        read_sdn_records(file, 3, "stp")


def test_fractions_are_of_pairs_in_one_block_and_verdicts_follow_from_their_intervals() -> None:
    run, frame, small = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39, "isolated": 19}, blocks=6)
    summary = summarised(concluded(run, frame, small), frame)
    stp, isolated, wide = (summary.cell(RANDOM, 4, policy) for policy in ("stp", "isolated", WIDE))
    assert stp and isolated and wide and len(stp.values) == 6
    assert stp.values[0] == pytest.approx(50_000 / 40e-3 / 1e6) and stp.unit == "MB/s"
    assert stp.of_wide and stp.of_wide.value == pytest.approx(0.5) and stp.of_wide.interval == pytest.approx((0.5, 0.5))
    assert isolated.of_stp and isolated.of_stp.value == pytest.approx(2)
    assert isolated.of_star and isolated.of_star.value == pytest.approx(17 / 20) and wide.of_wide is None
    assert isolated.published == 67.99 and wide.published is None
    assert summary.cell(NATURAL, 4, "stp") and summary.cell(JOB, 4, "stp") is None
    page = render_sdn(concluded(run, frame, small), frame)
    assert "0.50 (0.50–0.50)" in page and "best is isolated, 1.00 (1.00–1.00) of the wide network" in page


def test_values_of_slow_links_have_three_digits_and_so_have_their_intervals() -> None:
    run, frame, small = synthetic_sdn({STAR: 16e3, WIDE: 19e3, "stp": 39e3}, blocks=6)
    concluded_run = concluded(run, frame, small)
    cell = summarised(concluded_run, frame).cell(RANDOM, 4, "stp")
    assert cell is not None and cell.interval is not None and cell.mean < 0.001
    shown = next(row for table in tables(summarised(concluded_run, frame)) for row in table.rows if row[0] == "stp")
    low, high = map(float, shown[3].split("–"))
    assert [float(shown[2]), low, high] == pytest.approx([cell.mean, *cell.interval], rel=0.02)


def test_the_published_order_is_decided_by_paired_intervals() -> None:
    run, frame, _small = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39, "ecmp-published": 24, "isolated": 31}, blocks=6)
    found = headlines(run, summarised(run, frame))
    assert found[:2] == [
        "4 hosts, random rings: isolated ≥ ecmp-published? NO, 0.78 (0.78–0.78).",
        "4 hosts, random rings: ecmp-published ≥ stp? yes, 1.60 (1.60–1.60).",
    ]
    few_run, few_frame, _ = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39, "ecmp-published": 24}, blocks=2)
    assert "cannot say: only 2 blocks" in headlines(few_run, summarised(few_run, few_frame))[0]


def ranked(factors: dict[str, list[float]], *, busy: float = 0.5) -> list[Ranking]:
    """Rankings by bandwidth of a run in which a policy's ring takes a factor longer in each block than 20 ms."""
    blocks = len(next(iter(factors.values())))
    run, frame, _ = synthetic_sdn({STAR: 16, WIDE: 19} | dict.fromkeys(factors, 19), blocks=blocks, busy=busy)
    times = {
        launch.index: factors[launch.subject][launch.details["start"]["sdn"]["block"]]
        for launch in run.launches
        if launch.subject in factors
    }
    longer = pl.col("launch").replace_strict(times, default=1.0, return_dtype=pl.Float64)
    summary = summarised(run, frame.with_columns(pl.col("value") * longer))
    return [ranking for ranking in summary.rankings() if ranking.first.quantity == RANDOM]


WITH_NOISE = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0]


def test_a_strategy_is_best_only_if_the_tests_tell_it_apart_from_every_other() -> None:
    """A tenth faster than both others: best. Than one only, or with a noise of a third: nothing is said."""
    slower = [1.1 * factor for factor in WITH_NOISE[::-1]]
    [ranking] = ranked({"planned": WITH_NOISE, "stp": slower, "ecmp": slower})
    assert ranking.best == "planned" and ranking.equals == ()
    [ranking] = ranked({"planned": WITH_NOISE, "stp": slower, "ecmp": WITH_NOISE[::-1]})
    assert ranking.best is None and len(ranking.equals) == 1 and "do not tell" in ranking.reason
    noisy = [1.0, 1.5, 0.7, 1.4, 0.8, 1.2]
    [ranking] = ranked({"planned": noisy, "stp": [1.05 * factor for factor in noisy[::-1]]})
    assert ranking.best is None and ranking.equals


def test_two_blocks_and_saturated_launches_say_nothing() -> None:
    """However large the difference is."""
    [ranking] = ranked({"planned": [1.0, 1.0], "stp": [2.0, 2.1]})
    assert ranking.best is None and ranking.reason == "only 2 blocks, and at least 6 are needed"
    [ranking] = ranked({"planned": WITH_NOISE, "stp": [2 * factor for factor in WITH_NOISE]}, busy=0.9)
    assert ranking.best is None and "saturated in 12 of 12 launches" in ranking.reason


def told_apart(factors: dict[str, float], experiments: int) -> list[set[str]]:
    """Verdicts on all pairs of strategies in each experiment of 6 blocks; the times differ by these factors.

    The experiments are quantities of one run, since each quantity is corrected by itself. The noise is a tenth, a
    block's effect a third.
    """
    generator = np.random.default_rng(1)
    names = [f"job {number}" for number in range(experiments)]
    of_blocks = generator.normal(0, 0.3, (6, experiments))
    launches, frames = [], []
    for number, (policy, block) in enumerate(product(factors, range(6))):
        times = factors[policy] * np.exp(of_blocks[block] + generator.normal(0, 0.1, experiments))
        same = {"launch": number, "test": "shuffle", "subject": policy, "message_bytes": 1, "unit": "s"}
        frames.append(sample_frame({"quantity": names, "value": list(times)}, **same, phase="measure", block=0))
        facts = {"test": "shuffle", "policy": policy, "hosts": 4, "beside": [], "block": block, "load": None}
        details = {"start": {"sdn": facts}, "end": {"complete": True}}
        launches.append(Launch(number, policy, "shuffle", details=details))
    run = new_run(command=[], seed=1, parameters={"kind": "sdn", "policies": list(factors)}, environment={})
    summary = summarised(replace(run, launches=tuple(launches), complete=True), pl.concat(frames))
    pairs = list(combinations(factors, 2))
    return [{str(summary.verdict(name, 4, *pair)) for pair in pairs} for name in names]


@pytest.mark.parametrize("strategies", [2, 4])
def test_equal_strategies_are_told_apart_no_more_often_than_the_confidence_says(strategies: int) -> None:
    """At 95 %, any of their pairs: in 5 % of the experiments, and three standard errors."""
    experiments = 400
    found = told_apart({f"s{number}": 1.0 for number in range(strategies)}, experiments)
    alarms = sum(bool(verdicts & {"better", "worse"}) for verdicts in found)
    assert alarms <= 0.05 * experiments + 3 * (0.05 * 0.95 * experiments) ** 0.5


@pytest.mark.parametrize("strategies", [2, 4])
def test_strategies_that_differ_by_a_third_are_told_apart(strategies: int) -> None:
    """A ratio's noise is a seventh."""
    found = told_apart({f"s{number}": 1.35**number for number in range(strategies)}, 100)
    assert sum("better" in verdicts for verdicts in found) >= 90
    assert not any("worse" in verdicts for verdicts in found)


def test_verdicts_on_strategies_agree_with_the_intervals_of_their_ratios() -> None:
    """Of one pair, which needs no correction: a verdict exactly where the interval excludes 1."""
    generator = np.random.default_rng(1)
    for _ in range(300):
        ratio = paired_ratio(list(np.exp(generator.normal(0.1, 0.1, 6))), [1.0] * 6)
        assert ratio.interval is not None
        low, high = ratio.interval
        assert compare_ratios([ratio]) == ["above" if low > 1 else "below" if high < 1 else "undecided"]
    alike = paired_ratio([1.001, 1.0, 1.002, 0.999, 1.001, 1.001], [1.0] * 6)
    assert compare_ratios([alike]) == ["no difference"]
    with pytest.raises(ValueError, match="without an interval"):
        compare_ratios([paired_ratio([2.0, 2.0], [1.0, 1.0])])


def test_intervals_of_rates_are_above_0_and_missing_below_6_blocks() -> None:
    run, frame, _ = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39}, blocks=2)
    cell = summarised(run, frame).cell(RANDOM, 4, "stp")
    assert cell and cell.interval is None and min(cell.values) < cell.mean < max(cell.values)
    low, high = geometric_interval([1, 100, 1, 100, 1, 100]) or (0.0, 0.0)
    assert 0 < low < 10 < high and low * high == pytest.approx(100)
    assert geometric_interval([3.0] * 6) == pytest.approx((3, 3))
    with pytest.raises(ValueError, match="above 0"):
        geometric_interval([0.0] * 6)


@pytest.mark.parametrize(("blocks", "spread"), [(2, "the range over the blocks, too few"), (6, "95 % interval")])
def test_captions_and_data_of_figures_say_what_error_bars_are(blocks: int, spread: str) -> None:
    run, frame, _ = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39}, blocks=blocks)
    summary = summarised(run, frame)
    drawn = [figure for part in parts(summary) for figure in part["figures"] if "Load" not in figure["title"]]
    assert len(drawn) > 2
    for figure in drawn:
        assert f"Error bars: {spread}" in figure["caption"]
        assert figure_data(figure["figure"], run.confidence)["interval"].startswith(spread)
    broken = replace(run, launches=tuple(replace(one, complete=one.index > 0) for one in run.launches))
    caption = parts(summarised(broken, frame))[0]["figures"][0]["caption"]
    assert ("or the range over the blocks where these are too few" in caption) == (blocks == 6)


def test_the_largest_error_of_the_simulator_is_that_of_a_launch() -> None:
    """Errors of +30 % and -10 % have a mean of +10 %: said are both, and the larger as the most."""
    run, frame, _ = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39}, blocks=2)
    measured = summarised(run, frame).cell(RANDOM, 4, "stp")
    assert measured
    wrong = dict(zip(measured.blocks, (1.3, 0.9), strict=True))
    launches = [
        replace(launch, details=launch.details | {"predicted": {RANDOM: value * wrong[block]}})
        if launch.subject == "stp"
        else launch
        for launch in run.launches
        for block in [launch.details["start"]["sdn"]["block"]]
        for value in [dict(zip(measured.blocks, measured.values, strict=True))[block]]
    ]
    changed = replace(run, launches=tuple(launches))
    summary = summarised(changed, frame)
    prediction = summary.predictions[RANDOM]
    assert (prediction.launches, prediction.mean, prediction.worst) == (2, pytest.approx(0.2), pytest.approx(0.3))
    assert "at most 30.0%" in " ".join(headlines(changed, summary))
    assert "+10.0% (+30.0%)" in render_sdn(changed, frame)


def test_latencies_are_quantiles_of_all_exchanges_alone_and_under_load() -> None:
    """Ranks of 1 to 100 µs and, under load, ten times that: half an exchange, over both methods' random rings."""
    plan = plan_of(experiment="latency", counts=(4,), policies=("stp", "planned"), blocks=1)
    [block] = plan.rounds()
    assert {(order.policy, bool(order.other_hosts)) for order in block} == {
        (policy, beside) for policy in (WIDE, "stp", "planned") for beside in (False, True)
    }
    assert all(plan.sizes(order) == (8,) and order.test == "latency" for order in block)
    run, frame = synthetic_latencies(plan)
    summary = summarised(concluded(run, frame, plan), frame)
    alone, loaded = (summary.cell(P99_LATENCY, 4, "stp", beside=beside) for beside in (False, True))
    median = summary.cell(MEDIAN_LATENCY, 4, "stp")
    assert alone and loaded and median and median.unit == "ms" and median.lower_is_better
    assert median.mean == pytest.approx(50.5e-3 / 2) and alone.mean == pytest.approx(99.01e-3 / 2)
    assert loaded.mean == pytest.approx(10 * alone.mean) and loaded.of_alone
    assert loaded.of_alone.value == pytest.approx(0.1) and summary.cell(RANDOM, 4, "stp") is None
    page = render_sdn(run, frame)
    assert "Latency of 8-byte rings, 4 hosts" in page and "p99, under load" in page
    assert "cannot say which is best" in page


def test_the_simulator_is_calibrated_only_on_the_wide_network_and_bounds_hold() -> None:
    run, frame, small = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39, "isolated": 19}, blocks=1)
    found = calibrated(frame, RATE)
    assert found is not None
    assert found.overhead_s == pytest.approx(1e-3) and found.efficiency == pytest.approx(16 / 19)
    done = concluded(run, frame, small)
    assert done.parameters["calibration"]["overhead_s"] == pytest.approx(1e-3)
    for launch in done.launches:
        assert 0 < launch.details["predicted"][RANDOM] <= launch.details["bound"][RANDOM] < RATE / 8e6
    predictions = summarised(done, frame).predictions
    assert predictions[RANDOM].launches == 2, "the references are no test of it"
    without = frame.filter(pl.col("subject").cast(pl.String) != WIDE)
    assert calibrated(without, RATE) is None
    longest = pl.col("message_bytes") == frame["message_bytes"].max()
    disturbed = frame.with_columns(value=pl.when(longest).then(pl.col("value") / 1e4).otherwise(pl.col("value")))
    kept = concluded(run, disturbed, small)
    assert kept.parameters["calibration"] is None
    assert "none in this run: longer messages take no longer" in render_sdn(kept, disturbed)


def test_a_replayed_jobs_bound_is_of_full_segments_whatever_the_rings_send() -> None:
    """Rings of 100 bytes have half of a link for payload, a shuffle beside them nine tenths."""
    run, frame, plan = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39}, blocks=1)
    [first, *_] = [one for one in run.launches if one.subject == "stp"]
    facts = {**first.details["start"]["sdn"], "test": "shuffle"}
    alone = replace(run, launches=(replace(first, details={"start": {"sdn": facts}}),))
    bounds = [
        concluded(alone, frame, replace(plan, ring=ring, fabric=fabric)).launches[0].details["bound"]
        for ring, fabric in ((plan.ring, "tcp"), (RingPlan(message_bytes=100), "tcp"), (plan.ring, "barewire"))
    ]
    assert bounds[0] == bounds[1] == bounds[2]
    assert plan.wire_efficiency < plan.setup.efficiency == pytest.approx(0.9415, abs=1e-4)


def test_the_job_beside_a_measured_one_is_simulated_with_the_seed_that_it_ran_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated = set()
    for kind in (Ring, Shuffle):

        def spied(self: Any, hosts: Any, seed: int, *more: Any, init: Any = kind.__init__) -> None:
            simulated.add((type(self), tuple(hosts), seed))
            init(self, hosts, seed, *more)

        monkeypatch.setattr(kind, "__init__", spied)
    run, frame, plan = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39}, blocks=1)
    [first, *_] = [one for one in run.launches if one.subject == "stp"]
    facts = {**first.details["start"]["sdn"], "placed": ["h1", "h3"], "beside": ["h2", "h4"], "seed": 7}
    both = [
        replace(first, index=at, details={"start": {"sdn": {**facts, "test": name}}})
        for at, name in enumerate(("ring", "shuffle"))
    ]
    concluded(replace(run, launches=tuple(both)), frame, plan)
    mine, others = ("h1", "h3"), ("h2", "h4")
    assert {(Ring, mine, 7), (Shuffle, mine, 7)} <= simulated
    assert {one for one in simulated if one[1] == others} == {(kind, others, other_seed(7)) for kind in (Ring, Shuffle)}


def test_slices_are_not_simulated_and_have_the_same_bound() -> None:
    run, frame, plan = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39}, blocks=1)
    launches = []
    for one in run.launches:
        facts = one.details["start"]["sdn"]
        policy = "stp/sliced" if facts["policy"] == "stp" else facts["policy"]
        launches.append(replace(one, details={"start": {"sdn": {**facts, "policy": policy}}}))
    done = concluded(replace(run, launches=tuple(launches)), frame, plan)
    by_policy = {one.details["start"]["sdn"]["policy"]: one.details for one in done.launches}
    assert "predicted" not in by_policy["stp/sliced"] and "predicted" in by_policy[WIDE]
    assert by_policy["stp/sliced"]["bound"] == by_policy[WIDE]["bound"]


@pytest.mark.parametrize(("busy", "is_reported"), [(0.5, False), (0.9, True)])
def test_a_saturated_launch_is_marked_in_table_and_page(busy: float, is_reported: bool) -> None:
    run, frame, small = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39, "isolated": 19}, blocks=1, busy=busy)
    page = render_sdn(concluded(run, frame, small), frame)
    assert ("Saturated: in 4 of 4 launches" in page) == is_reported and (f"{busy:.0%}!" in page) == is_reported


def test_an_interrupted_launch_is_left_out() -> None:
    run, frame, small = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39, "isolated": 19}, blocks=1)
    broken = replace(run.launches[0], complete=False, details={"start": {}})
    summary = summarised(concluded(replace(run, launches=(broken, *run.launches[1:])), frame, small), frame)
    assert len([cell for cell in summary.cells if cell.place.quantity == RANDOM]) == 3


def test_a_launch_that_ended_before_it_measured_has_no_load():
    process = Process.of(os.getpid())
    meter = Meter([process], process)
    with pytest.raises(ValueError, match="nothing was measured"):
        meter.used()
    meter.tick()
    with pytest.raises(ValueError):
        meter.used()


def test_a_frameworks_own_job_has_no_bound_and_no_prediction_and_rings_keep_theirs() -> None:
    """Its volumes and orders are the framework's; rings beside it have a bound, but their prediction would need it."""
    run, frame, plan = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39}, blocks=1)
    beside = ["h2", "h4"]
    launches = [
        replace(one, details=one.details | {"start": {"sdn": {**one.details["start"]["sdn"], "beside": beside}}})
        for one in run.launches
    ]
    done = concluded(replace(run, launches=tuple(launches)), frame, replace(plan, shuffler="dask"))
    assert all(RANDOM in launch.details["bound"] and "predicted" not in launch.details for launch in done.launches)
    alone = concluded(run, frame, replace(plan, shuffler="dask"))
    assert all("predicted" in launch.details for launch in alone.launches)
    with pytest.raises(WrongUse, match=r"'flink'.*replay, dask, spark"):
        plan_of(shuffler="flink")
