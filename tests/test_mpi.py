# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Unmodified MPI libraries carry every message over every fabric, each byte checked by the programs in tests/mpi."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, barewire
from mpi_libraries import FIXES, WITH_LIBFABRIC, library, needs, program

from barewire.lab import Lab
from barewire.mpi import FabricOptions
from barewire.mpi.fabrics import Setting
from barewire.mpi.prepare import prepare

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

# HPL's parameters by line: one problem of 100, in blocks of 32, on a grid of 1 × 2; and none more for PTRANS.
HPCC_VALUES = "title title out 8 1 100 1 32 0 1 1 2 16.0 1 2 1 4 1 2 1 1 1 1 1 0 2 64 0 0 1 8 separator 0 1 0 1 "
# Ranks and arguments; three ranks are two on one host and one on the other.
PROGRAMS = {
    "pingpong": (2, "100", "131072"),
    "stream": (2, "10"),
    "messages": (3, "7"),
    "onesided": (3, "1"),
    "threads": (2, "1"),
    "collectives": (3, "1"),
    "overlap": (2, "5", "65536"),
}


def run(name: str, source: str, fabric: str, **options: Any) -> str:
    ranks, *arguments = PROGRAMS[source]
    command = ["run", "-n", str(ranks), "--lab", "pair", "--fabric", fabric, "--", program(name, source)]
    done = barewire(*command, *map(str, arguments), **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


# Each program under one of two libraries of two families; the rest in `make matrix`, but for one program of each.
OFTEN = {
    "openmpi": ("pingpong", "messages", "threads", "overlap"),
    "mpich-5": ("stream", "messages", "onesided", "collectives"),
}
EACH = [
    pytest.param(name, source, marks=[] if source in OFTEN.get(name, ("messages",)) else [pytest.mark.matrix])
    for name in WITH_LIBFABRIC
    for source in PROGRAMS
]


@pytest.mark.parametrize(("name", "source"), EACH)
def test_programs_get_their_messages_over_barewire(name: str, source: str) -> None:
    """Every line that a program prints is a result that it found right."""
    needs("barewire")
    lines = [json.loads(line) for line in run(name, source, "barewire").splitlines() if line.startswith("{")]
    assert lines and all(line["test"] == source for line in lines)


@pytest.mark.parametrize(("name", "progress"), [("openmpi", "manual"), ("mpich-5", "auto")])
def test_messages_arrive_whole_while_a_helper_thread_makes_progress(name: str, progress: str) -> None:
    """Both sides compute while messages are under way; every byte is checked, and that each case was measured."""
    needs("barewire")
    built = program(name, "overlap")
    done = barewire("run", "-n", "2", "--lab", "pair", "--progress", progress, "--", built, "10", "262144")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    cases = {(line["bytes"], line["side"], line["mode"]) for line in lines}
    sizes, sides, modes = ({case[place] for case in cases} for place in range(3))
    assert sizes == {8, 16384, 65536, 262144} and len(cases) == 16
    assert sides == {"sender", "receiver"} and modes == {"standard", "synchronous"}
    for line in lines:
        assert 0 <= line["wait_us"] <= line["both_us"] and min(line["alone_us"], line["computation_us"]) > 0


# No operation may take as long as an acknowledgement waits for company here: 2000 times as long as it does by default.
DELAY_US = 100_000


@pytest.mark.parametrize(
    ("name", "place"),
    [("openmpi", ["--lab", "pair"]), ("openmpi-5", ["--lab", "pair"]), ("mpich-5", ["--lab", "pair"]), ("openmpi", [])],
)
def test_no_operation_waits_for_a_timer(name: str, place: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for an acknowledgement gets it at once: sends, collectives, one-sided operations.

    Under MPICH ranks of one host use its own shared memory.
    """
    needs("barewire")
    monkeypatch.setenv("FI_BAREWIRE_ACKNOWLEDGE_DELAY", str(DELAY_US))
    monkeypatch.setenv("FI_BAREWIRE_ACKNOWLEDGE_EVERY", "31")
    done = barewire("run", "-n", "2", *place, "--library", name, "--", program(name, "timers"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    sized = 38 if name == "mpich-5" else 37  # Open MPI of MPI 3.1 has no partitioned operations
    assert len({line["operation"] for line in lines}) == sized + 9 and len(lines) == 7 * sized + 9
    assert [line for line in lines if line["us"] > DELAY_US / 2] == []


def test_no_exchange_waits_for_the_next_call_of_a_peer_that_computes() -> None:
    """With offloads, the last frames of a message overtake others. The program tells waiting from a busy machine."""
    needs("barewire")
    options = ("-n", "2", "--lab", "pair", "--offloads", "on", "--library", "openmpi")
    done = barewire("run", *options, "--", program("openmpi", "pauses"), "80", "40")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert line["exchanges"] == 160 and line["late"] <= 1, line


@pytest.mark.parametrize("library", ["mpich-5", "openmpi", "openmpi-5"])
def test_contiguous_types_with_an_offset_are_sent_from_their_place(library: str) -> None:
    """Open MPI 4.1.4 sends what is at the buffer's address in persistent sends; the provider mends that."""
    needs("barewire")
    for options in (("--lab", "pair"), ()):
        done = barewire("run", "-n", "2", *options, "--library", library, "--", program(library, "offset_types"))
        assert done.returncode == 0 and "offset_types" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("library", ["mpich-5", "openmpi"])
def test_random_programs_that_compute_between_their_messages_are_right(library: str) -> None:
    """Proves that they end, and that what arrives is what was sent; with and without batches by UDP."""
    needs("barewire")
    for offloads in ("off", "on"):
        options = ("-n", "2", "--lab", "pair", "--offloads", offloads, "--library", library)
        done = barewire("run", *options, "--", program(library, "random_programs"), "0", "40", "2")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(lines) > 30 and all(line["us"] > 0 for line in lines), lines


def delivered_while_computing(rank: int) -> int:
    """In how many of 60 rounds a rank had sent or received a long message while `rank`, the other, computed 1 ms."""
    options = ("-n", "2", "--lab", "pair", "--offloads", "on", "--library", "openmpi")
    done = barewire("run", *options, "--", program("openmpi", "delivered"), "60", "1000", str(rank))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert line["rounds"] == 60
    return int(line["delivered"])


@pytest.mark.parametrize("rank", [pytest.param(0, id="sender"), pytest.param(1, id="receiver")])
def test_long_messages_are_delivered_while_one_of_their_ranks_computes(rank: int) -> None:
    """Half of them on an idle machine, at least; on a busy one the progress thread waits for its core."""
    needs("barewire")
    counts: list[int] = []
    while len(counts) < 6 and max(counts, default=0) < 35:
        counts.append(delivered_while_computing(rank))
    assert max(counts) >= 35, counts


def unhurried(name: str) -> dict[str, float]:
    """What a job of two ranks on two hosts says of its start and end; its program checks that it is left alone."""
    done = barewire("run", "-n", "2", "--lab", "pair", "--", program(name, "unhurried"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert line["preloaded"] == 1
    return line


def test_what_open_mpi_need_not_wait_for_is_left_out_and_nothing_of_the_programs() -> None:
    """Open MPI 5 sleeps for a second when it closes what it uses between hosts. A busy machine may take as long."""
    needs("barewire")
    seconds: list[float] = []
    while len(seconds) < 4 and min(seconds, default=1) >= 1:
        seconds.append(unhurried("openmpi-5")["finalize_s"])
    assert min(seconds) < 1, seconds


def test_the_libraries_of_cards_that_are_not_used_are_not_loaded() -> None:
    """Debian's libfabric is linked with InfiniPath's and Omni-Path's, which measure a clock when loaded."""
    needs("barewire")
    assert unhurried("openmpi")["cards"] == 0


@pytest.mark.parametrize(
    ("real", "stand_in", "prefix"),
    [
        ("libpsm_infinipath.so.1", "libbarewire-psm_infinipath.so", "psm_"),
        ("libpsm2.so.2", "libbarewire-psm2.so", "psm2_"),
    ],
)
def test_what_stands_in_for_a_library_has_all_of_its_functions(real: str, stand_in: str, prefix: str) -> None:
    """A libfabric that calls one more than there are would not load."""

    def functions(file: Path) -> set[str]:
        done = subprocess.run(["nm", "-D", "--defined-only", str(file)], capture_output=True, text=True, check=True)
        symbols = [line.split() for line in done.stdout.splitlines()]
        return {name for _, kind, name in symbols if name.startswith(prefix) and kind in "TW"}

    file = next(Path("/usr/lib").glob(f"*/{real}"), None)
    if file is None:
        pytest.skip(f"no {real} to compare with: it comes with Debian's libfabric1")
    assert functions(file) == functions(ROOT / "target" / "release" / "libfabric" / stand_in)


@pytest.mark.parametrize("name", [pytest.param("openmpi", marks=pytest.mark.matrix), "openmpi-5", "mpich-5"])
def test_sends_to_a_peer_outside_mpi_do_not_block(name: str) -> None:
    """As many as the provider advertises, of each size; far more that both sides post before they receive.

    And buffered sends find their memory again.
    """
    needs("barewire")
    done = barewire("run", "-n", "2", "--lab", "pair", "--", program(name, "away"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 12


@pytest.mark.parametrize(
    ("name", "loss", "computes_ms"),
    [
        pytest.param("openmpi", "0", 600, marks=pytest.mark.matrix),
        ("openmpi-5", "0", 600),
        pytest.param("mpich-5", "0", 600, marks=pytest.mark.matrix),
        pytest.param("mpich-5", "1%", 2000, marks=pytest.mark.matrix),
    ],
)
def test_what_a_rank_has_sent_arrives_while_it_computes(name: str, loss: str, computes_ms: int) -> None:
    """More than a window of frames, and frames that are lost: nobody but the helper thread can send them then."""
    needs("barewire")
    options = ["-n", "2", "--lab", "pair", "--loss", loss]
    done = barewire("run", *options, "--", program(name, "busy_sender"), str(computes_ms))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 6


@pytest.mark.parametrize(("source", "loss"), [("messages", "0.1%"), ("collectives", "1%")])
def test_results_are_right_where_frames_are_lost(source: str, loss: str) -> None:
    """Some six of the 6400 frames, and some fourteen of the 1400: three ranks on two hosts."""
    needs("barewire")
    ranks, *arguments = PROGRAMS[source]
    options = ["-n", str(ranks), "--lab", "pair", "--loss", loss]
    done = barewire("run", *options, "--", program("mpich-5", source), *map(str, arguments))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines and all(line["test"] == source and line["right"] for line in lines)


@pytest.mark.parametrize("source", ["messages", "pingpong"])
def test_programs_get_their_messages_over_af_xdp(source: str) -> None:
    """One rank for each host, because a queue belongs to one process; `--explain` sees the sockets."""
    needs("barewire")
    built = program("mpich-5", source)
    done = barewire("run", "-n", "2", "--lab", "pair", "--link", "xdp", "--explain", "--", built, "7")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert f'"test": "{source}"' in done.stdout


@pytest.mark.parametrize("name", FIXES)
def test_the_same_command_with_another_fabric_compares(name: str) -> None:
    """UCX's TCP, Debian's MPICH's, now and then stands still on busy cores: it gets two ranks and three runs."""
    if name != "mpich":
        assert '"test": "messages"' in run(name, "messages", "tcp")
        return
    for left in (2, 1, 0):
        try:
            assert '"test": "pingpong"' in run(name, "pingpong", "tcp", timeout=15)
            return
        except subprocess.TimeoutExpired:
            if not left:
                raise


@pytest.mark.parametrize(
    ("name", "lab"),
    [
        *(("openmpi", "star:3"), ("openmpi-5", "pair"), ("mpich-5", "pair")),
        *(pytest.param(*one, marks=pytest.mark.matrix) for one in (("openmpi", "pair"), ("mpich-5", "star:3"))),
    ],
)
def test_a_job_whose_rank_is_killed_in_mid_transfer_ends_in_time_and_leaves_nothing(name: str, lab: str) -> None:
    """With three ranks: on one host and over the wire, or all over the wire. The launcher ends the others."""
    needs("barewire")
    began = time.monotonic()
    done = barewire("run", "-n", "3", "--lab", lab, "--", program(name, "killed"), "30")
    assert done.returncode != 0 and time.monotonic() - began < 30
    assert "WRONG" not in done.stderr


@pytest.mark.parametrize("lab", [pytest.param("pair", marks=pytest.mark.matrix), "star:3"])
def test_survivors_of_a_killed_rank_are_told_in_time_and_go_on(lab: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI 4.1's launcher can leave survivors alone, and the library tells them of errors: each gets one for a
    message with the dead within the patience, and its messages with the other survivor are whole."""
    needs("barewire")
    monkeypatch.setenv("OMPI_MCA_orte_enable_recovery", "1")
    monkeypatch.setenv("FI_BAREWIRE_PATIENCE", "2")
    done = barewire("run", "-n", "3", "--lab", lab, "--", program("openmpi", "killed"), "8")
    said = done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    told = {line["rank"]: line for line in lines if "noticed_s" in line}
    assert sorted(told) == [0, 1] and "WRONG" not in said, said[-2000:]
    for line in told.values():
        assert 0 < line["noticed_s"] < 3.5 and 1 <= line["errors"] <= 2, line
    assert [line["survivors"] for line in lines if "survivors" in line] == ["whole", "whole"]


@pytest.mark.parametrize(("shares", "most_s"), [([("h1", 1), ("h2", 1)], "4"), ([("h1", 2)], "2")])
def test_a_survivor_of_a_killed_rank_ends_with_an_mpi_error_in_time(
    shares: list[tuple[str, int]], most_s: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPICH's launcher can leave survivors alone; then it is the library that notices, and ends its rank as MPICH does
    for every error of a fabric. Over the wire with a patience of 2 s within 3 s of the death, on one host at once; a
    second more is for a busy machine."""
    needs("barewire")
    monkeypatch.setenv("FI_BAREWIRE_PATIENCE", "2")
    monkeypatch.setenv("MPIR_CVAR_NOLOCAL", "1")  # on one host through the provider, too
    with Lab.up("pair") as lab:
        job = prepare(library("mpich-5"), FabricOptions(), shares, [program("mpich-5", "killed"), most_s], lab)
        launcher, *arguments = job.command(os.environ)
        command = lab.command("h1", [launcher, "-disable-auto-cleanup", *arguments])
        environment = dict(os.environ) | job.environment() | lab.remote_shell()[1]
        for _ in range(4):
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
            said = done.stdout + done.stderr
            # In one of ten runs the launcher is ended by a broken pipe, or ends before it has passed on the survivor's
            # output. Nothing is known then.
            if "OFI poll failed" in said or "WRONG" in said:
                break
    assert done.returncode != 0 and "WRONG" not in said, (done.returncode, said[-2000:])
    reason = "No route to host" if len(shares) > 1 else "Connection reset by peer"
    assert "OFI poll failed" in said and reason in said, (done.returncode, said[-2000:])


@pytest.mark.parametrize("name", ["openmpi", pytest.param("mpich-5", marks=pytest.mark.matrix)])
def test_a_rank_that_computes_for_longer_than_its_peers_are_patient_is_not_taken_for_dead(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manual progress: for 3 s nothing of it is called. One waiting rank is on the same host, two behind the link, of
    which one's message is behind the other's.
    """
    needs("barewire")
    monkeypatch.setenv("FI_BAREWIRE_PATIENCE", "2")
    monkeypatch.setenv("MPIR_CVAR_NOLOCAL", "1")  # on one host through the provider, too
    done = barewire("run", "-n", "4", "--lab", "pair", "--progress", "manual", "--", program(name, "computes"), "3")
    assert done.returncode == 0 and '"test": "computes", "right": true' in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("name", ["mpich-5", pytest.param("openmpi", marks=pytest.mark.matrix)])
def test_short_messages_are_sent_before_they_are_received(name: str) -> None:
    needs("barewire")
    done = barewire("run", "-n", "2", "--lab", "pair", "--", program(name, "sends_first"), timeout=20)
    assert done.returncode == 0 and '"right": true' in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("source", ["messages", pytest.param("pingpong", marks=pytest.mark.matrix)])
def test_open_mpis_byte_transfer_layer_goes_through_the_provider_too(source: str) -> None:
    """The path by hand of docs/provider.md, where local ranks keep Open MPI's own shared memory."""
    needs("barewire")
    with Lab.up("pair") as lab:
        made = prepare(
            library("openmpi"), FabricOptions(), [("h1", 2), ("h2", 1)], [program("openmpi", source), "7"], lab
        )
        names = {"pml": "ob1", "btl": "ofi,vader,self", "btl_ofi_mode": "1", "btl_ofi_provider_include": "barewire"}
        layers = {f"OMPI_MCA_{name}": value for name, value in names.items()}
        kept = tuple(one for one in made.settings if one.name not in layers)
        job = replace(made, settings=(*kept, *(Setting(name, value, "test") for name, value in layers.items())))
        environment = dict(os.environ) | job.environment() | lab.remote_shell()[1]
        command = lab.command("h1", job.command(os.environ))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert f'"test": "{source}"' in done.stdout


@pytest.mark.parametrize("fabric", ["barewire", "tcp"])
def test_netpipe_of_the_distribution_runs_unmodified(fabric: str) -> None:
    """NetPIPE in its own integrity check (-i): it compares every byte."""
    needs(fabric)
    library("openmpi")
    found = shutil.which("NPopenmpi")
    if found is None:
        pytest.skip("NetPIPE is not installed: apt install netpipe-openmpi")
    options = ["-i", "-n", "10", "-u", "65536", "-o", "/dev/null"]
    done = barewire("run", "-n", "2", "--lab", "pair", "--fabric", fabric, "--", found, *options)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    lines = [line for line in (done.stdout + done.stderr).splitlines() if " bytes " in line]
    assert len(lines) > 20 and all(line.endswith("Integrity check passed") for line in lines)


@pytest.mark.matrix
def test_hpc_challenge_of_the_distribution_finds_its_results_right(tmp_path: Path) -> None:
    """HPL, PTRANS, RandomAccess and FFT over barewire, each with its own check; the smallest problem."""
    needs("barewire")
    library("openmpi")
    found = shutil.which("hpcc")
    if found is None:
        pytest.skip("HPC Challenge is not installed: apt install hpcc")
    (tmp_path / "hpccinf.txt").write_text(HPCC_VALUES.replace(" ", "\n"))
    done = barewire("run", "-n", "2", "--lab", "pair", "--", found, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    results = (tmp_path / "hpccoutf.txt").read_text()
    assert "Success=1" in results and "MPIRandomAccess_ErrorsFraction=0\n" in results and "PASSED" in results
    assert "FAILED" not in results


def test_intels_benchmarks_run_unmodified() -> None:
    """The IMB programs name their library without a place for it, which --library gives."""
    needs("barewire")
    benchmark = library("intel").prefix / "bin" / "IMB-MPI1"
    options = ["-npmin", "2", "-iter", "20", "-msglog", "1:10"]
    done = barewire(
        *(
            "run",
            "-n",
            "2",
            "--lab",
            "pair",
            "--library",
            "intel",
            "--",
            str(benchmark),
            "PingPong",
            "Allreduce",
            *options,
        )
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    assert "Benchmarking PingPong" in done.stdout and "Benchmarking Allreduce" in done.stdout
