# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The findings' sentences: what is wrong, by which numbers, and what to do."""

from collections.abc import Mapping

from barewire.cluster.finding import Blame, Direction, Finding, Kind
from barewire.cluster.measured import HostState
from barewire.measure.programs import PROBE

_CABLE = "replace the cable, then try another port of the switch, then another network card"


def rate(bit_s: float) -> str:
    """A rate with three digits."""
    for unit, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if bit_s >= unit:
            return f"{bit_s / unit:.3g} {name}"
    return f"{bit_s / 1e3:.3g} kbit/s"


def percent(share: float) -> str:
    """A share with two digits."""
    return f"{100 * share:.2g} %"


def unreachable(host: str, reason: str) -> Finding:
    """No agent could be started."""
    return Finding(
        Kind.UNREACHABLE, host, f"{host} could not be measured: {reason}", f"try: ssh {host} {PROBE} --version"
    )


def half_duplex(name: str, host: HostState) -> Finding:
    """The interface says that it is half duplex."""
    text = f"{name}'s {host.interface} runs at half duplex: it negotiated with a port whose duplex is set by hand"
    fix = f"turn on negotiation at both ends: ethtool -s {host.interface} autoneg on, and the same on the switch"
    return Finding(Kind.DUPLEX, name, text, fix, Direction.BOTH)


def negotiated(name: str, host: HostState, expected_mbit_s: float) -> Finding:
    """The interface says that it is slower than it should be."""
    text = f"{name}'s {host.interface} negotiated {host.speed_mbit_s} Mbit/s instead of {expected_mbit_s:.0f}"
    fix = f"{_CABLE}; if this speed is right, set speed_mbit_s in the cluster's file"
    numbers = {"speed_mbit_s": float(host.speed_mbit_s or 0), "expected_mbit_s": float(expected_mbit_s)}
    return Finding(Kind.NEGOTIATION, name, text, fix, Direction.BOTH, numbers=numbers)


def dead(blame: Blame) -> Finding:
    """Nothing comes through."""
    if blame.is_everywhere:
        text, fix = "no frame passes between the hosts", "are the interfaces on one segment, and one VLAN?"
        return _finding(Kind.DEAD, blame, text, fix)
    if blame.host is None:
        text = f"no frame passes from {_arrow(blame)}"
    elif blame.direction is Direction.TRANSMIT:
        text = f"nothing that {blame.host} sends arrives; it receives"
    elif blame.direction is Direction.RECEIVE:
        text = f"nothing arrives at {blame.host}; what it sends arrives"
    else:
        text = f"no frame passes to or from {blame.host}"
    fix = f"{_CABLE}; look for a filter or another VLAN on its port"
    return _finding(Kind.DEAD, blame, text, fix)


def loss(blame: Blame, lost: int, sent: int, errors: Mapping[str, int]) -> Finding:
    """Frames get lost."""
    text = f"{_where(blame)} loses {percent(lost / sent)} of its frames, also without load from the other side"
    if errors:
        text += f"; the interface counted {', '.join(f'{count} {name}' for name, count in errors.items())}"
    return _finding(Kind.LOSS, blame, text, _CABLE, lost=lost, sent=sent)


def duplex(blame: Blame, both: tuple[int, int], alone: tuple[int, int]) -> Finding:
    """Frames get lost when both sides send: frames lost and sent then, and when one side sends."""
    share, share_alone = both[0] / both[1], alone[0] / max(1, alone[1])
    text = (
        f"{_where(blame)} loses {percent(share)} of its frames when both sides send, {percent(share_alone)} when one "
        "does: one end of the cable runs at half duplex"
    )
    fix = "turn on negotiation at both ends of the cable, or set the same speed and duplex at both"
    return _finding(Kind.DUPLEX, blame, text, fix, lost=both[0], sent=both[1])


def mtu_differs(name: str, host: HostState, usual: int) -> Finding:
    """A host's own MTU is not that of the others."""
    text = f"{name}'s MTU is {host.mtu} bytes instead of {usual}"
    fix = f"ip link set dev {host.interface} mtu {usual}, and permanently in the host's network configuration"
    return Finding(Kind.MTU, name, text, fix, numbers={"mtu": host.mtu, "usual": usual})


