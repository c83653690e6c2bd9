# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Accounts of frames that are made here: each byte in one layer, each frame in one phase, each repetition found."""

import json
import shutil
import struct
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from barewire.account import account
from barewire.account.capture import STATISTICS, summary
from barewire.account.comment import Comment, comment_of
from barewire.account.envelope import apply, find
from barewire.account.frame import Carrier, Event, Frame, Layers, Shape, parse
from barewire.account.ledger import Ledger, Phase
from barewire.account.tshark import Row
from barewire.cli.commands import app
from barewire.errors import MachineCannot, WrongUse
from barewire.models.wire import Frames, wire_bytes

CAPTURES = Path(__file__).parent / "captures"
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is missing: apt-get install tshark")
SYN, ACK, PUSH, FIN = 0x02, 0x10, 0x08, 0x01


def row(**fields: Any) -> Row:
    """A frame as tshark describes it, with what every frame has."""
    common = {"time": "1.5", "encapsulation": "1", "eth_src": "02:00:00:00:00:01", "eth_dst": "02:00:00:00:00:02"}
    given = common | {name: str(value) for name, value in fields.items()}
    given.setdefault("frame_cap_len", given["frame_len"])
    given.setdefault("ip_proto", "6" if "tcp_len" in given else "17")
    return Row(**{name: given.get(name, "") for name in Row._fields})


def tcp_row(payload: int, flags: int = ACK | PUSH, sequence: int = 1, **fields: Any) -> Row:
    """A segment with time stamps from port 1024 of 10.0.0.1 to port 1025 of 10.0.0.2."""
    addresses = {"ip_src": "10.0.0.1", "ip_dst": "10.0.0.2", "tcp_srcport": 1024, "tcp_dstport": 1025}
    lengths = {"frame_len": 14 + 52 + payload, "ip_hdr_len": 20, "ip_len": 52 + payload, "tcp_hdr_len": 32}
    segment = {"tcp_len": payload, "tcp_flags": hex(flags), "tcp_seq": sequence}
    return row(**(addresses | lengths | segment | fields))


def other_way(**fields: Any) -> dict[str, Any]:
    return {"ip_src": "10.0.0.2", "ip_dst": "10.0.0.1", "tcp_srcport": 1025, "tcp_dstport": 1024} | fields


def frames_of(*rows: Row) -> list[Frame]:
    return [parse(one, {}) for one in rows]


def phases_of(*rows: Row) -> dict[Phase, Counter[tuple[Carrier, Event, int]]]:
    """For each phase what it has: carrier, event and payload of frames."""
    ledger = Ledger(1500)
    for frame in frames_of(*rows):
        ledger.add(frame)
    found: dict[Phase, Counter[tuple[Carrier, Event, int]]] = {}
    for phase, counts in ledger.counts().items():
        found[phase] = Counter()
        for (_, _, shape), count in counts.items():
            layers = shape.layers
            found[phase][shape.carrier, shape.event, layers.payload or layers.launcher] += count
    return found


@pytest.mark.parametrize("payload", [0, 1, 1448])
@pytest.mark.parametrize("tags", [0, 1, 2])
def test_the_layers_of_a_segment_are_the_wires_bytes(payload: int, tags: int) -> None:
    vlan = {"vlan_id": ",".join("7" * tags), "frame_len": 14 + 4 * tags + 52 + payload} if tags else {}
    layers = parse(tcp_row(payload, **vlan), {}).shape.layers
    assert layers == Layers(ethernet=38, vlan=4 * tags, ip=20, tcp=32, payload=payload)
    if tags < 2:
        assert sum(layers) == wire_bytes(Frames(1, 52 + payload), vlan=bool(tags))


def test_both_tags_of_802_1ad_are_counted() -> None:
    for tags in ({"vlan_id": 7, "outer_vlan_id": 8}, {"two_outer_vlan_ids": 8}):
        layers = parse(tcp_row(100, frame_len=14 + 8 + 52 + 100, **tags), {}).shape.layers
        assert layers == Layers(ethernet=38, vlan=8, ip=20, tcp=32, payload=100)


