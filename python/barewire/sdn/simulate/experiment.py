# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A workload under several strategies, seed by seed, with its references: a star, and the bound.

All strategies use the same seeds, so ratios are paired.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean, mean

from barewire.errors import WrongUse, unknown
from barewire.models.wire import wire_time_ns
from barewire.sdn.bound import concurrent_flow, host_links
from barewire.sdn.published import is_published, ring_mbyte_s
from barewire.sdn.simulate.control import Policy, Timing
from barewire.sdn.simulate.engine import Engine
from barewire.sdn.simulate.permutation import Permutation
from barewire.sdn.simulate.placement import halves, placed_hosts
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.simulate.reference import non_blocking
from barewire.sdn.simulate.ring import Ring, RingPlan
from barewire.sdn.simulate.series import Series
from barewire.sdn.simulate.shuffle import Shape, Shuffle
from barewire.sdn.simulate.together import Concurrent
from barewire.sdn.simulate.workload import Workload
from barewire.sdn.strategies.memo import paths_of
from barewire.topology import Network

STAR = "star"
# A permutation is evaluated after statistics have arrived and each strategy has rearranged twice.
_PERIODS = 2.5

# Directed links up to which a ring's bound is solved quickly: a 6-port fat-tree, not an 8-port one.
_SOLVED_LINKS = 500

_MTU, _FLOW_BYTES = 1500, 1_000_000


def tcp_efficiency() -> float:
    """The payload's share of a link's rate in full TCP segments over frames of 1500 bytes."""
    return _FLOW_BYTES * 8e9 / wire_time_ns(_FLOW_BYTES, "tcp", _MTU, 1e9) / 1e9


@dataclass(frozen=True)
class Setup:
    """Parameters common to all strategies."""

    network: Network
    ring: RingPlan = field(default_factory=RingPlan)
    shape: Shape = field(default_factory=Shape)
    efficiency: float = field(default_factory=tcp_efficiency)
    timing: Timing = field(default_factory=Timing)

    def run(self, network: Network, policy: Policy, workload: Workload) -> None:
        """Simulate a workload to completion."""
        Engine(network, policy, efficiency=self.efficiency, timing=self.timing).run(workload)


Advance = Callable[[str], None]
# A workload's experiment: (setup, policies by name, number of hosts, seeds, callback before each simulation).
_Experiment = Callable[[Setup, Mapping[str, Policy], int, Sequence[int], Advance], list[Series]]


def experiment(
    setup: Setup, workload: str, strategies: Sequence[str], hosts: Sequence[int], seeds: int, advance: Advance
) -> list[Series]:
    """Run the whole experiment. WrongUse for invalid arguments.

    `advance` is called `simulations` times, before each one, with what is simulated.
    """
    if workload not in WORKLOADS:
        raise unknown("workload", workload, WORKLOADS)
    if seeds < 1:
        raise WrongUse(f"--seeds {seeds}: at least 1")
    policies = {name: read_policy(name) for name in strategies}
    return [
        series
        for count in hosts
        for series in WORKLOADS[workload](setup, policies, count, range(1, seeds + 1), advance)
    ]


def simulations(workload: str, strategies: int, hosts: int, seeds: int) -> int:
    """Number of calls of `advance` by `experiment`: one per strategy, and for the star if simulated."""
    return (strategies + (workload in ("ring", "shuffle"))) * hosts * seeds


def _ring(
    setup: Setup, policies: Mapping[str, Policy], count: int, seeds: Sequence[int], advance: Advance
) -> list[Series]:
    hosts = placed_hosts(setup.network, count)
    star = non_blocking(setup.network, hosts)
    bounds = [_ring_bound(setup, hosts, seed) for seed in seeds]
    results: dict[str, list[tuple[float, float]]] = {}
    for name, policy in {STAR: read_policy("stp"), **policies}.items():
        results[name] = []
        for seed in seeds:
            advance(f"rings on {count} hosts, {name}")
            ring = Ring(hosts, seed, setup.ring)
            setup.run(star if name == STAR else setup.network, policy, ring)
            results[name].append((ring.bandwidth_byte_s() / 1e6, ring.bandwidth_byte_s("natural") / 1e6))
    series: list[Series] = []
    for number, quantity in enumerate(("random rings", "natural ring")):
        reference = tuple(values[number] for values in results[STAR])
        for name in policies:
            published = ring_mbyte_s(name, count) if number == 0 and is_published(setup.network) else None
            values = tuple(values[number] for values in results[name])
            bound = tuple(pair[number] for pair in bounds)
            series.append(Series("ring", quantity, "MB/s", name, count, values, reference, bound, published))
    return series


def _ring_bound(setup: Setup, hosts: Sequence[str], seed: int) -> tuple[float, float]:
    """Bound of the rings: half of a pattern's minimum time, plus a message's overhead."""
    latencies = [
        least_time_s(setup, pattern) / 2 + setup.ring.overhead_s
        for pattern in Ring(hosts, seed, setup.ring).ring_patterns()
    ]
    size = setup.ring.message_bytes
    return size / geometric_mean(latencies[1:]) / 1e6, size / latencies[0] / 1e6


