# SPDX-License-Identifier: Apache-2.0 OR MIT
# mypy: disable-error-code="no-untyped-call"
"""Queueing disciplines and filters of interfaces, requested by netlink.

pyroute2's own requests support neither an exact burst, rates above 32 bit and size tables, nor classic BPF.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from socket import htons

from pyroute2.iproute.linux import IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, nlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_NEWTFILTER, TC_H_CLSACT, TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import tcmsg
from pyroute2.netlink.rtnl.tcmsg.sched_bpf import TCA_BPF_FLAG_ACT_DIRECT
from pyroute2.protocols import ETH_P_ALL

from barewire.errors import MachineCannot
from barewire.lab.plan import (
    ETHERNET_HEADER_BYTES,
    VLAN_TAG_BYTES,
    WIRE_FRAME_BYTES_MIN,
    WIRE_OVERHEAD_BYTES,
    Emulation,
    Shaper,
)

CREATE = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
_LINKLAYER_ETHERNET = 1
_RATE32_MAX = 0xFFFF_FFFF
# linux/pkt_sched.h, linux/pkt_cls.h: attributes of tbf, netem, size tables and BPF filters
_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_NETEM_RATE, _NETEM_RATE64, _NETEM_LATENCY64, _NETEM_JITTER64 = 6, 8, 10, 11
_STAB_BASE, _STAB_DATA = 1, 2
_STAB_ENTRIES_MAX = 32_000  # an attribute has at most 64 KiB
_BPF_OPS_LEN, _BPF_OPS, _BPF_FD, _BPF_FLAGS = 4, 5, 6, 8
# linux/bpf_common.h, linux/filter.h (the ancillary word that is a random number), linux/pkt_cls.h
_BPF_LOAD_WORD, _BPF_JUMP_IF_AT_LEAST, _BPF_RETURN = 0x20, 0x35, 0x06
_BPF_RANDOM = 0xFFFF_F000 + 56
_TC_UNSPECIFIED, _TC_SHOT = 0xFFFF_FFFF, 2


class Side(IntEnum):
    """The hooks of clsact: frames that an interface has received, or is about to send."""

    INGRESS = 0xFFF2
    EGRESS = 0xFFF3


# A filter with a lower number sees frames first.
BEFORE_LOSS, LOSS, AFTER_LOSS = 1, 2, 3


def add_token_bucket(netlink: IPRoute, index: int, shaper: Shaper) -> None:
    """Limit an interface's transmission to a wire's rate; what the bucket holds passes at once."""
    rate = min(shaper.rate_byte_s, _RATE32_MAX)
    # struct tc_tbf_qopt: tc_ratespec rate (cells, link layer, overhead, alignment, minimum, rate), peak rate, limit,
    # buffer, mtu
    rate_specification = (0, _LINKLAYER_ETHERNET, WIRE_OVERHEAD_BYTES, 0, WIRE_FRAME_BYTES_MIN, rate)
    options = _attribute(_TBF_PARMS, struct.pack("=BBHhHI12xIII", *rate_specification, shaper.queue_bytes, 0, 0))
    options += _attribute(_TBF_BURST, struct.pack("=I", shaper.burst_bytes))
    if shaper.rate_byte_s > _RATE32_MAX:
        options += _attribute(_TBF_RATE64, struct.pack("=Q", shaper.rate_byte_s))
    with needs("the token bucket shaper (tbf)", "modprobe sch_tbf (CONFIG_NET_SCH_TBF)"):
        _request(netlink, RTM_NEWQDISC, index, TC_H_ROOT, "tbf", options)


def add_emulator(netlink: IPRoute, index: int, emulation: Emulation) -> None:
    """Delay each frame that an interface transmits by its time on a wire, and by the wire's own delay."""
    rate = min(emulation.rate_byte_s, _RATE32_MAX)
    # struct tc_netem_qopt: latency, limit in frames, loss, gap, duplicate, jitter; struct tc_netem_rate
    options = struct.pack("=6I", 0, emulation.queue_frames, 0, 0, 0, 0)
    options += _attribute(_NETEM_RATE, struct.pack("=IiIi", rate, 0, 0, 0))
    if emulation.rate_byte_s > _RATE32_MAX:
        options += _attribute(_NETEM_RATE64, struct.pack("=Q", emulation.rate_byte_s))
    options += _attribute(_NETEM_LATENCY64, struct.pack("=q", emulation.delay_ns))
    options += _attribute(_NETEM_JITTER64, struct.pack("=q", emulation.jitter_ns))
    with needs("the network emulator (netem)", "modprobe sch_netem (CONFIG_NET_SCH_NETEM)"):
        _request(netlink, RTM_NEWQDISC, index, TC_H_ROOT, "netem", options, _size_table(emulation.mtu))


