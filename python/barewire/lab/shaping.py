# SPDX-License-Identifier: Apache-2.0 OR MIT
# mypy: disable-error-code="no-untyped-call"
"""Makes links with a rate pass frames as a wire of that rate does, by the best means of this kernel.

See docs/decisions/0039-a-frame-takes-its-time.md.
"""

from dataclasses import dataclass

from pyroute2.iproute.linux import IPRoute

from barewire.errors import MachineCannot
from barewire.lab import bpf
from barewire.lab.plan import Plan, make_emulation, make_shaper, make_wire_queue
from barewire.lab.qdiscs import (
    AFTER_LOSS,
    BEFORE_LOSS,
    Side,
    add_emulator,
    add_hooks,
    add_program,
    add_token_bucket,
    needs,
)
from barewire.lab.state import Wire
from barewire.lab.wire_program import PORT_BYTES, Forwarding, Maps, Port, entry, leave, resize

_LOOPBACK_INDEX = 1
_QUEUE_MTU = 65535
_NO_NETEM = "modprobe sch_netem (CONFIG_NET_SCH_NETEM; Debian's kernel has it)"


@dataclass(frozen=True)
class Choice:
    """The means for a lab's links, and what a user should know about them."""

    wire: Wire
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where a direction of a link is: the interface and side of its program, and where its frames continue."""

    name: str
    interface: str
    side: Side
    forwarding: Forwarding
    onwards: str
    rate_bit_s: int
    reverse: str
    receiver_mac: str | None = None


def choose_wire(plan: Plan) -> Choice | None:
    """Try what this kernel can do for the plan's links, in an unused namespace; None if no link has a rate."""
    if not plan.shaped:
        return None
    if plan.link.delay_us:
        try:
            _try_emulator(plan)
        except MachineCannot as error:
            raise MachineCannot(f"{error}, or omit --delay and --jitter") from error
        return Choice(Wire.EMULATOR)
    if plan.switched is not None:
        return Choice(Wire.BUCKET)
    obstacle = _obstacle_to_clock(plan)
    if obstacle is None:
        return Choice(Wire.CLOCK)
    refusal = f"frames are not held by the clock: {obstacle}"
    try:
        _try_emulator(plan)
        return Choice(Wire.EMULATOR, (f"{refusal}; timers delay them, some microseconds too long",))
    except MachineCannot:
        without = "links limit their rate only, and a single frame passes at once"
        fix = f"run it as root, without offloads and with a core for each host, or {_NO_NETEM}"
        return Choice(Wire.BUCKET, (f"{refusal}; {without}. Fix: {fix}",))


def _obstacle_to_clock(plan: Plan) -> str | None:
    """Return why the clock cannot hold this plan's frames; None if it can."""
    if plan.link.offloads:
        return "what offloads pass on as one frame are many on a wire"
    cpus = [cpu for host in plan.hosts for cpu in host.cpus]
    if len(cpus) > len(set(cpus)):
        return "hosts share cores, and one's frames would hold up others"
    try:
        try_clock()
    except OSError as error:
        return f"it needs root and Linux 5.17 ({error.strerror})"
    return None


def try_clock() -> None:
    """Load the programs of a port; OSError if the kernel refuses."""
    index = _LOOPBACK_INDEX
    port = Port(0, 0, Forwarding.PEER, index, index, index, 10**9, 2**16, 2**18)
    maps = _create_maps(1)
    loaded = [maps.ports, maps.stolen]
    try:
        for assemble in (entry, resize, leave):
            loaded.append(bpf.load_program(assemble(port, maps)))
    finally:
        bpf.close_all(loaded)


def shape_links(netlink: IPRoute, plan: Plan, wire: Wire | None) -> set[str]:
    """Give the links in this namespace their rate; return the interfaces that have hooks for filters now."""
    if wire is Wire.CLOCK:
        return _hold_by_clock(netlink, plan)
    for interface, rate_bit_s in plan.shaped.items():
        shape_egress(netlink, plan, wire, _index(netlink, interface), rate_bit_s)
    return set()


def shape_egress(netlink: IPRoute, plan: Plan, wire: Wire | None, index: int, rate_bit_s: int) -> None:
    """Limit what an interface transmits, without a program."""
    if wire is Wire.EMULATOR:
        add_emulator(netlink, index, make_emulation(rate_bit_s, plan.link))
    else:
        add_token_bucket(netlink, index, make_shaper(rate_bit_s, plan.link.mtu))


