# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a whole scoreboard measures, kept beside its runs so that one that was broken off can go on."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.measure.mpi_subjects import Choice, MpiSubject, subjects_of
from barewire.measure.patterns import Pattern, Testbed, parse_patterns, parse_testbeds
from barewire.mpi import Family, Library
from barewire.mpi.fabrics import PROVIDER, fabric_settings
from barewire.mpi.rights import why_no_frames
from barewire.results.store import write_atomically

PLAN_FILE = "plan.json"
_SCHEMA = "barewire-scoreboard-plan/1"
# Where ranks of this machine by itself meet; their messages never leave shared memory.
_LOOPBACK = "lo"


@dataclass(frozen=True)
class BoardPlan:
    """A scoreboard to be. What is None is the form's, or all there is."""

    quick: bool
    seed: int
    launches: int
    # Seconds of all testbeds together, after which no further round begins.
    budget_s: float | None = None
    testbeds: str | None = None
    patterns: str | None = None
    libraries: str | None = None
    sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.launches < 1:
            raise WrongUse(f"--launches is a number of launches, 1 or more, not {self.launches}")
        if self.budget_s is not None and not self.budget_s > 0:
            raise WrongUse(f"--budget is a number of seconds above 0, not {self.budget_s}")
        self.chosen_testbeds()
        self.chosen_patterns()

    def chosen_testbeds(self) -> tuple[Testbed, ...]:
        """The testbeds, in the order of their table unless named."""
        return parse_testbeds(self.testbeds, quick=self.quick)

    def chosen_patterns(self) -> tuple[Pattern, ...]:
        """The patterns; those that were named are also measured where the quick form leaves them out."""
        chosen = parse_patterns(self.patterns)
        if self.patterns is None:
            return chosen
        return tuple(replace(one, quick=one.quick or one.variants[:1], quick_on="any") for one in chosen)

    def write(self, directory: Path) -> None:
        """Keep it beside the runs to come; MeasurementFailed when the system refuses."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"schema": _SCHEMA, **asdict(self)}, indent=1)
            write_atomically(directory / PLAN_FILE, text.encode() + b"\n")
        except OSError as error:
            raise MeasurementFailed(f"cannot write {error.filename or directory}: {error.strerror}") from error

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Inverse of `write`; WrongUse for a directory that holds no scoreboard."""
        file = directory / PLAN_FILE
        try:
            data: dict[str, Any] = json.loads(file.read_text())
            if data.pop("schema") != _SCHEMA:
                raise WrongUse(f"{file} was written by another version of Barewire")
            return cls(**{**data, "sizes": None if data["sizes"] is None else tuple(data["sizes"])})
        except FileNotFoundError:
            raise WrongUse(f"{directory} holds no scoreboard: it has no {PLAN_FILE}") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise WrongUse(f"{file} is damaged: {error}") from error


def find_subjects(
    libraries: Sequence[Library], testbed: Testbed, *, quick: bool
) -> tuple[tuple[MpiSubject, ...], tuple[str, ...]]:
    """Every library over Barewire and over the competitors' fabrics, as far as they are there; and why others are not.

    The quick form measures UCX under MPICH alone, which adds less to it than Open MPI does. MachineCannot if there is
    nothing to compare: no library over Barewire, or none over a competitor.
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
            # A library's TCP may be UCX's: once is enough.
            settings = fabric_settings(library, subject.wishes, one_host=not is_lab, lab=is_lab)
            told = frozenset((one.name, one.value) for one in settings)
            subjects.setdefault((library.name, told), subject)
    found = tuple(subjects.values())
    fabrics = {subject.wishes.fabric for subject in found}
    if PROVIDER not in fabrics or fabrics == {PROVIDER}:
        raise MachineCannot(f"{testbed.title}: nothing to compare. {'; '.join(reasons) or 'No MPI library is there'}")
    return found, tuple(reasons)


def _check_raw_frames() -> None:
    """In a lab every program has the right; on this machine by itself the caller must have it, or a broker."""
    reason = why_no_frames(os.environ)
    if reason is not None:
        raise MachineCannot(f"one host by itself: {reason}: run as root, or leave out that testbed (--testbeds)")
