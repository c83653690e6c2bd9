# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MPI jobs whose frames are authenticated or encrypted, and what others on the segment see of them.

The crate's own tests (crates/endpoint/tests/endpoint/authentication.rs) throw forged, changed and repeated frames.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import aegis
import pytest
from conftest import barewire, stand_up
from mpi_libraries import library, needs, program
from test_endpoint import CAPTURE

from barewire import installed
from barewire.mpi import FabricOptions
from barewire.mpi.fabrics import SECRET
from barewire.mpi.prepare import prepare
from barewire.mpi.start import run as run_job

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

# The draft's vectors for AEGIS-128L: associated data, message, ciphertext, tag.
KEY, NONCE = bytes.fromhex("10010000000000000000000000000000"), bytes.fromhex("10000200000000000000000000000000")
VECTORS = [
    ("", "00" * 16, "c1c0e58bd913006feba00f4b3cc3594e", "abe0ece80c24868a226a35d16bdae37a"),
    ("", "", "", "c2b879a67def9d74e6c14f708bbcc9b4"),
    ("0001020304050607", bytes(range(14)).hex(), "79d94593d8c2119d7e8fd9b8fc77", "5c04b3dba849b2701effbe32c7f0fab7"),
    (
        bytes(range(0x2A)).hex(),
        bytes(range(0x10, 0x38)).hex(),
        "b31052ad1cca4e291abcf2df3502e6bdb1bfd6db36798be3607b1f94d34478aa7ede7f7a990fec10",
        "7542a745733014f9474417b337399507",
    ),
]


def test_the_oracle_agrees_with_the_drafts_vectors() -> None:
    read = bytes.fromhex
    for data, message, ciphertext, tag in VECTORS:
        assert aegis.decrypt(KEY, NONCE, read(ciphertext), read(data)) == (read(message), read(tag))
    # RFC 5869, test case 1.
    key = aegis.hkdf(bytes(range(13)), b"\x0b" * 22, bytes(range(0xF0, 0xFA)))
    assert key.hex() == "3cb25f25faacd57a90434f64d0362f2a"


@pytest.mark.parametrize("auth", ["job", "encrypt"])
@pytest.mark.parametrize("name", ["openmpi", "mpich-5"])
def test_programs_get_their_messages_over_authenticated_frames(name: str, auth: str) -> None:
    """All kinds of messages between three ranks, two of them on one host; the program checks each byte."""
    needs("barewire")
    done = barewire("run", "-n", "3", "--lab", "pair", "--auth", auth, "--", program(name, "messages"), "7")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines and all(line["test"] == "messages" for line in lines)


