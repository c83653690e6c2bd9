# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whether ranks on this machine may have raw frames: asked before the launcher, for MPI libraries do not say it.

To them a provider that offers nothing is one that is not there: `OFI call getinfo failed`, `No components`.
"""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from barewire.errors import MachineCannot
from barewire.mpi.fabrics import PROVIDER
from barewire.mpi.job import Job
from barewire.mpi.placement import LOCAL_HOST

# crates/broker has the default, crates/provider reads the variable.
BROKER_SOCKET = "/run/barewire/broker.sock"
BROKER = "FI_BAREWIRE_BROKER"
_FIX = (
    "give the program CAP_NET_RAW (as root: setcap cap_net_raw+ep PROGRAM), or start barewire-broker on this host with "
    "a policy that names you (docs/security.md), or take another path: --fabric tcp"
)


def check_rights(job: Job) -> None:
    """Refuse a job over our provider whose ranks on this machine could open no socket for frames: MachineCannot.

    What cannot be known here is let through, for the provider itself tells why it has nothing to offer: other hosts,
    those that srun chooses, and programs that may get the right by being started. In a lab everybody has it.
    """
    if job.in_lab or job.in_slurm or job.environment().get("FI_PROVIDER") != PROVIDER or not _has_ranks_here(job):
        return
    reason = why_no_frames(os.environ)
    if reason is not None and not any(_may_bring_rights(word) for word in _words(job)):
        raise MachineCannot(f"{reason}: {_FIX}")


def why_no_frames(environment: Mapping[str, str], default: str = BROKER_SOCKET) -> str | None:
    """Why a program of this user gets no raw frames on this machine, decided as the provider does; None if it does."""
    import socket

    broker = environment.get(BROKER)
    if not broker:
        try:
            # One of IP's takes the same right as one of an interface's, which the kernel needs 30 ms to close.
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).close()
        except OSError:
            pass
        else:
            return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.setblocking(False)
        try:
            connection.connect(broker or default)
        except BlockingIOError:  # others wait to be let in, so there is one
            return None
        except OSError as error:
            answer = f"no barewire-broker answers at {broker or default} ({error.strerror or error})"
            return f"{BROKER}: {answer}" if broker else f"no right to raw Ethernet frames, and {answer}"
    return None


def _has_ranks_here(job: Job) -> bool:
    hosts = [host for host, _ in job.shares]
    return LOCAL_HOST in hosts or os.uname().nodename in hosts


def _words(job: Job) -> set[str]:
    """What may name a file that is started: an argument, or a word of one, as of `sh -c`."""
    return {*job.program, *" ".join(job.program).split()}


def _may_bring_rights(word: str) -> bool:
    """Whether a program's file may give it rights that its user lacks; a script may start any program."""
    found = shutil.which(word)
    if found is None:
        return False
    try:
        with Path(found).open("rb") as file:
            is_script = file.read(2) == b"#!"
        return is_script or bool(Path(found).stat().st_mode & stat.S_ISUID) or _has_capabilities(found)
    except OSError:  # one that can be started and not read
        return True


def _has_capabilities(file: str) -> bool:
    try:
        return bool(os.getxattr(file, "security.capability"))
    except OSError:
        return False
