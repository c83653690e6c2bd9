# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The measurements in mpi/: each carries its data, records what it says, and tells wrong use from a wrong result.

Every program checks every byte of every variant and size by itself, and proves with `--corrupt` that it would notice.
"""

import json
import re
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from conftest import barewire
from mpi_libraries import FIXES, library, measurement, needs, run_here, started_alone, suite

pytestmark = pytest.mark.usefixtures("nothing_left")

SENDING = ("standard", "synchronous", "buffered", "ready")
# Each piece has a byte or more.
PIECES = {f"pieces-{count}": count for count in (2, 4, 8)}
VARIANTS = {
    "pingpong": [f"{how}-{mode}" for how in ("blocking", "nonblocking") for mode in SENDING],
    "stream": [f"{how}-receive{mode}" for how in ("blocking", "nonblocking") for mode in ("", "-synchronous")],
    "bidirectional": ["blocking-send", "nonblocking-send"],
    "bandwidth": ["blocking", *(f"queue-{depth}" for depth in (1, 2, 4, 8)), *PIECES],
    "rate": ["window"],
    "exchange": [
        *("blocking-receive", "nonblocking-receive-standard", "nonblocking-receive-synchronous"),
        *("sendrecv", "sendrecv-replace"),
    ],
    "alltoall": ["collective", "pairwise-sendrecv", "sendrecv-replace", "irecv-send", "irecv-isend"],
    "halo": ["irecv-isend", "neighbor-collective"],
}
QUANTITIES = {
    "pingpong": "half_round_trip",
    "stream": "arrival_interval",
    "bidirectional": "exchange",
    "bandwidth": "send_interval",
    "rate": "send_interval",
    "exchange": "exchange",
    "alltoall": "alltoall",
    "halo": "halo",
}
# Whose times are recorded: of each pair the first rank, the second, or both.
FIRST, SECOND = ("pingpong", "bandwidth", "rate"), ("stream",)
# Nothing; not a multiple of the words that contents are made of; several frames; beyond every eager limit.
SIZES = [0, 13, 5000, 150001]
# Windows of 64 of these are enough.
SIZES_OF_RATE = [0, 1, 5000]
FEW = ("--samples", "2", "--warmup", "1", "--seconds", "0")
# Each measurement once, over either fabric and under any library, more ranks than two where the pattern needs them; the
# other fabric and another library in `make matrix`.
LAUNCHES = [
    ("pingpong", "openmpi", "barewire", 2),
    ("pingpong", "intel", "barewire", 2),
    ("stream", "mpich-5", "tcp", 2),
    ("bidirectional", "mpich-5", "barewire", 2),
    ("bandwidth", "mpich-5", "barewire", 2),
    ("rate", "openmpi", "barewire", 2),
    ("exchange", "openmpi-5", "barewire", 2),
    ("alltoall", "mpich-5", "barewire", 3),
    ("halo", "openmpi", "barewire", 3),
    *(
        pytest.param(*launch, marks=pytest.mark.matrix)
        for launch in (
            ("pingpong", "mpich", "tcp", 2),
            ("stream", "openmpi-5", "barewire", 2),
            ("bidirectional", "openmpi", "tcp", 2),
            ("bandwidth", "openmpi-5", "tcp", 2),
            ("alltoall", "openmpi", "tcp", 3),
            ("rate", "mpich", "tcp", 2),
            ("exchange", "mpich", "tcp", 2),
            ("halo", "mpich-5", "tcp", 2),
            *(
                (test, name, fabric, 2)
                for test in ("stream", "bandwidth")
                for name, fabric in (("openmpi", "tcp"), ("openmpi", "barewire"), ("mpich", "tcp"))
            ),
            ("stream", "mpich-5", "barewire", 2),
            ("bandwidth", "mpich-5", "tcp", 2),
        )
    ),
]


def launch(
    test: str, name: str, *arguments: str, ranks: int = 2, path: tuple[str, ...] = ("--fabric", "shm")
) -> "subprocess.CompletedProcess[str]":
    """One program of the suite through `barewire run`; on this host without a lab unless `path` says otherwise."""
    command = ("run", "-n", str(ranks), *path, "--", measurement(name, test), *arguments)
    done = barewire(*command)
    # MPICH 5.0.2 cannot start ranks whose process numbers differ in length (docs/provider.md). Try again.
    return barewire(*command) if "MPIDIG_recv_type_init" in done.stderr and "truncated" in done.stderr else done


def read(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The start record and the samples of a complete file."""
    start, *records, end = [json.loads(line) for line in file.read_text().splitlines()]
    assert start["record"] == "start" and start["schema"] == "barewire-mpi/1"
    assert end == {"record": "end", "complete": True}
    samples = [record for record in records if record["record"] == "samples"]
    left_out = {(record["variant"], record["message_bytes"]) for record in records if record["record"] == "left_out"}
    too_short = {(variant, size) for variant, size in left_out if size < PIECES.get(variant, 0)}
    assert left_out == too_short and len(samples) + len(left_out) == len(records)
    return start, samples