def test_a_short_frame_is_padded_whether_or_not_the_capture_has_the_padding() -> None:
    arp = {"arp_opcode": 1}
    sent, received = (parse(row(frame_len=size, **arp), {}).shape.layers for size in (42, 60))
    assert sent == received == Layers(ethernet=38, padding=18, arp=28) and sum(sent) == 84
    # The FCS, which some cards leave, is Ethernet's.
    assert parse(row(frame_len=64, eth_fcs="0x1", **arp), {}).shape.layers == sent


@pytest.mark.parametrize("damage", [{"tcp_hdr_len": 60}, {"ip_len": 30}, {"tcp_len": ""}, {"tcp_flags": ""}])
def test_damaged_headers_do_not_change_the_bytes_on_the_wire(damage: dict[str, Any]) -> None:
    shape = parse(tcp_row(100, **damage), {}).shape
    assert shape.carrier is Carrier.NONE and sum(shape.layers) == sum(parse(tcp_row(100), {}).shape.layers)


def test_a_new_connection_between_the_same_ports_repeats_nothing() -> None:
    """Its numbers may be below those of the one before."""
    ledger = Ledger(1500)
    for frame in frames_of(tcp_row(5, sequence=900), tcp_row(0, SYN, sequence=10), tcp_row(5, sequence=11)):
        ledger.add(frame)
    shapes = [shape for counts in ledger.counts().values() for _, _, shape in counts]
    assert sum(shape.layers.payload + shape.layers.launcher for shape in shapes) > 0
    assert not any(shape.layers.repeated for shape in shapes)


def test_ipv6_counts_its_extension_headers() -> None:
    ends = {"ip_src": "", "ip_dst": "", "ip_len": "", "ip_hdr_len": "", "ipv6_src": "fe80::1", "ipv6_dst": "fe80::2"}
    layers = parse(tcp_row(100, frame_len=14 + 40 + 8 + 32 + 100, ipv6_plen=8 + 32 + 100, **ends), {}).shape.layers
    assert (layers.ip, layers.tcp, layers.payload) == (48, 32, 100)


def test_a_datagram_of_barewire_is_told_by_layer() -> None:
    """62 bytes of datagram: two of them in front of the PDU, LLC 4, extension 19, message header 17, payload 20."""
    datagram = {
        "ip_src": "10.0.0.1",
        "ip_dst": "10.0.0.2",
        "ip_hdr_len": 20,
        "udp_srcport": 40000,
        "udp_dstport": 40002,
    }
    lengths = {"frame_len": 14 + 20 + 8 + 62, "ip_len": 90, "udp_length": 70}
    pdu = {"barewire_pdu": "I", "llc_dsap": "0x24", "llc_ssap": "0x21", "barewire_llc": 4, "barewire_extension": 19}
    more = {"barewire_seal": 0, "barewire_message": 17, "barewire_payload": 20, "barewire_retransmission": "1"}
    frame = parse(row(**datagram, **lengths, **pdu, **more), {"10.0.0.1": "h1"})
    assert frame.shape.layers == Layers(38, 0, 0, 0, 20, 0, 8, 4, 21, 0, 17, 0, 0, 20)
    assert (frame.source, frame.destination) == ("h1", "10.0.0.2")
    assert frame.stations == (("10.0.0.1", "40000/0x20"), ("10.0.0.2", "40002/0x24"))


def test_a_connection_opens_carries_and_ends() -> None:
    """The launcher's is the first connection. The ranks' last payload ends the data; its acknowledgement is after."""
    launcher = {"tcp_srcport": 900, "tcp_dstport": 901}
    found = phases_of(
        row(frame_len=42, arp_opcode=1),
        tcp_row(0, SYN, **launcher),
        tcp_row(10, sequence=2, **launcher),
        tcp_row(0, SYN),
        tcp_row(0, SYN | ACK, **other_way()),
        tcp_row(0, ACK, sequence=2),
        tcp_row(5, sequence=2),
        tcp_row(11, sequence=12, **launcher),
        tcp_row(0, ACK, **other_way()),
        tcp_row(6, sequence=7),
        tcp_row(0, ACK, **other_way()),
        tcp_row(12, sequence=23, **launcher),
        tcp_row(0, ACK | FIN, sequence=13),
    )
    tcp = Carrier.TCP
    assert found[Phase.LAUNCH] == {
        (Carrier.NONE, Event.NEUTRAL, 0): 1,
        (tcp, Event.OPEN, 0): 1,
        (tcp, Event.PAYLOAD, 10): 1,
        (tcp, Event.PAYLOAD, 11): 1,
    }
    assert found[Phase.CONNECT] == {(tcp, Event.OPEN, 0): 2, (tcp, Event.ACK, 0): 1}
    assert found[Phase.DATA] == {(tcp, Event.PAYLOAD, 5): 1, (tcp, Event.ACK, 0): 1, (tcp, Event.PAYLOAD, 6): 1}
    assert found[Phase.END] == {(tcp, Event.ACK, 0): 1, (tcp, Event.PAYLOAD, 12): 1, (tcp, Event.CLOSE, 0): 1}


