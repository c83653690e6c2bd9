# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The measurements of what MPI has beyond pairs of messages: collectives, one-sided operations, datatypes and others.

Each carries its data under real libraries and over both fabrics, and `--corrupt` proves that its check would notice.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mpi_libraries import library, needs, run_here
from test_mpi_suite import FEW, alone, launch, read

pytestmark = pytest.mark.usefixtures("nothing_left")

COLLECTIVES = (
    *("bcast", "reduce", "allreduce", "reduce-scatter", "gather", "gatherv", "scatter", "scatterv"),
    *("allgather", "allgatherv", "alltoall", "alltoallv", "scan"),
)
METHODS = ("fence", "pscw", "lock", "flush")
OF_WORDS = tuple(f"{access}-{method}" for access in ("fetch-and-op", "compare-and-swap") for method in METHODS)
VARIANTS = {
    "collective": COLLECTIVES,
    "nonblocking": COLLECTIVES,
    "neighbourhood": tuple(
        f"{topology}-{what}" for topology in ("cartesian", "graph") for what in ("allgather", "alltoall", "alltoallv")
    ),
    "onesided": tuple(
        f"{access}-{method}" for access in ("put", "get", "accumulate") for method in (*METHODS, "burst")
    ),
    "burst": ("lone", "send-8", "send-64", "isend-8", "isend-64"),
    "datatype": ("contiguous", "vector-8", "vector-512", "indexed", "struct"),
    "persistent": ("isend", "start", "startall"),
    "partitioned": ("whole", "partitions-1", "partitions-8", "partitions-64"),
    "incast": ("posted", "any-source"),
    "footprint": ("exchange",),
}
QUANTITIES = {
    "nonblocking": {"time", "beside", "computation"},
    "burst": {"sends", "delivery"},
    "datatype": {"half_round_trip"},
    "partitioned": {"half_round_trip"},
    "persistent": {"exchange"},
    "incast": {"arrival_interval"},
    "footprint": {"resident", "growth"},
}
# Nothing; no whole words; more than a frame; beyond every eager limit. Of types and partitions those that they divide.
SIZES, DIVIDED = (0, 13, 5000, 150001), (0, 512, 66048)
# Messages of all these at once.
SHORT = (0, 13, 5000)
SIZES_OF = {"datatype": DIVIDED, "partitioned": DIVIDED, "incast": SHORT, "burst": SHORT, "nonblocking": SHORT}
# Some measurements over either fabric, under any library; the others in `make matrix`.
LAUNCHES = [
    ("collective", "openmpi", "barewire", 3),
    ("onesided", "mpich-5", "barewire", 2),
    ("burst", "openmpi", "barewire", 2),
    # Over TCP this library takes a minute for them.
    ("partitioned", "openmpi-5", "barewire", 2),
]
MATRIX = [
    (test, name, fabric, 4 if test == "incast" else 3 if test in ("collective", "nonblocking", "neighbourhood") else 2)
    for test in VARIANTS
    for name in ("openmpi", "openmpi-5", "mpich-5", "mpich")
    for fabric in ("barewire", "tcp")
    if (name, fabric) != ("mpich", "barewire")
]


