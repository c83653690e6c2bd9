# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The physical limit of a link: the time that one message's frames occupy it.

Source of the frame's parts: IEEE 802.3 clauses 3.1.1, 3.2.7 and 4.4.2, 802.1Q for the tag; IP fragmentation: RFC 791;
segments with the time-stamp option: RFC 7323. The limit includes no header of ours: a transport that adds one is
compared with a link without it. On a lab's link with a rate the kernel makes every frame take this time
(lab/wire_program.py, from the same numbers), except where only token buckets are available.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Protocol = Literal["raw", "udp", "tcp"]
Test = Literal["pingpong", "stream", "bidirectional"]

PREAMBLE_BYTES = 8  # with the start-of-frame delimiter
HEADER_BYTES = 14
VLAN_TAG_BYTES = 4
FCS_BYTES = 4
GAP_BYTES = 12
FRAME_BYTES_MIN = 64  # header (and tag) to FCS; shorter payloads are padded

IPV4_HEADER_BYTES = 20
UDP_HEADER_BYTES = 8
TCP_HEADER_BYTES = 20 + 12  # Linux sends the time-stamp option in every segment
FRAGMENT_UNIT_BYTES = 8  # IPv4 counts fragment offsets in these
DATAGRAM_BYTES_MAX = 65507  # 65535 - IPv4 and UDP headers

MTU_BYTES_MIN = 68  # RFC 791: every IPv4 link carries this
MTU_BYTES_MAX = 65535


@dataclass(frozen=True)
class Link:
    """External limits of a measurement.

    `rate_bit_s` is the bit rate of the slowest link on the path, in bit/s, counted with preamble and gap;
    None for a link without one (a virtual link), for which the measured floor is used instead.
    """

    rate_bit_s: float | None
    mtu: int = 1500
    vlan: bool = False


@dataclass(frozen=True)
class Frames:
    """`count` equal frames, each with `payload_bytes` (at least 0, at most the MTU) after the header, unpadded."""

    count: int
    payload_bytes: int


def frames_of_message(message_bytes: int, protocol: Protocol, mtu: int) -> list[Frames]:
    """Return the frames of one message, full ones first.

    An empty message needs one frame. ValueError for a negative size, an MTU outside 68 to 65535, an unknown
    protocol.
    """
    _check(message_bytes, protocol, mtu)
    if protocol == "raw":
        return _split(message_bytes, full_bytes=mtu, header_bytes=0)
    if protocol == "tcp":
        header_bytes = IPV4_HEADER_BYTES + TCP_HEADER_BYTES
        return _split(message_bytes, full_bytes=mtu - header_bytes, header_bytes=header_bytes)
    # Messages longer than a datagram use several; full ones need the fewest frames.
    whole, rest = divmod(message_bytes, DATAGRAM_BYTES_MAX)
    full = _fragments(DATAGRAM_BYTES_MAX + UDP_HEADER_BYTES, mtu) if whole else []
    frames = [Frames(whole * part.count, part.payload_bytes) for part in full]
    return frames + (_fragments(rest + UDP_HEADER_BYTES, mtu) if rest or not whole else [])


def wire_bytes(frames: Frames, *, vlan: bool = False) -> int:
    """Return the byte times of these frames on the wire, with preamble, header, padding, FCS and gap."""
    header_bytes = HEADER_BYTES + (VLAN_TAG_BYTES if vlan else 0)
    frame_bytes = max(FRAME_BYTES_MIN, header_bytes + frames.payload_bytes + FCS_BYTES)
    return frames.count * (PREAMBLE_BYTES + frame_bytes + GAP_BYTES)


def wire_time_ns(message_bytes: int, protocol: Protocol, mtu: int, rate_bit_s: float, *, vlan: bool = False) -> float:
    """Return the time in ns that one message's frames occupy a link of `rate_bit_s`; errors as `frames_of_message`.

    The gap after the last frame is counted: it is part of a frame's cost, 0.1 µs at 1 Gb/s.
    """
    if not rate_bit_s > 0:
        raise ValueError(f"the link's rate must be above 0 bit/s, not {rate_bit_s}")
    total_bytes = sum(wire_bytes(frames, vlan=vlan) for frames in frames_of_message(message_bytes, protocol, mtu))
    return total_bytes * 8 * 1e9 / rate_bit_s


