# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Parsing of the headers needed for routing, and the frames that the controller creates. Pure and total."""

import hashlib
import hmac
import struct
from dataclasses import dataclass
from ipaddress import IPv6Address
from socket import inet_ntoa

from barewire.sdn.openflow.messages import ADVERTISEMENT, ARP, ICMPV6, IPV4, IPV6, SOLICITATION, TCP, UDP

VLAN, SERVICE_VLAN, LLDP, JUMBO_LLC = 0x8100, 0x88A8, 0x88CC, 0x8870
# OpenFlow 1.3's EtherType of frames with a length field (OFP_DL_TYPE_NOT_ETH_TYPE).
LENGTH_FRAME = 0x05FF
LENGTH_MAX = 1500
BROADCAST = "ff:ff:ff:ff:ff:ff"
LLDP_GROUP = "01:80:c2:00:00:0e"
# LLC and SNAP headers up to the EtherType, for the organisation that EtherTypes belong to, and with it.
_SNAP, _SNAP_BYTES, _ETHER_TYPE_MIN = b"\xaa\xaa\x03\0\0\0", 8, 0x0600
_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_ARP = struct.Struct("!HHBBH6s4s6s4s")
# Type, code, checksum, flags, target; options follow, in units of 8 bytes.
_NEIGHBOUR = struct.Struct("!BBHI16s")
_OPTION_UNIT = 8
# Options with the link-layer address of who asks or is advertised.
_LINK_LAYER_ADDRESS = {SOLICITATION: 1, ADVERTISEMENT: 2}
# Router solicitation to redirect: what hosts of one link say about their addresses.
DISCOVERY = range(133, 138)
_HOPS_MAX = 255
_ARP_HEAD = (1, IPV4, 6, 4)
_FRAGMENT_OFFSET = 0x1FFF
_FRAGMENT_OFFSET_V6 = 0xFFF8
# Extension headers of IPv6: their length counts units of 8 bytes after the first, in authentication of 4 after two.
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _OPTIONS = 0, 43, 44, 51, 60
_VLAN_BITS = 0xFFF
# Organisation-specific TLV: an OUI for local use, then the HMAC of this controller.
_LOCAL_OUI = b"\x02\xba\x7e"
_PROOF_BYTES = 16


@dataclass(frozen=True, slots=True)
class Arp:
    """An ARP request or reply. Addresses as text."""

    is_request: bool
    sender_mac: str
    sender: str
    target: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A neighbour solicitation or advertisement of IPv6. `mac` is its link-layer address, "" without one."""

    is_solicitation: bool
    target: str
    mac: str = ""


@dataclass(frozen=True, slots=True)
class Headers:
    """A frame's headers. `eth_type` is LENGTH_FRAME for frames with a length; the fields of IP are 0 in other frames.

    `vlan` is the VLAN identifier of a tag, 0 without a tag or with one that has only a priority.
    """

    source: str
    destination: str
    eth_type: int
    ip_proto: int = 0
    source_port: int = 0
    destination_port: int = 0
    identification: int = 0
    ip_source: str = ""
    arp: Arp | None = None
    vlan: int = 0
    icmp6_type: int | None = None
    neighbour: Neighbour | None = None

    @property
    def is_group(self) -> bool:
        """Whether the destination is broadcast or multicast."""
        return bool(int(self.destination[:2], 16) & 1)


def read_headers(frame: bytes) -> Headers | None:
    """Return a frame's headers; None if it is too short, or its source is a group address."""
    if len(frame) < _ETHERNET.size:
        return None
    to, origin, kind = _ETHERNET.unpack_from(frame)
    at = _ETHERNET.size
    vlan = 0
    if origin[0] & 1 or origin == bytes(6):
        return None
    if kind in (VLAN, SERVICE_VLAN) and len(frame) >= at + 4:
        vlan = int.from_bytes(frame[at : at + 2], "big") & _VLAN_BITS
        kind = int.from_bytes(frame[at + 2 : at + 4], "big")
        at += 4
    if kind <= LENGTH_MAX:
        kind = LENGTH_FRAME
        if frame[at : at + len(_SNAP)] == _SNAP and len(frame) >= at + _SNAP_BYTES:
            snap = int.from_bytes(frame[at + len(_SNAP) : at + _SNAP_BYTES], "big")
            # Such a frame is of this EtherType for a switch.
            if snap >= _ETHER_TYPE_MIN:
                kind = snap
                at += _SNAP_BYTES
    source, destination = _mac(origin), _mac(to)
    try:
        if kind == ARP:
            return Headers(source, destination, kind, arp=_read_arp(frame, at), vlan=vlan)
        if kind == IPV4:
            return _read_ipv4(source, destination, vlan, frame, at)
        if kind == IPV6:
            return _read_ipv6(source, destination, vlan, frame, at)
    except struct.error:
        return None
    return Headers(source, destination, kind, vlan=vlan)


