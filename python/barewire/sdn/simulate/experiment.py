# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A workload under several strategies, seed by seed, with its references: a star, and the bound.

All strategies use the same seeds, so ratios are paired.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import geometric_mean, mean

from barewire.errors import WrongUse, unknown
from barewire.models.wire import wire_time_ns
from barewire.sdn.bound import concurrent_flow, host_links
from barewire.sdn.coflow import takes_turns
from barewire.sdn.flow import DEFAULT_PROFILE
from barewire.sdn.published import is_published, ring_mbyte_s
from barewire.sdn.simulate.control import STATISTICS_S, Policy
from barewire.sdn.simulate.engine import Engine
from barewire.sdn.simulate.permutation import Permutation
from barewire.sdn.simulate.placement import halves, placed_hosts, quarters
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.simulate.reference import non_blocking
from barewire.sdn.simulate.ring import Ring, RingPlan
from barewire.sdn.simulate.series import Series
from barewire.sdn.simulate.shuffle import Shape, Shuffle
from barewire.sdn.simulate.together import Concurrent, Together
from barewire.sdn.simulate.training import Training, TrainingPlan, pattern_of, steps_of
from barewire.sdn.simulate.workload import BIG_DATA, HPC, Job, Workload
from barewire.sdn.strategies.memo import paths_of
from barewire.topology import Network

STAR = "star"
# A permutation is evaluated after statistics have arrived and each strategy has rearranged twice.
_PERIODS = 2.5

# Directed links up to which a ring's bound is solved quickly: a 6-port fat-tree, not an 8-port one.
_SOLVED_LINKS = 500

_MTU, _FLOW_BYTES = 1500, 1_000_000


def tcp_efficiency(mtu: int = _MTU) -> float:
    """The payload's share of a link's rate in full TCP segments."""
    return _FLOW_BYTES * 8e9 / wire_time_ns(_FLOW_BYTES, "tcp", mtu, 1e9) / 1e9


@dataclass(frozen=True)
class Setup:
    """Parameters common to all strategies."""

    network: Network
    ring: RingPlan = field(default_factory=RingPlan)
    shape: Shape = field(default_factory=Shape)
    training: TrainingPlan = field(default_factory=TrainingPlan)
    efficiency: float = field(default_factory=tcp_efficiency)
    announce: bool = True

    def engine(self, network: Network, policy: Policy) -> Engine:
        """Return an engine with these parameters."""
        return Engine(network, policy, efficiency=self.efficiency, announced=self.announce)

    def run(self, network: Network, policy: Policy, workload: Workload) -> None:
        """Simulate a workload to completion."""
        sends = workload.sends if isinstance(workload, Together) and workload.has_turns else None
        self.engine(network, policy).run(workload, sends=sends)


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
    return (strategies + (workload in ("ring", "shuffle", *COLLECTIVE_OF))) * hosts * seeds


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


def _one_job(workload: str, job_of: Callable[[Setup, Sequence[str], int], Shuffle | Training]) -> _Experiment:
    """The experiment with one job on all hosts, which `job_of` returns for a seed."""

    def run(
        setup: Setup, policies: Mapping[str, Policy], count: int, seeds: Sequence[int], advance: Advance
    ) -> list[Series]:
        hosts = placed_hosts(setup.network, count)
        star = non_blocking(setup.network, hosts)
        times: dict[str, tuple[float, ...]] = {}
        for name, policy in {STAR: read_policy("stp"), **policies}.items():
            jobs = [job_of(setup, hosts, seed) for seed in seeds]
            for job in jobs:
                advance(f"{workload} on {count} hosts, {name}")
                setup.run(star if name == STAR else setup.network, policy, job)
            times[name] = tuple(job.finished_s for job in jobs)
        bound = tuple(least_job_s(setup, job_of(setup, hosts, seed)) for seed in seeds)
        return [
            Series(workload, "job", "s", name, count, times[name], times[STAR], bound, lower_is_better=True)
            for name in policies
        ]

    return run


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
            engine = setup.engine(setup.network, policy)
            slowest_s = max(strategy.period_s for strategy in policy.values())
            engine.run(permutation, until_s=_PERIODS * slowest_s + STATISTICS_S)
            rates = engine.rates()
            line = {key: float(engine.control.capacity[engine.control.links(key)[0]]) for key in rates}
            shares.append(mean(rate / line[key] for key, rate in rates.items()) / setup.efficiency)
        series.append(Series("permutation", "flow rate", "of line", name, count, tuple(shares), line_rate, line_rate))
    return series