def latency_limit_us(
    message_bytes: int, protocol: Protocol, mtu: int, rate_bit_s: float, *, vlan: bool = False
) -> float:
    """Return the shortest one-way time of one message in µs: its frames on one link, without software."""
    return wire_time_ns(message_bytes, protocol, mtu, rate_bit_s, vlan=vlan) / 1e3


def rate_limit_mbit_s(
    test: Test, message_bytes: int, protocol: Protocol, mtu: int, rate_bit_s: float, *, vlan: bool = False
) -> float:
    """Return the highest goodput in Mbit/s (10^6) of back-to-back messages; ValueError for the ping-pong test.

    `bidirectional` is the sum of both directions of a full-duplex link. TCP is a byte stream and may put several
    messages into one segment, so its bound is that of full segments for any message size.
    """
    if test not in ("stream", "bidirectional"):
        raise ValueError(f"{test} has no rate limit; use latency_limit_us")
    _check(message_bytes, protocol, mtu)
    sent_bytes = mtu - IPV4_HEADER_BYTES - TCP_HEADER_BYTES if protocol == "tcp" else message_bytes
    one_way = sent_bytes * 8e3 / wire_time_ns(sent_bytes, protocol, mtu, rate_bit_s, vlan=vlan)
    return one_way * (2 if test == "bidirectional" else 1)


def wire_limit(test: Test, message_bytes: int, protocol: Protocol, link: Link) -> float | None:
    """Return the limit of one series on `link`: µs one way for `pingpong`, else Mbit/s.

    None if unknown: the link has no rate, or the message is empty and the test measures goodput.
    """
    if link.rate_bit_s is None:
        return None
    if test == "pingpong":
        return latency_limit_us(message_bytes, protocol, link.mtu, link.rate_bit_s, vlan=link.vlan)
    if message_bytes == 0:
        return None
    return rate_limit_mbit_s(test, message_bytes, protocol, link.mtu, link.rate_bit_s, vlan=link.vlan)


def _check(message_bytes: int, protocol: str, mtu: int) -> None:
    if message_bytes < 0:
        raise ValueError(f"a message has 0 bytes or more, not {message_bytes}")
    if not MTU_BYTES_MIN <= mtu <= MTU_BYTES_MAX:
        raise ValueError(f"the MTU must be {MTU_BYTES_MIN} to {MTU_BYTES_MAX} bytes, not {mtu}")
    if protocol not in get_args(Protocol):
        raise ValueError(f"no wire model for {protocol!r}; known: {', '.join(get_args(Protocol))}")


def _split(message_bytes: int, *, full_bytes: int, header_bytes: int) -> list[Frames]:
    full_count, rest_bytes = divmod(message_bytes, full_bytes)
    frames = [Frames(full_count, full_bytes + header_bytes)] if full_count else []
    if rest_bytes or not full_count:
        frames.append(Frames(1, rest_bytes + header_bytes))
    return frames


def _fragments(datagram_bytes: int, mtu: int) -> list[Frames]:
    room_bytes = mtu - IPV4_HEADER_BYTES
    if datagram_bytes <= room_bytes:
        return [Frames(1, datagram_bytes + IPV4_HEADER_BYTES)]
    # Only the last fragment may have a length that is not a multiple of 8.
    full_bytes = room_bytes // FRAGMENT_UNIT_BYTES * FRAGMENT_UNIT_BYTES
    full_count = -(-(datagram_bytes - room_bytes) // full_bytes)
    rest_bytes = datagram_bytes - full_count * full_bytes
    return [Frames(full_count, full_bytes + IPV4_HEADER_BYTES), Frames(1, rest_bytes + IPV4_HEADER_BYTES)]