def _read_ipv4(source: str, destination: str, vlan: int, frame: bytes, at: int) -> Headers | None:
    version, _, _, identification, fragment, _, protocol, _, sender, _ = _IPV4.unpack_from(frame, at)
    header_bytes = (version & 15) * 4
    if version >> 4 != 4 or header_bytes < _IPV4.size:
        return None
    ports = (0, 0)
    # Later fragments have no ports; a switch matches them as port 0.
    if protocol in (TCP, UDP) and not fragment & _FRAGMENT_OFFSET:
        ports = struct.unpack_from("!HH", frame, at + header_bytes)
    return Headers(source, destination, IPV4, protocol, *ports, identification, inet_ntoa(sender), vlan=vlan)


def _read_ipv6(source: str, destination: str, vlan: int, frame: bytes, at: int) -> Headers | None:
    version, _, protocol, hops, sender, _ = _IPV6.unpack_from(frame, at)
    if version >> 28 != 6:
        return None
    protocol, at = _after_extensions(frame, protocol, at + _IPV6.size)
    ports = (0, 0)
    if protocol in (TCP, UDP):
        ports = struct.unpack_from("!HH", frame, at)
    kind: int | None = None
    neighbour = None
    if protocol == ICMPV6:
        kind, code = struct.unpack_from("!BB", frame, at)
        # What a router has forwarded says nothing about this link (RFC 4861, 7.1).
        if kind in _LINK_LAYER_ADDRESS and code == 0 and hops == _HOPS_MAX:
            neighbour = _read_neighbour(frame, at)
    address = str(IPv6Address(sender))
    return Headers(
        source, destination, IPV6, protocol, *ports, 0, address, vlan=vlan, icmp6_type=kind, neighbour=neighbour
    )


def _after_extensions(frame: bytes, protocol: int, at: int) -> tuple[int, int]:
    """Return the protocol behind all extension headers, and where it begins, as a switch finds it.

    A later fragment has no header of its protocol: it is of the protocol of fragments.
    """
    while True:
        if protocol in (_HOP_BY_HOP, _ROUTING, _OPTIONS):
            protocol, units = struct.unpack_from("!BB", frame, at)
            at += (units + 1) * 8
        elif protocol == _AUTHENTICATION:
            protocol, units = struct.unpack_from("!BB", frame, at)
            at += (units + 2) * 4
        elif protocol == _FRAGMENT:
            following, _, offset = struct.unpack_from("!BBH", frame, at)
            if offset & _FRAGMENT_OFFSET_V6:
                return _FRAGMENT, at
            protocol, at = following, at + 8
        else:
            return protocol, at


def _read_neighbour(frame: bytes, at: int) -> Neighbour | None:
    kind, _, _, _, target = _NEIGHBOUR.unpack_from(frame, at)
    at += _NEIGHBOUR.size
    mac = ""
    while at + _OPTION_UNIT <= len(frame) and frame[at + 1]:
        if frame[at] == _LINK_LAYER_ADDRESS[kind]:
            mac = _mac(frame[at + 2 : at + _OPTION_UNIT])
        at += frame[at + 1] * _OPTION_UNIT
    address = IPv6Address(target)
    return None if address.is_multicast else Neighbour(kind == SOLICITATION, str(address), mac)


def _read_arp(frame: bytes, at: int) -> Arp | None:
    *head, operation, sender_mac, sender, _, target = _ARP.unpack_from(frame, at)
    if tuple(head) != _ARP_HEAD or operation not in (1, 2) or sender_mac[0] & 1:
        return None
    return Arp(operation == 1, _mac(sender_mac), inet_ntoa(sender), inet_ntoa(target))


def probe(key: bytes, switch: str, port: int) -> bytes:
    """Return the LLDP frame (IEEE 802.1AB) that leaves a switch's port, with an HMAC under `key`."""
    chassis, number = switch.encode(), str(port).encode()
    proof = _LOCAL_OUI + b"\x01" + _proof(key, chassis, number)
    # Locally assigned chassis id and port id (subtype 7), time to live, our TLV, end.
    fields = ((1, b"\x07" + chassis), (2, b"\x07" + number), (3, (120).to_bytes(2, "big")), (127, proof), (0, b""))
    tlvs = b"".join((kind << 9 | len(value)).to_bytes(2, "big") + value for kind, value in fields)
    return _ETHERNET.pack(_bytes(LLDP_GROUP), b"\x02\xba\x7e\x00\x00\x00", LLDP) + tlvs


def read_probe(key: bytes, frame: bytes) -> tuple[str, int] | None:
    """Return the switch and port that a probe left; None for a foreign or a forged frame."""
    found: dict[int, bytes] = {}
    at = _ETHERNET.size
    while at + 2 <= len(frame):
        head = int.from_bytes(frame[at : at + 2], "big")
        kind, length = head >> 9, head & 0x1FF
        if kind == 0:
            break
        found.setdefault(kind, frame[at + 2 : at + 2 + length])
        at += 2 + length
    chassis, number, proof = found.get(1, b"")[1:], found.get(2, b"")[1:], found.get(127, b"")
    if not hmac.compare_digest(proof, _LOCAL_OUI + b"\x01" + _proof(key, chassis, number)):
        return None
    return chassis.decode(), int(number)


def _proof(key: bytes, chassis: bytes, number: bytes) -> bytes:
    return hmac.digest(key, chassis + b":" + number, hashlib.sha256)[:_PROOF_BYTES]


def _mac(address: bytes) -> str:
    return address.hex(":")


def _bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
