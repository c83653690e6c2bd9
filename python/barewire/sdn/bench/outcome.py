# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Bound and simulated value of each launch; the simulator is calibrated on non-blocking networks."""

from dataclasses import asdict, replace
from functools import cache
from statistics import fmean
from typing import Any

import polars as pl

from barewire.models.beff import bandwidth_byte_s, mean_latency_ns
from barewire.mpi.fabrics import PROVIDER
from barewire.results.derived import derived_samples
from barewire.results.run import Run
from barewire.results.sdn import JOB, MEAN_COMPLETION, NATURAL, RANDOM, REFERENCES, SHORT_BYTES, WIDE
from barewire.sdn.bench.plan import LATENCY, REPLAY, RING, BenchPlan, is_sliced, other_seed
from barewire.sdn.calibration import Calibration, fit
from barewire.sdn.published import is_published, ring_mbyte_s
from barewire.sdn.simulate.experiment import Setup, least_job_s, least_time_s
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.simulate.ring import Ring
from barewire.sdn.simulate.shuffle import Shuffle
from barewire.sdn.simulate.together import Concurrent
from barewire.sdn.simulate.workload import Workload

Values = dict[str, float]


def concluded(run: Run, frame: pl.DataFrame, plan: BenchPlan) -> Run:
    """Put `bound` and `predicted` into each launch's details, by quantity, and the calibration into the run.

    Rings in MB/s, jobs in s; latencies have neither, because the simulator has no packets, and slices no prediction. A
    bound includes only the wire's overhead. Without runs on the wide network there is no calibration and no prediction.
    """
    calibration, obstacle = None, None
    try:
        calibration = calibrated(frame, plan.rate_bit_s)
    except ValueError as error:
        # What was measured is worth keeping; the report gives the reason.
        obstacle = str(error)
    bounds = cache(lambda test, hosts, seed: _bound(plan, test, hosts, seed))
    predictions = cache(lambda *what: _predicted(plan, calibration, *what)) if calibration else None
    launches = []
    for launch in run.launches:
        facts = launch.details["start"].get("sdn")
        if not launch.complete or not facts or facts["test"] == LATENCY:
            launches.append(launch)
            continue
        hosts, other_hosts = tuple(facts["placed"]), tuple(facts["beside"])
        what = (facts["test"], facts["policy"], hosts, other_hosts, facts["seed"])
        # A framework's volumes and orders are its own: neither bound nor simulator knows them.
        is_known = plan.shuffler == REPLAY or (facts["test"] == RING and not other_hosts)
        added: dict[str, Any] = {}
        if plan.shuffler == REPLAY or facts["test"] == RING:
            added["bound"] = bounds(facts["test"], hosts, facts["seed"])
        if predictions is not None and is_known and not is_sliced(facts["policy"]):
            added["predicted"] = predictions(*what)
        launches.append(replace(launch, details=launch.details | added))
    found = None if calibration is None else asdict(calibration)
    # Beside a shuffle, rings have half of the hosts, in another placement than the published one.
    alike = plan.policies if plan.experiment == RING and is_published(plan.network) else ()
    known = {policy: {str(count): ring_mbyte_s(policy, count) for count in plan.counts} for policy in alike}
    return replace(
        run,
        launches=tuple(launches),
        parameters=run.parameters | {"calibration": found, "calibration_obstacle": obstacle, "published": known},
    )


def calibrated(frame: pl.DataFrame, rate_bit_s: int) -> Calibration | None:
    """Fit the simulator's parameters to rings on the wide network; None without two sizes of long messages there.

    ValueError if what disturbed the rings hides that longer messages take longer.
    """
    derived, _ = derived_samples(frame.filter(pl.col("subject").cast(pl.String) == WIDE))
    is_long = pl.col("message_bytes") != SHORT_BYTES
    latencies = derived.filter((pl.col("quantity").cast(pl.String) == "latency") & is_long)
    points = [(int(row["message_bytes"]), row["value"] * 1e-6) for row in latencies.iter_rows(named=True)]
    return fit(points, rate_bit_s) if len({size for size, _ in points}) > 1 else None


def _bound(plan: BenchPlan, test: str, hosts: tuple[str, ...], seed: int) -> Values:
    setup = plan.setup
    if test != RING:
        times_s = {name: least_job_s(setup, job) for name, job in plan.jobs_of(test, hosts, seed).items()}
        return times_s if len(times_s) == 1 else {**times_s, MEAN_COMPLETION: fmean(times_s.values())}
    setup = replace(setup, efficiency=plan.wire_efficiency)
    latencies = [least_time_s(setup, pattern) / 2 * 1e9 for pattern in Ring(hosts, seed, setup.ring).ring_patterns()]
    size = plan.ring.message_bytes
    return {
        RANDOM: bandwidth_byte_s(size, mean_latency_ns(latencies[1:])) / 1e6,
        NATURAL: bandwidth_byte_s(size, latencies[0]) / 1e6,
    }


def _predicted(
    plan: BenchPlan,
    calibration: Calibration,
    test: str,
    policy: str,
    hosts: tuple[str, ...],
    other_hosts: tuple[str, ...],
    seed: int,
) -> Values:
    network = plan.network_of(policy, hosts)
    transport = "llc" if plan.fabric == PROVIDER else "tcp"
    ring_plan = replace(plan.ring, overhead_s=calibration.overhead_s, exchanges=2, transport=transport)
    setup = Setup(network, ring_plan, plan.shape, plan.training, calibration.efficiency)
    strategies = read_policy("stp" if policy in REFERENCES else policy)
    if test == RING:
        ring = Ring(hosts, seed, ring_plan)
        setup.run(
            network,
            strategies,
            Concurrent(ring, lambda before: _next_shuffle(plan, other_hosts, other_seed(seed), before))
            if other_hosts
            else ring,
        )
        return {RANDOM: ring.bandwidth_byte_s() / 1e6, NATURAL: ring.bandwidth_byte_s("natural") / 1e6}
    job = Shuffle(hosts, seed, plan.shape)
    setup.run(
        network,
        strategies,
        Concurrent(job, lambda _: Ring(other_hosts, other_seed(seed), ring_plan)) if other_hosts else job,
    )
    return {JOB: job.finished_s}


def _next_shuffle(plan: BenchPlan, hosts: tuple[str, ...], seed: int, before: Workload | None) -> Shuffle:
    """The same job again, over new connections."""
    return Shuffle(hosts, seed, plan.shape, before.connections if isinstance(before, Shuffle) else 0)
