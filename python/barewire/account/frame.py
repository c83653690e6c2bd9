# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One captured frame as bytes by layer, and what it does in its connection; pure.

Each byte of the wire is in exactly one layer. Preamble, FCS and gap are counted though no capture has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from barewire.account.tshark import Row
from barewire.models.wire import (
    FCS_BYTES,
    FRAME_BYTES_MIN,
    GAP_BYTES,
    HEADER_BYTES,
    PREAMBLE_BYTES,
    UDP_HEADER_BYTES,
    VLAN_TAG_BYTES,
)

ARP_BYTES = 28
IPV6_HEADER_BYTES = 40
# Numbers of protocols in IP's header, as tshark prints them.
_TCP, _UDP = "6", "17"
_FIN_RST = 0x05
_SYN = 0x02
_ACK = 0x10
# Below are services of the system, and multicast DNS and SSDP.
_EPHEMERAL_PORT_MIN = 1024
_SERVICE_PORTS = frozenset({1900, 5353})


class Layers(NamedTuple):
    """Bytes on the wire by layer, outermost first."""

    ethernet: int = 0  # header, preamble, FCS, gap
    padding: int = 0
    vlan: int = 0
    arp: int = 0
    ip: int = 0
    tcp: int = 0
    udp: int = 0
    llc: int = 0
    barewire: int = 0  # extension with check, fragment header; paths and names
    seal: int = 0  # authentication
    message: int = 0  # Barewire's message header: tag, data, numbers
    mpi: int = 0  # the MPI library's envelope, where it is known
    payload: int = 0
    repeated: int = 0  # payload that was sent before
    launcher: int = 0  # what launchers and daemons say to each other
    other: int = 0


class Carrier(Enum):
    """What carries a frame's contents."""

    TCP = "tcp"
    UDP = "udp"
    FRAMES = "barewire frames"
    DATAGRAMS = "barewire udp"
    NONE = "other"


class Event(Enum):
    """What a frame does in its connection."""

    OPEN = "open"
    PAYLOAD = "payload"
    ACK = "ack"
    CLOSE = "close"
    NEUTRAL = "neutral"


class Shape(NamedTuple):
    """What equal frames have in common."""

    carrier: Carrier
    event: Event
    layers: Layers


Station = tuple[str, str]
"""An address, and a port or service access point."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, from host to host, by name if known. `stations` are the ends of its connection, sender first."""

    time_s: float
    source: str
    destination: str
    shape: Shape
    stations: tuple[Station, Station] | None
    # TCP only.
    sequence: int | None = None
    server: Station | None = None
    mss: int | None = None


def parse(row: Row, names: Mapping[str, str]) -> Frame:
    """Parse what tshark said of a frame; `names` are hosts' names by IP and MAC address."""
    source_ip, destination_ip = _first(row.ip_src or row.ipv6_src), _first(row.ip_dst or row.ipv6_dst)
    source, destination = source_ip or row.eth_src, destination_ip or row.eth_dst
    hosts = (names.get(source, source), names.get(destination, destination))
    frame_bytes = int(row.frame_len) - (FCS_BYTES if row.eth_fcs else 0)
    vlan_bytes = VLAN_TAG_BYTES * (_count(row.vlan_id) + _count(row.outer_vlan_id) + 2 * _count(row.two_outer_vlan_ids))
    room = max(frame_bytes - HEADER_BYTES - vlan_bytes, 0)
    base = Layers(
        ethernet=HEADER_BYTES + PREAMBLE_BYTES + FCS_BYTES + GAP_BYTES,
        padding=max(FRAME_BYTES_MIN - FCS_BYTES - frame_bytes, 0),
        vlan=vlan_bytes,
    )
    time_s = float(row.time)
    shape = _shape(row, base, room)
    if sum(shape.layers) != sum(base) + room:
        # A damaged frame: its headers contradict its length.
        shape = _other(base._replace(other=room))
    if shape.carrier is Carrier.NONE:
        return Frame(time_s, *hosts, shape, None)
    return _of_connection(row, time_s, hosts, shape, source, destination)


def _shape(row: Row, base: Layers, room: int) -> Shape:
    """Return a frame's shape; `room`: bytes behind the Ethernet header and VLAN tags, all of which it assigns."""
    if row.arp_opcode:
        return _other(_with_padding(base._replace(arp=min(ARP_BYTES, room)), room - ARP_BYTES))
    if row.ip_src or row.ipv6_src:
        return _ip(row, base, room)
    if row.barewire_extension:
        layers = _with_padding(_barewire(row, base), room - _barewire_bytes(row))
        return Shape(Carrier.FRAMES, _barewire_event(row), layers)
    llc_bytes = 0 if not row.llc_dsap else min(3 if int(_first(row.llc_control) or "0", 0) & 3 == 3 else 4, room)
    return _other(base._replace(llc=llc_bytes, other=room - llc_bytes))


def _other(layers: Layers) -> Shape:
    return Shape(Carrier.NONE, Event.NEUTRAL, layers)


