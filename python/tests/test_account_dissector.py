# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Wireshark's dissector against frames that are composed here from docs/protocol.md, with a CRC32C of their own."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from barewire.account.tshark import DISSECTOR

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is missing: apt-get install tshark")

A, B, C = (bytes([2, 0, 0, 0, 0, number]) for number in (1, 2, 3))
INFORMATION, RR, SABME, UA, DISC, UI = b"\x02\x04", b"\x01\x05", b"\x7f", b"\x73", b"\x53", b"\x03"
ETHERTYPE = b"\x88\x70"
MARK = bytes.fromhex("1122334455") + bytes.fromhex("abcdef")
SEAL = bytes(range(24))


def crc32c(data: bytes, state: int = 0xFFFFFFFF) -> int:
    for octet in data:
        state ^= octet
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state


def check(addresses: bytes, head: bytes, rest: bytes) -> bytes:
    first = int.from_bytes(bytes(a ^ b for a, b in zip(head.ljust(4, b"\0"), b"\xff" * 4, strict=True)), "little")
    return struct.pack(">I", crc32c(addresses + rest, first) ^ 0xFFFFFFFF)


def front(control: bytes, *, sap: int = 0x24, guard: bytes | None = None, extension: bytes, more: bytes = b"") -> bytes:
    """A PDU with its extension before the information, in a frame with EtherType; with a valid check or a seal."""
    head = bytes([sap, 0x20]) + control
    is_partial = control == INFORMATION and extension[-1] & 0x80
    first = more[: 64 if more[:1] in (b"\x01", b"\x03") else 1]
    covered = extension + (first if is_partial else more)
    return B + A + ETHERTYPE + head + (guard or check(B + A, head, covered)) + extension + more


def behind(control: bytes, *, sap: int = 0x24, guard: bytes | None = None, extension: bytes) -> bytes:
    """A PDU with its extension behind LLC's length."""
    pdu = bytes([sap, 0x20]) + control
    guard = guard or check(B + A, pdu[:3], pdu[3:] + extension)
    return B + A + struct.pack(">H", len(pdu)) + pdu + guard + extension


def set_up(version: int) -> bytes:
    return MARK + bytes([version]) + b"nonce..." + b"cookie.."


def datagram(content: bytes, source: tuple[int, int], destination: tuple[int, int]) -> bytes:
    """UDP between 10.0.0.N hosts, each as N and port."""
    udp = struct.pack(">HHHH", source[1], destination[1], 8 + len(content), 0) + content
    addresses = bytes([10, 0, 0, source[0], 10, 0, 0, destination[0]])
    return B + A + b"\x08\x00" + struct.pack(">BBHIBBH", 0x45, 0, 20 + len(udp), 0, 64, 17, 0) + addresses + udp


def dissect(folder: Path, frames: list[bytes], *fields: str, snap: int = 65535) -> list[tuple[str, ...]]:
    """The values of fields of each frame, with errors as the last."""
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, snap, 1)
    records = (struct.pack("<IIII", 1, 0, len(frame[:snap]), len(frame)) + frame[:snap] for frame in frames)
    file = folder / "a.pcap"
    file.write_bytes(header + b"".join(records))
    command = ["tshark", "-n", "-r", str(file), "-X", f"lua_script:{DISSECTOR}", "-o", "barewire.verify:TRUE"]
    command += ["-o", "udp.try_heuristic_first:TRUE", "-T", "fields"]
    for field in (*(f"barewire.{field}" for field in fields), "_ws.expert.message"):
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "Lua" not in done.stderr, done.stderr
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("guard", [None, SEAL])
def test_every_kind_of_pdu(tmp_path: Path, version: int, guard: bytes | None) -> None:
    eager = b"\x03\0\0\0\x0e" + b"\x31" + b"tagtagtA" + b"datadatA" + b"hello"
    request = b"\x01\0\0\x10\0" + b"\x12" + struct.pack(">QQQ", 77, 5, 4096)
    frames = [
        behind(SABME, guard=guard, extension=set_up(version)),
        front(INFORMATION, guard=guard, extension=MARK + b"\x83\x81", more=eager),
        front(INFORMATION, guard=guard, extension=MARK + b"\x00\x01", more=request),
        front(INFORMATION, guard=guard, extension=MARK + b"\x00\x81", more=b"\x02" + bytes(100)),
        behind(RR, guard=guard, extension=MARK + b"\x81" + bytes(15) + b"\x05" + (b"\x40\x07" if version > 4 else b"")),
        front(UI, guard=guard, extension=MARK, more=b"datagram"),
        behind(DISC, guard=guard, extension=MARK),
    ]
    fields = ("pdu", "version", "ns", "nr", "retransmission", "partial", "message", "message.tag", "message.length")
    rows = dissect(tmp_path, frames, *fields, "poll", *(f"bytes.{name}" for name in LAYERS))
    yes, no = ("1", "0") if "True" not in str(rows) else ("True", "False")
    none = ("",) * 7
    assert [(*row[: len(fields)], row[-1]) for row in rows] == [
        ("SABME", str(version), *none, ""),
        ("I", "", str(3 * 128 + 1), str(128 + 2), yes, yes, "eager", "0x7461677461677441", "", ""),
        ("I", "", "1", str(128 + 2), no, no, "request", "0x000000000000004d", "4096", ""),
        ("I", "", "1", str(128 + 2), no, yes, "", "", "", ""),
        ("RR", "", "", str(128 + 2), "", "", "", "", "", ""),
        ("UI", "", *none, ""),
        ("DISC", "", *none, ""),
    ]
    assert [row[len(fields)] for row in rows] == ["", "", "", "", "0x4007" if version > 4 else "", "", ""]
    seal = str(len(SEAL)) if guard else "0"
    extension = 14 if guard is None else 10
    assert [row[-1 - len(LAYERS) : -1] for row in rows[1:4]] == [
        ("4", str(extension + 5), seal, "17", "5"),
        ("4", str(extension + 5), seal, "25", "0"),
        ("4", str(extension + 1), seal, "0", "100"),
    ]


