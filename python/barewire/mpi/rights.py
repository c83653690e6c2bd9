# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks the right to raw frames on this machine before the launcher starts, because MPI libraries do not report it.

To them a provider that offers nothing does not exist: `OFI call getinfo failed`, `No components`.
"""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from barewire.errors import MachineCannot
from barewire.mpi.fabrics import LINK, LINKS, LINKS_BY_FRAMES, PROVIDER
from barewire.mpi.job import Job
from barewire.mpi.placement import LOCAL_HOST

# crates/broker has the default, crates/provider reads the variable.
BROKER_SOCKET = "/run/barewire/broker.sock"
BROKER = "FI_BAREWIRE_BROKER"
_FIX = (
    "give the program CAP_NET_RAW (as root: setcap cap_net_raw+ep PROGRAM), or start barewire-broker on this host with "
    "a policy that names you (barewire-broker --help), or take a path that needs no right: --link udp"
)


def check_rights(job: Job) -> None:
    """Reject a job over our provider if its ranks on this machine cannot open a frame socket: MachineCannot.

    Cases that cannot be decided here pass, and the provider itself reports the error: other hosts, hosts chosen by
    srun, and programs that may gain the right when they are started. In a lab every process has it.
    """
    environment = job.environment()
    if job.in_lab or job.in_slurm or environment.get("FI_PROVIDER") != PROVIDER or not _has_ranks_here(job):
        return
    if environment.get(LINK, LINKS[0]) not in LINKS_BY_FRAMES:
        return
    reason = why_no_frames(os.environ)
    if reason is not None and not any(_may_bring_rights(word) for word in _words(job)):
        raise MachineCannot(f"{reason}: {_FIX}")


def why_no_frames(environment: Mapping[str, str]) -> str | None:
    """Return why this user's programs get no raw frames here, decided as in the provider; None if they do."""
    import socket

    broker = environment.get(BROKER)
    if not broker:
        try:
            # An IP socket needs the same right as a packet socket, which takes the kernel 30 ms to close.
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).close()
        except OSError:
            pass
        else:
            return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.setblocking(False)
        try:
            connection.connect(broker or BROKER_SOCKET)
        except BlockingIOError:  # its backlog is full, so there is a broker
            return None
        except OSError as error:
            refusal = f"no barewire-broker answers at {broker or BROKER_SOCKET} ({error.strerror or error})"
            return f"{BROKER}: {refusal}" if broker else f"no right to raw Ethernet frames, and {refusal}"
    return None


def _has_ranks_here(job: Job) -> bool:
    hosts = [host for host, _ in job.shares]
    return LOCAL_HOST in hosts or os.uname().nodename in hosts


def _words(job: Job) -> set[str]:
    """Return what may name a program file: each argument, and each word of one, as with `sh -c`."""
    return {*job.program, *" ".join(job.program).split()}


def _may_bring_rights(word: str) -> bool:
    """Return whether a program's file may grant rights that its user lacks; a script may start any program."""
    path = shutil.which(word)
    if path is None:
        return False
    try:
        with Path(path).open("rb") as file:
            is_script = file.read(2) == b"#!"
        return is_script or bool(Path(path).stat().st_mode & stat.S_ISUID) or _has_capabilities(path)
    except OSError:  # executable but not readable
        return True


def _has_capabilities(file: str) -> bool:
    try:
        return bool(os.getxattr(file, "security.capability"))
    except OSError:
        return False
