# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replays a training job on the hosts of a lab: the messages of `simulate.training` over TCP, with real bytes.

An iteration computes (nobody sends), waits for the job's turn, and exchanges all messages; the ranks wait for each
other at its end.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from barewire.lab import Lab
from barewire.sdn.replay import rank as rank_program
from barewire.sdn.replay.repeated import PATIENCE_S, Replayed
from barewire.sdn.replay.workers import Ask, HostJob
from barewire.sdn.simulate.training import FIRST_PORT, PORTS_OF_A_JOB, Training


class TrainingReplay(HostJob):
    """A repeatable training job; as a context manager it stops its ranks at the end of the block."""

    def __init__(
        self, lab: Lab, job: Training, ask: Ask | None = None, number: int = 0, patience_s: float = PATIENCE_S
    ) -> None:
        """Initialise without starting. Jobs at the same time have different numbers. Errors as of `HostJob`."""
        super().__init__(lab, job.hosts, f"training-{number}", str(rank_program.__file__), ask, patience_s)
        self._job = job
        self._ports = ports_of(number, len(job.hosts))

    def run(self) -> Replayed:
        """Run all iterations once. MeasurementFailed if a rank is lost."""
        began_s = time.monotonic()
        ended_s = began_s
        for _ in range(self._job.plan.iterations):
            # The time of computing; it ends early only with the job.
            self._is_over.wait(self._job.compute_s)
            with self._in_turn(self._job.hosts):
                self._tell_all(self._job.hosts, "begin")
                ended_s = max(float(self._result(host)["ended"]) for host in self._job.hosts)
        return Replayed(ended_s - began_s)

    def _begin(self) -> None:
        for host in self._addresses:
            self._start_worker(host)
        self._expect("listening", self._addresses)
        self._tell_all(self._job.hosts, "connect")
        self._expect("ready", self._addresses)

    def _part(self, host: str) -> tuple[Sequence[str], Mapping[str, Any]]:
        rank = self._job.hosts.index(host)
        steps = []
        for step in self._job.steps:
            sends = [[other, size] for source, other, size in step if source == rank]
            receives = [[other, size] for other, destination, size in step if destination == rank]
            if sends or receives:
                steps.append({"send": sends, "receive": receives})
        peers = {peer for step in steps for messages in step.values() for peer, _ in messages}
        addressed = {peer: [self._addresses[self._job.hosts[peer]], self._ports[peer]] for peer in sorted(peers)}
        return [str(self._ports[rank])], {"rank": rank, "peers": addressed, "steps": steps}


def ports_of(number: int, ranks: int) -> range:
    """The ports at which a job's ranks listen."""
    first = FIRST_PORT + number * PORTS_OF_A_JOB
    return range(first, first + ranks)
