# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Wireshark's LLC dissector, which nobody here wrote, reads in every kind of PDU what the engine put there.

`crates/llc/examples/every_pdu.rs` prints frames with our own reading of each field. They become a capture, tshark
dissects it, and every field of every frame is compared. What tshark 4.0 does not know is listed in `UNKNOWN_TO_TSHARK`.
"""

import json
import os
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

TSHARK = shutil.which("tshark")
pytestmark = pytest.mark.skipif(TSHARK is None, reason="tshark is missing: apt-get install tshark")

Reading = dict[str, Any]

# tshark's modifier, the M bits of the control field where they stand, as numbers: llc.control.u_modifier_*.
UNNUMBERED = {0x00: "UI", 0x03: "DM", 0x10: "DISC", 0x18: "UA", 0x19: "AC0", 0x1B: "SABME", 0x21: "FRMR"}
UNNUMBERED |= {0x2B: "XID", 0x38: "TEST", 0x39: "AC1"}
SUPERVISORY = {0: "RR", 1: "RNR", 2: "REJ"}
# The dissector gives these as bytes only, which are compared as they are: the layout of FRMR's information and of the
# status subfield of type 3. It numbers AC0 and AC1 correctly and calls both "Unknown".
UNKNOWN_TO_TSHARK = {"frmr", "status"}
ETHERTYPE_JUMBO = 0x8870
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)  # version 2.4, link type Ethernet


@pytest.fixture(scope="module")
def ours() -> list[Reading]:
    """Our frames and readings, one for each PDU."""
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    # As `cargo test` of tools/test.sh has built it: alone, or with other packages or features, it would be built anew.
    packages = ["--workspace", "--exclude", "barewire-benches", "--features", "barewire-sim/mutants"]
    build = [cargo, "build", "--profile", "checks", "--locked", "--quiet", *packages, "--examples"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    example = ROOT / "target" / "checks" / "examples" / "every_pdu"
    done = subprocess.run([example], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def theirs(ours: list[Reading], tmp_path_factory: pytest.TempPathFactory) -> list[Reading]:
    """What tshark says of the same frames."""
    capture = tmp_path_factory.mktemp("tshark") / "every_pdu.pcap"
    return dissect([bytes.fromhex(pdu["frame"]) for pdu in ours], capture)


def test_the_example_has_every_kind_in_every_framing(ours: list[Reading]) -> None:
    kinds = Counter(pdu["kind"] for pdu in ours)
    assert set(kinds) == {"I", *SUPERVISORY.values(), *UNNUMBERED.values()}
    assert {(pdu["is_jumbo"], pdu["vlan"] is not None) for pdu in ours} == {(a, b) for a in (0, 1) for b in (0, 1)}
    for kind in ("I", "RR", "RNR", "REJ", "XID", "TEST", "AC0", "AC1"):
        ways = {(pdu["is_response"], pdu["poll_final"]) for pdu in ours if pdu["kind"] == kind}
        assert ways == {(a, b) for a in (False, True) for b in (False, True)}, kind


def test_tshark_agrees_on_every_field_of_every_pdu(ours: list[Reading], theirs: list[Reading]) -> None:
    assert len(theirs) == len(ours) > 100
    disagreements = {number: compare(*pair) for number, pair in enumerate(zip(ours, theirs, strict=True), start=1)}
    assert not {number: what for number, what in disagreements.items() if what}


def test_a_wrong_field_of_ours_is_noticed(ours: list[Reading], theirs: list[Reading]) -> None:
    """Proves the comparison: each field in turn is falsified in every PDU that has it."""
    changes: dict[str, Callable[[Any], Any]] = {
        field: lambda value: value ^ 2 for field in ("dsap", "ssap", "ns", "nr", "length", "information", "status")
    }
    changes |= {field: lambda value: not value for field in ("is_group", "is_response", "poll_final", "is_jumbo")}
    changes |= {"kind": lambda kind: "UI" if kind == "TEST" else "TEST"}
    changes |= {"vlan": lambda vlan: 7 if vlan is None else None}
    changes |= {f"xid.{part}": lambda value: value ^ 2 for part in ("class", "window")}
    changes |= {f"frmr.{part}": lambda value: value ^ 1 for part in ("vs", "vr", "flags", "is_response")}
    for name, change in changes.items():
        field, _, part = name.partition(".")
        having = [(pdu, reading) for pdu, reading in zip(ours, theirs, strict=True) if field in pdu]
        assert having, name
        for pdu, reading in having:
            wrong = pdu | {field: pdu[field] | {part: change(pdu[field][part])} if part else change(pdu[field])}
            assert compare(wrong, reading), (name, pdu)


@pytest.mark.parametrize("place", ["dsap", "ssap", "control"])
def test_a_wrong_byte_on_the_wire_is_noticed(ours: list[Reading], tmp_path: Path, place: str) -> None:
    """Proves that the dissection takes part: the frames are falsified, our reading is not."""
    frames = []
    for pdu in ours:
        frame = bytearray.fromhex(pdu["frame"])
        offset = (18 if pdu["vlan"] is not None else 14) + ["dsap", "ssap", "control"].index(place)
        frame[offset] ^= 0x04
        frames.append(bytes(frame))
    readings = dissect(frames, tmp_path / "wrong.pcap")
    assert all(compare(*pair) for pair in zip(ours, readings, strict=True))


def compare(pdu: Reading, reading: Reading) -> dict[str, tuple[Any, Any]]:
    """The fields on which the two disagree, ours first."""
    wanted = {field: value for field, value in pdu.items() if field != "frame" and field not in UNKNOWN_TO_TSHARK}
    # tshark gives the bytes behind the control field where it knows no more.
    if "frmr" in pdu:
        wanted["data"] = frmr_bytes(pdu["frmr"])
    elif "status" in pdu:
        wanted["data"] = bytes([pdu["status"]])
    given = {field: value for field, value in reading.items() if field != "data" or "data" in wanted}
    return {
        field: (wanted.get(field), given.get(field))
        for field in wanted.keys() | given.keys()
        if wanted.get(field) != given.get(field)
    }


def frmr_bytes(frmr: Reading) -> bytes:
    """The five bytes as IEEE 802.2 lays them out (clause 5.4.2.3.5), told from our reading of them."""
    sequence = [frmr["vs"] << 1, frmr["vr"] << 1 | frmr["is_response"]]
    return bytes([*frmr["control"], *sequence, frmr["flags"]])


def dissect(frames: list[bytes], capture: Path, *options: str) -> list[Reading]:
    """Let tshark read the frames; its words in ours."""
    records = (struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames)
    capture.write_bytes(PCAP_HEADER + b"".join(records))
    assert TSHARK is not None
    # No user's preferences and plugins, no name resolution; protocols above LLC would hide the information field.
    command = [TSHARK, "-n", "-r", str(capture), "-T", "json", "--no-duplicate-keys", *options]
    environment = {**os.environ, "HOME": str(capture.parent), "XDG_CONFIG_HOME": str(capture.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [read(packet["_source"]["layers"]) for packet in json.loads(done.stdout)]


def read(layers: Reading) -> Reading:
    """One packet's layers as our reading of a PDU. A frame that is not LLC gives an empty one."""
    eth, vlan, llc = layers["eth"], layers.get("vlan"), layers.get("llc")
    if llc is None:
        return {}
    dsap, ssap = number(llc["llc.dsap"]), number(llc["llc.ssap"])
    control, tree = number(llc["llc.control"]), llc["llc.control_tree"]
    frame_type = vlan.get("vlan.etype") if vlan else eth.get("eth.type")
    data = bytes.fromhex(layers.get("data", {}).get("data.data", "").replace(":", ""))
    reading: Reading = {
        "vlan": number(vlan["vlan.id"]) if vlan else None,
        "is_jumbo": frame_type is not None and number(frame_type) == ETHERTYPE_JUMBO,
        "dsap": dsap,
        "ssap": ssap & 0xFE,
        "is_group": flag(llc["llc.dsap_tree"]["llc.dsap.ig"]),
        "is_response": flag(llc["llc.ssap_tree"]["llc.ssap.cr"]),
        "data": data,
    }
    assert number(llc["llc.dsap_tree"]["llc.dsap.sap"]) == dsap >> 1
    assert number(llc["llc.ssap_tree"]["llc.ssap.sap"]) == ssap >> 1
    is_unnumbered = control & 3 == 3
    # The dissector leaves out a bit that is not set, and names one that is by its role (in an I PDU always P).
    bits = [flag(tree[name]) for name in ("llc.control.p", "llc.control.f") if name in tree]
    assert len(bits) <= 1
    reading["poll_final"] = any(bits)
    if is_unnumbered:
        name = f"llc.control.u_modifier_{'resp' if reading['is_response'] else 'cmd'}"
        reading["kind"] = UNNUMBERED.get(number(tree[name]))
    elif control & 3 == 1:
        reading |= {"kind": SUPERVISORY.get(number(tree["llc.control.s_ftype"])), "nr": number(tree["llc.control.n_r"])}
    else:
        reading |= {"kind": "I", "ns": number(tree["llc.control.n_s"]), "nr": number(tree["llc.control.n_r"])}
    header = 3 if is_unnumbered else 4
    if "basicxid" in layers:
        xid = layers["basicxid"]
        assert number(xid["basicxid.llc.xid.format"]) == 0x81
        kinds, window = number(xid["basicxid.llc.xid.types"]), number(xid["basicxid.llc.xid.wsize"])
        reading["xid"] = {"class": kinds, "window": window}
        header += 3
    if "llc.oui" in llc:
        data = bytes(5) + data  # the SNAP header, which tshark takes from the information field
    # Without a length field the frame ends where the data ends.
    length = eth.get("eth.len") or (vlan or {}).get("vlan.len")
    reading["length"] = header + len(data) if length is None else number(length)
    reading["information"] = len(data) - {"FRMR": 5}.get(reading["kind"], 0)
    if reading["kind"] in ("AC0", "AC1") and reading["is_response"]:
        reading["information"] -= 1
    return reading


def number(text: str) -> int:
    """A field's value, decimal or hexadecimal."""
    return int(text, 0)


def flag(text: str) -> bool:
    """A bit, as this and later versions of tshark write it."""
    return text in ("1", "True", "true")