def test_the_only_connection_is_the_ranks() -> None:
    found = phases_of(tcp_row(0, SYN), tcp_row(5, sequence=2), tcp_row(0, FIN | ACK, sequence=7))
    assert {phase: sum(counts.values()) for phase, counts in found.items()} == {
        Phase.LAUNCH: 0,
        Phase.CONNECT: 1,
        Phase.DATA: 1,
        Phase.END: 1,
    }


def test_every_tcp_connection_is_the_launchers_where_barewire_carries_messages() -> None:
    pdu = {"frame_len": 100, "llc_dsap": "0x24", "llc_ssap": "0x20", "barewire_llc": 4, "barewire_extension": 19}
    message = {"barewire_pdu": "I", "barewire_message": 9, "barewire_payload": 54}
    found = phases_of(
        tcp_row(0, SYN, tcp_srcport=900, tcp_dstport=901),
        tcp_row(7, tcp_srcport=902, tcp_dstport=903),
        row(barewire_pdu="SABME", **pdu),
        row(**pdu, **message),
        row(**pdu, **message),
        row(barewire_pdu="DISC", **pdu),
    )
    assert found[Phase.LAUNCH] == {(Carrier.TCP, Event.OPEN, 0): 1, (Carrier.TCP, Event.PAYLOAD, 7): 1}
    assert found[Phase.DATA] == {(Carrier.FRAMES, Event.PAYLOAD, 54): 2}
    assert (sum(found[Phase.CONNECT].values()), sum(found[Phase.END].values())) == (1, 1)


@pytest.mark.parametrize("start", [1, (1 << 32) - 150])
def test_what_begins_before_the_end_of_what_was_sent_is_repeated(start: int) -> None:
    """Also where sequence numbers wrap. The other direction has numbers of its own."""
    numbers = [start, start + 100, start + 200, start + 100, start + 250, start + 350]
    ledger = Ledger(1500)
    for frame in frames_of(
        *(tcp_row(100, sequence=number % (1 << 32)) for number in numbers), tcp_row(5, **other_way())
    ):
        ledger.add(frame)
    shapes = [(shape, count) for counts in ledger.counts().values() for (_, _, shape), count in counts.items()]
    assert sum(shape.layers.repeated * count for shape, count in shapes) == 200
    assert sum(shape.layers.payload * count for shape, count in shapes) == 405


def test_segments_longer_than_the_connections_are_noticed() -> None:
    ledger = Ledger(1500)
    for frame in frames_of(tcp_row(0, SYN, tcp_mss=1460), tcp_row(1448, sequence=2), tcp_row(2896, sequence=1450)):
        ledger.add(frame)
    assert ledger.uncut == 1


def envelope_counts(*segments: tuple[int, int]) -> dict[Phase, Any]:
    counts = Counter()
    for payload, count in segments:
        counts["a", "b", Shape(Carrier.TCP, Event.PAYLOAD, Layers(payload=payload))] += count
    return {phase: Counter() for phase in Phase} | {Phase.DATA: counts}


