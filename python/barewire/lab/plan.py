# SPDX-License-Identifier: Apache-2.0 OR MIT
"""From a topology, a link and the cores at hand to everything the kernel must be told; no system call here.

    direct     h1:eth0 ───────────── h2:eth0

    switched   h1:eth0 ── to-h1 [switch] to-h2 ── h2:eth0

    nic        h1:eth0 ── to-h1 [nic-h1] up-h1 ── port-h1 [switch] port-h2 ── up-h2 [nic-h2] to-h2 ── h2:eth0

A queueing discipline on a host's own interface is bypassed by AF_PACKET's PACKET_QDISC_BYPASS, so a link is shaped one
hop further, where a bridge port sends: `to-*` limits what a host receives, `up-*` what it sends. A pair needs no
`up-*`: what one host sends is what the other receives. All these are in the switch's namespace, out of hosts' reach.
Frames are lost there, too, where `to-*` receives what a host sent: at the host itself a packet socket would still see
them. So a link that loses frames is switched.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from barewire.lab.spec import LinkSpec, Topology

NETWORK = ipaddress.IPv4Network("10.77.0.0/24")  # 254 hosts: enough for STAR_HOSTS_MAX
HOST_INTERFACE = "eth0"
SWITCH = "switch"

# On a wire, each frame also takes preamble and start delimiter 8, FCS 4 and gap 12 (IEEE 802.3 clause 4.4.2).
WIRE_OVERHEAD_BYTES = 24
WIRE_FRAME_BYTES_MIN = 84  # 64 with FCS, plus preamble and gap
ETHERNET_HEADER_BYTES = 14
VLAN_TAG_BYTES = 4
# Long enough that a late timer interrupt (some 50 µs on a busy virtual machine) loses no wire time, short enough that
# a burst is far below any measurement and that a 64 KiB super-frame is segmented up to 1 Gb/s.
BURST_S = 500e-6
# More than a default socket send buffer (212992 bytes of memory, some 140 KB of frames): its owner blocks before the
# queue drops. 10 ms is what a switch port with a few MB of buffer holds at 1 to 10 Gb/s.
QUEUE_BYTES_MIN = 256 * 1024
QUEUE_S = 10e-3


@dataclass(frozen=True)
class HostPlan:
    """One host: its name, IPv4 address, MAC address and the cores its programs run on."""

    name: str
    address: str
    mac: str
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class End:
    """One end of a link: a host's name, or None for the switch's namespace, and the interface's name there."""

    host: str | None
    interface: str
    mac: str


@dataclass(frozen=True)
class Bridge:
    """A bridge in the switch's namespace; `stations` are the (port, host's MAC address) it knows from the start.

    Left to learn, it would flood every frame to a host that has not sent yet, over all others' links.
    """

    name: str
    mac: str
    ports: tuple[str, ...]
    stations: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Plan:
    """A whole lab before it exists."""

    id: str
    link: LinkSpec
    hosts: tuple[HostPlan, ...]
    wires: tuple[tuple[End, End], ...]
    bridges: tuple[Bridge, ...]
    shaped: tuple[str, ...]

    @property
    def lossy(self) -> tuple[str, ...]:
        """The interfaces that lose what they receive."""
        return tuple(f"to-{host.name}" for host in self.hosts) if self.link.loss else ()

    def host(self, name: str) -> HostPlan:
        """Return the host of that name; KeyError if there is none."""
        return {host.name: host for host in self.hosts}[name]

    def to_json(self) -> dict[str, Any]:
        """Return what `plan_from_json` reads."""
        return asdict(self)


@dataclass(frozen=True)
class Shaper:
    """Parameters of a token bucket (tbf) that passes frames at a wire's rate.

    It limits the rate only: a lone frame passes at once, without waiting for its own serialisation.
    """

    rate_byte_s: int
    burst_bytes: int
    queue_bytes: int


def make_plan(lab_id: str, topology: Topology, link: LinkSpec, cpus: Iterable[int]) -> Plan:
    """Lay out a lab."""
    shares = share_cpus(topology.host_count, sorted(cpus))
    hosts = tuple(
        HostPlan(f"h{number}", str(NETWORK[number]), _mac(0, number), shares[number - 1])
        for number in range(1, topology.host_count + 1)
    )
    if topology.kind == "pair" and link.rate_bit_s is None and not link.loss:
        wires = ((_host_end(hosts[0]), _host_end(hosts[1])),)
        return Plan(lab_id, link, hosts, wires, bridges=(), shaped=())
    if topology.kind == "pair" or link.rate_bit_s is None:
        return _switched_plan(lab_id, link, hosts)
    return _nic_plan(lab_id, link, hosts)


