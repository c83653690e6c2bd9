# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The options of `barewire try` and `barewire profile`, and the jobs that they describe."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from barewire.cli.host_slots import host_slots_of
from barewire.cli.labs import LabChoice, optional_lab
from barewire.errors import WrongUse, finite_above_0
from barewire.lab import Lab, LinkSpec
from barewire.mpi.fabrics import FabricOptions
from barewire.mpi.job import Job
from barewire.mpi.libraries import Library, find_library, library_of_program
from barewire.mpi.placement import HostSlots, spread
from barewire.mpi.prepare import prepare
from barewire.mpi.rights import check_rights


@dataclass(frozen=True)
class JobHosts:
    """Hosts of a lab, or real hosts."""

    host_slots: tuple[HostSlots, ...]
    lab: LabChoice | None

    @contextmanager
    def entered(self) -> Iterator[Lab | None]:
        """Yield the lab, if any; a lab made for the block ends with it."""
        if self.lab is None:
            yield None
            return
        with self.lab.entered() as lab:
            yield lab


@dataclass(frozen=True)
class JobRequest:
    """A program, its library, and the distribution of its ranks."""

    command: tuple[str, ...]
    library: Library
    with_library_path: bool
    shares: tuple[tuple[str, int], ...]
    hosts: JobHosts

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return sum(count for _, count in self.shares)

    def job(self, requested: FabricOptions, lab: Lab | None) -> Job:
        """Return the job over one fabric; MachineCannot if the library or the machine does not support it."""
        job = prepare(self.library, requested, self.shares, self.command, lab, with_library_path=self.with_library_path)
        check_rights(job)
        return job


def parse_request(program: list[str], library: str | None, hosts: JobHosts, ranks: int | None) -> JobRequest:
    """Find the program and its library; by default each host gets one rank, or as many as it has slots."""
    command = program[1:] if program and program[0] == "--" else program
    if not command:
        raise WrongUse("name the program after --, with its arguments")
    chosen = None if library is None else find_library(library)
    used, _ = library_of_program(command[0], chosen, os.environ)
    # Hosts may have no slot; at least one rank is asked for.
    count = ranks or sum(1 if entry.ranks is None else entry.ranks for entry in hosts.host_slots) or 1
    return JobRequest(tuple(command), used, chosen is not None, tuple(spread(count, hosts.host_slots)), hosts)


def parse_job_hosts(lab: str | None, links: LinkSpec, hosts: str | None, hostfile: Path | None) -> JobHosts:
    """Read the options that select hosts; WrongUse if they conflict."""
    if hosts is not None and hostfile is not None:
        raise WrongUse("--hosts and --hostfile exclude each other")
    chosen = optional_lab(lab, links)
    return JobHosts(tuple(host_slots_of(hosts, hostfile, None if chosen is None else chosen.topology)), chosen)


def check_limit(limit_s: float | None) -> None:
    """Reject an invalid time limit."""
    if limit_s is not None:
        finite_above_0("--limit", limit_s)