LAYERS = ("llc", "extension", "seal", "message", "payload")


def test_a_late_frames_mark_tells_how_often_its_numbers_came_round(tmp_path: Path) -> None:
    """N(S) beyond 14 bits in the upper 12 of the mark's low 24 bits, N(R) in the lower (decision 0037)."""
    late = bytes(a ^ b for a, b in zip(MARK, bytes(5) + bytes.fromhex("002003"), strict=True))
    frames = [behind(SABME, extension=set_up(4))]
    frames += [front(INFORMATION, extension=mark + b"\x00\x01", more=b"\x02x") for mark in (MARK, late)]
    assert [row[:3] for row in dissect(tmp_path, frames, "late.ns", "late.nr", "mark.connection")[1:]] == [
        ("0", "0", "1122334455"),
        ("2", "3", "1122334455"),
    ]


def test_a_wrong_check_is_an_error_and_foreign_llc_is_not_ours(tmp_path: Path) -> None:
    damaged = bytearray(front(INFORMATION, extension=MARK + b"\x00\x01", more=b"\x02x"))
    damaged[-1] ^= 1
    foreign = B + A + struct.pack(">H", 40) + b"\x24\x20" + INFORMATION + bytes(36)
    sound = front(INFORMATION, extension=MARK + b"\x00\x01", more=b"\x02x")
    found = dissect(tmp_path, [foreign, sound, bytes(damaged)], "pdu")
    assert found == [("", ""), ("I", ""), ("I", "The check does not match")]


@pytest.mark.parametrize("sap", [0xC8, 0x04, 0x24])
def test_another_protocols_service_access_point_does_not_make_it_malformed(tmp_path: Path, sap: int) -> None:
    """0xc8 and 0x04 are SNA's, whose dissector would take our information."""
    frames = [behind(SABME, sap=sap, extension=set_up(4))]
    frames += [front(INFORMATION, sap=sap, extension=MARK + b"\x00\x01", more=b"\x02" + bytes(range(50)))] * 2
    assert dissect(tmp_path, frames, "pdu") == [("SABME", ""), ("I", ""), ("I", "")]


def test_encrypted_messages_are_not_read(tmp_path: Path) -> None:
    frames = [behind(SABME, guard=SEAL, extension=set_up(4))]
    frames += [
        front(INFORMATION, guard=SEAL, extension=MARK + b"\x00\x01", more=bytes([first, *range(200, 240)]))
        for first in (9, 3)
    ]
    found = dissect(tmp_path, frames, "message", "encrypted", "bytes.payload")
    assert [(row[0], row[1] != "", row[2]) for row in found[1:]] == [("", True, "41"), ("", True, "41")]


def question(names: tuple[bytes, bytes], echo: int = 0) -> bytes:
    """A question about a path from the second station to the first, LLC and information."""
    station = [name + bytes([sap]) for name, sap in zip(names, (0x24, 0x20), strict=True)]
    body = b"BWPA\x02" + station[1] + station[0] + struct.pack(">QQ", 7, echo) + names[1] + struct.pack(">I", 10000)
    return b"\x24\x20\x03" + body + bytes(30) + b"tagtagta"


def test_questions_name_the_stations_that_a_check_covers(tmp_path: Path) -> None:
    """A datagram's check covers the names of its stations, MAC addresses; a question in UDP tells them."""
    pdu = b"\x24\x20" + SABME
    set_up_pdu = b"\x00\x03" + pdu + check(C + B, pdu[:3], set_up(4)) + set_up(4)
    ends = (1, 40000), (2, 40002)
    asked = datagram(ETHERTYPE + question((C, B)), *ends)
    late = datagram(set_up_pdu, *ends)
    assert dissect(tmp_path, [late], "pdu") == [("", "")]
    fields = ("pdu", "path.from", "path.to", "path.nonce", "path.speed", "version")
    assert dissect(tmp_path, [asked, late], *fields) == [
        ("UI", "02:00:00:00:00:02", "02:00:00:00:00:03", "0x0000000000000007", "10000,0,0,0", "", ""),
        ("SABME", "", "", "", "", "4", ""),
    ]


