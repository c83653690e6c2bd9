# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes a plan of all kernel objects from a topology, a link and the available cores; no system call here.

    direct     h1:eth0 ───────────── h2:eth0

    switched   h1:eth0 ── to-h1 [switch] to-h2 ── h2:eth0

    nic        h1:eth0 ── to-h1 [nic-h1] up-h1 ── port-h1 [switch] port-h2 ── up-h2 [nic-h2] to-h2 ── h2:eth0

AF_PACKET's PACKET_QDISC_BYPASS bypasses a queueing discipline on a host's own interface, so links are shaped one hop
further, where a bridge port sends: `to-*` limits what a host receives, `up-*` what it sends. A pair needs no `up-*`:
one host's output is the other's input. All these are in the switch's namespace, inaccessible to hosts. Frames are
also dropped there, where `to-*` receives from the host: at the host itself a packet socket would still see them.
So a link with loss is switched.

    routed     h1:eth0 ── to-h1 [router] to-h2 ── h2:eth0

Each host has a network of its own, and no frame passes the router. Hosts shape their own interfaces, since nothing
but IP leaves them for another host.
"""

from collections.abc import Iterable, Sequence

from barewire.lab.plan import HOST_INTERFACE, NETWORK, SWITCH, Bridge, End, Gateway, HostPlan, Plan
from barewire.lab.spec import LinkSpec, Topology


def make_plan(lab_id: str, topology: Topology, link: LinkSpec, cpus: Iterable[int]) -> Plan:
    """Plan a lab whose hosts are joined by one link or a kernel bridge."""
    shares = share_cpus(len(topology.hosts), sorted(cpus))
    if topology.name.startswith("routed:"):
        return _routed_plan(lab_id, link, topology.hosts, shares)
    hosts = tuple(
        HostPlan(name, str(NETWORK[number]), mac(0, number), shares[number - 1])
        for number, name in enumerate(topology.hosts, start=1)
    )
    pair = topology.name == "pair"
    if pair and link.rate_bit_s is None and not link.loss:
        return Plan(lab_id, link, hosts, ((_host_end(hosts[0], link), _host_end(hosts[1], link)),), bridges=())
    if pair or link.rate_bit_s is None:
        return _bridged_plan(lab_id, link, hosts)
    return _nic_plan(lab_id, link, hosts, link.rate_bit_s)


def share_cpus(host_count: int, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Give every host equally many cores, with the rest unused; if there are too few, hosts share them round-robin."""
    each = len(cpus) // host_count
    if each == 0:
        return [(cpus[index % len(cpus)],) for index in range(host_count)]
    return [tuple(cpus[index * each : (index + 1) * each]) for index in range(host_count)]


def is_oversubscribed(shares: Iterable[Sequence[int]]) -> bool:
    """Return whether any core serves more than one host."""
    used = [cpu for share in shares for cpu in share]
    return len(used) != len(set(used))


def mac(role: int, number: int) -> str:
    """Return the MAC address of an interface by its role in the lab and its number in that role."""
    # 02: locally administered, unicast. The same lab has the same addresses in every run, so that captures compare.
    return f"02:ba:7e:{role:02x}:{number >> 8:02x}:{number & 0xFF:02x}"


def _bridged_plan(lab_id: str, link: LinkSpec, hosts: tuple[HostPlan, ...]) -> Plan:
    ports = tuple(f"to-{host.name}" for host in hosts)
    wires = tuple(
        (End(None, port, mac(1, number), link.mtu), _host_end(host, link))
        for number, (port, host) in enumerate(zip(ports, hosts, strict=True), start=1)
    )
    shaped = dict.fromkeys(ports, link.rate_bit_s) if link.rate_bit_s is not None else {}
    return Plan(lab_id, link, hosts, wires, (_switch(ports, hosts, link),), shaped)


def _routed_plan(lab_id: str, link: LinkSpec, names: Sequence[str], shares: Sequence[tuple[int, ...]]) -> Plan:
    def host(name: str, number: int) -> HostPlan:
        gateway = Gateway(f"to-{name}", f"10.77.{number}.254", mac(1, number))
        return HostPlan(name, f"10.77.{number}.1", mac(0, number), shares[number - 1], gateway=gateway)

    hosts = tuple(host(name, number) for number, name in enumerate(names, start=1))
    wires = tuple(
        (End(None, host.gateway.interface, host.gateway.mac, link.mtu), _host_end(host, link))
        for host in hosts
        if host.gateway is not None
    )
    shaped = {} if link.rate_bit_s is None else {first.interface: link.rate_bit_s for first, _ in wires}
    return Plan(lab_id, link, hosts, wires, bridges=(), shaped=shaped)


def _nic_plan(lab_id: str, link: LinkSpec, hosts: tuple[HostPlan, ...], rate_bit_s: int) -> Plan:
    wires: list[tuple[End, End]] = []
    bridges: list[Bridge] = []
    shaped: dict[str, int] = {}
    for number, host in enumerate(hosts, start=1):
        to_host, up, port = f"to-{host.name}", f"up-{host.name}", f"port-{host.name}"
        wires.append((End(None, to_host, mac(1, number), link.mtu), _host_end(host, link)))
        wires.append((End(None, up, mac(2, number), link.mtu), End(None, port, mac(3, number), link.mtu)))
        bridges.append(Bridge(f"nic-{host.name}", mac(4, number), link.mtu, (to_host, up), ((to_host, host.mac),)))
        shaped |= {to_host: rate_bit_s, up: rate_bit_s}
    switch = _switch(tuple(f"port-{host.name}" for host in hosts), hosts, link)
    return Plan(lab_id, link, hosts, tuple(wires), (*bridges, switch), shaped)


def _switch(ports: tuple[str, ...], hosts: tuple[HostPlan, ...], link: LinkSpec) -> Bridge:
    stations = tuple((port, host.mac) for port, host in zip(ports, hosts, strict=True))
    return Bridge(SWITCH, mac(4, 0), link.mtu, ports, stations)


def _host_end(host: HostPlan, link: LinkSpec) -> End:
    return End(host.name, HOST_INTERFACE, host.mac, link.mtu)
