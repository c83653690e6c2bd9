# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is measured of MPI: libraries over fabrics, with eager limits and ways of progress; those that there are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from barewire.errors import MachineCannot, WrongUse
from barewire.models.naming import MpiName, read_mpi_subject
from barewire.mpi import Library, Wishes, find_library, installed_libraries
from barewire.mpi.fabrics import PROGRESSES, PROVIDER, THREAD, fabric_settings

FABRICS_UNLESS_NAMED = ("barewire", "tcp")


@dataclass(frozen=True)
class MpiSubject:
    """An MPI library over a fabric, and what it is told beyond that."""

    library: Library
    wishes: Wishes

    @property
    def name(self) -> str:
        """As `models.naming` reads it: `mpich-5/tcp+eager=65536`."""
        told = {
            "eager": self.wishes.eager,
            "progress": self.wishes.progress,
            "wait": self.wishes.wait,
            "link": self.wishes.link,
        }
        settings = tuple((name, str(value)) for name, value in told.items() if value is not None)
        return str(MpiName(self.library.name, self.wishes.fabric, settings))


@dataclass(frozen=True)
class Choice:
    """What the command line says of subjects; None for libraries and fabrics that nobody named."""

    libraries: tuple[Library, ...] | None = None
    fabrics: tuple[str, ...] | None = None
    eagers: tuple[int | None, ...] = (None,)
    progresses: tuple[str | None, ...] = (None,)
    waits: tuple[str | None, ...] = (None,)
    links: tuple[str | None, ...] = (None,)
    interface: str | None = None


def parse_libraries(text: str | None) -> tuple[Library, ...] | None:
    """Read names, or folders, of libraries; a folder's library is called as its folder."""
    if text is None:
        return None
    found = []
    for part in dict.fromkeys(one.strip() for one in text.split(",")):
        library = find_library(part)
        if Path(part).exists():
            library = replace(library, name=library.prefix.name)
        if read_mpi_subject(str(MpiName(library.name, PROVIDER))) is None:
            raise WrongUse(f"the folder of {library} is called '{library.name}', which no subject can be: link to it")
        found.append(library)
    names = [library.name for library in found]
    if len({*names}) < len(names):
        raise WrongUse(f"two libraries would be called alike: {', '.join(names)}; link to one by another name")
    return tuple(found)


def subjects_of(choice: Choice, *, one_host: bool, lab: bool) -> tuple[tuple[MpiSubject, ...], tuple[str, ...]]:
    """Combine all; return the subjects that are possible, and why others are not.

    What cannot be is refused if it was asked for by name, library and fabric; else it is left out. MachineCannot if
    nothing is left.
    """
    libraries = installed_libraries() if choice.libraries is None else choice.libraries
    if not libraries:
        raise MachineCannot("no MPI library is installed: `make setup` installs some, or give --library a folder")
    named = choice.libraries is not None and choice.fabrics is not None
    subjects: list[MpiSubject] = []
    reasons: list[str] = []
    for library in libraries:
        for wishes in _wishes(choice):
            subject = MpiSubject(library, wishes)
            try:
                _check(subject, one_host=one_host, lab=lab)
            except MachineCannot as error:
                if named:
                    raise
                reasons.append(f"{subject.name} is left out: {error}")
            else:
                subjects.append(subject)
    if not subjects:
        raise MachineCannot("nothing is left to measure: " + "; ".join(reasons))
    return tuple(dict.fromkeys(subjects)), tuple(dict.fromkeys(reasons))


def without(
    subjects: Sequence[MpiSubject], attempt: Callable[[Library], object], *, named: bool
) -> tuple[tuple[MpiSubject, ...], tuple[str, ...]]:
    """Leave out the subjects of libraries for which `attempt` says MachineCannot, as `subjects_of` does."""
    reasons: dict[str, str] = {}
    for library in dict.fromkeys(subject.library for subject in subjects):
        try:
            attempt(library)
        except MachineCannot as error:
            if named:
                raise
            reasons[library.name] = f"{library.name} is left out: {error}"
    left = tuple(subject for subject in subjects if subject.library.name not in reasons)
    if not left:
        raise MachineCannot("nothing is left to measure: " + "; ".join(reasons.values()))
    return left, tuple(reasons.values())


def _wishes(choice: Choice) -> list[Wishes]:
    fabrics = FABRICS_UNLESS_NAMED if choice.fabrics is None else choice.fabrics
    own = {"--progress": choice.progresses, "--wait": choice.waits, "--link": choice.links}
    for option, values in own.items():
        if PROVIDER not in fabrics and any(value not in (None, THREAD) for value in values):
            raise WrongUse(f"{option} {','.join(map(str, values))} is for the fabric {PROVIDER}, which is not measured")
    wishes = []
    for fabric in fabrics:
        # Other fabrics do that in their own way: they are measured once, as they are.
        progresses = choice.progresses if fabric == PROVIDER else _unlike(choice.progresses, PROGRESSES)
        waits = choice.waits if fabric == PROVIDER else (None,)
        links = choice.links if fabric == PROVIDER else (None,)
        wishes += [
            Wishes(fabric, choice.interface, link, wait, progress, eager)
            for eager in choice.eagers
            for progress in progresses
            for wait in waits
            for link in links
        ]
    return wishes


def _unlike(values: tuple[str | None, ...], own: tuple[str, ...]) -> tuple[str | None, ...]:
    return tuple(dict.fromkeys(None if value in own else value for value in values))


def _check(subject: MpiSubject, *, one_host: bool, lab: bool) -> None:
    """MachineCannot for a library that lacks the fabric, its launcher or its compiler."""
    for program in ("mpirun", "mpicc"):
        subject.library.program(program)
    fabric_settings(subject.library, subject.wishes, one_host=one_host, lab=lab)
