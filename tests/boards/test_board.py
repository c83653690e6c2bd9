# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Jobs between this machine and an emulated arm64 board, and the tests that need an arm64 kernel, on that board.

`make cross` runs these, after it has built what they need into target/cross.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BAREWIRE, ROOT, eventually, stand_up
from mpi_libraries import SOURCES, library, needs, program
from test_cluster import path_of

from barewire import installed
from barewire.guests.debian import CannotBuild
from barewire.lab import Lab
from barewire.mpi import start
from boards.board import BOARD_ADDRESS, HOST_ADDRESS, INTERFACE, Board, BoardFailed
from boards.image import KERNELS, Image, build

pytestmark = pytest.mark.boards

BUILT = ROOT / "target" / "cross" / "aarch64-unknown-linux-gnu"
COMPILER = ("aarch64-linux-gnu-gcc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror")
ON_BOTH = ("run", "-n", "2", "--hosts", f"{HOST_ADDRESS},{BOARD_ADDRESS}", "--interface", INTERFACE)
# One core emulates the board, some ten times as slowly as a real one.
SECONDS = 240
# crates/sim/src/stack draws no smaller ring, and a world is the same only with the same one.
SIMULATED_PIPE_KIB = 8
# Each is one program with the tests of one crate, or of one file of its folder tests/.
RUST_TESTS = (BUILT / "tests").read_text().split() if (BUILT / "tests").is_file() else []


@pytest.fixture(scope="module")
def image() -> Image:
    if not (BUILT / "tests").is_file():
        pytest.skip("nothing is built for arm64: make cross")
    try:
        Board.check()
        return build()
    except (CannotBuild, BoardFailed) as reason:
        pytest.skip(f"no board to test on: {reason}")


@pytest.fixture(scope="module", params=KERNELS, ids=lambda page_kib: f"{page_kib}KiB")
def board(request: pytest.FixtureRequest, image: Image) -> Iterator[Board]:
    """A board that has the provider where this checkout has its own, as a cluster's hosts do."""
    needs("barewire")
    assert library("openmpi").version.startswith("4.1"), "the board has the same version"
    with stand_up("pair") as lab, Board(image, lab, request.param) as board:
        for file in (BUILT / "release" / "libfabric").glob("*.so"):
            board.put(file, installed.PROVIDER / file.name)
        witness = Path(start.__file__).with_name("witness.py")
        board.put(witness, witness)
        yield board


def built_for_both(source: str, board: Board, image: Image, folder: Path) -> str:
    """A test program of tests/mpi at one path on both machines."""
    here = program("openmpi", source)
    libraries = image.tree / "usr" / "lib" / "aarch64-linux-gnu"
    command = [*COMPILER, "-I", str(libraries / "openmpi" / "include"), str(SOURCES / f"{source}.c")]
    command += [str(libraries / "libmpi.so.40"), "-Wl,--unresolved-symbols=ignore-in-shared-libs", "-lpthread"]
    subprocess.run([*command, "-o", str(folder / source)], check=True)
    board.put(folder / source, Path(here))
    return here


def run_on_both(board: Board, *arguments: str) -> "subprocess.CompletedProcess[str]":
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": SECONDS, "check": False}
    done = board.lab.run("h1", [BAREWIRE, *ON_BOTH, *arguments], env=board.environment(), **options)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{board.log()}"
    return done


def test_ranks_of_both_architectures_exchange_messages_of_all_sizes_over_frames(
    board: Board, image: Image, tmp_path: Path
) -> None:
    """Every byte of every size is checked by its receiver; both ranks testify that frames carried them."""
    pingpong = built_for_both("pingpong", board, image, tmp_path)
    done = run_on_both(board, "--explain", "--json", "--", pingpong, "20", "4194304")
    path = path_of(done)
    assert path["ranks"]["taken"] == f"1 on {HOST_ADDRESS}, 1 on {BOARD_ADDRESS}"
    assert "2 of 2" in path["library"]["seen"] and "2 of 2" in path["provider"]["seen"]
    assert path["link"]["taken"].startswith("packet"), path
    sizes = [json.loads(line)["bytes"] for line in done.stdout.splitlines()]
    assert sizes == [0, *(1 << power for power in range(23))]


@pytest.mark.parametrize("authentication", ["job", "encrypt"])
def test_frames_sealed_by_one_architectures_aes_are_opened_by_the_others(
    board: Board, image: Image, tmp_path: Path, authentication: str
) -> None:
    pingpong = built_for_both("pingpong", board, image, tmp_path)
    done = run_on_both(board, "--auth", authentication, "--", pingpong, "10", "65536")
    assert json.loads(done.stdout.splitlines()[-1])["bytes"] == 65536


@pytest.mark.parametrize("source", ["messages", "collectives", "onesided"])
def test_everything_that_mpi_has_works_between_architectures(
    board: Board, image: Image, tmp_path: Path, source: str
) -> None:
    run_on_both(board, "--", built_for_both(source, board, image, tmp_path))


@pytest.mark.parametrize("kind", [["--stack"], ["--stack", "--libfabric"]], ids=" ".join)
def test_simulated_worlds_of_the_whole_stack_are_those_of_this_machine(board: Board, kind: list[str]) -> None:
    """To the last frame: nothing depends on the architecture."""
    if board.page_kib > SIMULATED_PIPE_KIB:
        pytest.skip(f"the simulated pipes of {SIMULATED_PIPE_KIB} KiB are smaller than a page of {board.page_kib} KiB")
    board.put(BUILT / "release" / "barewire-sim", Path("/tmp/barewire-sim"))
    options = [*kind, "--seeds", "0..100"]
    here = subprocess.run([ROOT / "target" / "release" / "barewire-sim", *options], capture_output=True, text=True)
    there = board.run(" ".join(["/tmp/barewire-sim", *options]), capture_output=True, text=True, timeout=SECONDS)
    counts = [re.search(r"100 worlds, \d+ frames, 0 violations", done.stdout) for done in (here, there)]
    assert counts[0] and counts[1] and counts[0][0] == counts[1][0], f"{here.stdout}{there.stdout}{there.stderr}"


@pytest.mark.parametrize("file", [Path(name) for name in RUST_TESTS], ids=lambda file: file.name.rpartition("-")[0])
def test_rust_tests_that_need_a_kernel_pass_under_an_arm64_kernel(board: Board, file: Path) -> None:
    """Under qemu-user another kernel obeys their system calls, those of them that it translates."""
    board.put(file, Path("/tmp/tests") / file.name)
    limits = "ulimit -n 1024; export PROPTEST_CASES=16"
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": SECONDS}
    done = board.run(f"cd /tmp && {limits} && /tmp/tests/{file.name} --test-threads 1", **options)
    board.run(f"rm /tmp/tests/{file.name}")
    found = re.search(r"^test result: ok\. (\d+) passed", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and found and int(found[1]) > 0, f"{done.stdout}{done.stderr}{board.log()}"
    print(found[0])


def test_a_board_that_dies_leaves_neither_interface_nor_process(image: Image) -> None:
    """The interface lasts as long as the process that holds its descriptor."""
    with stand_up("pair") as lab, Board(image, lab) as board:
        assert INTERFACE in interfaces(lab)
        board.kill()
        assert eventually(lambda: INTERFACE not in interfaces(lab))
        assert board.run("true", capture_output=True).returncode != 0


def interfaces(lab: Lab) -> list[str]:
    listed = lab.run("h1", ["ls", "/sys/class/net"], capture_output=True, text=True, check=True)
    return str(listed.stdout).split()