def timed_ranks(test: str, ranks: int, pairs: int) -> set[int]:
    """The ranks that record."""
    first, second = set(range(pairs)), set(range(ranks // 2, ranks // 2 + pairs))
    if test in ("alltoall", "halo"):
        return set(range(ranks))
    return first if test in FIRST else second if test in SECOND else first | second


def judge(test: str, file: Path, ranks: int, pairs: int, sizes: list[int]) -> None:
    """Every variant and size was measured on the right ranks, in stretches that the clock can tell."""
    start, samples = read(file)
    assert start["test"] == test and start["ranks"] == ranks == len(start["hosts"]) == len(start["cpus"])
    assert start["clock_resolution_ns"] > 0 and start["library"]
    measured = [record for record in samples if record["phase"] == "measure"]
    expected = {
        (variant, size, rank)
        for variant in VARIANTS[test]
        for size in sizes
        for rank in timed_ranks(test, ranks, pairs)
        if size >= PIECES.get(variant, 0)
    }
    assert {(record["variant"], record["message_bytes"], record["rank"]) for record in measured} == expected
    assert len(measured) == len(expected)
    warm = [record for record in samples if record["phase"] == "warmup"]
    assert {(record["variant"], record["message_bytes"], record["rank"]) for record in warm} == expected
    for record in measured:
        assert record["quantity"] == QUANTITIES[test] and record["unit"] == "ns" and record["pairs"] == pairs
        assert len(record["values"]) == 2 and min(record["values"]) > 0
        stretch_ns = median(record["values"]) * record["inner"] * (2 if test == "pingpong" else 1)
        assert stretch_ns >= 100 * start["clock_resolution_ns"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("openmpi", "mpich-5") else pytest.mark.matrix) for name in FIXES]
)
def test_the_suite_builds_without_a_warning(name: str) -> None:
    """By -Wall -Wextra -Wshadow -Werror, with each library's own compiler and headers."""
    built = suite(name)
    assert all((built / test).is_file() for test in VARIANTS)


@pytest.mark.usefixtures("lab_allowed")
@pytest.mark.parametrize(("test", "name", "fabric", "ranks"), LAUNCHES)
def test_each_variant_carries_its_data(test: str, name: str, fabric: str, ranks: int, tmp_path: Path) -> None:
    """Each byte of each message, of no byte and of many, over both fabrics."""
    library(name)
    needs(fabric)
    file = tmp_path / "records"
    sizes = SIZES_OF_RATE if test == "rate" else SIZES
    listed = ",".join(map(str, sizes))
    in_lab = ("--lab", "pair", "--fabric", fabric)
    done = launch(test, name, "--sizes", listed, *FEW, "--output", str(file), ranks=ranks, path=in_lab)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    judge(test, file, ranks, 1, sizes)