def training_job(setup: Setup, hosts: Sequence[str], seed: int, collective: str, number: int = 0) -> Training:
    """Return a training job whose share of computing is `setup.training.compute_share` if nothing blocks."""
    share = setup.training.compute_share
    steps = steps_of(collective, len(hosts), setup.training, seed)
    sends_s = sum(1 / (host_links(setup.network, pattern_of([step], hosts)) * setup.efficiency) for step in steps)
    return Training(hosts, seed, collective, setup.training, sends_s * share / (1 - share), number)


def least_job_s(setup: Setup, job: Job) -> float:
    """The minimum time of a shuffle or a training job alone."""
    if not isinstance(job, Training):
        return least_time_s(setup, job.patterns[0])
    # Most steps of an all-reduce are the same.
    steps = Counter(job.steps)
    sends_s = sum(least_time_s(setup, pattern_of([step], job.hosts)) * times for step, times in steps.items())
    return job.plan.iterations * (job.compute_s + sends_s)


def mixed_jobs(setup: Setup, count: int, seed: int) -> dict[str, Job]:
    """Two all-reduces, a mixture of experts and a shuffle, each on every fourth host."""
    ring, tree, experts, data = quarters(setup.network, count)
    return {
        "ring all-reduce": training_job(setup, ring, seed, "ring", 0),
        "tree all-reduce": training_job(setup, tree, seed, "tree", 1),
        "mixture of experts": training_job(setup, experts, seed, "moe", 2),
        "shuffle": Shuffle(data, seed, setup.shape),
    }


def shuffle_jobs(setup: Setup, count: int, seed: int) -> dict[str, Job]:
    """Four shuffles on the same hosts, each with half of the volume of the one before; the longest begins first."""
    hosts = placed_hosts(setup.network, count)
    jobs: dict[str, Job] = {}
    connections = 0
    names = ("longest shuffle", "third shuffle", "second shuffle", "shortest shuffle")
    for number, name in enumerate(names):
        shape = replace(setup.shape, volume_bytes=max(1, setup.shape.volume_bytes >> number))
        jobs[name] = Shuffle(hosts, seed * len(names) + number, shape, connections)
        connections += shape.mappers * shape.reducers
    return jobs


def together(setup: Setup, jobs: Mapping[str, Job], policy: Policy) -> Together:
    """Return jobs that begin at once; those whose profile's strategy says so take turns."""
    profiles = {name: BIG_DATA if isinstance(job, Shuffle) else HPC for name, job in jobs.items()}
    in_turns = {name for name, of in profiles.items() if takes_turns(policy.get(of, policy[DEFAULT_PROFILE]))}
    return Together(jobs, setup.network, in_turns if setup.announce else ())


def _several(workload: str, jobs_of: Callable[[Setup, int, int], dict[str, Job]]) -> _Experiment:
    """The experiment with several jobs at once, each compared with itself alone under the same strategy."""

    def run(
        setup: Setup, policies: Mapping[str, Policy], count: int, seeds: Sequence[int], advance: Advance
    ) -> list[Series]:
        series: list[Series] = []
        for name, policy in policies.items():
            measured: dict[str, list[tuple[float, float]]] = {}
            for seed in seeds:
                advance(f"{workload} on {count} hosts, {name}")
                jobs, alone = jobs_of(setup, count, seed), jobs_of(setup, count, seed)
                setup.run(setup.network, policy, together(setup, jobs, policy))
                for job_name, job in jobs.items():
                    setup.run(setup.network, policy, alone[job_name])
                    measured.setdefault(job_name, []).append((job.finished_s, alone[job_name].finished_s))
            means = [tuple(map(mean, zip(*times, strict=True))) for times in zip(*measured.values(), strict=True)]
            for job_name, times in {**measured, MEAN_COMPLETION: means}.items():
                values, bases = zip(*times, strict=True)
                series.append(Series(workload, job_name, "s", name, count, values, bases, lower_is_better=True))
        return series

    return run


# The workloads of one training job, and their collectives.
COLLECTIVE_OF = {"allreduce": "ring", "tree": "tree", "moe": "moe", "pipeline": "pipeline"}
MEAN_COMPLETION = "mean completion"
# Workloads of several jobs that are all measured at once.
SEVERAL: Mapping[str, Callable[[Setup, int, int], dict[str, Job]]] = {"mixed": mixed_jobs, "shuffles": shuffle_jobs}
# Workloads whose jobs are compared with themselves alone.
AT_ONCE = ("both", *SEVERAL)

WORKLOADS: Mapping[str, _Experiment] = {
    "ring": _ring,
    "shuffle": _one_job("shuffle", lambda setup, hosts, seed: Shuffle(hosts, seed, setup.shape)),
    "both": _both,
    "permutation": _permutation,
    **{workload: _one_job(workload, partial(training_job, collective=of)) for workload, of in COLLECTIVE_OF.items()},
    **{workload: _several(workload, jobs_of) for workload, jobs_of in SEVERAL.items()},
}