def add_hooks(netlink: IPRoute, index: int) -> None:
    """Add the hooks for filters to an interface."""
    with needs("ingress filters (clsact)", "modprobe sch_ingress (CONFIG_NET_SCH_INGRESS)"):
        netlink.tc("add", "clsact", index)


def add_loss(netlink: IPRoute, index: int, loss: float) -> None:
    """Drop a share of the frames that an interface with hooks receives, independently at random.

    Uses a classic BPF program as a classifier: many kernels lack the module netem, and an ordinary user may load no
    other kind of program.
    """
    program = (
        (_BPF_LOAD_WORD, 0, 0, _BPF_RANDOM),
        (_BPF_JUMP_IF_AT_LEAST, 1, 0, min(round(loss * 2**32), 2**32 - 1)),
        (_BPF_RETURN, 0, 0, _TC_SHOT),
        (_BPF_RETURN, 0, 0, _TC_UNSPECIFIED),  # the next filter decides
    )
    options = _attribute(_BPF_OPS_LEN, struct.pack("=H", len(program)))
    options += _attribute(_BPF_OPS, b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    _add_filter(netlink, index, Side.INGRESS, LOSS, options)


def add_program(netlink: IPRoute, index: int, side: Side, priority: int, descriptor: int) -> None:
    """Attach a loaded program to an interface with hooks."""
    _add_filter(netlink, index, side, priority, _attribute(_BPF_FD, struct.pack("=I", descriptor)))


@contextmanager
def needs(what: str, fix: str) -> Iterator[None]:
    """Convert a refusal of the kernel into an error that says what is missing."""
    try:
        yield
    except (NetlinkError, OSError) as error:
        raise MachineCannot(f"this kernel does not provide {what}: {error}. Fix: {fix}") from error


def _add_filter(netlink: IPRoute, index: int, side: Side, priority: int, options: bytes) -> None:
    options += _attribute(_BPF_FLAGS, struct.pack("=I", TCA_BPF_FLAG_ACT_DIRECT))
    parent = TC_H_CLSACT & 0xFFFF_0000 | side
    with needs("BPF classifiers", "modprobe cls_bpf (CONFIG_NET_CLS_BPF)"):
        _request(netlink, RTM_NEWTFILTER, index, parent, "bpf", options, info=priority << 16 | htons(ETH_P_ALL))


def _size_table(mtu: int) -> bytes:
    """Return the table by which the kernel takes a frame's length for its bytes on the wire."""
    lengths = mtu + ETHERNET_HEADER_BYTES + VLAN_TAG_BYTES + WIRE_OVERHEAD_BYTES + 1
    shift = (lengths // _STAB_ENTRIES_MAX).bit_length()
    table = [max(index << shift, WIRE_FRAME_BYTES_MIN) for index in range((lengths >> shift) + 1)]
    # struct tc_sizespec: cell and size logarithm, alignment, overhead, link layer, minimum, mtu, entries
    base = struct.pack("=BBhiIIII", shift, 0, 0, WIRE_OVERHEAD_BYTES, 0, 0, 0, len(table))
    data = struct.pack(f"={len(table)}H", *(min(size, 0xFFFF) for size in table))
    return _attribute(_STAB_BASE, base) + _attribute(_STAB_DATA, data)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _request(
    netlink: IPRoute,
    kind: int,
    index: int,
    parent: int,
    name: str,
    options: bytes,
    size_table: bytes = b"",
    info: int = 0,
) -> None:
    message = _Request()
    message["index"] = index
    message["parent"] = parent
    message["info"] = info
    if kind == RTM_NEWQDISC:
        message["handle"] = 0x1_0000
    message["header"]["type"] = kind
    message["header"]["flags"] = CREATE
    attributes: Sequence[list[object]] = [["TCA_KIND", name], ["TCA_OPTIONS", options]]
    message["attrs"] = [*attributes, *([["TCA_STAB", size_table]] if size_table else [])]
    netlink.nlm_request_batch([message])


class _Request(nlmsg):
    """RTM_NEWQDISC or RTM_NEWTFILTER with options as bytes."""

    # Not derived from tcmsg: once used, its classes inherit its map. The base class is typed by its own contents.
    fields = tcmsg.fields  # type: ignore[assignment]
    nla_map = (  # type: ignore[assignment]
        ("TCA_UNSPEC", "none"),
        ("TCA_KIND", "asciiz"),
        ("TCA_OPTIONS", "cdata"),
        ("TCA_STATS", "none"),
        ("TCA_XSTATS", "none"),
        ("TCA_RATE", "none"),
        ("TCA_FCNT", "none"),
        ("TCA_STATS2", "none"),
        ("TCA_STAB", "cdata"),
    )
