# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Load of the machine and of a lab's switches between two moments: a saturated machine hides network differences."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import MeasurementFailed
from barewire.lab.kernel import Process

# Above this share the machine limits a run, not its network.
SATURATED_SHARE = 0.85
# Above this share before a measurement, programs of others disturb it.
_BUSY_SHARE = 0.2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Columns of /proc/stat: idle, waiting for I/O, and the first of guests' time, which user time includes.
_IDLE, _WAITING, _GUEST = 3, 4, 8


@dataclass(frozen=True)
class Moment:
    """Clock readings: monotonic seconds, busy and total ticks of all cores, CPU ticks of the switches."""

    at_s: float
    busy_ticks: int
    all_ticks: int
    switches_ticks: int


@dataclass(frozen=True)
class Load:
    """Load between two moments: the busy share of all cores, and the number of cores that the switches used.

    Time that a hypervisor gave to others (stolen) counts as busy: this machine could not use it.
    """

    seconds: float
    busy_share: float
    switches_cores: float

    @property
    def saturated(self) -> bool:
        """Whether the machine was too busy for results about the network."""
        return self.busy_share > SATURATED_SHARE


def moment(servers: Iterable[Process] = (), root: Path = Path("/proc")) -> Moment:
    """Read the clocks; `servers` are a lab's (`Lab.servers`). MeasurementFailed if one of them has ended."""
    line = (root / "stat").read_text().splitlines()[0]
    # User time includes guests' time.
    ticks = [int(field) for field in line.split()[1:]][:_GUEST]
    unused = ticks[_IDLE] + ticks[_WAITING]
    switches = sum(_ticks_of(server, root) for server in servers)
    return Moment(time.monotonic(), sum(ticks) - unused, sum(ticks), switches)


def between(first: Moment, last: Moment) -> Load:
    """Return the load from one moment to a later one."""
    seconds = last.at_s - first.at_s
    elapsed_ticks = last.all_ticks - first.all_ticks
    if seconds <= 0 or elapsed_ticks <= 0:
        raise ValueError("the moments must be several clock ticks (10 ms each) apart, the earlier one first")
    switches_s = (last.switches_ticks - first.switches_ticks) / _TICKS_PER_S
    return Load(seconds, (last.busy_ticks - first.busy_ticks) / elapsed_ticks, switches_s / seconds)


def busy_before(seconds: float = 0.5) -> str | None:
    """Watch all cores for a time while this process sleeps, and return a sentence if others keep them busy.

    The load average would not do: it remembers for minutes what has ended, such as a measurement before this one.
    """
    first = moment()
    time.sleep(seconds)
    share = between(first, moment()).busy_share
    if share <= _BUSY_SHARE:
        return None
    return f"other programs used {share:.0%} of this machine's {os.cpu_count()} cores before the start"


def _ticks_of(server: Process, root: Path) -> int:
    """Return user and system time of all threads of a process, including ended ones."""
    try:
        stat = (root / str(server.pid) / "stat").read_text(errors="replace")
    except OSError as error:
        raise MeasurementFailed(f"a switch process of the lab has ended: {error}") from error
    fields = stat[stat.rindex(")") + 2 :].split()
    if int(fields[19]) != server.start_ticks:
        raise MeasurementFailed(f"process {server.pid} is no longer a switch process of the lab, which has ended")
    return int(fields[11]) + int(fields[12])