def path_mtu(blame: Blame, passed: int, expected: int) -> Finding:
    """Both ends send frames that do not arrive."""
    numbers: dict[str, float] = {"passed": passed, "expected": expected}
    if blame.is_everywhere:
        what = "jumbo frames do not pass the switch" if expected > 1500 else "the network does not pass the hosts' MTU"
        text = f"{what}: the hosts send {expected} bytes, {passed} arrive"
        fix = f"turn on jumbo frames on the switch, or set the hosts' MTU to {passed}"
        return _finding(Kind.NO_JUMBO, blame, text, fix, **numbers)
    text = f"{_where(blame)} passes frames of {passed} bytes, not of {expected}, the MTU of both ends"
    fix = f"set the MTU of the switch's port to {expected} at least"
    return _finding(Kind.PATH_MTU, blame, text, fix, **numbers)


def slow(blame: Blame, here_bit_s: float, others_bit_s: float, host: HostState | None) -> Finding:
    """Less passes than elsewhere."""
    text = f"{_where(blame)} passes {rate(here_bit_s)}, others {rate(others_bit_s)}"
    if host is not None and host.speed_mbit_s is not None:
        text += f"; the interface says {host.speed_mbit_s} Mbit/s"
    fix = f"{_CABLE}; look for a rate limit"
    return _finding(Kind.SLOW, blame, text, fix, bit_s=here_bit_s, others_bit_s=others_bit_s)


def reordering(blame: Blame, reordered: int, sent: int) -> Finding:
    """Frames overtake each other."""
    text = f"{percent(reordered / sent)} of the frames through {_where(blame)} arrive out of order"
    fix = "look for a trunk or a bond that spreads frames round-robin; let it choose by address (layer2 or layer2+3)"
    return _finding(Kind.REORDERING, blame, text, fix, reordered=reordered, sent=sent)


def latency(blame: Blame, here_ns: float, usual_ns: float) -> Finding:
    """Answers take long."""
    times = f"{here_ns / 1e3:.0f} µs at best, others after {usual_ns / 1e3:.0f} µs, without load"
    text = f"{_where(blame)} answers after {times}"
    fix = "look at interrupt moderation (ethtool -c), power saving (barewire doctor), and further switches on the way"
    return _finding(Kind.LATENCY, blame, text, fix, round_trip_ns=here_ns, usual_ns=usual_ns)


def starved(name: str, share: float, usual: float) -> Finding:
    """The cores do something else."""
    text = f"a program on {name} gets a core for {percent(share)} of the time, elsewhere {percent(usual)}"
    fix = "end what runs there (top), or lift its limit (cgroup cpu.max, the virtual machine's share)"
    return Finding(Kind.STARVED, name, text, fix, numbers={"core_share": share, "usual": usual})


def clocked_down(name: str, work_ns: float, usual_ns: float) -> Finding:
    """The cores are slow."""
    text = f"the cores of {name} take {work_ns / usual_ns:.1f} times as long for the same work as those of others"
    fix = "look at its clock (barewire doctor: governor), its temperature, and who uses the other half of its cores"
    return Finding(Kind.CLOCKED_DOWN, name, text, fix, numbers={"work_ns": work_ns, "usual_ns": usual_ns})


def overload(together_bit_s: float, alone_bit_s: float, lost_share: float) -> Finding:
    """The switch does not carry all ports."""
    text = (
        f"the switch does not carry all ports at once: {rate(together_bit_s)} for each, {rate(alone_bit_s)} for a "
        f"single pair; {percent(lost_share)} of the frames are lost"
    )
    fix = "use a switch whose backplane carries all ports, or look for an uplink that many hosts share"
    numbers = {"together_bit_s": together_bit_s, "alone_bit_s": alone_bit_s, "lost_share": lost_share}
    return Finding(Kind.OVERLOAD, "network", text, fix, numbers=numbers)


def _finding(kind: Kind, blame: Blame, text: str, fix: str, **numbers: float) -> Finding:
    return Finding(kind, blame.subject, text, fix, blame.direction, blame.paths, numbers)


def _where(blame: Blame) -> str:
    if blame.is_everywhere:
        return "the network"
    if blame.host is None:
        return f"the path from {_arrow(blame)}"
    ways = {Direction.TRANSMIT: ", as a sender,", Direction.RECEIVE: ", as a receiver,"}
    return f"{blame.host}'s port{ways.get(blame.direction or Direction.BOTH, '')}"


def _arrow(blame: Blame) -> str:
    first, second = blame.paths[0]
    return f"{first} to {second}{' and back' if len(blame.paths) == 2 else ''}"