def test_the_commonest_segment_that_holds_a_message_is_one() -> None:
    phases = envelope_counts((1448, 20), (22, 30), (60, 2), (2896, 1), (1500, 1))
    found = find(phases[Phase.DATA], 1426)
    assert (found.envelope_bytes, found.segments) == (22, 20)
    layers = Layers(
        *map(
            sum,
            zip(
                *(
                    [each * count for each in shape.layers]
                    for (_, _, shape), count in apply(phases, found)[Phase.DATA].items()
                ),
                strict=True,
            ),
        )
    )
    # 20 messages, two in one segment, short ones of the library's own; what 1500 bytes are nobody knows.
    assert (layers.mpi, layers.payload) == (22 * 22 + 22 * 30 + 60 * 2, 22 * 1426 + 1500)


def test_a_message_longer_than_a_segment_has_no_envelope_that_can_be_told() -> None:
    with pytest.raises(WrongUse, match="longest segment has 1448"):
        find(envelope_counts((1448, 20))[Phase.DATA], 4000)
    with pytest.raises(WrongUse, match="no TCP connection"):
        find(Counter(), 10)


def test_lost_frames_are_said_aloud(tmp_path: Path) -> None:
    """dumpcap's own words, of version 4.0."""
    said = "Packets received/dropped on interface 'eth0': {}/{} (pcap:{}/dumpcap:0/flushed:0/ps_ifdrop:0) (99.0%)"
    taps = []
    for host, dropped in (("h1", 0), ("h2", 7)):
        found = STATISTICS.search(said.format(500, dropped, dropped))
        assert found is not None
        taps.append(SimpleNamespace(host=host, received=int(found[1]), dropped=int(found[2])))
    assert "captured 1000 frames (h1 500, h2 500), LOST 7 of h2; " in summary(tmp_path, taps)
    assert ", none lost; " in summary(tmp_path, taps[:1])


def section_header(order: str, *comments: str) -> bytes:
    """A pcapng section header with comments."""
    options = b""
    for text in comments:
        octets = text.encode()
        options += struct.pack(f"{order}HH", 1, len(octets)) + octets + bytes(-len(octets) % 4)
    options += struct.pack(f"{order}HH", 0, 0)
    length = 28 + len(options)
    start = struct.pack(f"{order}II", 0x0A0D0D0A, length) + struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)
    return start + options + struct.pack(f"{order}I", length)


@pytest.mark.parametrize("order", ["<", ">"])
def test_hosts_and_mtu_are_read_from_the_captures_comment(tmp_path: Path, order: str) -> None:
    said = Comment({"h1": ["02:00:00:00:00:01", "10.0.0.1"]}, 9000)
    file = tmp_path / "a.pcapng"
    file.write_bytes(section_header(order, "somebody's", str(said) + " \nFile created by merging: \n"))
    assert comment_of(file) == said
    damaged = (
        '{"schema": "barewire-capture/1"' + more
        for more in ("}", ', "hosts": 1, "mtu": 2}', ', "hosts": {}, "mtu": "x"}')
    )
    others = (section_header(order, "somebody's"), section_header(order, str(said))[:40], b"", b"text" * 20)
    for other in (*others, section_header(order, "[" * 60_000), *(section_header(order, text) for text in damaged)):
        file.write_bytes(other)
        assert comment_of(file) == Comment()


def pcap(*frames: bytes, link_type: int = 1, snap: int = 65535) -> bytes:
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, snap, link_type)
    records = (struct.pack("<IIII", 1, 0, len(frame[:snap]), len(frame)) + frame[:snap] for frame in frames)
    return header + b"".join(records)


ARP = bytes.fromhex(
    "ffffffffffff0200000000010806" + "0001080006040001" + "0200000000010a000001" + "0000000000000a000002"
)


@needs_tshark
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"# a text, and no capture\n", "is no capture that tshark reads"),
        (pcap(), "has no frame"),
        (pcap(ARP)[:40], "has no frame .*cut short"),
        (pcap(bytes(16) + ARP[14:], link_type=113), r"frame 1 is Linux cooked \(SLL\), not Ethernet"),
        (pcap(bytes([0x45]) + bytes(19), link_type=101), "frame 1 is raw IP, not Ethernet"),
    ],
    ids=["empty", "text", "no frame", "cut in the first", "cooked", "raw IP"],
)
def test_what_is_no_capture_of_ethernet_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "a.pcap"
    file.write_bytes(content)
    with pytest.raises(WrongUse, match=reason):
        account(file)


