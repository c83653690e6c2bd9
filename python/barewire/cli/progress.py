# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What long work has done, what is left and until when: a bar on a terminal, else a line every ten seconds in a log.

Both are on standard error. The bar is drawn between steps only, and the line by a thread that sleeps otherwise: neither
disturbs a measurement.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

INTERVAL_S = 10.0

Progress = Callable[[int, int, str], None]
"""Takes the number of finished steps, the number of all steps, and what is being done."""


@dataclass
class Estimate:
    """The state of the work, and when it will end if the rest is as fast as what is done."""

    clock: Callable[[], float] = time.monotonic
    done: int = 0
    total: int = 0
    label: str = ""
    started_s: float = field(init=False)
    # When the last step was finished: the one that is being done is not counted.
    finished_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started_s = self.finished_s = self.clock()

    def update(self, done: int, total: int, label: str) -> None:
        """Note the state."""
        if done != self.done:
            self.finished_s = self.clock()
        self.done, self.total, self.label = done, total, label

    def remaining_s(self) -> float | None:
        """Seconds until the end; None before the first step is finished."""
        if self.done < 1 or self.total < self.done:
            return None
        whole_s = (self.finished_s - self.started_s) / self.done * self.total
        return max(0.0, self.started_s + whole_s - self.clock())

    def left(self, now: datetime) -> str:
        """What is left and until when."""
        remaining_s = self.remaining_s()
        until = "" if remaining_s is None else f", until about {now + timedelta(seconds=remaining_s):%H:%M:%S}"
        return f"{self.total - self.done} left{until}"

    def line(self, now: datetime) -> str:
        """Return everything in one line, for a log."""
        elapsed_s = self.clock() - self.started_s
        if not self.total:
            return f"barewire: {self.label}, {elapsed_s:.0f} s so far"
        return f"barewire: {self.label}: {self.done} of {self.total} done in {elapsed_s:.0f} s, {self.left(now)}"


@contextmanager
def progress_bar(label: str = "starting") -> Iterator[Progress]:
    """Show the progress of a block, which calls what this yields before each step."""
    with _bar(label) if sys.stderr.isatty() else lines(label) as show:
        yield show


@contextmanager
def _bar(label: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    estimate = Estimate()
    # Names of runs and of subjects are no markup.
    what = TextColumn("{task.description}", markup=False)
    columns = (what, BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task(label, total=None, left="")

        def show(done: int, total: int, what: str) -> None:
            estimate.update(done, total, what)
            left = estimate.left(datetime.now())
            bar.update(task, completed=done, total=total, description=what, left=left, refresh=True)

        bar.refresh()
        yield show


@contextmanager
def lines(label: str, *, interval_s: float = INTERVAL_S) -> Iterator[Progress]:
    """Write a line at each interval of the block."""
    estimate, ended = Estimate(label=label), threading.Event()

    def write() -> None:
        while not ended.wait(interval_s):
            print(estimate.line(datetime.now()), file=sys.stderr, flush=True)

    thread = threading.Thread(target=write, name="progress", daemon=True)
    thread.start()
    try:
        yield estimate.update
    finally:
        ended.set()
        thread.join()
