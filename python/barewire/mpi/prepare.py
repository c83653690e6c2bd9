# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Builds a job with all its settings from the request and the environment."""

import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from barewire import installed
from barewire.errors import MachineCannot, WrongUse
from barewire.mpi.fabrics import (
    PROVIDER,
    FabricOptions,
    Setting,
    fabric_settings,
    launcher_settings,
    own_core_settings,
    provider_folder,
    provider_settings,
    start_settings,
    yield_settings,
)
from barewire.mpi.job import Job
from barewire.mpi.libraries import Library, library_path
from barewire.mpi.placement import LOCAL_HOST

if TYPE_CHECKING:
    from barewire.lab import Lab

_TOKEN_BYTES = 8
_SECRET_BYTES = 32


def prepare(
    library: Library,
    requested: FabricOptions,
    shares: Sequence[tuple[str, int]],
    program: Sequence[str],
    lab: "Lab | None",
    *,
    with_library_path: bool = False,
    pinned: bool = False,
) -> Job:
    """Decide every setting of a job.

    `with_library_path` puts this library into the linker's search path, for programs that do not find it by themselves.
    `pinned` binds each rank to a core as far as there are cores; in a lab ranks are always bound.

    MachineCannot if the library or this machine lacks the fabric. WrongUse for words that launchers would take for an
    option, or for the beginning of another program.
    """
    if program[0].startswith("-"):
        raise WrongUse(f"'{program[0]}' would be an option of the launcher: give the program's path")
    if ":" in program:
        raise WrongUse(
            "':' would begin another program of the launcher's command line, which gets neither ranks nor settings "
            "here: put the command into a script, or start several programs with mpirun (--dry-run, barewire enable)"
        )
    in_slurm = lab is None and "SLURM_JOB_ID" in os.environ and shutil.which("srun") is not None
    if in_slurm and requested.ulfm:
        raise MachineCannot("srun ends a job whose rank has failed: use mpirun outside of the allocation, or no --ulfm")
    interface = None if lab is None else lab.hosts[0].interface
    crowded = is_crowded(shares, lab) and not in_slurm
    # TCP and other providers would otherwise use the loopback interface, or all interfaces.
    with_interface = replace(requested, interface=requested.interface or interface)
    # Of an allocation's hosts srun chooses, unless they were named.
    spreads = in_slurm and shares[0][0] == LOCAL_HOST and os.environ.get("SLURM_JOB_NUM_NODES", "1") != "1"
    one_host = len(shares) == 1 and not spreads
    settings = fabric_settings(library, with_interface, one_host=one_host, lab=lab is not None)
    if requested.fabric == PROVIDER:
        settings.append(provider_folder(os.environ, installed.PROVIDER))
        token, secret = secrets.token_hex(_TOKEN_BYTES), secrets.token_hex(_SECRET_BYTES)
        settings += provider_settings(
            requested, os.environ, interface=interface, crowded=crowded, token=token, secret=secret
        )
        settings += start_settings(library, os.environ, installed.PROVIDER)
    if crowded:
        settings += yield_settings(library, os.environ)
    else:
        settings += own_core_settings(library, os.environ, installed.PROVIDER)
    if lab is not None and lab.management_interface is not None:
        settings += launcher_settings(library, lab.management_interface)
    if lab is not None:
        settings.append(Setting("TMPDIR", str(_temporary_folder(lab)), "lab"))
    if with_library_path:
        settings += [Setting(name, value, "--library") for name, value in library_path(library, os.environ).items()]
    return Job(
        library,
        tuple(shares),
        tuple(settings),
        tuple(program),
        remote_shell=None if lab is None else lab.remote_shell()[0],
        in_lab=lab is not None,
        in_slurm=in_slurm,
        as_root=os.geteuid() == 0 or lab is not None,
        python="python3" if lab is None else sys.executable,
        pinned=pinned and lab is None,
        options=("--with-ft", "ulfm") if requested.ulfm else (),
    )


def is_crowded(shares: Sequence[tuple[str, int]], lab: "Lab | None") -> bool:
    """Return whether ranks must share a core; of real machines only this one's cores are known."""
    if lab is not None:
        return lab.oversubscribed or any(count > len(lab.host(host).cpus) for host, count in shares)
    cores, here = len(os.sched_getaffinity(0)), (LOCAL_HOST, os.uname().nodename)
    return any(host in here and count > cores for host, count in shares)


def _temporary_folder(lab: "Lab") -> Path:
    """Launchers name their folders after process numbers, which start anew in each lab: in /tmp they would collide."""
    folder = lab.directory / "tmp"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
