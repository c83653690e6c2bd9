# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes a plan of all kernel and Open vSwitch objects from a network with switches; no system call here.

    unshaped   h1:eth0 ── s13-1 (s13) s13-3 ── s5-1 (s5)

    shaped     h1:eth0 ── to-h1 [link-1] to-s13-1 ── s13-1 (s13) s13-3 ── to-s13-3 [link-9] to-s5-1 ── s5-1 (s5)

    launchers  h1:mgmt0 ── mgmt-h1 [mgmt] mgmt-h2 ── h2:mgmt0

(s13) is an Open vSwitch bridge, s13-3 its port 3, in the switch's own namespace. [link-9] is a kernel bridge that
represents the cable, and `to-X` limits what X receives. Open vSwitch sends for all of its ports through one packet
socket: frames queued at one port would fill that socket's send buffer, and frames for idle ports would be dropped
(measured: over half of them, with one port congested). So a cable has a drain, see `Cable`. Hosts' frames are limited
outside the hosts for the reason given in `layout.py`.
"""

from collections.abc import Iterable, Sequence

from barewire.errors import WrongUse
from barewire.lab.layout import mac, share_cpus
from barewire.lab.plan import (
    HOST_INTERFACE,
    MANAGEMENT_ADDRESS,
    MANAGEMENT_INTERFACE,
    MANAGEMENT_NETWORK,
    NETWORK,
    Bridge,
    Cable,
    End,
    HostPlan,
    Plan,
    Switched,
)
from barewire.lab.spec import LinkSpec
from barewire.topology import Network, Port, with_rate
from barewire.topology.checks import check, find_loop, switch_number

# One /24 address each; the last one is the lab's own on the management network.
HOSTS_MAX = 253
MANAGEMENT_BRIDGE = "mgmt"
_MANAGEMENT_MTU = 1500
# Above 65511, Open vSwitch's userspace datapath loses full frames; the bound leaves room for VLAN tags.
_MTU_BYTES_MAX = 65500
_HOST, _PORT, _OUTER, _CABLE, _MANAGED, _MANAGEMENT_PORT = 0, 5, 6, 7, 8, 9
_SWITCH_ROLE, _MANAGEMENT_ROLE, _DRAIN = 10, 11, 12


def switched_plan(
    lab_id: str,
    network: Network,
    link: LinkSpec,
    cpus: Iterable[int],
    *,
    standalone: bool = False,
    neighbours: bool = False,
) -> Plan:
    """Plan a lab with switches; links without their own rate have the lab's."""
    _check(network, link, standalone)
    rated = with_rate(network, link.rate_bit_s)
    shares = share_cpus(len(network.hosts), sorted(cpus))
    hosts = tuple(
        HostPlan(name, str(NETWORK[number]), mac(_HOST, number), shares[number - 1], str(MANAGEMENT_NETWORK[number]))
        for number, name in enumerate(network.hosts, start=1)
    )
    wires, cables, shaped = _links(rated, link)
    managed = tuple(
        (
            End(host.name, MANAGEMENT_INTERFACE, mac(_MANAGED, number), _MANAGEMENT_MTU),
            End(None, f"mgmt-{host.name}", mac(_MANAGEMENT_PORT, number), _MANAGEMENT_MTU),
        )
        for number, host in enumerate(hosts, start=1)
    )
    management = Bridge(
        MANAGEMENT_BRIDGE,
        mac(_MANAGEMENT_ROLE, 0),
        _MANAGEMENT_MTU,
        tuple(outer.interface for _, outer in managed),
        tuple((outer.interface, inner.mac) for inner, outer in managed),
        address=MANAGEMENT_ADDRESS,
    )
    drains = _drains(cables, link)
    switched = Switched(rated, tuple(cables), standalone, neighbours)
    return Plan(lab_id, link, hosts, (*wires, *drains, *managed), (management,), shaped, switched)


def interface_of(port: Port) -> str:
    """Return the name of the port's interface in the switch's namespace."""
    return f"{port.node}-{port.number}"


