# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Description of one program: its command, the figures that it reports, and the checks of its result."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from barewire.errors import MeasurementFailed

NUMBER = r"([-+]?\d*\.?\d+(?:[eEdD][-+]?\d+)?)"


@dataclass(frozen=True)
class Outcome:
    """A launch that ended with code 0: its output (or its report's text), its folder, and its wall time."""

    text: str
    folder: Path
    wall_s: float


class Check(Protocol):
    """Checks the result of a launch; CheckFailed describes the difference."""

    needs_serial: ClassVar[bool]

    def __call__(self, outcome: Outcome, serial: Outcome | None) -> None:
        """Check `outcome`; `serial` is the same problem solved by one rank, for checks that need it."""


class CheckFailed(MeasurementFailed):
    """A program ended normally with a wrong result."""


@dataclass(frozen=True)
class Figure:
    """A speed that a program reports: the last match of `pattern`, or the wall time of the launch if it is None."""

    name: str
    unit: str
    pattern: str | None
    lower_is_better: bool = True

    def read(self, outcome: Outcome) -> float:
        """Return the value; CheckFailed if the program reports no value above 0."""
        if self.pattern is None:
            return outcome.wall_s
        found = numbers(self.pattern, outcome.text)
        if not found or not found[-1] > 0:
            raise CheckFailed(f"it does not report its {self.name}: nothing above 0 matches {self.pattern}")
        return found[-1]


@dataclass(frozen=True)
class AgreesWithSerial:
    """Numbers that must equal those of the serial run within a relative `tolerance`."""

    name: str
    pattern: str
    tolerance: float
    # Chaotic motion is compared only by its first values.
    first: int | None = None
    needs_serial: ClassVar[bool] = True

    def __call__(self, outcome: Outcome, serial: Outcome | None) -> None:
        """Compare number by number, in the order of the output."""
        assert serial is not None
        actual, expected_values = (numbers(self.pattern, each.text)[: self.first] for each in (outcome, serial))
        if not expected_values or len(actual) != len(expected_values):
            raise CheckFailed(f"{self.name}: {len(actual)} values where one rank has {len(expected_values)}")
        for value, expected in zip(actual, expected_values, strict=True):
            # Written so that NaN, which compares with nothing, fails.
            if not abs(value - expected) <= self.tolerance * abs(expected):
                raise CheckFailed(
                    f"{self.name} is {value:.10g}, with one rank {expected:.10g} (tolerance {self.tolerance:g})"
                )


@dataclass(frozen=True)
class Prints:
    """Output that must match `pattern` at least `times` times, and must not match `never`."""

    pattern: str
    times: int = 1
    never: str | None = None
    needs_serial: ClassVar[bool] = False

    def __call__(self, outcome: Outcome, serial: Outcome | None) -> None:
        """Count the matches."""
        count = len(re.findall(self.pattern, outcome.text, re.MULTILINE))
        if count < self.times:
            raise CheckFailed(f"it prints '{self.pattern}' {count} times, not {self.times}")
        if self.never is not None and (found := re.search(self.never, outcome.text, re.MULTILINE)):
            raise CheckFailed(f"it prints '{found[0].strip()}'")


@dataclass(frozen=True)
class FileCheck:
    """A check by a function, of files that the program wrote."""

    function: Callable[[Outcome], None]
    needs_serial: ClassVar[bool] = False

    def __call__(self, outcome: Outcome, serial: Outcome | None) -> None:
        """Call the function."""
        self.function(outcome)


@dataclass(frozen=True)
class Application:
    """One entry of the catalogue.

    `command` runs in a new folder with its inputs: the files of inputs/NAME and the output of `generate`. Files that
    end in .j2 are Jinja templates with `ranks`, `processes` (1 in the serial run), `rows` and `columns`. `prepare` has
    shell commands that run there once before, without MPI's launcher. `parallel` are further arguments of `command`,
    but not in the serial run.
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
    parallel: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    # The file in its folder with its report, if that is not its output.
    report: str | None = None

    @property
    def needs_serial(self) -> bool:
        """Whether any check compares with the serial run."""
        return any(check.needs_serial for check in self.checks)

    @property
    def programs(self) -> list[str]:
        """Programs that must be installed on this machine."""
        return list(dict.fromkeys(line.split()[0] for line in (self.command, *self.prepare)))

    @property
    def assignments(self) -> list[str]:
        """The environment as arguments of env(1)."""
        return [f"{name}={value}" for name, value in self.environment.items()]

    def judge(self, outcome: Outcome, serial: Outcome | None) -> dict[str, float]:
        """Check a launch and return its figures; CheckFailed if the result is wrong."""
        for check in self.checks:
            check(outcome, serial)
        return {figure.name: figure.read(outcome) for figure in self.figures}


def numbers(pattern: str, text: str) -> list[float]:
    """Return all numbers that the pattern's groups match, in order; also Fortran's 1.0D+00."""
    groups = (match.groups() for match in re.finditer(pattern, text, re.MULTILINE))
    return [float(group.replace("D", "E").replace("d", "e")) for match in groups for group in match if group]