def captured_job(auth: str) -> tuple[list[bytes], bytes]:
    """The LLC frames that either host receives of a ping-pong, and the secret of its job."""
    with stand_up("pair") as lab:
        requested, shares = FabricOptions(auth=auth), [("h1", 1), ("h2", 1)]
        job = prepare(library("openmpi"), requested, shares, [program("openmpi", "pingpong"), "20", "8192"], lab)
        listeners = [
            lab.popen(host, [sys.executable, "-c", CAPTURE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for host in ("h1", "h2")
        ]
        for listener in listeners:
            assert listener.stdout is not None and listener.stdout.readline()
        assert run_job(job, lab) == 0
        lines = [line for listener in listeners for line in listener.communicate(timeout=20)[0].splitlines()]
    secrets = [setting.value for setting in job.settings if setting.name == SECRET]
    frames = map(bytes.fromhex, lines)
    ours = [frame for frame in frames if frame[12:14] == b"\x88\x70" or int.from_bytes(frame[12:14], "big") <= 1500]
    return ours, bytes.fromhex("".join(secrets))


@pytest.mark.parametrize("auth", [pytest.param("job", marks=pytest.mark.matrix), "encrypt"])
def test_a_capture_verifies_and_what_is_encrypted_is_read_with_the_secret_only(auth: str) -> None:
    """By an implementation of the standards that shares nothing with the product's."""
    needs("barewire")
    frames, secret = captured_job(auth)
    assert len(secret) == 32
    encrypts = auth == "encrypt"
    # Questions by what the peer is reached have a tag of their own.
    questions = [frame for frame in frames if frame[17:21] == b"BWPA"]
    frames = [frame for frame in frames if frame not in questions]
    assert questions and not any(secret in frame for frame in questions)
    # The oracle is slow: of I and S PDUs the longest, and some of the others.
    numbered = sorted((frame for frame in frames if frame[16] & 3 != 3), key=len, reverse=True)
    chosen = numbered[:40] + numbered[40 :: max(1, len(numbered) // 150)]
    chosen += [frame for frame in frames if frame[16] & 3 == 3]
    kinds: Counter[str] = Counter()
    for frame in chosen:
        opened = aegis.open_frame(frame, secret, encrypts=encrypts)
        assert opened.is_right, frame.hex()
        assert not aegis.open_frame(frame, bytes(32), encrypts=encrypts).is_right
        kinds[opened.kind] += 1
        if len(opened.information) > 1000:
            assert (opened.information in frame) == (not encrypts)
            kinds["long"] += 1
    # Acknowledgements ride on data, or not, as the ranks' turns fall.
    assert kinds["I"] > 50 and kinds["SABME"] + kinds["UA"] and kinds["long"] > 20, kinds
    assert not any(secret in frame or secret.hex().encode() in frame for frame in frames)


def test_ranks_that_are_not_authenticated_alike_say_so_and_do_not_hang(tmp_path: Path) -> None:
    """A wrapper takes the setting from one of two ranks."""
    needs("barewire")
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && unset FI_BAREWIRE_AUTH\nexec "$@"\n')
    wrapper.chmod(0o755)
    command = ("run", "-n", "2", "--lab", "pair", "--auth", "job", "--library", "openmpi", "--")
    done = barewire(*command, str(wrapper), program("openmpi", "pingpong"), "10", "8", timeout=60)
    assert done.returncode != 0
    assert re.search(
        r"barewire: the peer has FI_BAREWIRE_AUTH=(none, this process job|job, this process none)", done.stderr
    )


def plainly_started(name: str, *options: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """A job of two ranks on this host by the library's own launcher: to be authenticated, and told no secret."""
    settings = {
        "FI_PROVIDER_PATH": str(installed.PROVIDER),
        "FI_PROVIDER": "barewire",
        "FI_BAREWIRE_AUTH": "job",
        "FI_BAREWIRE_INTERFACE": "lo",
        "FI_LOG_LEVEL": "info",
    }
    command = [library(name).program("mpirun"), "-n", "2", *options, program(name, "pingpong"), "10", "8"]
    environment = os.environ | settings | more
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_open_mpi_4_brings_a_secret_of_its_own() -> None:
    needs("barewire")
    exported = [word for name in ("PROVIDER_PATH", "PROVIDER", "BAREWIRE_AUTH") for word in ("-x", f"FI_{name}")]
    options = ["--allow-run-as-root", "--oversubscribe", *exported]
    done = plainly_started("openmpi", *options, OMPI_MCA_pml="cm", OMPI_MCA_mtl="ofi")
    assert done.returncode == 0 and "secret from Open MPI's transport key" in done.stderr, done.stderr[-2000:]


def test_a_launcher_without_a_secret_is_refused_with_what_to_do() -> None:
    needs("barewire")
    done = plainly_started("mpich-5", MPIR_CVAR_CH4_NETMOD="ofi")
    said = [line for line in done.stderr.splitlines() if line.startswith("barewire: FI_BAREWIRE_AUTH=job, and this")]
    assert done.returncode != 0 and len(said) == 1, done.stderr[-2000:]
    assert "barewire run --auth job" in said[0] and "FI_BAREWIRE_SECRET" in said[0]
