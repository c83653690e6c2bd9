# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Jobs in a lab under a controller: rings of mpi/beff and replayed shuffles, announced to the controller."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from barewire.errors import MeasurementFailed, WrongUse
from barewire.lab import Lab
from barewire.measure.mpi import raise_failure
from barewire.mpi import FabricOptions, Family, Job, Library, start
from barewire.mpi.announcement import labelled
from barewire.mpi.fabrics import PROVIDER, Setting
from barewire.mpi.prepare import prepare
from barewire.sdn.api.client import Announced, Client
from barewire.sdn.bench.controlled import Controller
from barewire.sdn.bench.meter import Meter
from barewire.sdn.bench.plan import LATENCY, REPLAY, RING, SHUFFLE, BenchPlan, Order, other_seed
from barewire.sdn.bench.steps import Steps
from barewire.sdn.flow import Pattern
from barewire.sdn.frameworks.cluster import Cluster, FrameworkJob, kinds_of
from barewire.sdn.replay.job import Replay
from barewire.sdn.replay.repeated import RepeatedJob, Replayed
from barewire.sdn.replay.training import TrainingReplay, ports_of
from barewire.sdn.replay.workers import Ask
from barewire.sdn.simulate.ring import Ring
from barewire.sdn.simulate.shuffle import SERVER_PORT, Shuffle
from barewire.sdn.simulate.training import Training
from barewire.sdn.simulate.workload import BIG_DATA, HPC
from barewire.sdn.simulate.workload import Job as SimulatedJob

# The published signature of MPI: ranks listen on these ports.
_PORTS = range(1024, 1045)
# Sleep of a waiting rank between polls (Open MPI 5): a tenth of a packet's time on a link.
_SLEEP_BITS = 1250
# Measurements of rings beside another job; they are terminated earlier.
_ENDLESS = 5000
# Steps after which rings have started: the first one connects.
_UNDER_WAY = 2
_ASK_S = 0.05
_SETTLED_S, _SETTLED_BESIDE_S = 5.0, 0.2


