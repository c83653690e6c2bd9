# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A user's own program as `barewire try` and `barewire profile` start it: options, and where they lead."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from barewire.cli.labs import LAB_HELP, LabChoice, lab_if_asked
from barewire.cli.links import IN_A_LAB
from barewire.cli.places import places_of
from barewire.errors import WrongUse
from barewire.lab import Lab, LinkSpec
from barewire.mpi.fabrics import Wishes
from barewire.mpi.job import Job
from barewire.mpi.libraries import Library, find_library, library_of_program
from barewire.mpi.placement import Place, spread
from barewire.mpi.prepare import prepare
from barewire.mpi.rights import check_rights

_HOSTS = "On real hosts"
PATH = "The path"

Program = Annotated[list[str], typer.Argument(metavar="-- PROGRAM…", help="the program and its arguments")]
LibraryName = Annotated[
    str | None,
    typer.Option(help="MPI library by name or folder; only where the program does not say it", rich_help_panel=PATH),
]
Interface = Annotated[
    str | None, typer.Option(help="Ethernet interface; unless given the first that is up", rich_help_panel=PATH)
]
LabName = Annotated[str | None, typer.Option(help=LAB_HELP, rich_help_panel=IN_A_LAB)]
Hosts = Annotated[str | None, typer.Option(help="a,b or a:4,b:4; also of a lab; else this one", rich_help_panel=_HOSTS)]
Hostfile = Annotated[Path | None, typer.Option(help="a file with lines a, a:4 or a slots=4", rich_help_panel=_HOSTS)]
Limit = Annotated[float | None, typer.Option(help="seconds after which a launch is ended, with all its processes")]
Directory = Annotated[Path | None, typer.Option("--output", "-o", help="the results' directory; runs/… unless given")]


@dataclass(frozen=True)
class Where:
    """Hosts of a lab or real ones."""

    places: tuple[Place, ...]
    lab: LabChoice | None

    @contextmanager
    def entered(self) -> Iterator[Lab | None]:
        """The lab if there is one; one that is made for the block ends with it."""
        if self.lab is None:
            yield None
            return
        with self.lab.entered() as lab:
            yield lab


@dataclass(frozen=True)
class Asked:
    """A program, its library, and where its ranks shall be."""

    command: tuple[str, ...]
    library: Library
    carried: bool
    shares: tuple[tuple[str, int], ...]
    where: Where

    @property
    def ranks(self) -> int:
        """How many."""
        return sum(count for _, count in self.shares)

    def job(self, wishes: Wishes, lab: Lab | None) -> Job:
        """The job over one fabric; MachineCannot if the library or the machine lacks that."""
        job = prepare(self.library, wishes, self.shares, self.command, lab, carried=self.carried)
        check_rights(job)
        return job


def asked_for(program: list[str], library: str | None, where: Where, ranks: int | None) -> Asked:
    """Find the program and its library; a rank on each host, or as many as it takes, unless `ranks` are given."""
    command = program[1:] if program and program[0] == "--" else program
    if not command:
        raise WrongUse("name the program after --, with its arguments")
    chosen = None if library is None else find_library(library)
    used, _ = library_of_program(command[0], chosen, os.environ)
    count = ranks or sum(place.ranks or 1 for place in where.places)
    return Asked(tuple(command), used, chosen is not None, tuple(spread(count, where.places)), where)


def where_of(lab: str | None, links: LinkSpec, hosts: str | None, hostfile: Path | None) -> Where:
    """Read the options that say where; WrongUse if they do not fit together."""
    if hosts is not None and hostfile is not None:
        raise WrongUse("--hosts and --hostfile both say where: give one of them")
    chosen = lab_if_asked(lab, links)
    return Where(tuple(places_of(hosts, hostfile, None if chosen is None else chosen.topology)), chosen)


def new_directory(given: Path | None, what: str) -> Path:
    """Make a directory of its own for results; WrongUse if it holds something."""
    directory = (given or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{what}").absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise WrongUse(f"{directory} is not empty; results need a directory of their own")
    except OSError as error:
        raise WrongUse(f"{directory} cannot be made: {error.strerror}") from error
    return directory


def check_limit(limit_s: float | None) -> None:
    """Refuse what is no time."""
    if limit_s is not None and not limit_s > 0:
        raise WrongUse(f"--limit is a number of seconds above 0, not {limit_s:g}")
