# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A lab's plan: all kernel objects as values; no system call here. `layout.py` creates plans."""

import ipaddress
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from barewire.lab.spec import LinkSpec
from barewire.topology import Network, from_json, to_json

NETWORK = ipaddress.IPv4Network("10.77.0.0/24")  # 254 hosts: enough for STAR_HOSTS_MAX
HOST_INTERFACE = "eth0"
# For launchers of a switched network: their traffic must not disturb what is measured.
MANAGEMENT_NETWORK = ipaddress.IPv4Network("10.78.0.0/24")
MANAGEMENT_INTERFACE = "mgmt0"
# Address of the switches' namespace on it, where a controller may listen.
MANAGEMENT_ADDRESS = str(MANAGEMENT_NETWORK[254])
SWITCH = "switch"

_NOTHING = Network((), (), {})

# On a wire, a frame also takes preamble and start delimiter 8, FCS 4 and gap 12 (IEEE 802.3 clause 4.4.2).
WIRE_OVERHEAD_BYTES = 24
WIRE_FRAME_BYTES_MIN = 84  # 64 with FCS, plus preamble and gap
ETHERNET_HEADER_BYTES = 14
VLAN_TAG_BYTES = 4
# Long enough that a late timer interrupt (some 50 µs on a busy virtual machine) loses no wire time, short enough that
# a burst is far below any measurement and that a 64 KiB super-frame is segmented up to 1 Gb/s.
BURST_S = 500e-6
# The same for a bucket that starts empty, within what one frame can take from it.
LATENESS_S, LATENESS_BYTES_MAX = 500e-6, 60_000
# More than a default socket send buffer (212992 bytes of memory, some 140 KB of frames): the sender blocks before the
# queue drops. 10 ms is the buffer of a switch port with a few MB at 1 to 10 Gb/s.
QUEUE_BYTES_MIN = 256 * 1024
QUEUE_S = 10e-3


@dataclass(frozen=True)
class Gateway:
    """The router's end of a host's link."""

    interface: str
    address: str
    mac: str


@dataclass(frozen=True)
class HostPlan:
    """One host: its name, IPv4 address, MAC address, and the cores of its programs.

    `management` is its address on the management network; None without one. `gateway` leads to the other hosts; None if
    all are on one segment.
    """

    name: str
    address: str
    mac: str
    cpus: tuple[int, ...]
    management: str | None = None
    gateway: Gateway | None = None

    @property
    def network(self) -> ipaddress.IPv4Network:
        """The network of its link."""
        return NETWORK if self.gateway is None else ipaddress.IPv4Network(f"{self.address}/24", strict=False)


@dataclass(frozen=True)
class End:
    """One end of a link: an interface in the namespace of a host, or of an Open vSwitch switch.

    Without a node it is in the namespace of the lab's first process, with its bridges.
    """

    node: str | None
    interface: str
    mac: str
    mtu: int


@dataclass(frozen=True)
class Bridge:
    """A bridge in the switch's namespace; `stations` are its static entries (port, host's MAC address).

    With learning it would flood every frame for a host that has not sent yet over all links. `address` is the bridge's
    own on the management network.
    """

    name: str
    mac: str
    mtu: int
    ports: tuple[str, ...]
    stations: tuple[tuple[str, str], ...] = ()
    address: str | None = None


@dataclass(frozen=True)
class Cable:
    """A bridge that represents a link: it forwards everything between its two ports, without learning.

    `drain` is a third port that discards everything. So a frame from a switch continues as a copy, while the original,
    which the switch's socket accounts for, is freed at once. Frames from ports of `hosts` do not go to the drain: a
    host's socket accounts for its frames until they leave, as with a network card.
    """

    name: str
    mac: str
    mtu: int
    ports: tuple[str, str]
    drain: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Switched:
    """The Open vSwitch switches of a lab.

    They wait for a controller, or learn addresses (`standalone`). With `neighbours` the hosts have static entries of
    all MAC addresses; otherwise they use ARP.
    """

    network: Network
    cables: tuple[Cable, ...] = ()
    standalone: bool = False
    neighbours: bool = False


@dataclass(frozen=True)
class Plan:
    """A whole lab before it exists. `shaped` maps interfaces to the bit/s of wire time to which they are limited."""

    id: str
    link: LinkSpec
    hosts: tuple[HostPlan, ...]
    wires: tuple[tuple[End, End], ...]
    bridges: tuple[Bridge, ...]
    shaped: dict[str, int] = field(default_factory=dict)
    switched: Switched | None = None

    @property
    def is_cable(self) -> bool:
        """Whether each of the two hosts receives just what the other one sends, through ports with a rate."""
        ports = {f"to-{host.name}" for host in self.hosts}
        joined = [set(bridge.ports) for bridge in self.bridges] == [ports]
        return len(self.hosts) == 2 and joined and set(self.shaped) == ports

    @property
    def lossy(self) -> tuple[str, ...]:
        """The interfaces that drop received frames."""
        return tuple(f"to-{host.name}" for host in self.hosts) if self.link.loss else ()

    @property
    def static_neighbours(self) -> bool:
        """Whether hosts have static entries of all MAC addresses."""
        return self.switched is None or self.switched.neighbours

    def host(self, name: str) -> HostPlan:
        """Return the host of that name; KeyError if there is none."""
        return {host.name: host for host in self.hosts}[name]

    def to_json(self) -> dict[str, Any]:
        """Return the document that `plan_from_json` reads."""
        document = asdict(replace(self, switched=None))
        if self.switched is not None:
            document["switched"] = asdict(replace(self.switched, network=_NOTHING))
            document["switched"]["network"] = to_json(self.switched.network)
        return document


