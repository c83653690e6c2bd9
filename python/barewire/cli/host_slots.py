# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hosts for ranks from the command line, checked before anything is started."""

from pathlib import Path
from typing import TYPE_CHECKING

from barewire.errors import WrongUse, unknown
from barewire.mpi.placement import LOCAL_HOST, HostSlots, parse_hostfile, parse_hosts

if TYPE_CHECKING:
    from barewire.lab import Topology


def host_slots_of(
    hosts: str | None, hostfile: Path | None, topology: "Topology | None", *, resolve: bool = True
) -> list[HostSlots]:
    """Return the hosts of `--hosts` or a hostfile; by default the lab's hosts except servers, or this machine.

    Without `resolve`, names that only the remote shell knows pass.
    """
    host_slots = None
    if hosts is not None:
        host_slots = parse_hosts(hosts)
    elif hostfile is not None:
        try:
            host_slots = parse_hostfile(hostfile.read_text(), str(hostfile))
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUse(f"hostfile {hostfile} cannot be read: {error}") from error
    if topology is not None:
        for entry in host_slots or []:
            if entry.host not in topology.hosts:
                raise unknown("host of the lab", entry.host, topology.hosts)
        return host_slots or [HostSlots(name) for name in topology.workers]
    if resolve:
        for entry in host_slots or []:
            _require_known(entry.host)
    return host_slots or [HostSlots(LOCAL_HOST)]


def _require_known(host: str) -> None:
    """Raise WrongUse for a name that this machine cannot resolve."""
    import socket

    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise WrongUse(f"host '{host}' is unknown: {error.strerror}; see /etc/hosts") from None
    except UnicodeError:  # of two dots in a row, or more than 63 characters between two
        raise WrongUse(f"'{host}' is not a host's name") from None
