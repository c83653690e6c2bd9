# SPDX-License-Identifier: Apache-2.0 OR MIT
# mypy: disable-error-code="no-untyped-call"
"""By what MPI ranks of this host can reach other hosts: Ethernet frames, UDP."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from pyroute2.iproute.linux import IPRoute

from barewire.doctor.finding import Finding, Status
from barewire.doctor.machine import read
from barewire.mpi.rights import why_no_frames

FIX_FRAMES = (
    "run programs as root or with CAP_NET_RAW (setcap cap_net_raw+ep PROGRAM), or start barewire-broker with a policy "
    "that names you (barewire-broker --help)"
)
FIX_UDP = "give an interface an IP address: ip address add ADDRESS/PREFIX dev NAME"
_LINK_LOCAL = 253  # RT_SCOPE_LINK
_HOST = 254  # RT_SCOPE_HOST


def carrier_findings() -> list[Finding]:
    """Examine rights, interfaces and addresses; whom they reach, `barewire cluster check` and `--explain` find out."""
    return [judge_frames(why_no_frames(os.environ), wired(Path("/sys/class/net"))), judge_udp(addresses())]


def judge_frames(reason: str | None, interfaces: Sequence[str]) -> Finding:
    """Judge whether ranks may send frames; `reason` is why not."""
    if reason is not None:
        detail = f"{reason}; ranks use UDP instead, with about twice the latency of frames"
        return Finding("network", "MPI by frames", Status.WARNING, detail, FIX_FRAMES)
    if not interfaces:
        fix = "connect a cable, or: ip link set NAME up"
        return Finding("network", "MPI by frames", Status.WARNING, "no Ethernet interface has a carrier", fix)
    return Finding("network", "MPI by frames", Status.OK, f"allowed; with a carrier: {', '.join(interfaces)}")


def judge_udp(found: Sequence[str]) -> Finding:
    """Judge whether other hosts may be reached by UDP, as behind routers."""
    if not found:
        detail = "no IP address but local ones: hosts behind routers cannot be reached"
        return Finding("network", "MPI by UDP", Status.WARNING, detail, FIX_UDP)
    detail = (
        f"addresses {', '.join(found)}; a firewall must pass UDP between the hosts, FI_BAREWIRE_PORTS says which ports"
    )
    return Finding("network", "MPI by UDP", Status.OK, detail)


def wired(root: Path) -> list[str]:
    """Return the Ethernet interfaces with a carrier, but no bridges."""
    return sorted(
        entry.name
        for entry in (root.iterdir() if root.is_dir() else ())
        if read(entry / "type") == "1" and read(entry / "carrier") == "1" and not (entry / "bridge").exists()
    )


def addresses() -> list[str]:
    """Return this host's IP addresses that others may reach, those of version 4 first."""
    with IPRoute() as netlink:
        entries = [
            (message["family"] != socket.AF_INET, str(message.get_attr("IFA_ADDRESS")))
            for message in netlink.get_addr()
            if message["scope"] not in (_LINK_LOCAL, _HOST)
        ]
    return list(dict.fromkeys(address for _, address in sorted(entries)))
