# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The plan of a whole scoreboard, stored beside its runs so that an interrupted one can be resumed."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from barewire.errors import MachineCannot, MeasurementFailed, WrongUse, finite_above_0
from barewire.measure.mpi_subjects import Choice, MpiSubject, subjects_of
from barewire.measure.patterns import Pattern, Testbed, parse_patterns, parse_testbeds
from barewire.mpi import Family, Library
from barewire.mpi.fabrics import PROVIDER, fabric_settings
from barewire.mpi.rights import why_no_frames
from barewire.results.store import write_atomically
from barewire.stats.confidence import CONFIDENCE, launches_for_interval

PLAN_FILE = "plan.json"
_SCHEMA = "barewire-scoreboard-plan/1"
# Interface of ranks that share this machine; their messages stay in shared memory.
_LOOPBACK = "lo"


@dataclass(frozen=True)
class BoardPlan:
    """A planned scoreboard. None stands for the form's default, or for everything available."""

    quick: bool
    seed: int
    launches: int
    # Seconds for all testbeds together; no round begins later.
    budget_s: float | None = None
    testbeds: str | None = None
    patterns: str | None = None
    libraries: str | None = None
    sizes: tuple[int, ...] | None = None
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        """Reject invalid values."""
        if self.launches < 1:
            raise WrongUse(f"--launches must be 1 or more, not {self.launches}")
        if self.budget_s is not None:
            finite_above_0("--budget", self.budget_s)
        launches_for_interval(self.confidence)  # ValueError for an impossible one
        self.chosen_testbeds()
        self.chosen_patterns()

    def chosen_testbeds(self) -> tuple[Testbed, ...]:
        """Return the testbeds, in the order of their table unless named."""
        return parse_testbeds(self.testbeds, quick=self.quick)

    def chosen_patterns(self) -> tuple[Pattern, ...]:
        """Return the patterns; named ones are measured even if the quick form omits them."""
        chosen = parse_patterns(self.patterns)
        if self.patterns is None:
            return chosen
        return tuple(
            replace(pattern, quick=pattern.quick or pattern.variants[:1], quick_on="any", named=True)
            for pattern in chosen
        )

    def write(self, directory: Path) -> None:
        """Store the plan beside the runs; MeasurementFailed if that fails."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"schema": _SCHEMA, **asdict(self)}, indent=1)
            write_atomically(directory / PLAN_FILE, text.encode() + b"\n")
        except OSError as error:
            raise MeasurementFailed(f"cannot write {error.filename or directory}: {error.strerror}") from error

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Inverse of `write`; WrongUse if the directory contains no scoreboard."""
        file = directory / PLAN_FILE
        try:
            data: dict[str, Any] = json.loads(file.read_text())
            if data.pop("schema") != _SCHEMA:
                raise WrongUse(f"{file} was written by another version of Barewire")
            return cls(**{**data, "sizes": None if data["sizes"] is None else tuple(data["sizes"])})
        except FileNotFoundError:
            raise WrongUse(f"{directory} contains no scoreboard: there is no {PLAN_FILE}") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise WrongUse(f"{file} is damaged: {error}") from error


def find_subjects(
    libraries: Sequence[Library], testbed: Testbed, *, quick: bool
) -> tuple[tuple[MpiSubject, ...], tuple[str, ...]]:
    """Return every library over Barewire and the competitors' fabrics that is available, and why others are not.

    The quick form measures UCX under MPICH only, which adds less overhead to it than Open MPI. MachineCannot if
    there is nothing to compare: no library over Barewire, or none over a competitor.
    """
    is_lab = testbed.topology is not None
    if not is_lab:
        _check_raw_frames()
    subjects: dict[object, MpiSubject] = {}
    reasons = []
    for library in libraries:
        for fabric in (PROVIDER, *testbed.competitors):
            if quick and fabric == "ucx" and library.family is not Family.MPICH:
                continue
            interface = None if is_lab or fabric != PROVIDER else _LOOPBACK
            choice = Choice((library,), (fabric,), interface=interface)
            try:
                ((subject,), _) = subjects_of(choice, one_host=not is_lab, lab=is_lab)
            except MachineCannot as error:
                reasons.append(f"{library.name}/{fabric} is left out: {error}")
                continue
            # A library's TCP may be UCX's: measure it once.
            settings = fabric_settings(library, subject.requested, one_host=not is_lab, lab=is_lab)
            variables = frozenset((setting.name, setting.value) for setting in settings)
            subjects.setdefault((library.name, variables), subject)
    available = tuple(subjects.values())
    fabrics = {subject.requested.fabric for subject in available}
    if PROVIDER not in fabrics or fabrics == {PROVIDER}:
        raise MachineCannot(
            f"{testbed.title}: nothing to compare. {'; '.join(reasons) or 'No MPI library is installed'}"
        )
    return available, tuple(reasons)


def _check_raw_frames() -> None:
    """Raise MachineCannot if the caller outside a lab has neither the right to raw frames nor a broker."""
    reason = why_no_frames(os.environ)
    if reason is not None:
        raise MachineCannot(f"testbed 'host': {reason}: run as root, or omit that testbed (--testbeds)")
