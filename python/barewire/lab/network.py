# SPDX-License-Identifier: Apache-2.0 OR MIT
# mypy: disable-error-code="no-untyped-call"
"""Creates a plan's interfaces by netlink, in the caller's network namespace."""

import errno
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pyroute2.ethtool.ioctl import IoctlEthtool, NotSupportedError
from pyroute2.iproute.linux import IPRoute
from pyroute2.netlink import NLM_F_EXCL
from pyroute2.netlink.rtnl import RTM_NEWNEIGH
from pyroute2.netlink.rtnl.ndmsg import NTF_MASTER, NTF_STICKY, ndmsg

from barewire.errors import MachineCannot
from barewire.lab.plan import (
    HOST_INTERFACE,
    MANAGEMENT_INTERFACE,
    MANAGEMENT_NETWORK,
    Bridge,
    Cable,
    End,
    Gateway,
    HostPlan,
    Plan,
)
from barewire.lab.qdiscs import CREATE, add_hooks, add_loss, needs
from barewire.lab.shaping import shape_egress, shape_links
from barewire.lab.state import Wire

_LOOPBACK_INDEX = 1
_NEIGHBOUR_PERMANENT = 0x80  # NUD_PERMANENT
_STATION_STATIC = 0x40  # NUD_NOARP; for a bridge, permanent would mean its own address
_AF_INET = 2
# By default bridges do not forward 01:80:c2:00:00:00 to 0f (IEEE 802.1D clause 7.12.6), among them LLDP's 0e;
# the first three are never forwarded by the kernel.
_FORWARD_ALL = 0xFFF8
# The kernel checks links' states at most once a second.
_OPERATIONAL_TIMEOUT_S = 10.0
# Offloads that move work between frames and the CPU; VLAN tag handling stays unchanged.
_OFFLOAD_WORDS = ("segmentation", "checksum", "scatter-gather", "-gro", "-lro", "-gso")


def build_wires(plan: Plan, pids: Mapping[str, int], wire: Wire | None) -> None:
    """Create all links and bridges; call in the namespace of the lab's first process.

    `pids` are processes in the namespaces of hosts and switches, which configure their own ends afterwards. `wire` is
    the means by which links have a rate.
    """
    with IPRoute() as netlink:
        set_loopback_up(netlink)
        for first, second in plan.wires:
            with needs("veth interfaces", "modprobe veth (CONFIG_VETH)"):
                netlink.link("add", kind="veth", peer=_end(second, pids), **_end(first, pids))
        # At a cable's ends the clock's programs forward frames themselves.
        for bridge in () if wire is Wire.CLOCK and plan.is_cable else plan.bridges:
            index = _add_bridge(netlink, bridge, bridge.ports)
            for port, mac in bridge.stations:
                station = {"ifindex": _index(netlink, port), "lladdr": mac}
                # Sticky: a host that sends from another host's address does not receive its frames.
                netlink.fdb("add", **station, state=_STATION_STATIC, flags=NTF_MASTER | NTF_STICKY)
            if bridge.address is not None:
                netlink.addr("add", index=index, address=bridge.address, prefixlen=MANAGEMENT_NETWORK.prefixlen)
            _finish(netlink, plan, bridge.name, "switch")
        for cable in plan.switched.cables if plan.switched is not None else ():
            _add_cable(netlink, plan, cable)
        for interface in [end.interface for wire in plan.wires for end in wire if end.node is None]:
            _finish(netlink, plan, interface, "switch")
        hooked = shape_links(netlink, plan, wire)
        for interface in plan.lossy:
            if interface not in hooked:
                add_hooks(netlink, _index(netlink, interface))
            add_loss(netlink, _index(netlink, interface), plan.link.loss)
        for host in plan.hosts:
            _route(netlink, host)


def configure_host(plan: Plan, host: HostPlan, wire: Wire | None) -> None:
    """Configure a host's addresses and neighbours and set its interfaces up; call in the host's namespace."""
    with IPRoute() as netlink:
        set_loopback_up(netlink)
        addresses = {HOST_INTERFACE: (host.address, host.network)}
        if host.management is not None:
            addresses[MANAGEMENT_INTERFACE] = (host.management, MANAGEMENT_NETWORK)
        for interface, (address, network) in addresses.items():
            index = _index(netlink, interface)
            broadcast = str(network.broadcast_address)
            netlink.addr("add", index=index, address=address, prefixlen=network.prefixlen, broadcast=broadcast)
            _finish(netlink, plan, interface, host.name)
        if host.gateway is not None:
            netlink.route("add", dst="default", gateway=host.gateway.address)
            if plan.link.rate_bit_s is not None and wire is not Wire.CLOCK:
                # IP passes a host's own queueing discipline, frames would not.
                shape_egress(netlink, plan, wire, _index(netlink, HOST_INTERFACE), plan.link.rate_bit_s)
        if plan.link.receive_on == "receiver":
            receive_on(host)
        if plan.static_neighbours:
            _add_neighbours(netlink, _index(netlink, HOST_INTERFACE), plan, host)
        for interface in addresses:
            _wait_until_operational(netlink, _index(netlink, interface))


