# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The measurements of an experiment and their order; pure."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from barewire.errors import WrongUse, finite_above_0, unknown
from barewire.models.wire import Protocol, wire_time_ns
from barewire.mpi.fabrics import PROVIDER
from barewire.results.sdn import JOB, LATENCY_TEST, REFERENCES, SHORT_BYTES, STAR, WIDE
from barewire.sdn.flow import DEFAULT_PROFILE
from barewire.sdn.frameworks import FRAMEWORKS
from barewire.sdn.simulate.experiment import COLLECTIVE_OF, SEVERAL, Setup, tcp_efficiency, training_job
from barewire.sdn.simulate.placement import halves, placed_hosts, workers
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.simulate.reference import non_blocking, widened
from barewire.sdn.simulate.ring import RingPlan
from barewire.sdn.simulate.shuffle import Shape, Shuffle
from barewire.sdn.simulate.training import TrainingPlan
from barewire.sdn.simulate.workload import BIG_DATA, HPC, Job
from barewire.sdn.strategies.spray import uses_labels
from barewire.stats.confidence import CONFIDENCE
from barewire.topology import Network

Experiment = Literal["ring", "shuffle", "both", "latency", "allreduce", "tree", "moe", "pipeline", "mixed", "shuffles"]
EXPERIMENTS: tuple[str, ...] = get_args(Experiment)
RING, SHUFFLE, LATENCY = "ring", "shuffle", LATENCY_TEST
REPLAY = "replay"
SHUFFLERS = (REPLAY, *FRAMEWORKS)
# Workloads of training jobs and of several jobs, which have no MPI.
REPLAYED = (*COLLECTIVE_OF, *SEVERAL)
# Appended to a policy's name if the other job ran beside the measured one.
BESIDE = "/beside"
# Appended to a policy under which each job is a tenant with an equal guaranteed share of every link.
SLICED = "/sliced"
# Fabrics of the rings, and the protocol whose overhead limits a link's payload.
PROTOCOLS: Mapping[str, Protocol] = {"tcp": "tcp", PROVIDER: "raw"}
# Time that a ring's message occupies a link: long compared with store-and-forward of a packet through five switches. At
# the rate that two cores can forward it is 50 kB, which Open MPI's TCP sends eagerly: with rendezvous, links were
# alternately idle (docs/performance.md).
_MESSAGE_S = 0.16
# Volumes are scaled down with the links.
_PUBLISHED_RATE_BIT_S, _VOLUME_BYTES = 1e9, 4_000_000_000
# Differs in the seeds of a measured job and of the job beside it.
_OTHER_SEED = 1 << 30
# References also measure rings with shorter messages, because fitting the simulator's two parameters needs two sizes.
_SHORTER = 5


@dataclass(frozen=True)
class Order:
    """A planned launch in a new lab under a new controller: one measured job, possibly with another beside it.

    Of several jobs at once all are measured, `hosts` and `other_hosts` being the same; without `other_hosts` one after
    another.
    """

    number: int
    block: int
    test: str
    policy: str
    hosts: tuple[str, ...]
    # Hosts of the other job, which runs repeatedly; empty if the measured job is alone.
    other_hosts: tuple[str, ...]
    # Number of hosts of the experiment.
    count: int
    seed: int

    @property
    def subject_name(self) -> str:
        """The policy, or a reference."""
        return self.policy + (BESIDE if self.other_hosts else "")

    @property
    def label(self) -> str:
        """Description of the launch."""
        if self.test in SEVERAL:
            return f"{self.test}, {'at once' if self.other_hosts else 'alone'}, {self.policy}, {self.count} hosts"
        other_test = RING if self.test == SHUFFLE else SHUFFLE
        beside = f" beside a {other_test}" if self.other_hosts else ""
        return f"{self.test}{beside}, {self.policy}, {self.count} hosts"