def measured(file: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The measured samples of a complete file, and what was left out."""
    lines = file.read_text().splitlines()
    left_out = [line for line in lines if '"record": "left_out"' in line]
    kept = file.with_suffix(".kept")
    kept.write_text("\n".join(line for line in lines if line not in left_out))
    _, samples = read(kept)
    return [one for one in samples if one["phase"] == "measure"], left_out


def judge(test: str, file: Path, ranks: int) -> None:
    """Every variant and size has all its quantities, but for sums of which some ranks would have no part."""
    samples, left_out = measured(file)
    variants, sizes = VARIANTS[test], SIZES_OF.get(test, SIZES)
    too_short = {("reduce-scatter", size) for size in sizes if "reduce-scatter" in variants and size <= 8 * (ranks - 1)}
    assert {(one["variant"], one["message_bytes"]) for one in map(json.loads, left_out)} == too_short
    assert len(left_out) == len(too_short)
    found = {(one["variant"], one["message_bytes"], one["quantity"]) for one in samples}
    quantities = QUANTITIES.get(test, {"time"})
    expected = {
        (variant, size, quantity)
        for variant in variants
        for size in sizes
        for quantity in quantities
        if (variant, size) not in too_short
    }
    if test == "footprint":
        expected = {("exchange", max(sizes), quantity) for quantity in quantities}
    assert expected <= found
    others = {variant for variant, _, _ in found} - {*variants}
    assert others <= {"barrier", "calibration", *OF_WORDS}
    assert all(min(one["values"]) > 0 for one in samples if one["unit"] == "ns" and one["quantity"] != "computation")


@pytest.mark.usefixtures("lab_allowed")
@pytest.mark.parametrize(
    ("test", "name", "fabric", "ranks"),
    [*LAUNCHES, *(pytest.param(*one, marks=pytest.mark.matrix) for one in MATRIX if one not in LAUNCHES)],
)
def test_each_variant_carries_its_data(test: str, name: str, fabric: str, ranks: int, tmp_path: Path) -> None:
    library(name)
    needs(fabric)
    if (test, name) == ("partitioned", "openmpi"):
        pytest.skip("Debian's Open MPI 4.1 has no partitioned messages; what it says of them is another test's")
    file = tmp_path / "records"
    sizes = ",".join(map(str, SIZES_OF.get(test, SIZES)))
    where = ("--lab", f"star:{ranks}" if ranks > 2 else "pair", "--fabric", fabric)
    done = launch(test, name, "--sizes", sizes, *FEW, "--output", str(file), ranks=ranks, path=where)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    judge(test, file, ranks)


def test_start_up_and_memory_are_recorded_once_a_launch(tmp_path: Path) -> None:
    file = tmp_path / "records"
    assert launch("startup", "mpich-5", "--output", str(file), ranks=3).returncode == 0
    samples, _ = measured(file)
    assert {one["quantity"] for one in samples} == {"init", "first_barrier", "next_barrier"} and len(samples) == 9
    value = {(one["quantity"], one["rank"]): one["values"][0] for one in samples}
    assert all(0 < value["init", rank] < value["first_barrier", rank] for rank in range(3))
    assert launch("footprint", "mpich-5", "--sizes", "8,65536", "--output", str(file), ranks=3).returncode == 0
    samples, _ = measured(file)
    resident = {one["peers"]: one["values"][0] for one in samples if one["quantity"] == "resident"}
    (growth,) = [one["values"][0] for one in samples if one["quantity"] == "growth" and one["peers"] == 2]
    assert {*resident} == {0, 1, 2} and growth == (resident[2] - resident[0]) / 2


@pytest.mark.parametrize(
    ("test", "variants", "says"),
    [
        ("collective", "bcast,allgatherv", r"bcast, message from rank \d: byte 500 of 1000"),
        ("collective", "reduce-scatter", r"reduce-scatter, sum of 2 ranks: byte 252 of 504"),
        ("nonblocking", "scan", r"scan, sum of \d ranks: byte 500 of 1000"),
        ("neighbourhood", "graph-alltoall", r"graph-alltoall, message from rank \d: byte 500 of 1000"),
        # Its only block.
        ("neighbourhood", "graph-alltoallv", r"graph-alltoallv, message from rank \d: byte 500 of 1000"),
        ("onesided", "put-flush", r"put, message from rank 0: byte 500 of 1000"),
        ("onesided", "accumulate-fence", r"accumulate, message from rank 0: byte 500 of 1000"),
        ("onesided", "compare-and-swap-lock", r"compare-and-swap, message from rank \d: the word is 0x\w+, not 0x\w+"),
        ("burst", "send-8", r"send-8, message from rank 0: byte 500 of 1000"),
        ("datatype", "struct", r"struct, message from rank \d: byte 500 of 1000"),
        ("persistent", "startall", r"startall, message from rank \d: byte 500 of 1000"),
        ("partitioned", "partitions-8", r"partitions-8, message from rank \d: byte 500 of 1000"),
        ("incast", "any-source", r"any-source, message from rank 1: byte 500 of 1000"),
        ("footprint", "exchange", r"exchange, message from rank \d: byte 500 of 1000"),
    ],
)
def test_a_wrong_byte_ends_the_run_and_is_named(test: str, variants: str, says: str) -> None:
    arguments = ("--variants", variants, "--sizes", "1000", *FEW, "--corrupt", "1", "--output", "/dev/null")
    done = run_here(test, *arguments)
    # On a busy machine an abort under MPICH's shared memory can crash before it has said why.
    if done.returncode not in (0, 1) or not done.stderr:
        done = run_here(test, *arguments)
    assert done.returncode == 1
    # One rank has a part of the sum more than the other, in words.
    pattern = says.replace("byte 252 of 504", r"byte (252 of 504|248 of 496)")
    assert re.search(rf"{test}: rank \d, seed 1: WRONG RESULT: {pattern}", done.stderr), done.stderr


@pytest.mark.parametrize("test", ["collective", pytest.param("nonblocking", marks=pytest.mark.matrix)])
def test_no_rank_of_a_scan_only_sends(test: str) -> None:
    """An operation is a scan, and another in reverse order of the ranks: the second result that a rank checks."""
    arguments = ("--variants", "scan", "--sizes", "1000", *FEW, "--corrupt", "2", "--output", "/dev/null")
    done = launch(test, "openmpi", *arguments)
    assert done.returncode == 1
    assert re.search(r"rank (0, .* sum of 2|1, .* sum of 1) ranks: byte 500 of 1000", done.stderr), done.stderr


def test_what_is_left_out_says_why(tmp_path: Path) -> None:
    file = tmp_path / "records"
    arguments = ("--variants", "bcast,allgather", "--sizes", "8,1000000", "--memory", "2000000", *FEW)
    assert launch("collective", "openmpi", *arguments, "--output", str(file)).returncode == 0
    samples, left_out = measured(file)
    assert {(one["variant"], one["message_bytes"]) for one in samples} == {("bcast", 8), ("allgather", 8)}
    assert all("needs 2 MiB on each rank, and --memory allows 1" in one for one in left_out) and len(left_out) == 2
    arguments = ("--variants", "reduce-scatter", "--sizes", "8,9", *FEW)
    assert launch("collective", "openmpi", *arguments, "--output", str(file)).returncode == 0
    samples, left_out = measured(file)
    assert {one["message_bytes"] for one in samples} == {9}
    assert len(left_out) == 1 and "the sum has no part for some of the 2 ranks" in left_out[0]
    assert launch("partitioned", "openmpi", "--sizes", "64", *FEW, "--output", str(file)).returncode == 0
    samples, left_out = measured(file)
    assert {one["variant"] for one in samples} == {"whole"}
    assert len(left_out) == 3 and all("partitioned messages need MPI 4" in one for one in left_out)
    assert launch("datatype", "openmpi", "--sizes", "12", *FEW, "--output", str(file)).returncode == 0
    samples, left_out = measured(file)
    assert {one["variant"] for one in samples} == {"contiguous"}
    assert len(left_out) == 4 and all("are multiples of" in one for one in left_out)
    arguments = ("--sizes", "65536", "--memory", "500000", *FEW)
    assert launch("datatype", "openmpi", *arguments, "--output", str(file)).returncode == 0
    samples, left_out = measured(file)
    assert {one["variant"] for one in samples} == {"contiguous"}
    assert len(left_out) == 4 and all("and --memory allows 0" in one for one in left_out)


@pytest.mark.parametrize(
    ("test", "ranks", "arguments", "says"),
    [
        ("onesided", 2, ("--walk-bytes", "100000"), "--walk-bytes does not apply to windows"),
        ("persistent", 2, ("--messages", "0"), "--messages must be from 1 to 256, not 0"),
        ("incast", 2, ("--senders", "2"), "--senders 2 needs one more rank; there are 2"),
        ("burst", 2, ("--pause", "2000000"), "--pause must be at most 1000000 us, not 2000000"),
        ("datatype", 3, (), "needs an even number of ranks, not 3"),
    ],
)
def test_what_cannot_be_is_said_once(test: str, ranks: int, arguments: tuple[str, ...], says: str) -> None:
    done = run_here(test, *arguments, ranks=ranks)
    assert done.returncode == 2 and done.stderr.count(f"{test}: ") == 1 and says in done.stderr, done.stderr


@pytest.mark.parametrize("test", ["collective", "neighbourhood"])
def test_buffers_that_walk_through_memory_are_checked_too(test: str, tmp_path: Path) -> None:
    """In one direction an operation has one block, in the other one from each rank."""
    file = tmp_path / "records"
    walk = ("--sizes", "3000", "--walk-bytes", "100000", *FEW)
    done = launch(test, "openmpi", *walk, "--output", str(file), ranks=3)
    assert done.returncode == 0, done.stderr
    samples, _ = measured(file)
    assert {one["variant"] for one in samples} >= {*VARIANTS[test]}


@pytest.mark.parametrize("test", VARIANTS)
def test_help_lists_variants(test: str) -> None:
    done = alone(test, "--help")
    assert done.returncode == 0 and {*VARIANTS[test]} <= {*done.stdout.split()}, done.stderr