def configure_switch(plan: Plan, switch: str) -> None:
    """Set a switch's ports up; call in its namespace."""
    with IPRoute() as netlink:
        set_loopback_up(netlink)
        for interface in [end.interface for wire in plan.wires for end in wire if end.node == switch]:
            _finish(netlink, plan, interface, switch)


def set_host_link(plan: Plan, host: HostPlan, up: bool) -> None:
    """Set a host's interface down or up; call in the host's namespace."""
    with IPRoute() as netlink:
        index = _index(netlink, HOST_INTERFACE)
        netlink.link("set", index=index, state="up" if up else "down")
        # An interface that goes down loses its routes, and even its permanent neighbour entries.
        if up and host.gateway is not None:
            # Replaced, because an interface that was up has it.
            netlink.route("replace", dst="default", gateway=host.gateway.address)
        if up and plan.static_neighbours:
            _add_neighbours(netlink, index, plan, host)


def set_interfaces(interfaces: Iterable[str], up: bool) -> None:
    """Set interfaces of this namespace down or up."""
    with IPRoute() as netlink:
        for interface in interfaces:
            netlink.link("set", index=_index(netlink, interface), state="up" if up else "down")


def bypass_netfilter() -> None:
    """Exempt IP frames on this namespace's bridges from packet filters, if the kernel has these (br_netfilter).

    Filtered frames would take longer than others, and lose the reference to the socket that accounts for them.
    """
    for setting in Path("/proc/sys/net/bridge").glob("bridge-nf-call-*"):
        with suppress(OSError):  # read-only for an ordinary user; costs only time
            setting.write_text("0")


def set_loopback_up(netlink: IPRoute) -> None:
    """Set the loopback interface up."""
    netlink.link("set", index=_LOOPBACK_INDEX, state="up")


def silence_ipv6() -> bool:
    """Disable IPv6's own frames (such as router solicitations) on this namespace's interfaces; False if impossible."""
    settings = Path("/proc/sys/net/ipv6/conf")
    if not settings.is_dir():
        return True  # a kernel without IPv6 sends none
    try:
        for name in ("default", "all"):
            (settings / name / "disable_ipv6").write_text("1")
    except OSError:
        return False
    return True


def disable_offloads(interface: str) -> None:
    """Switch off all segmentation, checksum, scatter-gather and receive offloads that can be changed."""
    ethtool = IoctlEthtool(interface)
    try:
        features = ethtool.get_features()
        for name in features.keys():  # noqa: SIM118 - not a mapping: its iterator yields other items
            if is_offload(name) and features.is_active(name) and features.is_available(name):
                features[name] = False
        ethtool.set_features(features)
    finally:
        ethtool.close()


def active_offloads(interface: str) -> list[str]:
    """Return the active offloads of an interface; empty if they cannot be read."""
    ethtool = IoctlEthtool(interface)
    try:
        features = ethtool.get_features()
        return [name for name in features.keys() if is_offload(name) and features.is_active(name)]  # noqa: SIM118
    except (NotSupportedError, OSError):
        return []
    finally:
        ethtool.close()


def is_offload(feature: str) -> bool:
    """Return whether a kernel feature is an offload in the sense of a link's `offloads`."""
    return any(word in feature for word in _OFFLOAD_WORDS)


def receive_on(host: HostPlan) -> None:
    """Run the kernel's receive processing on the host's own cores; call in the host's namespace."""
    interface = Path("/sys/class/net", HOST_INTERFACE)
    with needs("receive packet steering for a lab's hosts", "run as root, on a kernel with CONFIG_RPS"):
        if (interface / "address").read_text().strip() != host.mac:
            raise FileNotFoundError(errno.ENOENT, "/sys does not show the host's interfaces")
        for queue in interface.glob("queues/rx-*"):
            (queue / "rps_cpus").write_text(cpu_mask(host.cpus))


