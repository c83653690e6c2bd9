# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How busy the machine and a lab's switches are between two moments: on a saturated machine all networks look alike."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import MeasurementFailed
from barewire.lab.kernel import Process

# Above, what limits a run is the machine and not its network.
SATURATED_SHARE = 0.85
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Places of /proc/stat's times: nothing to do, waiting for a disk, and after the last that is counted once, guests'.
_IDLE, _WAITING, _GUEST = 3, 4, 8


@dataclass(frozen=True)
class Moment:
    """Clocks at one moment: monotonic seconds, the cores' ticks busy and in all, the switches' CPU ticks."""

    at_s: float
    busy_ticks: int
    all_ticks: int
    switches_ticks: int


@dataclass(frozen=True)
class Load:
    """What was used between two moments: the share of all cores, and how many cores' worth the switches took.

    What a hypervisor gave to others (stolen) counts as busy: this machine could not use it.
    """

    seconds: float
    busy_share: float
    switches_cores: float

    @property
    def saturated(self) -> bool:
        """Whether the machine was so busy that a network's results say little about the network."""
        return self.busy_share > SATURATED_SHARE


def moment(servers: Iterable[Process] = (), root: Path = Path("/proc")) -> Moment:
    """Read the clocks; `servers` are a lab's (`Lab.servers`). MeasurementFailed if one of these has ended."""
    line = (root / "stat").read_text().splitlines()[0]
    # Time of guests is counted in the user's time already.
    ticks = [int(field) for field in line.split()[1:]][:_GUEST]
    unused = ticks[_IDLE] + ticks[_WAITING]
    switches = sum(_ticks_of(server, root) for server in servers)
    return Moment(time.monotonic(), sum(ticks) - unused, sum(ticks), switches)


def between(first: Moment, last: Moment) -> Load:
    """Return the load from one moment to a later one."""
    seconds = last.at_s - first.at_s
    passed = last.all_ticks - first.all_ticks
    if seconds <= 0 or passed <= 0:
        raise ValueError("the moments must be some clock ticks (10 ms each) apart, the earlier one first")
    switches_s = (last.switches_ticks - first.switches_ticks) / _TICKS_PER_S
    return Load(seconds, (last.busy_ticks - first.busy_ticks) / passed, switches_s / seconds)


def _ticks_of(server: Process, root: Path) -> int:
    """User and system time of all threads of a process, dead ones included."""
    try:
        stat = (root / str(server.pid) / "stat").read_text(errors="replace")
    except OSError as error:
        raise MeasurementFailed(f"a switch process of the lab has ended: {error}") from error
    fields = stat[stat.rindex(")") + 2 :].split()
    if int(fields[19]) != server.start_ticks:
        raise MeasurementFailed(f"process {server.pid} is no longer a switch process of the lab, which has ended")
    return int(fields[11]) + int(fields[12])
