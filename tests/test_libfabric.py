# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The probe's transports above the endpoint: the message layer, and libfabric over our own and other providers."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from conftest import PROBE, barewire, bench_json

pytestmark = pytest.mark.usefixtures("nothing_left")

SHORT = ("--launches", "1", "--samples", "100", "--warmup", "10", "--blocks", "3", "--seconds", "0.05")
# One byte, what just fits a frame and what just does not, eager and announced, many frames.
SIZES = "1,1436,1437,16384,16385,1048576"
FEW_SIZES = "8,20000,300000"


def has_libfabric() -> bool:
    try:
        ctypes.CDLL("libfabric.so.1")
    except OSError:
        return False
    return True


needs_libfabric = pytest.mark.skipif(not has_libfabric(), reason="needs libfabric: apt install libfabric1")


@pytest.mark.parametrize(
    ("transports", "sizes_of_all"),
    [
        pytest.param("messages", SIZES, marks=pytest.mark.matrix),
        pytest.param("libfabric", SIZES, marks=needs_libfabric),
        # What is measured beside ours.
        pytest.param("libfabric-tcp,libfabric-udp", FEW_SIZES, marks=[needs_libfabric, pytest.mark.matrix]),
    ],
)
def test_messages_of_all_lengths_arrive_whole_in_every_test(transports: str, sizes_of_all: str, tmp_path: Path) -> None:
    """Every payload is checked: one wrong byte fails the run."""
    document = bench_json(
        "pingpong,stream,bidirectional", "--transport", transports, "--sizes", sizes_of_all, *SHORT,
        "-o", str(tmp_path / "r"),
    )  # fmt: skip
    names = transports.split(",")
    found = {(one["test"], one["subject"], one["message_bytes"]) for one in document["series"] if one["samples"]}
    sizes = [int(size) for size in sizes_of_all.split(",")]
    tests = ("pingpong", "stream", "bidirectional")
    assert found >= {(test, name, size) for test in tests for name in names for size in sizes}
    assert all(one["lost"] == 0 for one in document["series"] if one["subject"] in names)


@needs_libfabric
def test_the_record_says_which_way_messages_really_took(tmp_path: Path) -> None:
    """Our own provider on the lab's interface, and TCP with what libfabric layers over it."""
    document = bench_json(
        "pingpong", "--transport", "libfabric,libfabric-tcp", "--sizes", "8", *SHORT, "-o", str(tmp_path / "r")
    )
    paths = {launch["subject"]: launch["start"].get("path") or "" for launch in document["launches"]}
    assert "provider barewire, fabric ethernet, domain eth0" in paths["libfabric"]
    assert "provider tcp;ofi_rxm" in paths["libfabric-tcp"]
    limits = {one["subject"]: one["limit_kind"] for one in document["series"]}
    assert limits["libfabric"] == limits["libfabric-tcp"] == "floor"


@pytest.mark.parametrize("wait", [pytest.param("adaptive", marks=pytest.mark.matrix), "block"])
def test_who_sleeps_is_woken(wait: str, tmp_path: Path) -> None:
    transports = "messages,libfabric,libfabric-tcp" if has_libfabric() else "messages"
    document = bench_json(
        "pingpong,stream", "--transport", transports, "--wait", wait, "--sizes", "64,65536", *SHORT,
        "-o", str(tmp_path / "r"),
    )  # fmt: skip
    expected = {f"{name}/{wait}" for name in transports.split(",")}
    assert {one["subject"] for one in document["series"] if one["samples"]} >= expected


@pytest.mark.matrix
def test_several_at_once_in_one_process_and_in_several(tmp_path: Path) -> None:
    """Two endpoints in a process; and processes whose streams end by time, a receive still posted."""
    transports = "messages,libfabric" if has_libfabric() else "messages"
    document = bench_json(
        "pingpong,stream", "--transport", transports, "--pairs", "2", "--sizes", "64", *SHORT, "-o", str(tmp_path / "a")
    )
    assert all(one["pairs"] == 2 and one["samples"] for one in document["series"])
    document = bench_json(
        "pingpong,stream", "--transport", transports, "--processes", "1,2", "--sizes", "64,65536", *SHORT,
        "-o", str(tmp_path / "b"),
    )  # fmt: skip
    assert {one["processes"] for one in document["series"]} == {1, 2}
    assert all(one["samples"] for one in document["series"])


