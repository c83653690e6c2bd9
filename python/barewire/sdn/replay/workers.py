# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A repeatable job with one worker process on each host, told line by line what to do; it may have to wait its turn."""

import json
import subprocess
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from barewire.errors import MeasurementFailed
from barewire.lab import Lab
from barewire.sdn.replay.repeated import RepeatedJob

# Returns whether the job may send now; called with False when it has sent.
Ask = Callable[[bool], bool]
HOLD, GO = "hold", "go"
# Between two questions whether it is a job's turn.
_ASK_S = 0.03


class HostJob(RepeatedJob):
    """`name` names its files, `script` runs on each host, `ask` asks the controller for a turn (None: never waits)."""

    def __init__(
        self, lab: Lab, hosts: Sequence[str], name: str, script: str, ask: Ask | None, patience_s: float
    ) -> None:
        """Initialise without starting. WrongUse for hosts that the lab does not have."""
        super().__init__(patience_s)
        self._lab = lab
        self._addresses = {host: lab.host(host).address for host in hosts}
        self._name, self._script, self._ask = name, script, ask
        self._workers: dict[str, subprocess.Popen[str]] = {}
        self._said: dict[str, IO[str]] = {}
        self._resources = ExitStack()
        self._telling = threading.Lock()

    @abstractmethod
    def _part(self, host: str) -> tuple[Sequence[str], Mapping[str, Any]]:
        """A worker's arguments, and its first line of input."""

    def _begin(self) -> None:
        for host in self._addresses:
            self._start_worker(host)
        self._expect("ready", self._addresses)

    @contextmanager
    def _in_turn(self, hosts: Sequence[str]) -> Iterator[None]:
        """Let the workers send within the block while it is the job's turn."""
        if self._ask is None:
            yield
            return
        ask, over = self._ask, threading.Event()
        goes = ask(True)
        if not goes:
            self._tell_all(hosts, HOLD)

        def follow() -> None:
            nonlocal goes
            while not over.wait(_ASK_S):
                before, goes = goes, ask(True)
                if goes != before:
                    try:
                        self._tell_all(hosts, GO if goes else HOLD)
                    except MeasurementFailed:
                        return  # the job finds that its worker is lost

        thread = threading.Thread(target=follow, name="turn", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            ask(False)
        if not goes:
            self._tell_all(hosts, GO)

    def _tell_all(self, hosts: Sequence[str], line: str) -> None:
        for host in hosts:
            self._tell(host, line)

    def _expect(self, line: str, hosts: Iterable[str]) -> None:
        for host in hosts:
            if self._read(host) != line + "\n":
                raise self._lost(host)

    def _start_worker(self, host: str) -> None:
        arguments, first_line = self._part(host)
        errors = self._resources.enter_context((self._lab.directory / f"{self._name}-{host}").open("w+"))
        process = self._lab.popen(
            host,
            [sys.executable, "-I", "-S", str(Path(self._script)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        self._workers[host], self._said[host] = process, errors
        self._tell(host, json.dumps(first_line))

    def _tell(self, host: str, line: str) -> None:
        stdin = self._workers[host].stdin
        assert stdin is not None
        try:
            with self._telling:
                stdin.write(line + "\n")
                stdin.flush()
        except (BrokenPipeError, ValueError):  # it has ended, or its input was closed
            raise self._lost(host) from None

    def _read(self, host: str) -> str:
        return self._line(self._workers[host], f"the {self._name}'s worker in {host}", self._patience_s)

    def _result(self, host: str) -> Mapping[str, Any]:
        line = self._read(host)
        if not line:
            raise self._lost(host)
        found: Mapping[str, Any] = json.loads(line)
        return found

    def _lost(self, host: str) -> MeasurementFailed:
        errors = self._said[host]
        errors.seek(0)
        reason = errors.read().strip().splitlines()
        return MeasurementFailed(f"the {self._name}'s worker in {host} ended: {reason[-1] if reason else 'no output'}")

    def _end(self) -> None:
        self._end_processes(self._workers)
        self._workers.clear()
        self._resources.close()
