# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MPI subjects: the possible combinations of libraries, fabrics, eager limits, progress modes and MTUs."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from barewire import installed
from barewire.errors import MachineCannot, WrongUse
from barewire.models.naming import MTU, MpiName, read_mpi_subject
from barewire.mpi import FabricOptions, Library, find_library, installed_libraries
from barewire.mpi.fabrics import PROGRESSES, PROVIDER, THREAD, fabric_settings, provider_folder

FABRICS_UNLESS_NAMED = ("barewire", "tcp")


@dataclass(frozen=True)
class MpiSubject:
    """An MPI library over a fabric, with further settings."""

    library: Library
    requested: FabricOptions
    # The link's MTU, in a run of several.
    mtu: int | None = None

    @property
    def name(self) -> str:
        """The subject's name, as `models.naming` reads it: `mpich-5/tcp+eager=65536`."""
        options = {
            "eager": self.requested.eager,
            "progress": self.requested.progress,
            "wait": self.requested.wait,
            "link": self.requested.link,
            MTU: self.mtu,
        }
        settings = tuple((name, str(value)) for name, value in options.items() if value is not None)
        return str(MpiName(self.library.name, self.requested.fabric, settings))


@dataclass(frozen=True)
class Choice:
    """Subjects from the command line; None stands for the default libraries and fabrics."""

    libraries: tuple[Library, ...] | None = None
    fabrics: tuple[str, ...] | None = None
    eagers: tuple[int | None, ...] = (None,)
    progresses: tuple[str | None, ...] = (None,)
    waits: tuple[str | None, ...] = (None,)
    links: tuple[str | None, ...] = (None,)
    interface: str | None = None
    mtus: tuple[int | None, ...] = (None,)


def parse_libraries(text: str | None) -> tuple[Library, ...] | None:
    """Read names or folders of libraries; a folder's library is named after the folder."""
    if text is None:
        return None
    libraries = []
    for name in dict.fromkeys(name.strip() for name in text.split(",")):
        library = find_library(name)
        if Path(name).exists():
            library = replace(library, name=library.prefix.name)
        if read_mpi_subject(str(MpiName(library.name, PROVIDER))) is None:
            raise WrongUse(
                f"the folder name '{library.name}' of {library} is invalid in a subject: link to it by another name"
            )
        libraries.append(library)
    names = [library.name for library in libraries]
    if len({*names}) < len(names):
        raise WrongUse(f"two libraries have the same name: {', '.join(names)}; link to one of them by another name")
    return tuple(libraries)


def subjects_of(choice: Choice, *, one_host: bool, lab: bool) -> tuple[tuple[MpiSubject, ...], tuple[str, ...]]:
    """Return the possible combinations, and the reasons for the others.

    An impossible combination raises MachineCannot if its library and fabric were named, and is omitted otherwise.
    MachineCannot also if no combination remains.
    """
    libraries = installed_libraries() if choice.libraries is None else choice.libraries
    if not libraries:
        raise MachineCannot(f"no MPI library is installed: {installed.MPI_FIX}, or give --library a folder")
    named = choice.libraries is not None and choice.fabrics is not None
    subjects: list[MpiSubject] = []
    reasons: list[str] = []
    for library in libraries:
        for requested, mtu in itertools.product(_requests(choice), choice.mtus):
            subject = MpiSubject(library, requested, mtu)
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


def exclude_failing(
    subjects: Sequence[MpiSubject], attempt: Callable[[Library], object], *, named: bool
) -> tuple[tuple[MpiSubject, ...], tuple[str, ...]]:
    """Omit the subjects of libraries for which `attempt` raises MachineCannot, like `subjects_of`."""
    reasons: dict[str, str] = {}
    for library in dict.fromkeys(subject.library for subject in subjects):
        try:
            attempt(library)
        except MachineCannot as error:
            if named:
                raise
            reasons[library.name] = f"{library.name} is left out: {error}"
    remaining = tuple(subject for subject in subjects if subject.library.name not in reasons)
    if not remaining:
        raise MachineCannot("nothing is left to measure: " + "; ".join(reasons.values()))
    return remaining, tuple(reasons.values())


def _requests(choice: Choice) -> list[FabricOptions]:
    fabrics = FABRICS_UNLESS_NAMED if choice.fabrics is None else choice.fabrics
    options = {"--progress": choice.progresses, "--wait": choice.waits, "--link": choice.links}
    for option, values in options.items():
        if PROVIDER not in fabrics and any(value not in (None, THREAD) for value in values):
            raise WrongUse(
                f"{option} {','.join(map(str, values))} applies to the fabric {PROVIDER}, which is not measured"
            )
    combinations = []
    for fabric in fabrics:
        # Other fabrics have no such settings: they are measured once.
        progresses = choice.progresses if fabric == PROVIDER else _without(choice.progresses, PROGRESSES)
        waits = choice.waits if fabric == PROVIDER else (None,)
        links = choice.links if fabric == PROVIDER else (None,)
        combinations += [
            FabricOptions(fabric, choice.interface, link, wait, progress, eager)
            for eager in choice.eagers
            for progress in progresses
            for wait in waits
            for link in links
        ]
    return combinations


def _without(values: tuple[str | None, ...], excluded: tuple[str, ...]) -> tuple[str | None, ...]:
    return tuple(dict.fromkeys(None if value in excluded else value for value in values))


def _check(subject: MpiSubject, *, one_host: bool, lab: bool) -> None:
    """Raise MachineCannot if the library lacks the fabric, its launcher or its compiler, or if there is no provider."""
    if subject.requested.fabric == PROVIDER:
        provider_folder(os.environ, installed.PROVIDER)
    for program in ("mpirun", "mpicc"):
        subject.library.program(program)
    fabric_settings(subject.library, subject.requested, one_host=one_host, lab=lab)
