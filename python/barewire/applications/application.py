# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is known of one program: how it is started, the figures that it reports, and how its result is checked."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from barewire.errors import MeasurementFailed

NUMBER = r"([-+]?\d*\.?\d+(?:[eEdD][-+]?\d+)?)"


@dataclass(frozen=True)
class Outcome:
    """One launch that ended with code 0: what it printed (or its report's text), its folder, and its wall time."""

    text: str
    folder: Path
    wall_s: float


class Check(Protocol):
    """Compares a launch with what must hold; CheckFailed says what does not."""

    needs_serial: ClassVar[bool]

    def __call__(self, outcome: Outcome, serial: Outcome | None) -> None:
        """`serial` is the same problem solved by one rank, for checks that need it."""


class CheckFailed(MeasurementFailed):
    """A program ended well and its result is wrong."""


@dataclass(frozen=True)
class Figure:
    """What a program says of its own speed: the last match of `pattern`; None takes the wall time of the launch."""

    name: str
    unit: str
    pattern: str | None
    lower_is_better: bool = True

    def read(self, outcome: Outcome) -> float:
        """Return the value; CheckFailed if the program does not say it, or says nothing above 0."""
        if self.pattern is None:
            return outcome.wall_s
        found = numbers(self.pattern, outcome.text)
        if not found or not found[-1] > 0:
            raise CheckFailed(f"it does not report its {self.name}: nothing above 0 matches {self.pattern}")
        return found[-1]


@dataclass(frozen=True)
class Agrees:
    """Numbers that must be those of one rank's run, within `tolerance` of their size."""

    name: str
    pattern: str
    tolerance: float
    # Chaotic motion is compared for its first values only.
    first: int | None = None
    needs_serial: ClassVar[bool] = True

    def __call__(self, outcome: Outcome, serial: Outcome | None) -> None:
        """Compare number by number, in the order in which they are printed."""
        assert serial is not None
        mine, right = (numbers(self.pattern, one.text)[: self.first] for one in (outcome, serial))
        if not right or len(mine) != len(right):
            raise CheckFailed(f"{self.name}: {len(mine)} values where one rank has {len(right)}")
        for value, expected in zip(mine, right, strict=True):
            # Written so that NaN, which compares with nothing, fails.
            if not abs(value - expected) <= self.tolerance * abs(expected):
                raise CheckFailed(
                    f"{self.name} is {value:.10g}, with one rank {expected:.10g} (tolerance {self.tolerance:g})"
                )


@dataclass(frozen=True)
class Says:
    """A verdict that the program itself prints, `times` times or more, and nothing that matches `never`."""

    pattern: str
    times: int = 1
    never: str | None = None
    needs_serial: ClassVar[bool] = False

    def __call__(self, outcome: Outcome, serial: Outcome | None) -> None:
        """Count matches."""
        count = len(re.findall(self.pattern, outcome.text, re.MULTILINE))
        if count < self.times:
            raise CheckFailed(f"it says '{self.pattern}' {count} times, not {self.times}")
        if self.never is not None and (found := re.search(self.never, outcome.text, re.MULTILINE)):
            raise CheckFailed(f"it says '{found[0].strip()}'")


@dataclass(frozen=True)
class Holds:
    """A check by a function of ours, of files that the program wrote."""

    function: Callable[[Outcome], None]
    needs_serial: ClassVar[bool] = False

    def __call__(self, outcome: Outcome, serial: Outcome | None) -> None:
        """Ask the function."""
        self.function(outcome)


@dataclass(frozen=True)
class Application:
    """One entry of the catalogue.

    `command` is started in a fresh folder with its inputs: the files of inputs/NAME, of which those that end in .j2 are
    Jinja templates of `ranks`, `processes` (1 in the serial run), `rows` and `columns`, and what `generate` writes.
    `prepare` are lines for a shell, run there first, once, without MPI's launcher.
    """

    name: str
    what: str
    pattern: str
    packages: tuple[str, ...]
    command: str
    figures: tuple[Figure, ...]
    checks: tuple[Check, ...]
    generate: Callable[[Path], None] | None = None
    prepare: tuple[str, ...] = ()
    # The file in its folder that it reports to, where that is not its output.
    report: str | None = None

    @property
    def needs_serial(self) -> bool:
        """Whether some check compares with one rank's run."""
        return any(check.needs_serial for check in self.checks)

    @property
    def programs(self) -> list[str]:
        """What must be on this machine."""
        return list(dict.fromkeys(line.split()[0] for line in (self.command, *self.prepare)))

    def judge(self, outcome: Outcome, serial: Outcome | None) -> dict[str, float]:
        """Check a launch and return its figures; CheckFailed says what is wrong with it."""
        for check in self.checks:
            check(outcome, serial)
        return {figure.name: figure.read(outcome) for figure in self.figures}


def numbers(pattern: str, text: str) -> list[float]:
    """All numbers that the pattern's groups match, in order; Fortran's 1.0D+00 included."""
    groups = (found.groups() for found in re.finditer(pattern, text, re.MULTILINE))
    return [float(group.replace("D", "E").replace("d", "e")) for found in groups for group in found if group]