def _ip(row: Row, base: Layers, room: int) -> Shape:
    if row.ip_src:
        packet_bytes, header_bytes = min(int(_first(row.ip_len)), room), int(_first(row.ip_hdr_len))
    else:
        packet_bytes, header_bytes = min(IPV6_HEADER_BYTES + int(_first(row.ipv6_plen)), room), IPV6_HEADER_BYTES
    base = _with_padding(base, room - packet_bytes)
    inner_bytes = max(packet_bytes - header_bytes, 0)
    # ICMP's errors and tunnels carry another packet, whose header tshark tells as well.
    is_tcp, is_udp = (
        _first(row.ip_proto) == protocol if row.ip_src else not row.icmpv6_type for protocol in (_TCP, _UDP)
    )
    if is_tcp and row.tcp_len and row.tcp_flags:
        tcp_bytes, payload = int(_first(row.tcp_hdr_len)), int(_first(row.tcp_len))
        # IPv6's extension headers are IP's as well.
        layers = base._replace(ip=max(packet_bytes - tcp_bytes - payload, 0), tcp=tcp_bytes, payload=payload)
        return Shape(Carrier.TCP, _tcp_event(int(_first(row.tcp_flags), 0), payload), layers)
    if is_udp and row.udp_length:
        # The first fragment of a longer datagram has less of it.
        datagram_bytes = min(int(_first(row.udp_length)), inner_bytes)
        payload = max(datagram_bytes - UDP_HEADER_BYTES, 0)
        layers = base._replace(ip=packet_bytes - datagram_bytes, udp=UDP_HEADER_BYTES)
        if row.barewire_extension:
            filled = _barewire(row, layers)
            # Length or EtherType in front of the PDU, and what follows it.
            filled = filled._replace(barewire=filled.barewire + max(payload - _barewire_bytes(row), 0))
            return Shape(Carrier.DATAGRAMS, _barewire_event(row), filled)
        event = Event.PAYLOAD if payload else Event.NEUTRAL
        return Shape(Carrier.UDP, event, layers._replace(payload=payload))
    return _other(base._replace(ip=packet_bytes - inner_bytes, other=inner_bytes))


def _of_connection(
    row: Row, time_s: float, hosts: tuple[str, str], shape: Shape, source: str, destination: str
) -> Frame:
    if shape.carrier is Carrier.TCP:
        ends = (source, _first(row.tcp_srcport)), (destination, _first(row.tcp_dstport))
        flags = int(_first(row.tcp_flags), 0)
        server = (ends[0] if flags & _ACK else ends[1]) if flags & _SYN else None
        mss = int(_first(row.tcp_mss)) if row.tcp_mss else None
        return Frame(time_s, *hosts, shape, ends, int(_first(row.tcp_seq)), server, mss)
    if shape.carrier is Carrier.UDP:
        ports = _first(row.udp_srcport), _first(row.udp_dstport)
        if any(int(port) < _EPHEMERAL_PORT_MIN or int(port) in _SERVICE_PORTS for port in ports):
            return Frame(time_s, *hosts, shape._replace(carrier=Carrier.NONE, event=Event.NEUTRAL), None)
        return Frame(time_s, *hosts, shape, ((source, ports[0]), (destination, ports[1])))
    if row.name_kind:
        return Frame(time_s, *hosts, shape._replace(carrier=Carrier.NONE), None)
    command_ssap = f"{int(_first(row.llc_ssap) or '0', 0) & 0xFE:#04x}"
    port = (_first(row.udp_srcport), _first(row.udp_dstport)) if shape.carrier is Carrier.DATAGRAMS else ("", "")
    ends = (source, f"{port[0]}/{command_ssap}"), (destination, f"{port[1]}/{_first(row.llc_dsap)}")
    is_repeated = row.barewire_retransmission in ("1", "True")
    return Frame(time_s, *hosts, repeated(shape) if is_repeated else shape, ends)


def repeated(shape: Shape) -> Shape:
    """Return the shape of a frame whose payload was sent before."""
    layers = shape.layers
    return shape._replace(layers=layers._replace(payload=0, repeated=layers.repeated + layers.payload))


def _tcp_event(flags: int, payload: int) -> Event:
    if flags & _SYN:
        return Event.OPEN
    if payload:
        return Event.PAYLOAD
    if flags & _FIN_RST:
        return Event.CLOSE
    return Event.ACK


def _barewire_event(row: Row) -> Event:
    if row.barewire_pdu == "SABME" or row.path_version:
        return Event.OPEN
    if row.barewire_pdu in ("RR", "RNR", "REJ"):
        return Event.ACK
    if row.barewire_pdu in ("DISC", "FRMR"):
        return Event.CLOSE
    return Event.PAYLOAD if int(row.barewire_payload or "0") or int(row.barewire_message or "0") else Event.NEUTRAL


def _barewire(row: Row, base: Layers) -> Layers:
    return base._replace(
        llc=int(row.barewire_llc or "0"),
        barewire=int(row.barewire_extension),
        seal=int(row.barewire_seal or "0"),
        message=int(row.barewire_message or "0"),
        payload=int(row.barewire_payload or "0"),
    )


def _barewire_bytes(row: Row) -> int:
    layers = _barewire(row, Layers())
    return sum(layers)


def _with_padding(layers: Layers, trailing_bytes: int) -> Layers:
    return layers._replace(padding=layers.padding + max(trailing_bytes, 0))


def _count(text: str) -> int:
    """Return how often a field occurs."""
    return text.count(",") + 1 if text else 0


def _first(text: str) -> str:
    """Return the outermost occurrence of a field: a frame within a frame, such as ICMP's, repeats it."""
    return text.partition(",")[0]
