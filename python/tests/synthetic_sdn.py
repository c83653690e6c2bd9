# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Synthetic experiments on switches: rings with given latencies, over a given number of blocks."""

from dataclasses import replace
from typing import Any

import polars as pl

from barewire.measure.session import new_run
from barewire.results.run import Launch, Run
from barewire.results.schema import sample_frame
from barewire.results.sdn import STAR, WIDE
from barewire.sdn.bench.plan import BenchPlan, Order
from barewire.sdn.simulate import RingPlan, Shape
from barewire.topology import fat_tree, with_rate

RATE = 25_000_000
TREE = with_rate(fat_tree(4), RATE)


def plan_of(**changes: Any) -> BenchPlan:
    usual: dict[str, Any] = {
        "experiment": "ring",
        "topology": "fat-tree:4",
        "network": TREE,
        "rate_bit_s": RATE,
        "policies": ("stp", "isolated"),
        "counts": (4, 8),
        "blocks": 3,
        "seed": 1,
        "fabric": "tcp",
        "ring": RingPlan(message_bytes=50_000, rings=2, exchanges=1),
        "shape": Shape(8, 2, 1_000_000),
    }
    return BenchPlan(**usual | changes)


def _ring_samples(launch: int, policy: str, hosts: int, size: int, latency_ns: float) -> pl.DataFrame:
    """One launch in which every ring has this latency, by one method."""
    rows = [
        (f"{ring}-sendrecv", number, rank)
        for ring, numbers in (("natural", (0,)), ("random", (1, 2)))
        for number in numbers
        for rank in range(hosts)
    ]
    columns = {
        "variant": [row[0] for row in rows],
        "parameter_value": [float(row[1]) for row in rows],
        "rank": [row[2] for row in rows],
        "value": [2 * latency_ns / 1e3 for _ in rows],
    }
    same = {"launch": launch, "test": "beff", "subject": policy, "ranks": hosts, "quantity": "time", "unit": "us"}
    return sample_frame(columns, **same, parameter="ring", message_bytes=size, phase="measure", block=0)


def _facts(order: Order, busy: float) -> dict[str, Any]:
    load = {
        "busy_share": busy,
        "saturated": busy > 0.85,
        "switches_cores": 0.4,
        "controller_cores": 0.1,
        "seconds": 5.0,
    }
    return {
        "test": order.test,
        "policy": order.policy,
        "hosts": order.count,
        "placed": list(order.hosts),
        "beside": list(order.other_hosts),
        "block": order.block,
        "seed": order.seed,
        "load": load,
        "notes": [],
    }


def synthetic_latencies(plan: BenchPlan) -> tuple[Run, pl.DataFrame]:
    """Exchanges of 1 to 100 µs in each launch, ten times as long under load; those of natural rings do not count."""
    launches, frames = [], []
    for order in (order for block in plan.rounds() for order in block):
        factor = 10.0 if order.other_hosts else 1.0
        times = [factor * (1 + number) for number in range(100)]
        columns = {"variant": ["random-sendrecv", "random-nonblocking"] * 50, "value": times}
        same = {"launch": order.number, "test": "beff", "subject": order.subject_name, "ranks": 2, "unit": "us"}
        same |= {"quantity": "time", "parameter": "ring", "parameter_value": 1.0, "phase": "measure", "block": 0}
        frames.append(sample_frame(columns, **same, message_bytes=8))
        frames.append(sample_frame({"variant": ["natural-sendrecv"], "value": [1e6]}, **same, message_bytes=8))
        details = {"start": {"sdn": _facts(order, 0.5)}, "end": {"complete": True}}
        launches.append(Launch(order.number, order.subject_name, "beff", details=details))
    parameters = {"kind": "sdn", "policies": list(plan.policies), "host_counts": list(plan.counts), "rate_bit_s": RATE}
    run = new_run(command=["barewire"], seed=1, parameters={**parameters, "mtu": 1500}, environment={"versions": {}})
    return replace(run, launches=tuple(launches), complete=True), pl.concat(frames)


def synthetic_sdn(
    latencies_ms: dict[str, float], blocks: int, *, busy: float = 0.5
) -> tuple[Run, pl.DataFrame, BenchPlan]:
    """A run on 4 hosts in which block b is slower by a factor of 1 + b; every message also costs 1 ms."""
    small = plan_of(counts=(4,), blocks=blocks, policies=tuple(p for p in latencies_ms if p not in (STAR, WIDE)))
    launches, frames = [], []
    for block in small.rounds():
        for order in block:
            for size in small.sizes(order):
                share = size / small.ring.message_bytes
                latency = (latencies_ms[order.policy] * share + 1) * (1 + order.block) * 1e6
                frames.append(_ring_samples(order.number, order.policy, 4, size, latency))
            facts = _facts(order, busy)
            details = {"start": {"sdn": facts}, "end": {"complete": True}}
            launches.append(Launch(order.number, order.policy, "ring", details=details))
    parameters = {"kind": "sdn", "policies": list(small.policies), "host_counts": [4], "rate_bit_s": RATE, "mtu": 1500}
    run = new_run(command=["barewire"], seed=1, parameters=parameters, environment={"versions": {}})
    return replace(run, launches=tuple(launches), complete=True), pl.concat(frames), small