def plan_from_json(document: dict[str, Any]) -> Plan:
    """Read what `Plan.to_json` wrote."""
    return Plan(
        id=document["id"],
        link=LinkSpec(**document["link"]),
        hosts=tuple(HostPlan(**host | {"cpus": tuple(host["cpus"])}) for host in document["hosts"]),
        wires=tuple((End(**first), End(**second)) for first, second in document["wires"]),
        bridges=tuple(
            Bridge(
                name=bridge["name"],
                mac=bridge["mac"],
                ports=tuple(bridge["ports"]),
                stations=tuple((port, mac) for port, mac in bridge["stations"]),
            )
            for bridge in document["bridges"]
        ),
        shaped=tuple(document["shaped"]),
    )


def share_cpus(host_count: int, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Give every host equally many cores; what is left over stays free, with too few cores hosts share them in turn."""
    each = len(cpus) // host_count
    if each == 0:
        return [(cpus[index % len(cpus)],) for index in range(host_count)]
    return [tuple(cpus[index * each : (index + 1) * each]) for index in range(host_count)]


def is_oversubscribed(shares: Iterable[Sequence[int]]) -> bool:
    """Tell whether any core serves more than one host."""
    used = [cpu for share in shares for cpu in share]
    return len(used) != len(set(used))


def make_shaper(rate_bit_s: int, mtu_bytes: int) -> Shaper:
    """Choose a token bucket's burst and queue for a rate and an MTU."""
    rate_byte_s = rate_bit_s // 8
    frame_bytes = mtu_bytes + ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES
    return Shaper(
        rate_byte_s=rate_byte_s,
        # A frame larger than the bucket would never pass.
        burst_bytes=max(2 * frame_bytes, int(rate_byte_s * BURST_S)),
        queue_bytes=max(QUEUE_BYTES_MIN, 4 * frame_bytes, int(rate_byte_s * QUEUE_S)),
    )


def hosts_file(hosts: Iterable[HostPlan]) -> str:
    """Return the /etc/hosts of every host of the lab."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    return "\n".join(lines + [f"{host.address} {host.name}" for host in hosts]) + "\n"


def barewire_hosts_file(hosts: Iterable[HostPlan]) -> str:
    """Return what barewire's own programs in every host of the lab know of names: lines `name MAC interface`."""
    return "".join(f"{host.name} {host.mac} {HOST_INTERFACE}\n" for host in hosts)


def _switched_plan(lab_id: str, link: LinkSpec, hosts: tuple[HostPlan, ...]) -> Plan:
    ports = tuple(f"to-{host.name}" for host in hosts)
    wires = tuple(
        (End(None, port, _mac(1, number)), _host_end(host))
        for number, (port, host) in enumerate(zip(ports, hosts, strict=True), start=1)
    )
    shaped = ports if link.rate_bit_s is not None else ()
    return Plan(lab_id, link, hosts, wires, (_switch(ports, hosts),), shaped)


def _nic_plan(lab_id: str, link: LinkSpec, hosts: tuple[HostPlan, ...]) -> Plan:
    wires: list[tuple[End, End]] = []
    bridges: list[Bridge] = []
    shaped: list[str] = []
    for number, host in enumerate(hosts, start=1):
        to_host, up, port = f"to-{host.name}", f"up-{host.name}", f"port-{host.name}"
        wires.append((End(None, to_host, _mac(1, number)), _host_end(host)))
        wires.append((End(None, up, _mac(2, number)), End(None, port, _mac(3, number))))
        bridges.append(Bridge(f"nic-{host.name}", _mac(4, number), (to_host, up), ((to_host, host.mac),)))
        shaped += [to_host, up]
    switch = _switch(tuple(f"port-{host.name}" for host in hosts), hosts)
    return Plan(lab_id, link, hosts, tuple(wires), (*bridges, switch), tuple(shaped))


def _switch(ports: tuple[str, ...], hosts: tuple[HostPlan, ...]) -> Bridge:
    stations = tuple((port, host.mac) for port, host in zip(ports, hosts, strict=True))
    return Bridge(SWITCH, _mac(4, 0), ports, stations)


def _host_end(host: HostPlan) -> End:
    return End(host.name, HOST_INTERFACE, host.mac)


def _mac(role: int, number: int) -> str:
    # 02: locally administered, unicast. The same lab has the same addresses in every run, so captures compare.
    return f"02:ba:7e:{role:02x}:{number >> 8:02x}:{number & 0xFF:02x}"
