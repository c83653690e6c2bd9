# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where ranks may go: hosts that the command line names, checked before anything is started."""

from pathlib import Path
from typing import TYPE_CHECKING

from barewire.errors import WrongUse
from barewire.mpi.placement import LOCAL_HOST, Place, parse_hostfile, parse_hosts

if TYPE_CHECKING:
    from barewire.lab import Topology


def places_of(hosts: str | None, hostfile: Path | None, topology: "Topology | None") -> list[Place]:
    """Hosts by `--hosts`, or a file of them; a lab's, but for servers, or this machine, where neither is given."""
    places = None
    if hosts is not None:
        places = parse_hosts(hosts)
    elif hostfile is not None:
        try:
            places = parse_hostfile(hostfile.read_text(), str(hostfile))
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUse(f"hostfile {hostfile} cannot be read: {error}") from error
    if topology is not None:
        unknown = [place.host for place in places or [] if place.host not in topology.hosts]
        if unknown:
            raise WrongUse(f"the lab has no host '{unknown[0]}'; there are: {', '.join(topology.hosts)}")
        return places or [Place(name) for name in topology.workers]
    for place in places or []:
        import socket

        try:
            socket.getaddrinfo(place.host, None)
        except OSError as error:
            raise WrongUse(f"host '{place.host}' is unknown: {error.strerror}; see /etc/hosts") from None
    return places or [Place(LOCAL_HOST)]