@dataclass(frozen=True)
class Shaper:
    """Parameters of a token bucket (tbf) that passes frames at a wire's rate.

    By itself it limits the rate only: a single frame passes at once, without its serialisation delay.
    """

    rate_byte_s: int
    burst_bytes: int
    queue_bytes: int


@dataclass(frozen=True)
class Emulation:
    """Parameters of the kernel's network emulator (netem) for a wire; its queue also holds what is under way."""

    rate_byte_s: int
    mtu: int
    queue_frames: int
    delay_ns: int
    jitter_ns: int


def plan_from_json(document: dict[str, Any]) -> Plan:
    """Read the document of `Plan.to_json`."""
    switched = document["switched"]
    return Plan(
        id=document["id"],
        link=LinkSpec(**document["link"]),
        hosts=tuple(_host_from_json(host) for host in document["hosts"]),
        wires=tuple((End(**first), End(**second)) for first, second in document["wires"]),
        bridges=tuple(_bridge_from_json(bridge) for bridge in document["bridges"]),
        shaped=document["shaped"],
        switched=None if switched is None else _switched_from_json(switched),
    )


def _host_from_json(document: dict[str, Any]) -> HostPlan:
    gateway = None if document["gateway"] is None else Gateway(**document["gateway"])
    return HostPlan(**document | {"cpus": tuple(document["cpus"]), "gateway": gateway})


def _switched_from_json(document: dict[str, Any]) -> Switched:
    cables = tuple(
        Cable(**cable | {"ports": tuple(cable["ports"]), "hosts": tuple(cable["hosts"])})
        for cable in document["cables"]
    )
    return Switched(**document | {"network": from_json(document["network"]), "cables": cables})


def _bridge_from_json(document: dict[str, Any]) -> Bridge:
    stations = tuple((port, mac) for port, mac in document["stations"])
    return Bridge(**document | {"ports": tuple(document["ports"]), "stations": stations})


def make_shaper(rate_bit_s: int, mtu_bytes: int) -> Shaper:
    """Return the parameters of a token bucket that stands alone, for a rate and an MTU."""
    rate_byte_s = rate_bit_s // 8
    frame_bytes = mtu_bytes + ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES
    return Shaper(
        rate_byte_s=rate_byte_s,
        # A frame larger than the bucket would never pass.
        burst_bytes=max(2 * frame_bytes, int(rate_byte_s * BURST_S)),
        queue_bytes=_queue_bytes(rate_byte_s, frame_bytes),
    )


def make_wire_queue(rate_bit_s: int, link: LinkSpec) -> Shaper:
    """Return the parameters of the token bucket behind a port that holds frames by the clock.

    It starts empty, so its size is only what a late timer may make up for; and it must be emptied by one frame.
    """
    rate_byte_s = rate_bit_s // 8
    frame_bytes = link.mtu + ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES
    burst_bytes = max(frame_bytes + WIRE_OVERHEAD_BYTES, min(int(rate_byte_s * LATENESS_S), LATENESS_BYTES_MAX))
    return Shaper(rate_byte_s, burst_bytes, _queue_bytes(rate_byte_s, frame_bytes))


def make_emulation(rate_bit_s: int, link: LinkSpec) -> Emulation:
    """Return the emulator's parameters for a wire."""
    rate_byte_s = rate_bit_s // 8
    frame_bytes = link.mtu + ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES
    under_way_bytes = int(rate_byte_s * (link.delay_us + link.jitter_us) / 1e6)
    return Emulation(
        rate_byte_s=rate_byte_s,
        mtu=link.mtu,
        queue_frames=(_queue_bytes(rate_byte_s, frame_bytes) + under_way_bytes) // WIRE_FRAME_BYTES_MIN,
        delay_ns=round(1e3 * link.delay_us),
        jitter_ns=round(1e3 * link.jitter_us),
    )


def _queue_bytes(rate_byte_s: int, frame_bytes: int) -> int:
    return max(QUEUE_BYTES_MIN, 4 * frame_bytes, int(rate_byte_s * QUEUE_S))


def hosts_file(hosts: Iterable[HostPlan]) -> str:
    """Return the /etc/hosts of all hosts; h1-mgmt is h1 on the management network, mgmt the lab itself."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{host.address} {host.name}" for host in hosts]
    managed = [f"{host.management} {host.name}-mgmt" for host in hosts if host.management is not None]
    return "\n".join([*lines, *managed, *([f"{MANAGEMENT_ADDRESS} mgmt"] if managed else [])]) + "\n"


def barewire_hosts_file(hosts: Iterable[HostPlan]) -> str:
    """Return the hosts file of barewire's own programs: lines `name MAC interface`."""
    return "".join(f"{host.name} {host.mac} {HOST_INTERFACE}\n" for host in hosts)
