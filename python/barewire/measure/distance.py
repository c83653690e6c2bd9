# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The distance of two cores: a virtual machine's may be moved, and everything between them then takes longer."""

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from barewire.errors import BarewireError
from barewire.measure.programs import HOST, find_program

Cores = tuple[int, int]
# Cores this many times as far apart as at best are far apart. Found: 24 to 31 ns, or 191 to 199.
FAR = 1.8
# Above, in ns, another program uses one of the cores.
DISTANCE_MAX_NS = 2000.0
_SECONDS = 0.002
_LOOK_EVERY_S = 0.5
# How often a launch is begun during which the cores are moved.
ATTEMPTS_MAX = 4
# The program takes some 10 ms, unless the machine is very busy.
_PATIENCE_S = 10.0


def first_two(cores_of_hosts: Iterable[Iterable[int]]) -> Cores | None:
    """Return the first two cores of hosts; None if there are fewer."""
    cores = list(dict.fromkeys(core for cores in cores_of_hosts for core in cores))[:2]
    return (cores[0], cores[1]) if len(cores) == 2 else None


def distance_ns(cores: Cores) -> float | None:
    """Measure the time in ns that a cache line takes from one core to the other.

    None if that fails, or if another program uses one of them.
    """
    one, other = map(str, cores)
    try:
        command = [find_program(HOST), "distance", "--cpu", one, "--other-cpu", other, "--seconds", str(_SECONDS)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=True)
    except (BarewireError, OSError, subprocess.SubprocessError):
        return None
    records = map(json.loads, done.stdout.splitlines())
    measured = [record for record in records if record["record"] == "samples" and record["phase"] == "measure"]
    values = [value / record["operations"] for record in measured for value in record["values"]]
    # Whatever else runs on the cores only adds to it.
    nearest = min(values, default=math.inf)
    return nearest if nearest <= DISTANCE_MAX_NS else None


@dataclass
class CoreWatch:
    """Looks at the distance of two cores before and after each launch.

    Before a launch it waits up to `patience_s` seconds while the cores are farther apart than they were. Cores that
    stay so are taken to have been moved for good, and later waits are half as long. If it may wait, a launch during
    which they were moved is repeated.
    """

    cores: Cores
    patience_s: float = 0.0
    look: Callable[[Cores], float | None] = distance_ns
    sleep: Callable[[float], None] = time.sleep
    nearest_ns: float = math.inf
    seen_ns: list[float] = field(default_factory=list)
    waited_s: float = 0.0
    repeated: int = 0

    def around(self, launch: Callable[[], None]) -> list[float | None]:
        """Run a launch; return the distances in ns at which it began and ended."""
        for attempt in range(ATTEMPTS_MAX):
            before = self.before()
            launch()
            after = self._note()
            is_moved = before is not None and after is not None and after > FAR * before
            if not is_moved or not self.patience_s or attempt + 1 == ATTEMPTS_MAX:
                break
            self.repeated += 1
        self.seen_ns += [value for value in (before, after) if value is not None]
        return [before, after]

    def before(self) -> float | None:
        """Return the distance in ns at which a launch begins."""
        found, waited_s = self._note(), 0.0
        while found is not None and found > FAR * self.nearest_ns and waited_s < self.patience_s:
            self.sleep(_LOOK_EVERY_S)
            waited_s += _LOOK_EVERY_S
            found = self._note()
        self.waited_s += waited_s
        if found is not None and 0 < self.patience_s <= waited_s:
            self.nearest_ns, self.patience_s = found, self.patience_s / 2
        return found

    def warning(self) -> str | None:
        """Say how many launches were affected, delayed or repeated, if the distance has changed."""
        nearest = min(self.seen_ns, default=math.inf)
        far = [value for value in self.seen_ns if value > FAR * nearest]
        said = []
        if far:
            said.append(
                f"they were {nearest:.0f} ns apart, and {median(far):.0f} ns at {len(far)} of {len(self.seen_ns)} "
                "beginnings and ends of launches, which therefore differ for another reason than their subjects"
            )
        if self.waited_s:
            said.append(f"{self.waited_s:.0f} s were spent waiting for near ones")
        if self.repeated:
            said.append(f"{self.repeated} launches were repeated")
        moved = f"cores {self.cores[0]} and {self.cores[1]} were moved, as a virtual machine's can be: "
        return moved + "; ".join(said) if said else None

    def _note(self) -> float | None:
        found = self.look(self.cores)
        self.nearest_ns = min(self.nearest_ns, math.inf if found is None else found)
        return found