def cpu_mask(cpus: Iterable[int]) -> str:
    """Return cores as the kernel reads them: words of 32 bits, the highest first, no more than the cores need."""
    mask = sum(1 << cpu for cpu in cpus)
    words = -(-mask.bit_length() // 32)
    return ",".join(f"{mask >> 32 * number & 0xFFFF_FFFF:08x}" for number in reversed(range(words)))


def _wait_until_operational(netlink: IPRoute, index: int) -> None:
    """Wait until the kernel reports an interface as up, which may be long after both ends are up.

    Frames pass before; but MPI libraries check the state, and would use the loopback interface instead.
    """
    deadline = time.monotonic() + _OPERATIONAL_TIMEOUT_S
    while netlink.get_links(index)[0].get_attr("IFLA_OPERSTATE") != "UP":
        if time.monotonic() > deadline:
            raise MachineCannot(f"the link of a host did not come up within {_OPERATIONAL_TIMEOUT_S:.0f} s")
        time.sleep(0.003)


def _add_bridge(netlink: IPRoute, bridge: Bridge | Cable, ports: Iterable[str], **attributes: int) -> int:
    with needs("bridges", "modprobe bridge (CONFIG_BRIDGE)"):
        # No spanning tree and no delay: ports forward at once. No snooping, which would send and filter frames.
        netlink.link(
            "add",
            kind="bridge",
            ifname=bridge.name,
            address=bridge.mac,
            br_stp_state=0,
            br_forward_delay=0,
            br_mcast_snooping=0,
            **attributes,
        )
    index = _index(netlink, bridge.name)
    for port in ports:
        netlink.link("set", index=_index(netlink, port), master=index)
    netlink.link("set", index=index, mtu=bridge.mtu)
    return index


def _add_cable(netlink: IPRoute, plan: Plan, cable: Cable) -> None:
    # A bridge sends copies to its ports from the newest to the oldest, and the frame itself to the last.
    _add_bridge(netlink, cable, (cable.drain, *cable.ports), br_group_fwd_mask=_FORWARD_ALL)
    for port in (cable.drain, *cable.ports):
        isolated = int(port == cable.drain or port in cable.hosts)
        netlink.brport("set", index=_index(netlink, port), learning=0, isolated=isolated)
    netlink.tc("add", "blackhole", _index(netlink, cable.drain))
    _finish(netlink, plan, cable.name, "cable")


def _end(end: End, pids: Mapping[str, int]) -> dict[str, object]:
    link: dict[str, object] = {"ifname": end.interface, "address": end.mac, "mtu": end.mtu}
    if end.node is not None:
        link["net_ns_pid"] = pids[end.node]
    return link


def _finish(netlink: IPRoute, plan: Plan, interface: str, owner: str) -> None:
    """Set offloads before the first frame, an alias for readers, then the interface up."""
    if not plan.link.offloads:
        disable_offloads(interface)
    netlink.link("set", index=_index(netlink, interface), ifalias=f"barewire {plan.id} {owner}", state="up")


def _add_neighbours(netlink: IPRoute, index: int, plan: Plan, host: HostPlan) -> None:
    """Add permanent entries of all MAC addresses on the host's segment, so that no ARP frame disturbs a measurement."""
    others: Iterable[HostPlan | Gateway] = [other for other in plan.hosts if other.name != host.name]
    for other in others if host.gateway is None else [host.gateway]:
        _add_neighbour(netlink, index, other)


def _add_neighbour(netlink: IPRoute, index: int, other: HostPlan | Gateway) -> None:
    message = ndmsg()
    message["family"] = _AF_INET
    message["ifindex"] = index
    message["state"] = _NEIGHBOUR_PERMANENT
    message["attrs"] = [["NDA_DST", other.address], ["NDA_LLADDR", other.mac]]
    message["header"]["type"] = RTM_NEWNEIGH
    message["header"]["flags"] = CREATE & ~NLM_F_EXCL
    netlink.nlm_request_batch([message])


def _route(netlink: IPRoute, host: HostPlan) -> None:
    """Make this namespace the router of a host, if it has one."""
    if host.gateway is None:
        return
    with needs("forwarding of IP packets in a lab", "mount /proc/sys writable, or run as root"):
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    index = _index(netlink, host.gateway.interface)
    netlink.addr("add", index=index, address=host.gateway.address, prefixlen=host.network.prefixlen)
    _add_neighbour(netlink, index, host)


def _index(netlink: IPRoute, interface: str) -> int:
    indices = netlink.link_lookup(ifname=interface)
    if not indices:
        raise MachineCannot(f"the lab has no interface {interface}: something else removed it")
    return int(indices[0])