def least_time_s(setup: Setup, demand: Mapping[tuple[str, str], float]) -> float:
    """The minimum time, by the linear programme or, for large networks, by the hosts' links."""
    solve = concurrent_flow if len(setup.network.peers) <= _SOLVED_LINKS else host_links
    return 1 / (solve(setup.network, demand) * setup.efficiency)


def _shuffle(
    setup: Setup, policies: Mapping[str, Policy], count: int, seeds: Sequence[int], advance: Advance
) -> list[Series]:
    hosts = placed_hosts(setup.network, count)
    star = non_blocking(setup.network, hosts)
    times: dict[str, tuple[float, ...]] = {}
    for name, policy in {STAR: read_policy("stp"), **policies}.items():
        jobs = [Shuffle(hosts, seed, setup.shape) for seed in seeds]
        for job in jobs:
            advance(f"shuffle on {count} hosts, {name}")
            setup.run(star if name == STAR else setup.network, policy, job)
        times[name] = tuple(job.finished_s for job in jobs)
    bound = tuple(least_time_s(setup, Shuffle(hosts, seed, setup.shape).patterns[0]) for seed in seeds)
    return [
        Series("shuffle", "job", "s", name, count, times[name], times[STAR], bound, lower_is_better=True)
        for name in policies
    ]


def _both(
    setup: Setup, policies: Mapping[str, Policy], count: int, seeds: Sequence[int], advance: Advance
) -> list[Series]:
    """Rings on odd hosts beside a shuffle on even hosts, each compared with itself alone under the same strategy."""
    hpc, data = halves(setup.network, count)
    series: list[Series] = []
    for name, policy in policies.items():
        rings: list[tuple[float, float]] = []
        jobs: list[tuple[float, float]] = []
        for seed in seeds:
            advance(f"rings and shuffle on {count} hosts, {name}")
            ring, ring_alone = Ring(hpc, seed, setup.ring), Ring(hpc, seed, setup.ring)
            setup.run(setup.network, policy, Concurrent(ring, _shuffles(data, seed, setup.shape)))
            setup.run(setup.network, policy, ring_alone)
            rings.append((ring.bandwidth_byte_s() / 1e6, ring_alone.bandwidth_byte_s() / 1e6))
            job, job_alone = Shuffle(data, seed, setup.shape), Shuffle(data, seed, setup.shape)
            setup.run(setup.network, policy, Concurrent(job, _rings(hpc, seed, setup.ring)))
            setup.run(setup.network, policy, job_alone)
            jobs.append((job.finished_s, job_alone.finished_s))
        values, alone = zip(*rings, strict=True)
        series.append(Series("both", "random rings", "MB/s", name, count, values, alone))
        values, alone = zip(*jobs, strict=True)
        series.append(Series("both", "job", "s", name, count, values, alone, lower_is_better=True))
    return series


def _rings(hosts: Sequence[str], seed: int, plan: RingPlan) -> Callable[[Workload | None], Workload]:
    """The same rings repeatedly."""
    return lambda before: Ring(hosts, seed, plan)


def _shuffles(hosts: Sequence[str], seed: int, shape: Shape) -> Callable[[Workload | None], Workload]:
    """One job after another, each with new connections."""

    def following(before: Workload | None) -> Workload:
        return Shuffle(hosts, seed, shape, before.connections if isinstance(before, Shuffle) else 0)

    return following


def _permutation(
    setup: Setup, policies: Mapping[str, Policy], count: int, seeds: Sequence[int], advance: Advance
) -> list[Series]:
    """Mean rate of a random permutation's flows, as a share of line rate, the rate on a star."""
    hosts = placed_hosts(setup.network, count)
    line_rate = tuple(1.0 for _ in seeds)
    series: list[Series] = []
    for name, policy in policies.items():
        shares: list[float] = []
        for seed in seeds:
            advance(f"permutation of {count} hosts, {name}")
            permutation = Permutation(hosts, seed)
            paths_of(setup.network).expect(hosts)
            engine = Engine(setup.network, policy, efficiency=setup.efficiency, timing=setup.timing)
            slowest_s = max(strategy.period_s for strategy in policy.values())
            engine.run(permutation, until_s=_PERIODS * slowest_s + setup.timing.statistics_s)
            rates = engine.rates()
            line = {key: float(engine.control.capacity[engine.control.links(key)[0]]) for key in rates}
            shares.append(mean(rate / line[key] for key, rate in rates.items()) / setup.efficiency)
        series.append(Series("permutation", "flow rate", "of line", name, count, tuple(shares), line_rate, line_rate))
    return series


WORKLOADS: Mapping[str, _Experiment] = {
    "ring": _ring,
    "shuffle": _shuffle,
    "both": _both,
    "permutation": _permutation,
}