def test_a_file_that_is_missing_and_a_machine_without_tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongUse, match="No such file"):
        account(tmp_path / "missing")
    (tmp_path / "a.pcap").write_bytes(pcap(ARP))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineCannot, match="apt install tshark"):
        account(tmp_path / "a.pcap")


@needs_tshark
def test_a_capture_that_is_cut_short_is_accounted_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "a.pcap"
    file.write_bytes(pcap(ARP, ARP, ARP)[:-5])
    found = account(file)
    assert found.total.frames == 2 and not found.is_complete and "cut short" in found.notes[0]


@needs_tshark
def test_frames_captured_in_part_have_their_whole_length(tmp_path: Path) -> None:
    file = tmp_path / "a.pcap"
    file.write_bytes(pcap(ARP + bytes(100), snap=50))
    found = account(file)
    assert found.total.wire_bytes == 24 + 142 and "captured in part" in found.notes[0]


# What two round trips of a ping-pong took in the lab, each of so many bytes; payloads of TCP are zeroed in the files.
ROUND_TRIPS = {"tcp": 1426, "frames": 1000, "udp": 100, "sealed": 100, "encrypted": 100}


@needs_tshark
@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_captures_of_jobs_are_accounted_by_layer_and_phase(name: str) -> None:
    size = ROUND_TRIPS[name]
    found = account(CAPTURES / f"{name}.pcapng", message_bytes=size if name == "tcp" else None)
    data = found.of_phase(Phase.DATA).layers
    in_seal = {"sealed": 24, "encrypted": 24}.get(name, 0)
    # Fragment header 5 and message header 17, which encryption hides.
    assert data.payload == 4 * (size + (22 if name == "encrypted" else 0))
    assert found.total.layers.payload == data.payload and data.repeated == 0
    assert (data.message, data.mpi > 0) == (0 if name in ("tcp", "encrypted") else 4 * 17, name == "tcp")
    assert data.udp == (4 * 8 if name == "udp" else 0) and data.seal >= 4 * in_seal and bool(data.seal) == bool(in_seal)
    launch, end = found.of_phase(Phase.LAUNCH), found.of_phase(Phase.END)
    assert launch.layers.launcher > 4 * end.layers.launcher > 0 and launch.layers.barewire == 0
    connect = found.of_phase(Phase.CONNECT)
    assert connect.frames >= 3 and bool(connect.layers.barewire) == (name != "tcp")
    assert {row[:2] for row in found.pairs()} == {("h1", "h2"), ("h2", "h1")}
    assert ["encrypted" in note for note in found.notes] == ([True] if name == "encrypted" else [])
    everything = [found.of_phase(phase) for phase in Phase]
    assert sum(part.wire_bytes for part in everything) == found.total.wire_bytes
    assert sum(part.frames for part in everything) == found.total.frames


@needs_tshark
def test_the_published_overhead_of_22_and_32_and_20_bytes() -> None:
    """Paz 2010: 1426 bytes are the longest message in one frame, with 22 bytes of MPI, 32 of TCP, 20 of IP."""
    found = account(CAPTURES / "tcp.pcapng", message_bytes=1426)
    assert found.envelope is not None and (found.envelope.envelope_bytes, found.envelope.segments) == (22, 4)
    (shape, count), *_ = found.typical(1)
    assert (shape.layers, count) == (Layers(ethernet=38, ip=20, tcp=32, mpi=22, payload=1426), 4)


@needs_tshark
def test_the_document_and_the_tables_say_the_same() -> None:
    capture = str(CAPTURES / "frames.pcapng")
    printed = CliRunner().invoke(app, ["account", capture, "--json"])
    assert printed.exit_code == 0, printed.output
    document = json.loads(printed.output)
    assert document["schema"] == "barewire-account/1" and document["complete"] is True
    total = document["total"]
    assert total["wire_bytes"] == sum(total["layers_bytes"].values()) == sum(p["wire_bytes"] for p in document["pairs"])
    shown = CliRunner().invoke(app, ["account", capture], env={"COLUMNS": "120"})
    assert shown.exit_code == 0 and f"{total['frames']} frames, {total['wire_bytes']} B on the wire" in shown.output
    for word in ("launch", "connect", "message header", "barewire frames", "h1"):
        assert word in shown.output