@dataclass(frozen=True)
class BenchPlan:
    """An experiment. `network` has its rates, the same on all links: `rate_bit_s`."""

    experiment: Experiment
    topology: str
    network: Network
    rate_bit_s: int
    policies: tuple[str, ...]
    counts: tuple[int, ...]
    blocks: int
    seed: int
    fabric: str
    ring: RingPlan = field(default_factory=RingPlan)
    shape: Shape = field(default_factory=Shape)
    training: TrainingPlan = field(default_factory=TrainingPlan)
    mtu: int = 1500
    # What shuffles: the replayed job of `shape`, or a framework's own job of the same volume.
    shuffler: str = REPLAY
    # Unannounced jobs are recognised by the controller, or not.
    announce: bool = True
    # A launch without output for this long is considered hung.
    patience_s: float = 120.0
    # Of the intervals and verdicts that are printed.
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        """Validate the plan."""
        if self.experiment not in EXPERIMENTS:
            raise unknown("experiment", self.experiment, EXPERIMENTS)
        if self.fabric not in PROTOCOLS:
            raise WrongUse(f"rings are measured over {' or '.join(PROTOCOLS)}, not over '{self.fabric}'")
        if self.shuffler not in SHUFFLERS:
            raise unknown("shuffler", self.shuffler, SHUFFLERS)
        if self.experiment in REPLAYED and (self.fabric != "tcp" or self.shuffler != REPLAY):
            raise WrongUse(f"{self.experiment} is replayed over TCP: leave out --fabric and --shuffler")
        if self.experiment in (RING, "both") and self.ring.message_bytes <= SHORT_BYTES:
            raise WrongUse(
                f"--message-bytes {self.ring.message_bytes}: rings also exchange {SHORT_BYTES} bytes, for their "
                "latency; give longer messages than these"
            )
        if self.experiment == LATENCY and self.ring.exchanges > 1:
            raise WrongUse(
                f"--exchanges {self.ring.exchanges}: a percentile is of single exchanges, not of means; give more "
                "--measurements"
            )
        finite_above_0("--patience", self.patience_s)
        if self.blocks < 1:
            raise WrongUse(f"--blocks {self.blocks}: at least 1")
        if not self.policies or len(set(self.policies)) < len(self.policies):
            raise WrongUse("name at least one strategy, each once")
        for policy in self.policies:
            strategies = read_policy(unsliced(policy)).values()
            if is_sliced(policy):
                self._check_sliced(policy, any(uses_labels(strategy) for strategy in strategies))
        for count in self.counts:
            self.jobs(count)

    def _check_sliced(self, policy: str, has_labels: bool) -> None:
        """WrongUse unless jobs can be tenants."""
        if self.experiment not in ("both", LATENCY, *SEVERAL):
            several = ", ".join(("both", LATENCY, *SEVERAL))
            raise WrongUse(f"{policy}: links are shared among jobs; give a --workload of several: {several}")
        if not self.announce:
            raise WrongUse(f"{policy}: a tenant's flows are those of its announced jobs: leave out --no-announce")
        if has_labels:
            raise WrongUse(f"{policy}: a label's rule cannot tell whose a frame is: name a strategy without labels")

    def jobs(self, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The hosts of the ring and those of the shuffle. WrongUse for an impossible number."""
        if self.experiment in SEVERAL:
            used = {host for job in SEVERAL[self.experiment](self.setup, count, 0).values() for host in job.hosts}
            hosts = tuple(host for host in workers(self.network) if host in used)
            return hosts, hosts
        if self.experiment in ("both", LATENCY):
            hpc, data = halves(self.network, count)
        else:
            hpc = data = placed_hosts(self.network, count)
        if self.shuffler == REPLAY and self.experiment in (SHUFFLE, "both", LATENCY):
            Shuffle(data, 0, self.shape)
        return tuple(hpc), tuple(data)

    def rounds(self) -> Iterator[Sequence[Order]]:
        """One block per round: every policy at every number of hosts, in random order, on equal seeds."""
        generator, numbers = random.Random(self.seed), itertools.count()
        for block in range(self.blocks):
            seed = generator.getrandbits(31)
            cells = [cell for count in self.counts for cell in self._cells(count)]
            generator.shuffle(cells)
            yield [Order(next(numbers), block, *cell, seed) for cell in cells]

    @property
    def setup(self) -> Setup:
        """The same experiment for the simulator, with no overhead but that of full TCP segments, which jobs send."""
        ring = replace(self.ring, overhead_s=0.0)
        return Setup(self.network, ring, self.shape, self.training, tcp_efficiency(self.mtu))

    def jobs_of(self, test: str, hosts: Sequence[str], seed: int) -> dict[str, Job]:
        """The jobs of a launch, by their quantities, unless it measures rings. They are numbered in this order."""
        if test in SEVERAL:
            return SEVERAL[test](self.setup, len(hosts), seed)
        if test in COLLECTIVE_OF:
            return {JOB: training_job(self.setup, hosts, seed, COLLECTIVE_OF[test])}
        return {JOB: Shuffle(hosts, seed, self.shape)}

    def tenants_of(self, order: Order) -> tuple[str, ...]:
        """The jobs that are tenants, by what they announce themselves as; none unless the policy is sliced."""
        if not is_sliced(order.policy):
            return ()
        if order.test in SEVERAL:
            return tuple(self.jobs_of(order.test, order.hosts, order.seed))
        return HPC, BIG_DATA

    def network_of(self, policy: str, hosts: Sequence[str]) -> Network:
        """The network under test, or a non-blocking reference.

        The star has one switch. The wide network has all switches and hops of the network under test, with links
        between switches that can carry the traffic of all hosts: the difference between wide and star is the cost of
        hops, that between a strategy and wide the cost of its routes.
        """
        if policy == STAR:
            return non_blocking(self.network, hosts)
        return widened(self.network) if policy == WIDE else self.network

    def sizes(self, order: Order) -> tuple[int, ...]:
        """Message sizes of the rings: short ones for latencies, and of the others the longest is that of bandwidths."""
        if order.test == LATENCY:
            return (SHORT_BYTES,)
        size = self.ring.message_bytes
        longer = {max(1, size // _SHORTER), size} if order.policy in REFERENCES else {size}
        return tuple(sorted({SHORT_BYTES, *longer}))

    @property
    def wire_efficiency(self) -> float:
        """The largest share of a link's rate available to the rings' payload; the rest is headers and gaps."""
        size = self.ring.message_bytes
        return size * 8e9 / wire_time_ns(size, PROTOCOLS[self.fabric], self.mtu, 1e9) / 1e9

    def _cells(self, count: int) -> Iterator[tuple[str, str, tuple[str, ...], tuple[str, ...], int]]:
        """Test, policy, hosts of the job, hosts of the other job, and number of hosts."""
        hpc, data = self.jobs(count)
        if self.experiment == LATENCY:
            for policy in (WIDE, *self.policies):
                for with_others in (False, True):
                    yield LATENCY, policy, hpc, data if with_others else (), count
            return
        if self.experiment in SEVERAL:
            for policy in self.policies:
                yield self.experiment, policy, hpc, (), count
                yield self.experiment, policy, hpc, data, count
            return
        if self.experiment == "both":
            yield RING, WIDE, hpc, (), count
            for policy in self.policies:
                for with_others in (False, True):
                    yield RING, policy, hpc, data if with_others else (), count
                    yield SHUFFLE, policy, data, hpc if with_others else (), count
            return
        for policy in (*REFERENCES, *self.policies):
            yield self.experiment, policy, hpc, (), count


def is_sliced(policy: str) -> bool:
    """Whether jobs are tenants under this policy."""
    return policy.endswith(SLICED)


def unsliced(policy: str) -> str:
    """The strategies of a policy."""
    return policy.removesuffix(SLICED)


def other_seed(seed: int) -> int:
    """The seed of rings or a shuffle beside a measured job with this seed, the same for all policies."""
    return seed ^ _OTHER_SEED


def message_bytes_of(rate_bit_s: int) -> int:
    """A ring's message size: 160 ms at this rate."""
    return max(1, round(_MESSAGE_S * rate_bit_s / 8))


def volume_bytes_of(rate_bit_s: int) -> int:
    """A shuffle's volume at this rate, in proportion to 4 GB at 1 Gb/s."""
    return max(1, round(_VOLUME_BYTES * rate_bit_s / _PUBLISHED_RATE_BIT_S))


def controller_strategies(policy: str) -> list[str]:
    """A policy as `PROFILE=STRATEGY` for every profile, as `read_policy` understands it; any for a reference."""
    policy = "stp" if policy in REFERENCES else unsliced(policy)
    words = dict(part.split("=", 1) for part in policy.split("+")) if _names_profiles(policy) else {}
    default = words.get(DEFAULT_PROFILE) or next(iter(words.values()), policy)
    chosen = {DEFAULT_PROFILE: default, HPC: default, BIG_DATA: default} | words
    # The controller's profile for Big Data ports.
    chosen["hadoop"] = chosen[BIG_DATA]
    return [f"{profile}={strategy}" for profile, strategy in chosen.items()]


def _names_profiles(policy: str) -> bool:
    return policy.partition("=")[0] in (DEFAULT_PROFILE, HPC, BIG_DATA)
