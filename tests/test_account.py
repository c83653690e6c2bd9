# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Captures of MPI jobs in the lab, dissected by tshark with Barewire's dissector and accounted for."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import BAREWIRE, ROOT, barewire, eventually, processes_with
from mpi_libraries import needs, program

from barewire import installed
from barewire.account.tshark import DISSECTOR
from barewire.mpi.fabrics import PROVIDER_FILE

pytestmark = [
    pytest.mark.usefixtures("lab_allowed", "nothing_left"),
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is missing: apt-get install tshark"),
]

TRIPS, BYTES = 20, 1426
ERROR = "8388608"  # of `_ws.expert.severity`


def captured(file: Path, *options: str, source: str = "one_size", count: int = TRIPS, size: int = BYTES) -> str:
    """Capture a ping-pong of messages of one size, or another program; what `barewire run` said."""
    job = ("-n", "2", "--lab", "pair", "--capture", str(file), *options)
    done = barewire("run", *job, "--", program("openmpi", source), str(count), str(size))
    assert done.returncode == 0, done.stderr
    return done.stderr


def accounts(file: Path, *options: str) -> dict[str, Any]:
    done = barewire("account", str(file), *options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def dissected(file: Path) -> list[dict[str, str]]:
    """The fields of each frame, with each check computed.

    In two passes: that a connection is encrypted shows after a few of its frames at the latest, and then for all.
    """
    fields = ("pdu", "version", "check", "seal", "encrypted", "message", "message.tag", "bytes.payload")
    names = [f"barewire.{field}" for field in fields] + [
        "udp.dstport",
        "llc.dsap",
        "_ws.malformed",
        "_ws.expert.severity",
    ]
    command = ["tshark", "-2", "-n", "-r", str(file), "-X", f"lua_script:{DISSECTOR}", "-o", "barewire.verify:TRUE"]
    command += [
        "-o",
        "udp.try_heuristic_first:TRUE",
        "-T",
        "fields",
        *(word for name in names for word in ("-e", name)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "Lua" not in done.stderr, done.stderr
    keys = [name.removeprefix("barewire.") for name in names]
    return [dict(zip(keys, line.split("\t"), strict=True)) for line in done.stdout.splitlines()]


def provider_number(name: str) -> int:
    library = ctypes.CDLL(str(installed.PROVIDER / PROVIDER_FILE))
    return ctypes.c_uint8.in_dll(library, name).value


def test_open_mpi_over_tcp_has_22_bytes_of_mpi_32_of_tcp_and_20_of_ip(tmp_path: Path) -> None:
    """As Paz found in 2010: 1426 bytes are the longest message in one frame. What launching takes is told apart."""
    file = tmp_path / "tcp.pcapng"
    said = captured(file, "--fabric", "tcp")
    assert "none lost" in said and f"barewire account {file}" in said
    found = accounts(file, "--message-bytes", str(BYTES))
    assert found["mpi_envelope"] == {"message_bytes": BYTES, "envelope_bytes": 22, "segments": 2 * TRIPS}
    commonest = found["typical_frames"][0]
    layers = {layer: count for layer, count in commonest["layers_bytes"].items() if count}
    assert layers == {"ethernet": 38, "ip": 20, "tcp": 32, "mpi": 22, "payload": BYTES}
    assert commonest["frames"] == 2 * TRIPS
    phases = found["phases"]
    assert phases["data"]["payload_bytes"] == 2 * TRIPS * BYTES == found["total"]["payload_bytes"]
    assert phases["launch"]["layers_bytes"]["launcher"] > 0 and phases["launch"]["payload_bytes"] == 0
    # Each connection between ranks has a handshake.
    assert phases["connect"]["frames"] >= 2 and phases["end"]["frames"] >= 2
    assert {(pair["from"], pair["to"]) for pair in found["pairs"]} >= {("h1", "h2"), ("h2", "h1")}
    assert found["complete"] and found["notes"] == []
    text = barewire("account", str(file), "--message-bytes", str(BYTES))
    assert text.returncode == 0 and "adds 22 B to a message of 1426 B" in text.stdout


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), marks=pytest.mark.matrix),
        ("--auth", "encrypt"),
        pytest.param(("--link", "udp"), marks=pytest.mark.matrix),
        pytest.param(("--auth", "job"), marks=pytest.mark.matrix),
    ],
)
def test_over_barewire_every_frame_is_dissected_as_it_was_sent(tmp_path: Path, options: tuple[str, ...]) -> None:
    """No frame is malformed, each check is right, tags and lengths are the program's, the version is the provider's."""
    needs("barewire")
    file = tmp_path / "barewire.pcapng"
    captured(file, *options)
    frames = dissected(file)
    assert not [frame for frame in frames if frame["_ws.malformed"] or ERROR in frame["_ws.expert.severity"]]
    ours = [frame for frame in frames if frame["llc.dsap"] or frame["udp.dstport"]]
    assert ours and all(frame["pdu"] for frame in ours)
    versions = {frame["version"] for frame in ours if frame["version"]}
    assert versions == {str(provider_number("BAREWIRE_WIRE_VERSION"))}
    found = accounts(file)
    data = found["phases"]["data"]
    assert (data["layers_bytes"]["udp"] > 0, data["layers_bytes"]["seal"] > 0) == (
        "udp" in options,
        "--auth" in options,
    )
    assert found["phases"]["connect"]["layers_bytes"]["barewire"] > 0
    assert found["phases"]["launch"]["layers_bytes"]["launcher"] > 0
    if "encrypt" in options:
        assert not any(frame["message"] for frame in frames)
        # On a busy machine the capture lacks a frame now and then.
        assert sum(frame["encrypted"] != "" for frame in frames) > TRIPS and "encrypted" in found["notes"][0]
        return
    eager = [frame for frame in ours if frame["message"] == "eager"]
    # The MPI tag is the lowest part of libfabric's.
    sizes = {
        tag: [frame["bytes.payload"] for frame in eager if int(frame["message.tag"] or "0", 0) % (1 << 16) == tag]
        for tag in (77, 78)
    }
    assert sizes == {77: [str(BYTES)] * TRIPS, 78: [str(BYTES)] * TRIPS}
    assert all((frame["seal"] != "") == ("job" in options) for frame in eager)
    assert data["payload_bytes"] == 2 * TRIPS * BYTES