@dataclass
class Stage:
    """A lab with its controller and jobs. `notes` are problems that did not end a launch."""

    lab: Lab
    controller: Controller
    plan: BenchPlan
    library: Library
    beff: str
    meter: Meter
    notes: list[str] = field(default_factory=list)

    def measure_ring(self, order: Order, records: Path) -> None:
        """Run all rings once; beff writes its records. Raises on failure."""
        heartbeat = self.lab.directory / "ring.steps"
        with self._ring_steps(
            order.hosts, order.seed, heartbeat, self.meter.tick, beside=bool(order.other_hosts)
        ) as steps:
            options = ["--output", str(records), "--samples", str(self.plan.ring.measurements)]
            if order.test == LATENCY:
                options += ["--variants", "random-sendrecv,random-nonblocking"]
            job = self._ring_job(order.hosts, order.seed, self.plan.sizes(order), steps, options)
            with tempfile.TemporaryFile("w+") as output:
                code = start.run_watched(job, self.lab, output, heartbeat, self.plan.patience_s)
                if steps.failure is not None:
                    raise steps.failure
                raise_failure(code, "beff", f"launch {order.number} ({order.label})", output, self.plan.patience_s)

    @contextmanager
    def rings_beside(self, hosts: Sequence[str], seed: int) -> Iterator[Callable[[], None]]:
        """Run rings repeatedly during the block; the yielded function raises if they have ended."""
        heartbeat = self.lab.directory / "beside.steps"
        with self._ring_steps(hosts, other_seed(seed), heartbeat, _nothing, beside=True) as steps:
            options = ["--output", str(self.lab.directory / "beside.jsonl"), "--samples", str(_ENDLESS)]
            sizes = (self.plan.ring.message_bytes,)
            job = self._ring_job(hosts, other_seed(seed), sizes, steps, options)
            with tempfile.TemporaryFile("w+") as output, start.running(job, self.lab, output) as process:

                def still() -> None:
                    if steps.failure is not None:
                        raise steps.failure
                    code = process.poll()
                    if code == 0:
                        raise MeasurementFailed(f"the rings beside the {SHUFFLE} ended before it")
                    raise_failure(code or 0, "beff", f"{RING} beside a {SHUFFLE}", output, self.plan.patience_s)

                deadline = time.monotonic() + self.plan.patience_s
                while steps.received < _UNDER_WAY:
                    still()
                    if time.monotonic() > deadline:
                        raise MeasurementFailed(f"the rings beside the shuffle did not begin: {steps.received} steps")
                    time.sleep(_ASK_S)
                yield still

    def measure_shuffle(self, order: Order) -> Replayed:
        """Run one job to completion."""
        with self._shuffle(order.hosts, order.seed) as replay:
            self.meter.tick()
            done = replay.run()
            self.meter.tick()
        return done

    def measure_jobs(self, order: Order) -> dict[str, Replayed]:
        """Run training jobs and shuffles to completion: all at once beside others, else one after another."""
        jobs = list(self.plan.jobs_of(order.test, order.hosts, order.seed).items())
        groups = [jobs] if order.other_hosts else [[job] for job in jobs]
        done: dict[str, Replayed] = {}
        numbers = {name: number for number, (name, _) in enumerate(jobs)}
        for group in groups:
            # When a job fails, or the user ends all, the stack ends their processes before the pool waits for them.
            with ThreadPoolExecutor(len(group)) as pool, ExitStack() as stack:
                replays = {name: stack.enter_context(self._replayed(name, job, numbers[name])) for name, job in group}
                if not self.controller.settle(_SETTLED_S):
                    self.notes.append(f"rules were still being installed after {_SETTLED_S:g} s")
                self.meter.tick()
                running = {pool.submit(replay.run): name for name, replay in replays.items()}
                for future in as_completed(running):
                    future.result()
                done |= {name: future.result() for future, name in running.items()}
                self.meter.tick()
        return done

    @contextmanager
    def _replayed(self, name: str, job: SimulatedJob, number: int) -> Iterator[RepeatedJob]:
        """Start the processes of a training job or a shuffle, announced under its name."""
        of_training = isinstance(job, Training)
        profile = HPC if of_training else BIG_DATA
        ports = (
            ports_of(number, len(job.hosts)) if of_training else range(SERVER_PORT + number, SERVER_PORT + number + 1)
        )
        traffic = {"protocol": "tcp", "ports": [f"{ports[0]}-{ports[-1]}"]}
        with self._announced(profile, job.hosts, traffic, job.patterns, name) as announced:
            ask = None if announced is None else self._turn_of(announced, self.controller.client_of(name))
            replay: RepeatedJob
            if isinstance(job, Training):
                replay = TrainingReplay(self.lab, job, ask, number, self.plan.patience_s)
            else:
                assert isinstance(job, Shuffle)
                replay = Replay(self.lab, job, ask, SERVER_PORT + number, self.plan.patience_s)
            with replay:
                yield replay

    def _turn_of(self, announced: Announced, client: Client) -> Ask:
        """Ask for a job's turn; without an answer it sends, and that is noted once."""
        said: list[str] = []

        def ask(wants: bool) -> bool:
            try:
                return client.turn(announced.id, wants=wants)
            except (MeasurementFailed, WrongUse) as error:
                if not said:
                    said.append(f"a job did not wait for its turn: {error}")
                    self.notes.append(said[0])
                return True

        return ask

    @contextmanager
    def shuffles_beside(self, hosts: Sequence[str], seed: int) -> Iterator[None]:
        """Run jobs one after another during the block."""
        with self._shuffle(hosts, other_seed(seed)) as replay:
            replay.start()
            try:
                yield
            finally:
                replay.stop()

    @contextmanager
    def _shuffle(self, hosts: Sequence[str], seed: int) -> Iterator[RepeatedJob]:
        shape = self.plan.shape
        if self.plan.shuffler != REPLAY:
            client = self.controller.client_of(BIG_DATA)
            announce_to = (client.url, client.token_file) if self.plan.announce else None
            kind = kinds_of(self.plan.shuffler)[0]
            job = FrameworkJob(self.plan.shuffler, kind, shape.volume_bytes, announce_to)
            with Cluster(self.lab, hosts, seed, job, self.plan.patience_s) as cluster:
                yield cluster
            return
        traffic = {"protocol": "tcp", "ports": [SERVER_PORT]}
        shuffle = Shuffle(hosts, seed, shape)
        replay = Replay(self.lab, shuffle, patience_s=self.plan.patience_s)
        with self._announced(BIG_DATA, hosts, traffic, shuffle.patterns), replay:
            yield replay

    @contextmanager
    def _ring_steps(
        self, hosts: Sequence[str], seed: int, heartbeat: Path, tick: Callable[[], None], *, beside: bool
    ) -> Iterator[Steps]:
        """Announce the job with all its rings, and prepare the network for each ring before the ranks begin it."""
        patterns = Ring(hosts, seed, self.plan.ring).ring_patterns()
        protocol = {"protocol": "llc"} if self.plan.fabric == PROVIDER else {"protocol": "tcp"}
        client = self.controller.client_of(HPC)
        with self._announced(HPC, hosts, protocol, patterns) as announced:

            def ready(name: str, number: int) -> None:
                if name == "ring" and announced is not None:
                    client.step(announced.id, number)
                    # Beside a shuffle other flows' rules are nearly always being installed.
                    if not self.controller.settle(_SETTLED_BESIDE_S if beside else _SETTLED_S) and not beside:
                        raise MeasurementFailed(f"rules for ring {number} were not installed within {_SETTLED_S:g} s")
                tick()

            with Steps(heartbeat.with_suffix(".socket"), heartbeat, ready) as steps:
                yield steps

    def _announced(
        self,
        profile: str,
        hosts: Sequence[str],
        traffic: Mapping[str, Any],
        patterns: Sequence[Pattern],
        name: str = "",
    ) -> AbstractContextManager[Announced | None]:
        if not self.plan.announce:
            return nullcontext()
        job = _job(name or f"experiment {profile}", profile, hosts, traffic, patterns)
        return Announced(self.controller.client_of(name or profile), job, self.notes.append)

    def _ring_job(
        self, hosts: Sequence[str], seed: int, sizes: Sequence[int], steps: Steps, options: Sequence[str]
    ) -> Job:
        ring = self.plan.ring
        program = [self.beff, "--seed", str(seed), "--sizes", ",".join(map(str, sizes)), "--steps", str(steps.path)]
        program += ["--rings", str(ring.rings), "--exchanges", str(ring.exchanges), "--warmup", "0", *options]
        shares = [(host, 1) for host in hosts]
        job = prepare(self.library, FabricOptions(self.plan.fabric), shares, program, self.lab)
        job = labelled(job, self.plan.fabric, self.controller.client.labels(HPC, self.notes.append))
        return replace(job, settings=(*job.settings, *_own_settings(self.library, self.plan)))