def test_pieces_of_a_frame_are_named(tmp_path: Path) -> None:
    pieces = [b"\x24\x20\x03BWPF" + struct.pack(">QBBH", 7, number, 3, 1300) + bytes(500) for number in range(2)]
    frames = [datagram(ETHERTYPE + piece, (1, 40000), (2, 40002)) for piece in pieces]
    fields = ("pdu", "piece.frame", "piece.number", "piece.count", "piece.total")
    expected = [("UI", "0x0000000000000007", str(number), "3", "1300", "") for number in range(2)]
    assert dissect(tmp_path, frames, *fields) == expected


def test_without_a_question_a_datagrams_stations_are_ports_and_ip_addresses(tmp_path: Path) -> None:
    station = [struct.pack(">H", port) + bytes([10, 0, 0, host]) for host, port in ((2, 40002), (1, 40000))]
    pdu = b"\x24\x20" + SABME
    content = b"\x00\x03" + pdu + check(station[0] + station[1], pdu[:3], set_up(4)) + set_up(4)
    assert dissect(tmp_path, [datagram(content, (1, 40000), (2, 40002))], "version") == [("4", "")]


def test_stations_behind_ipv6_are_ports_and_hashes_of_addresses(tmp_path: Path) -> None:
    """FNV-1a of the address, folded to 32 bits (crates/link/src/udp/address.rs)."""
    hosts = [bytes.fromhex(f"fe80000000000000{number:016x}") for number in (1, 0xFF << 56 | 2)]
    stations = []
    for host, port in zip(hosts, (40000, 40002), strict=True):
        value = 0xCBF29CE484222325
        for octet in host:
            value = (value ^ octet) * 0x100000001B3 % (1 << 64)
        stations.append(struct.pack(">HI", port, (value >> 32 ^ value) & 0xFFFFFFFF))
    pdu = b"\x24\x20" + SABME
    content = b"\x00\x03" + pdu + check(stations[1] + stations[0], pdu[:3], set_up(4)) + set_up(4)
    udp = struct.pack(">HHHH", 40000, 40002, 8 + len(content), 0) + content
    frame = B + A + b"\x86\xdd" + struct.pack(">IHBB", 0x60000000, len(udp), 17, 64) + hosts[0] + hosts[1] + udp
    assert [row[0] for row in dissect(tmp_path, [frame], "version")] == ["4"]


def test_an_installed_dissector_may_be_named_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = tmp_path / ".local" / "lib" / "wireshark" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "barewire.lua").symlink_to(DISSECTOR)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert dissect(tmp_path, [behind(SABME, extension=set_up(4))], "version") == [("4", "")]


def test_names_and_raw_frames(tmp_path: Path) -> None:
    body = b"BWN\x01\x02" + struct.pack(">IH", 9, 5288) + bytes(10) + b"\xff\xff\x0a\x00\x00\x01" + b"\x02h1"
    name = B + A + struct.pack(">H", 3 + len(body)) + b"\xba\xba\x03" + body
    raw = B + A + b"\x88\xb5" + struct.pack(">III", 1, 2, 3) + b"payload"
    fields = ("name.kind", "name.name", "name.address", "raw.sequence", "bytes.payload")
    assert dissect(tmp_path, [name, raw], *fields) == [
        ("2", "h1", "::ffff:10.0.0.1", "", "0", ""),
        ("", "", "", "2", "7", ""),
    ]


@pytest.mark.parametrize("snap", range(14, 90, 15))
def test_frames_captured_in_part_do_not_disturb(tmp_path: Path, snap: int) -> None:
    eager = b"\x03\0\0\0\x0e" + b"\x31" + b"tagtagtA" + b"datadatA" + b"hello"
    frames = [
        behind(SABME, extension=set_up(5)),
        front(INFORMATION, extension=MARK + b"\x00\x01", more=eager),
        B + A + ETHERTYPE + question((B, A)),
        behind(RR, extension=MARK + bytes(19)),
    ]
    assert all("ends within" not in row[-1] for row in dissect(tmp_path, frames, "pdu", snap=snap))


@pytest.mark.parametrize("poll", [b"", b"\x40\x07"])
def test_supervisory_pdus_of_each_version_are_known_without_a_set_up(tmp_path: Path, poll: bytes) -> None:
    """The check tells whether a poll has a number."""
    frames = [behind(RR, extension=MARK + bytes(17) + poll)] * 2
    assert dissect(tmp_path, frames, "pdu", "poll") == [("RR", "0x4007" if poll else "", "")] * 2