def interfaces_of_link(plan: Plan, first: str, second: str) -> list[End]:
    """Return the interfaces that carry the link between two nodes, each s5 or, for parallel links, s5:3.

    With these down, both ends lack a carrier, like a disconnected cable. None is a host's.
    """
    assert plan.switched is not None
    network = plan.switched.network
    links = [
        (port, peer)
        for port, peer in network.peers.items()
        if first in (port.node, str(port)) and second in (peer.node, str(peer))
    ]
    if not links:
        raise WrongUse(f"the network has no link from {first} to {second}; `barewire lab show` lists all links")
    if len(links) > 1:
        ports = ", ".join(str(port) for port, _ in links)
        raise WrongUse(f"{len(links)} links join {first} to {second}: give the port, one of {ports}")
    outside = {end.interface: end for wire in plan.wires for end in wire if end.node not in network.hosts}
    ends = links[0]
    cable = [outside[name] for port in ends if (name := _outer_interface_of(network, port)) in outside]
    return cable or [outside[name] for port in ends if (name := interface_of(port)) in outside]


def switch_mac(switch: str) -> str:
    """Return the Ethernet address of a switch."""
    return mac(_SWITCH_ROLE, switch_number(switch))


def _links(network: Network, link: LinkSpec) -> tuple[list[tuple[End, End]], list[Cable], dict[str, int]]:
    wires: list[tuple[End, End]] = []
    cables: list[Cable] = []
    shaped: dict[str, int] = {}
    numbers = {port: number for number, port in enumerate(sorted(network.peers), start=1)}
    hosts = {name: number for number, name in enumerate(network.hosts, start=1)}

    def inner(port: Port) -> End:
        if port.node in hosts:
            return End(port.node, HOST_INTERFACE, mac(_HOST, hosts[port.node]), link.mtu)
        return End(port.node, interface_of(port), mac(_PORT, numbers[port]), link.mtu)

    joined = [(port, peer) for port, peer in sorted(network.peers.items()) if port < peer]
    for number, ends in enumerate(joined, start=1):
        lossy = link.loss and any(port.node in hosts for port in ends)
        if not lossy and not any(port in network.rates_bit_s for port in ends):
            wires.append((inner(ends[0]), inner(ends[1])))
            continue
        for port, peer in (ends, ends[::-1]):
            outer = End(None, _outer_interface_of(network, port), mac(_OUTER, numbers[port]), link.mtu)
            wires.append((inner(port), outer))
            if peer in network.rates_bit_s:
                shaped[outer.interface] = network.rates_bit_s[peer]
        first_port, second_port = (_outer_interface_of(network, port) for port in ends)
        from_hosts = tuple(_outer_interface_of(network, port) for port in ends if port.node in hosts)
        cables.append(
            Cable(
                f"link-{number}",
                mac(_CABLE, number),
                link.mtu,
                (first_port, second_port),
                f"drain-{number}",
                from_hosts,
            )
        )
    return wires, cables, shaped


def _drains(cables: Sequence[Cable], link: LinkSpec) -> list[tuple[End, End]]:
    """Return the wires whose ends are drains of two cables each; with an odd number, one end is unused."""
    names = [cable.drain for cable in cables] + ["drain"] * (len(cables) % 2)
    ends = [End(None, name, mac(_DRAIN, number), link.mtu) for number, name in enumerate(names, start=1)]
    return list(zip(ends[::2], ends[1::2], strict=True))


def _outer_interface_of(network: Network, port: Port) -> str:
    """Return the far end of a port's interface, where the link is a bridge."""
    return f"to-{port.node}" if port.node in network.hosts else f"to-{interface_of(port)}"


def _check(network: Network, link: LinkSpec, standalone: bool) -> None:
    check(network)
    if not 1 <= len(network.hosts) <= HOSTS_MAX:
        raise WrongUse(f"a lab has 1 to {HOSTS_MAX} hosts, but this network has {len(network.hosts)}")
    if link.offloads:
        raise WrongUse(
            "a network of switches has no offloads: Open vSwitch forwards frames unchanged, without checksums"
        )
    if link.mtu > _MTU_BYTES_MAX:
        raise WrongUse(f"Open vSwitch supports an MTU up to {_MTU_BYTES_MAX} bytes, not {link.mtu}")
    if standalone and (loop := find_loop(network)):
        raise WrongUse(
            f"the network has a loop ({' – '.join(loop)}), in which switches without a controller would forward "
            "frames forever; use a controller, or a network without loops"
        )
