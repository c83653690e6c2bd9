# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A job on a lab's hosts that can be run again and again, also beside something else."""

import contextlib
import select
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from barewire.errors import MeasurementFailed
from barewire.processes import POLL_MAX_S, wait

END_S = 5.0
# Time without an answer until a job counts as hung.
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Fetched:
    """One fetched part: its reducer, size, and times in seconds since the job's first fetch was due."""

    reducer: int
    size_bytes: int
    began_s: float
    ended_s: float


@dataclass(frozen=True)
class Replayed:
    """One job, from when its first fetch was due to the end of the last; `fetched` is empty if nobody tells them."""

    duration_s: float
    fetched: tuple[Fetched, ...] = ()


class RepeatedJob(ABC):
    """A repeatable job; as a context manager it ends its processes at the end of the block.

    A process that does not answer for `patience_s` hangs, which is a MeasurementFailed.
    """

    def __init__(self, patience_s: float) -> None:
        """Initialise without starting."""
        self._patience_s = patience_s
        self._background: threading.Thread | None = None
        self._is_over = threading.Event()
        self._done: list[Replayed] = []
        self._failure: MeasurementFailed | None = None

    def __enter__(self) -> Self:
        """Start the processes, and wait until all are ready."""
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes, also during a job."""
        self._end()

    @abstractmethod
    def run(self) -> Replayed:
        """Run one job to completion. MeasurementFailed if a process is lost."""

    def start(self) -> None:
        """Run jobs one after another in another thread, until `stop`."""

        def repeat() -> None:
            try:
                while not self._is_over.is_set():
                    self._done.append(self.run())
            except MeasurementFailed as error:
                if not self._is_over.is_set():
                    self._failure = error

        self._is_over.clear()
        self._done, self._failure = [], None
        self._background = threading.Thread(target=repeat, name="shuffle", daemon=True)
        self._background.start()

    def stop(self) -> list[Replayed]:
        """Stop the thread and the processes; return the completed jobs."""
        self._is_over.set()
        self._end()
        if self._failure is not None:
            raise self._failure
        return self._done

    def _join(self) -> None:
        """Wait for the thread, once its job's processes have been told to end."""
        if self._background is not None:
            self._background.join(END_S)
            self._background = None

    def _end_processes(self, processes: Mapping[str, "subprocess.Popen[str]"]) -> None:
        """End processes, the last one first, and the thread; kill those that do not end."""
        for process in reversed(list(processes.values())):
            process.terminate()
        self._join()
        for process in processes.values():
            if wait(process, END_S) is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def _line(self, process: "subprocess.Popen[str]", name: str, patience_s: float) -> str:
        """Return the one line that `name` answers a request with, "" if it has ended."""
        assert process.stdout is not None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        if not poll.poll(1000 * min(patience_s, POLL_MAX_S)):
            raise MeasurementFailed(f"{name} hangs: no answer for {patience_s:g} s")
        return process.stdout.readline()

    @abstractmethod
    def _begin(self) -> None:
        """Start the processes, and wait until all are ready."""

    @abstractmethod
    def _end(self) -> None:
        """End all processes, by `_end_processes`."""