@pytest.mark.usefixtures("lab_allowed")
@pytest.mark.parametrize(("asked", "pairs"), [("1", 1), ("0", 2)])
def test_some_pairs_or_all_measure_at_once(asked: str, pairs: int, tmp_path: Path) -> None:
    """With one of two pairs the other one sleeps and records nothing; 0 is the bisection."""
    file = tmp_path / "records"
    arguments = ("--sizes", "100", "--pairs", asked, *FEW, "--output", str(file))
    done = launch("exchange", "openmpi", *arguments, ranks=4, path=("--lab", "star:4", "--fabric", "tcp"))
    assert done.returncode == 0, done.stderr
    judge("exchange", file, 4, pairs, [100])


@pytest.mark.parametrize(("test", "ranks"), [("alltoall", 5), ("alltoall", 6), ("halo", 9)])
def test_any_number_of_ranks_finds_its_peers(test: str, ranks: int, tmp_path: Path) -> None:
    """Tournaments of an odd number and of an even one but no power of two; a grid in which all neighbours differ."""
    file = tmp_path / "records"
    done = launch(test, "openmpi", "--sizes", "9", *FEW, "--output", str(file), ranks=ranks)
    assert done.returncode == 0, done.stderr
    judge(test, file, ranks, 1, [9])


def test_the_defaults_of_b_eff_are_those_of_its_definition(tmp_path: Path) -> None:
    file = tmp_path / "records"
    done = launch("beff", "openmpi", "--rings", "1", "--output", str(file))
    assert done.returncode == 0, done.stderr
    times = [record for record in read(file)[1] if record["quantity"] == "time" and record["phase"] == "measure"]
    assert {record["message_bytes"] for record in times} == {8, 2000000}
    assert {len(record["values"]) for record in times} == {3}


def test_buffers_that_walk_through_memory_are_checked_too(tmp_path: Path) -> None:
    file = tmp_path / "records"
    for test in ("bandwidth", "alltoall"):
        done = launch(test, "openmpi", "--sizes", "0,3000", "--walk-bytes", "100000", *FEW, "--output", str(file))
        assert done.returncode == 0, done.stderr
        judge(test, file, 2, 1, [0, 3000])


def test_a_test_can_run_twice_in_one_job(tmp_path: Path) -> None:
    """The second has its own partners, neighbours and options, not those of the first as well."""
    program = measurement("openmpi", "several")
    alltoall = ("alltoall", "--sizes", "9", *FEW, "--output")
    files = tmp_path / "first", tmp_path / "second"
    command = (*alltoall, str(files[0]), "+", *alltoall, str(files[1]))
    done = barewire("run", "-n", "3", "--fabric", "shm", "--", program, *command)
    assert done.returncode == 0, done.stderr
    for file in files:
        judge("alltoall", file, 3, 1, [9])
    rate, files = ("rate", "--sizes", "8", *FEW, "--output"), (tmp_path / "third", tmp_path / "fourth")
    command = (*rate, str(files[0]), "--window", "8", "+", *rate, str(files[1]))
    done = barewire("run", "-n", "2", "--fabric", "shm", "--", program, *command)
    assert done.returncode == 0, done.stderr
    assert [read(file)[1][0]["window"] for file in files] == [8, 64]
    graph = ("neighbourhood", "--variants", "graph-alltoallv", *FEW, "--output", "/dev/null", "--sizes")
    done = barewire(
        "run", "-n", "2", "--fabric", "shm", "--", program, *graph, "0", "+", *graph, "1000", "--corrupt", "1"
    )
    assert done.returncode == 1 and "byte 500 of 1000" in done.stderr, done.stderr