def test_a_lossy_link_is_seen_in_what_is_repeated(tmp_path: Path) -> None:
    """Frames are captured before they are lost, so each repetition is there beside what it repeats."""
    needs("barewire")
    file = tmp_path / "lossy.pcapng"
    captured(file, "--loss", "2%", count=300)
    found = accounts(file)
    repeated = found["repeated"]["barewire"]
    assert repeated["frames"] > 0 and repeated["layers_bytes"]["repeated"] > 0
    assert found["phases"]["data"]["payload_bytes"] == 2 * 300 * BYTES


def test_what_tcp_repeats_is_what_wireshark_finds(tmp_path: Path) -> None:
    """Its analysis of sequence numbers, which `barewire account` does without, tells retransmissions by other rules."""
    file = tmp_path / "lossy.pcapng"
    captured(file, "--fabric", "tcp", "--loss", "3%", source="stream", count=3, size=16384)
    kinds = ("retransmission", "fast_retransmission", "spurious_retransmission", "out_of_order")
    wanted = f"tcp.len > 0 && ({' || '.join(f'tcp.analysis.{kind}' for kind in kinds)})"
    command = ["tshark", "-2", "-n", "-r", str(file), "-Y", wanted, "-T", "fields", "-e", "tcp.len"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    theirs = [int(length) for length in done.stdout.split()]
    repeated = accounts(file)["repeated"]["tcp"]
    assert (repeated["frames"], repeated["layers_bytes"]["repeated"]) == (len(theirs), sum(theirs))
    assert len(theirs) > 0


def test_a_capture_ends_with_a_job_that_crashes_and_the_exit_code_is_the_programs(tmp_path: Path) -> None:
    file = tmp_path / "crash.pcapng"
    done = barewire(
        "run",
        "-n",
        "2",
        "--lab",
        "pair",
        "--fabric",
        "tcp",
        "--library",
        "openmpi",
        "--capture",
        str(file),
        "--",
        "false",
    )
    assert done.returncode == 1 and "none lost" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["crash.pcapng"]
    assert accounts(file)["total"]["frames"] > 0


def test_a_capture_ends_with_a_job_that_is_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "interrupted.pcapng"
    command = ["run", "-n", "2", "--lab", "pair", "--fabric", "tcp", "--library", "openmpi", "--capture", str(file)]
    parts = [tmp_path / f"{file.name}.{host}" for host in ("h1", "h2")]
    with subprocess.Popen([BAREWIRE, *command, "--", "sleep", "60"], stderr=subprocess.PIPE, text=True) as run:
        assert eventually(lambda: all(part.exists() and part.stat().st_size > 1000 for part in parts), 20)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130 and "none lost" in said
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_dumpcap_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """In a lab that outlives the run."""
    made = barewire("lab", "up", "--topology", "pair", "--json")
    assert made.returncode == 0, made.stderr
    lab = json.loads(made.stdout)["id"]
    try:
        file = tmp_path / "killed.pcapng"
        command = ["run", "-n", "2", "--lab", lab, "--fabric", "tcp", "--library", "openmpi", "--capture", str(file)]
        marked = dict(os.environ) | {"BAREWIRE_TEST_MARK": str(tmp_path)}
        with subprocess.Popen([BAREWIRE, *command, "--", "sleep", "60"], env=marked) as run:
            parts = [tmp_path / f"killed.pcapng.{host}" for host in ("h1", "h2")]
            assert eventually(lambda: all(part.exists() and part.stat().st_size > 500 for part in parts), 20)
            run.send_signal(signal.SIGKILL)

        def is_dumpcap(process: str) -> bool:
            try:
                return Path(f"/proc/{process}/comm").read_text().strip() == "dumpcap"
            except (FileNotFoundError, ProcessLookupError):
                return False

        assert eventually(lambda: not any(map(is_dumpcap, processes_with(f"BAREWIRE_TEST_MARK={tmp_path}"))))
    finally:
        assert barewire("lab", "down", lab).returncode == 0


def test_what_cannot_be_captured_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "a.pcapng"
    job = ("run", "-n", "2", "--library", "openmpi", "--capture", str(file))
    done = barewire(*job, "--", "true")
    assert done.returncode == 2 and "add --lab" in done.stderr
    done = barewire(*job, "--lab", "pair", "--offloads", "on", "--", "true")
    assert done.returncode == 2 and "omit --offloads on" in done.stderr
    done = barewire(*job[:-1], str(tmp_path / "no" / "a"), "--lab", "pair", "--", "true")
    assert done.returncode == 2 and "cannot be written" in done.stderr
    (tmp_path / "ldd").symlink_to(shutil.which("ldd") or "")
    without = dict(os.environ) | {"PATH": str(tmp_path)}
    command = [sys.executable, "-m", "barewire", *job, "--lab", "pair", "--", shutil.which("true") or ""]
    done = subprocess.run(command, env=without, capture_output=True, text=True, check=False, cwd=ROOT / "python")
    assert done.returncode == 3 and "dumpcap is missing: apt install tshark" in done.stderr, done.stderr