def test_the_eager_limit_is_a_choice_of_a_launch(tmp_path: Path) -> None:
    """Announced, 16 KiB take a round trip more than at once, which is more than the noise of any machine."""
    medians = []
    for number, limit in enumerate((1 << 20, 0)):
        document = bench_json(
            "pingpong", "--transport", "messages", "--sizes", "4096", "--tuned", f"eager_bytes={limit}", "--launches",
            "3", "--samples", "500", "--seconds", "0.1", "-o", str(tmp_path / str(number)),
        )  # fmt: skip
        assert document["parameters"]["tuned"] == {"eager_bytes": limit}
        medians.append(next(one["median"] for one in document["series"] if one["subject"] == "messages"))
    assert medians[0] < medians[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--transport", "messages", "--tuned", "eager_bytes=1048577"), "eager_bytes must be at most 1 MiB"),
        (("--transport", "messages", "--tuned", "eager=1"), "no value of this name"),
        (("--transport", "messages", "--tuned", "eager_bytes=much"), "NAME=NUMBER"),
        (("--transport", "tcp", "--tuned", "eager_bytes=1"), "endpoint and messages"),
        (("--transport", "libfabric-"), "libfabric-NAME"),
        (("--transport", "libfabric-barewire"), "libfabric-NAME"),
        (("--transport", "messages", "--wait", "busypoll"), "busy-polled"),
        (("--transport", "messages", "--sizes", "8GiB"), "8GiB"),
    ],
)
def test_wrong_use_is_told(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = barewire("bench", "pingpong", *arguments, "-o", str(tmp_path / "run"))
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--provider", "tcp;ofi_rxm"), "--transport libfabric"),
        (("--tuned", "window=3"), "--tuned is for endpoint and messages"),
        (("--transport", "libfabric", "--link", "xdp"), "FI_BAREWIRE_LINK"),
    ],
)
def test_options_of_others_are_refused_by_the_probe(arguments: tuple[str, ...], said: str) -> None:
    command = [PROBE, "pingpong", "--peer", "unix:/nonexistent", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and said in done.stderr


@needs_libfabric
def test_a_provider_that_there_is_not_is_something_that_the_machine_lacks(tmp_path: Path) -> None:
    done = barewire("bench", "pingpong", "--transport", "libfabric-nosuch", *SHORT, "-o", str(tmp_path / "run"))
    assert done.returncode == 3, done.stderr
    said = " ".join(done.stderr.split())
    assert "no provider 'nosuch'" in said and "fi_info -l" in said


@needs_libfabric
def test_without_our_provider_it_is_said_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    environment = {**os.environ, "FI_PROVIDER_PATH": str(tmp_path / "empty")}
    done = barewire("bench", "pingpong", "--transport", "libfabric", *SHORT, "-o", str(tmp_path / "r"), env=environment)
    assert done.returncode == 3, done.stderr
    said = " ".join(done.stderr.split())
    assert "no provider 'barewire'" in said and "FI_PROVIDER_PATH" in said and "make build" in said


def test_without_libfabric_only_what_needs_it_fails_and_says_what_to_install(tmp_path: Path) -> None:
    environment = {**os.environ, "BAREWIRE_LIBFABRIC": "/nonexistent/libfabric.so.1"}
    done = barewire("bench", "pingpong", "--transport", "libfabric", *SHORT, "-o", str(tmp_path / "a"), env=environment)
    assert done.returncode == 3, done.stderr
    assert "apt install libfabric1" in " ".join(done.stderr.split())
    done = barewire(
        "bench", "pingpong", "--transport", "tcp,messages", *SHORT, "-o", str(tmp_path / "b"), env=environment
    )
    assert done.returncode == 0, done.stderr