def ipv4(protocol: int, content: bytes) -> bytes:
    header = struct.pack(">BBHIBBH", 0x45, 0, 20 + len(content), 0, 64, protocol, 0)
    return header + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + content


def ipv6(protocol: int, content: bytes) -> bytes:
    ends = bytes.fromhex("fe80" + "00" * 13 + "01" + "fe80" + "00" * 13 + "02")
    return struct.pack(">IHBB", 6 << 28, len(content), protocol, 64) + ends + content


DATAGRAM = struct.pack(">HHHH", 40000, 40001, 108, 0) + bytes(100)
SEGMENT = struct.pack(">HHIIBBHHH", 40000, 40001, 1, 1, 0x50, ACK | PUSH, 100, 0, 0) + bytes(100)
IP, IPV6, VLAN, OUTER_VLAN = b"\x08\0", b"\x86\xdd", b"\x81\0\0\x07", b"\x88\xa8\0\x08"
UNREACHABLE = bytes([3, 3]) + bytes(6)


@needs_tshark
@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (IP + ipv4(17, DATAGRAM), {"ip": 20, "udp": 8, "payload": 100}),
        (IPV6 + ipv6(17, DATAGRAM), {"ip": 40, "udp": 8, "payload": 100}),
        (IP + ipv4(1, UNREACHABLE + ipv4(17, DATAGRAM)), {"ip": 20, "other": 136}),
        (IP + ipv4(1, UNREACHABLE + ipv4(6, SEGMENT)), {"ip": 20, "other": 148}),
        (IPV6 + ipv6(58, bytes([1, 4]) + bytes(6) + ipv6(17, DATAGRAM)), {"ip": 40, "other": 156}),
        (IP + ipv4(4, ipv4(17, DATAGRAM)), {"ip": 20, "other": 128}),
        (VLAN + IP + ipv4(17, DATAGRAM), {"vlan": 4, "ip": 20, "udp": 8, "payload": 100}),
        (OUTER_VLAN + IP + ipv4(17, DATAGRAM), {"vlan": 4, "ip": 20, "udp": 8, "payload": 100}),
        (OUTER_VLAN + VLAN + IP + ipv4(17, DATAGRAM), {"vlan": 8, "ip": 20, "udp": 8, "payload": 100}),
        (OUTER_VLAN + OUTER_VLAN + IP + ipv4(17, DATAGRAM), {"vlan": 8, "ip": 20, "udp": 8, "payload": 100}),
    ],
)
def test_packets_in_packets_and_tags_are_what_they_are(tmp_path: Path, frame: bytes, expected: dict[str, int]) -> None:
    data = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]) + frame
    file = tmp_path / "one.pcap"
    file.write_bytes(
        struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + struct.pack("<4I", 1, 0, *[len(data)] * 2) + data
    )
    layers = account(file).total.layers
    assert layers == Layers(ethernet=38, **expected) and sum(layers) == len(data) + 24


@needs_tshark
@pytest.mark.parametrize("is_broadcast", [False, True])
def test_a_frame_at_two_interfaces_is_pointed_out_unless_it_is_for_all(tmp_path: Path, is_broadcast: bool) -> None:
    """As from `-i eth0` on two hosts, merged: each has both directions."""
    frame = ARP if is_broadcast else bytes([2, 0, 0, 0, 0, 2]) + ARP[6:]

    def block(kind: int, body: bytes) -> bytes:
        length = 12 + len(body)
        return struct.pack("<II", kind, length) + body + struct.pack("<I", length)

    packets = b"".join(
        block(6, struct.pack("<IIIII", interface, 0, 1, len(frame), len(frame)) + frame + bytes(-len(frame) % 4))
        for interface in (0, 1)
    )
    file = tmp_path / "twice.pcapng"
    file.write_bytes(section_header("<") + block(1, struct.pack("<HHI", 1, 0, 65535)) * 2 + packets)
    assert ["counted more than once" in note for note in account(file).notes] == ([] if is_broadcast else [True])