@pytest.mark.parametrize(("test", "name"), [("pingpong", "openmpi"), ("alltoall", "mpich-5"), ("halo", "openmpi-5")])
def test_a_wrong_byte_ends_the_run_and_is_named(test: str, name: str) -> None:
    """The third message that a rank checks gets its middle byte flipped: of 1000 bytes, byte 500."""
    done = launch(test, name, "--sizes", "1000", *FEW, "--corrupt", "3", "--output", "/dev/null")
    assert done.returncode == 1
    found = re.search(r"rank (\d), seed 1: WRONG RESULT: (\S+), message from rank (\d): (byte \d+ of \d+)", done.stderr)
    assert found, done.stderr
    assert found[2] in VARIANTS[test] and found[4] == "byte 500 of 1000"
    assert test != "pingpong" or found[1] != found[3]


@pytest.mark.parametrize(
    ("test", "ranks", "arguments", "code", "says"),
    [
        ("pingpong", 3, (), 2, "needs an even number of ranks, not 3"),
        ("exchange", 2, ("--pairs", "2"), 2, "--pairs 2 needs twice as many ranks; there are 2"),
        ("rate", 2, ("--window", "0"), 2, "--window must be from 1 to 65536, not 0"),
        ("pingpong", 2, ("--sizes", "2147483647"), 2, "buffered mode takes messages of up to"),
        ("stream", 2, ("--output", "/nowhere/at/all"), 3, "cannot write /nowhere/at/all: No such file or directory;"),
        ("halo", 2, ("--sizes", "8", "--output", "/dev/full", *FEW), 3, "is the disk full?"),
    ],
)
def test_what_cannot_be_is_said_once(test: str, ranks: int, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = run_here(test, *arguments, ranks=ranks)
    assert done.returncode == code, done.stderr
    assert done.stderr.count(f"{test}: ") == 1 and says in done.stderr


def test_more_memory_than_there_is_is_this_machines_limit() -> None:
    done = launch("stream", "openmpi", "--walk-bytes", str(1 << 40), "--output", "/dev/null")
    assert done.returncode == 3, done.stderr
    assert re.search(r"stream: rank \d: no memory for 10995\d+ bytes: use smaller --sizes", done.stderr)


def alone(test: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A program without a launcher: one rank that MPI starts by itself."""
    return started_alone(measurement("openmpi", test), *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "needs 2 ranks or more, not 1"),
        (("--speed", "1"), "unknown option --speed; --help lists them"),
        (("fast",), "'fast' is no option; --help lists them"),
        (("--sizes",), "--sizes needs a value, or is unknown"),
        (("--sizes", "8,-1"), "--sizes must be a number from 0 to 2147483647, not '-1'"),
        (("--sizes", "8,2147483648"), "--sizes must be a number from 0 to 2147483647, not '2147483648'"),
        (("--sizes", "8,,9"), "--sizes must be a number from 0 to 2147483647, not ''"),
        (("--variants", "window,best"), "no variant 'best'; --help lists them"),
        (("--samples", "0"), "--samples must be 1 or more"),
        (("--seconds", "soon"), "--seconds must be a number, 0 or more, not 'soon'"),
        (("--seconds", "-1"), "--seconds must be a number, 0 or more, not '-1'"),
        (("--pairs", "1e3"), "--pairs must be a number from 0 to"),
    ],
)
def test_wrong_options_are_named(arguments: tuple[str, ...], says: str) -> None:
    done = alone("rate", *arguments)
    assert done.returncode == 2 and f"rate: {says}" in done.stderr, done.stderr


@pytest.mark.parametrize("test", VARIANTS)
def test_help_lists_variants_and_options(test: str) -> None:
    done = alone(test, "--help")
    assert done.returncode == 0, done.stderr
    assert set(VARIANTS[test]) <= set(done.stdout.split())
    own = {"rate": ["--window"]}.get(test, [])
    paired = [] if test in ("alltoall", "halo") else ["--pairs"]
    for option in ("--variants", "--sizes", "--corrupt", "--output", *own, *paired):
        assert option in done.stdout