def _hold_by_clock(netlink: IPRoute, plan: Plan) -> set[str]:
    places = _places(plan)
    numbers = {place.name: number for number, place in enumerate(places)}
    interfaces = {place.interface for place in places}
    for interface in sorted(interfaces):
        add_hooks(netlink, _index(netlink, interface))
    maps = _create_maps(len(places))
    try:
        with needs("BPF programs at a link's ports", "omit --rate"):
            for place in places:
                _add_port(netlink, plan, place, numbers, maps)
    finally:
        bpf.close_all([maps.ports, maps.stolen])
    return interfaces


def _places(plan: Plan) -> list[_Place]:
    if plan.is_cable:
        first, second = plan.hosts
        steered = plan.link.receive_on == "receiver"
        forwarding = Forwarding.PEER_INTERFACE if steered else Forwarding.PEER
        return [
            _Place(
                name=f"to-{to.name}",
                interface=f"to-{sender.name}",
                side=Side.INGRESS,
                forwarding=forwarding,
                onwards=f"to-{to.name}",
                rate_bit_s=plan.shaped[f"to-{to.name}"],
                reverse=f"to-{sender.name}",
                receiver_mac=to.mac,
            )
            for sender, to in ((first, second), (second, first))
        ]
    places = []
    for host in plan.hosts:
        to_host, up = f"to-{host.name}", f"up-{host.name}"
        rate_bit_s = plan.shaped[to_host]
        places.append(_Place(to_host, to_host, Side.EGRESS, Forwarding.EGRESS, to_host, rate_bit_s, up))
        if host.gateway is None:
            places.append(_Place(up, up, Side.EGRESS, Forwarding.EGRESS, up, rate_bit_s, to_host))
        else:
            places.append(_Place(up, to_host, Side.INGRESS, Forwarding.INGRESS, to_host, rate_bit_s, to_host))
    return places


def _add_port(netlink: IPRoute, plan: Plan, place: _Place, numbers: dict[str, int], maps: Maps) -> None:
    """Add a token bucket between two interfaces of its own, and the programs."""
    queue, behind = f"q-{place.name}", f"l-{place.name}"
    # The kernel decides by an interface's address whether a frame is for this host; at a cable's, as the host would.
    address = {} if place.receiver_mac is None else {"address": place.receiver_mac}
    mtu = {"mtu": _QUEUE_MTU}
    netlink.link("add", kind="veth", ifname=queue, peer={"ifname": behind, **mtu, **address}, **mtu)
    for name in (queue, behind):
        netlink.link("set", index=_index(netlink, name), ifalias=f"barewire {plan.id} queue", state="up")
    add_hooks(netlink, _index(netlink, behind))
    if place.receiver_mac is not None:
        netlink.link("set", index=_index(netlink, place.interface), address=place.receiver_mac)
    shaper = make_wire_queue(place.rate_bit_s, plan.link)
    add_token_bucket(netlink, _index(netlink, queue), shaper)
    port = Port(
        number=numbers[place.name],
        reverse=numbers[place.reverse],
        forwarding=place.forwarding,
        interface=_index(netlink, place.onwards),
        queue=_index(netlink, queue),
        behind=_index(netlink, behind),
        rate_bit_s=place.rate_bit_s,
        bucket_bytes=shaper.burst_bytes,
        queue_bytes=shaper.queue_bytes,
    )
    priority = AFTER_LOSS if plan.is_cable else BEFORE_LOSS
    for program, interface, side, order in (
        (leave, behind, Side.INGRESS, BEFORE_LOSS),
        (resize, behind, Side.EGRESS, BEFORE_LOSS),
        (entry, place.interface, place.side, priority),
    ):
        descriptor = bpf.load_program(program(port, maps))
        try:
            add_program(netlink, _index(netlink, interface), side, order, descriptor)
        finally:
            bpf.close_all([descriptor])


def _create_maps(ports: int) -> Maps:
    return Maps(bpf.create_map(bpf.ARRAY, PORT_BYTES, ports), bpf.create_map(bpf.PER_CPU_ARRAY, 8, 1))


def _try_emulator(plan: Plan) -> None:
    emulation = make_emulation(next(iter(plan.shaped.values())), plan.link)
    with IPRoute() as netlink:
        add_emulator(netlink, _LOOPBACK_INDEX, emulation)
        netlink.tc("del", "netem", _LOOPBACK_INDEX)


def _index(netlink: IPRoute, interface: str) -> int:
    indices = netlink.link_lookup(ifname=interface)
    if not indices:
        raise MachineCannot(f"the lab has no interface {interface}: something else removed it")
    return int(indices[0])
