# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn bench` on real Open vSwitch under the real controller, as short as it can be: what it leaves is whole,
what is interrupted is kept, and nothing else is left."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from mpi_libraries import library, measurement

from barewire.lab import Lab
from barewire.lab.startup import environment
from barewire.results.sdn import MEAN_COMPLETION, RANDOM, STAR, WIDE, exchanges_ms, summarised
from barewire.results.store import read_run, samples
from barewire.sdn.bench.campaign import BenchCampaign
from barewire.sdn.bench.plan import BenchPlan, Order
from barewire.sdn.bench.stage import Stage
from barewire.sdn.replay.repeated import Replayed
from barewire.sdn.simulate import RingPlan, Shape, TrainingPlan
from barewire.sdn.simulate.experiment import least_job_s
from barewire.topology import fat_tree, parse, with_rate

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")
RATE = 25_000_000
SHORT = (
    *("--host-counts", "4", "--blocks", "1", "--rings", "1", "--measurements", "1", "--exchanges", "1", "--seed", "3"),
    *("--rate", "25mbit", "--message-bytes", "50000"),
)
COMMAND = [sys.executable, "-m", "barewire", "sdn", "bench"]


def bench(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words], env=environment(), capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.matrix
def test_rings_are_measured_on_both_references_and_under_a_strategy_that_plans_each_ring(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    done = bench("--strategy", "planned", *SHORT, "-o", str(directory))
    assert done.returncode == 0, done.stderr
    run = read_run(directory)
    assert run.complete and sorted(one.subject for one in run.launches) == ["planned", STAR, WIDE]
    for launch in run.launches:
        facts = launch.details["start"]["sdn"]
        assert facts["placed"] == ["h1", "h3", "h5", "h7"] and facts["notes"] == []
        assert 0 < facts["load"]["switches_cores"] < 2 and 0 < facts["load"]["controller_cores"] < 1
        assert launch.details["predicted"][RANDOM] > 0
    summary = summarised(run, samples(directory))
    for policy in (STAR, WIDE, "planned"):
        cell = summary.cell(RANDOM, 4, policy)
        assert cell and cell.of_bound and 0 < cell.of_bound.value < 1, "nothing beats the wire"
    assert "planned" in done.stdout and "of wide" in done.stdout


def campaign(experiment: str, fabric: str = "tcp") -> BenchCampaign:
    network = with_rate(fat_tree(4), RATE)
    ring = RingPlan(message_bytes=20_000, rings=1, measurements=1, exchanges=1)
    shape = Shape(8, 2, 2_000_000)
    plan = BenchPlan(
        experiment, "fat-tree:4", network, RATE, ("mpi=planned+bigdata=ecmp",), (4,), 1, 3, fabric, ring, shape
    )
    chosen = library("openmpi-5")
    return BenchCampaign(plan, chosen, measurement("openmpi-5", "beff"))


@pytest.mark.matrix  # the next one is a job beside another too
@pytest.mark.parametrize("test", ["shuffle", "ring"])
def test_each_job_is_measured_while_the_other_runs_beside_it(tmp_path: Path, test: str) -> None:
    measured = campaign("both")
    order = next(one for one in next(measured.rounds()) if one.test == test and one.other_hosts)
    measured.launch(order, tmp_path / "records")
    read = measured.read(order, tmp_path / "records")
    assert read.end["complete"] and read.start["sdn"]["beside"] == list(order.other_hosts)
    [value] = [one.median for one in measured.series(read.samples) if one.quantity in ("job", "bandwidth")][:1]
    assert value and value > 0
    if test == "shuffle":
        assert value > 8 * 2_000_000 / 2 / RATE / 2, "links cannot be beaten"


@pytest.mark.matrix
def test_each_job_is_a_tenant_under_a_sliced_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Announced with its tenant's token, as the controller's own account of tenants shows while the shuffle runs."""
    measured = campaign("both")
    measured = replace(measured, plan=replace(measured.plan, policies=("mpi=planned+bigdata=ecmp/sliced",)))
    jobs: list[dict[str, int]] = []
    measure_shuffle = Stage.measure_shuffle

    def watched(stage: Stage, order: Order) -> Replayed:
        tick = stage.meter.tick

        def look() -> None:
            tick()
            jobs.append({one["name"]: one["jobs"] for one in stage.controller.client.get("tenants")["tenants"]})

        monkeypatch.setattr(stage.meter, "tick", look)
        return measure_shuffle(stage, order)

    monkeypatch.setattr(Stage, "measure_shuffle", watched)
    order = next(one for one in next(measured.rounds()) if one.test == "shuffle" and one.other_hosts)
    measured.launch(order, tmp_path / "records")
    read = measured.read(order, tmp_path / "records")
    assert read.end["complete"] and read.start["sdn"]["policy"] == order.policy
    assert jobs == 2 * [{"mpi": 1, "bigdata": 1}]
    [value] = [one.median for one in measured.series(read.samples) if one.quantity == "job"]
    assert value and value > 8 * 2_000_000 / 2 / RATE / 2, "links cannot be beaten"


def test_training_jobs_and_a_shuffle_run_at_once_and_take_turns_on_a_narrow_network(tmp_path: Path) -> None:
    """Four jobs on two leaves with one spine between them: the controller decides who sends."""
    rate = 5_000_000
    network = with_rate(parse("leaf-spine:2x1x4"), rate)
    training = TrainingPlan(5_000, iterations=3)
    shape = Shape(4, 2, 60_000, copies=2)
    ring = RingPlan(message_bytes=5_000)
    plan = BenchPlan(
        *("mixed", "leaf-spine:2x1x4", network, rate, ("planned:turns=yes",), (8,), 1, 3, "tcp", ring, shape, training)
    )
    measured = BenchCampaign(plan, library("openmpi-5"), "no rings are measured")
    order = next(one for one in next(measured.rounds()) if one.other_hosts)
    measured.launch(order, tmp_path / "records")
    read = measured.read(order, tmp_path / "records")
    assert read.end["complete"] and read.start["sdn"]["notes"] == []
    times_s = dict(
        read.samples.filter(pl.col("quantity").cast(pl.String) != "fetch").select("quantity", "value").iter_rows()
    )
    jobs = plan.jobs_of("mixed", order.hosts, order.seed)
    assert set(times_s) == {*jobs, MEAN_COMPLETION}
    assert times_s[MEAN_COMPLETION] == pytest.approx(sum(times_s[name] for name in jobs) / 4)
    for name, job in jobs.items():
        assert times_s[name] > 0.98 * least_job_s(plan.setup, job), "links cannot be beaten"


@pytest.mark.matrix
def test_latencies_are_measured_while_a_shuffle_runs_beside_the_ring(tmp_path: Path) -> None:
    measured = campaign("latency")
    order = next(one for one in next(measured.rounds()) if one.other_hosts and one.policy != WIDE)
    measured.launch(order, tmp_path / "records")
    read = measured.read(order, tmp_path / "records")
    assert read.end["complete"] and read.start["sdn"]["test"] == "latency"
    assert read.start["sdn"]["beside"] == list(order.other_hosts)
    exchanges = exchanges_ms(read.samples)
    assert exchanges.height == 2 * len(order.hosts), "one random ring, two methods, one measurement"
    assert exchanges["value"].min() > 1e3 * 2 * 84 * 8 / RATE / 2, "links cannot be beaten"


@pytest.mark.matrix
def test_rings_run_over_barewire_too(tmp_path: Path) -> None:
    measured = campaign("ring", "barewire")
    order = next(one for one in next(measured.rounds()) if one.policy not in (STAR, WIDE))
    measured.launch(order, tmp_path / "records")
    assert measured.read(order, tmp_path / "records").end["complete"]


def test_an_interrupted_run_keeps_what_was_measured_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Interrupted in its second launch, as by a terminal: every process of the group is."""
    directory = tmp_path / "run"
    words = [*COMMAND, "--strategy", "stp", *SHORT, "--exchanges", "3", "-o", str(directory)]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(words, env=environment(), stdout=said, stderr=said, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(directory.glob("launches/0000-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    while len(Lab.list()) == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130, (tmp_path / "said").read_text()
    run = read_run(directory)
    assert not run.complete and run.stopped_by == "interrupt" and run.launches[0].complete
    assert json.loads((directory / "run.json").read_text())["launches"][0]["end"]["complete"]
    assert "marked incomplete" in (tmp_path / "said").read_text()


def test_a_ring_whose_listener_is_missing_says_so(tmp_path: Path) -> None:
    program = [measurement("openmpi", "beff"), "--sizes", "8", "--steps", str(tmp_path / "nobody")]
    mpirun = [library("openmpi").program("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    done = subprocess.run([*mpirun, *program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3 and "no listener at --steps" in done.stderr