def _nothing() -> None:
    """No metering beside the measured job."""


def _own_settings(library: Library, plan: BenchPlan) -> list[Setting]:
    """Settings that make local ranks use the network and known ports, and leave cores to the switches."""
    if library.family is not Family.OPEN_MPI:
        return []
    settings = {
        "OMPI_MCA_threads_pthreads_yield_strategy": "nanosleep",
        "OMPI_MCA_threads_pthreads_nanosleep_time": str(round(_SLEEP_BITS * 1e9 / plan.rate_bit_s)),
    }
    if plan.fabric == "tcp":
        settings |= {
            "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_btl_tcp_port_min_v4": str(_PORTS.start),
            "OMPI_MCA_btl_tcp_port_range_v4": str(len(_PORTS)),
        }
    return [Setting(name, value, "experiment") for name, value in settings.items()]


def _job(
    name: str, profile: str, hosts: Sequence[str], traffic: Mapping[str, Any], patterns: Sequence[Pattern]
) -> dict[str, Any]:
    """An announcement for `POST /v1/jobs`."""
    return {
        "name": name,
        "profile": profile,
        "hosts": list(hosts),
        "traffic": [traffic],
        "patterns": [
            [{"from": source, "to": destination, "bytes": size} for (source, destination), size in pattern.items()]
            for pattern in patterns
        ],
    }
