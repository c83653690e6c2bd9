# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire profile` sees the calls of any program under any library, and changes nothing of how the program ends."""

import functools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BAREWIRE, ROOT, barewire, eventually, jobs_left_over
from mpi_libraries import SOURCES, WITH_LIBFABRIC, launched, library, program

from barewire.errors import MachineCannot
from barewire.mpi.profiler import PROFILER_FILE, build_profiler

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

THREE = ("openmpi", "openmpi-5", "mpich-5")
HERE = ("--fabric", "tcp", "-n", "2")
# Open MPI spawns onto slots that it was given, of which there are none left.
MORE_THAN_SLOTS = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def profiled(
    folder: Path, *arguments: str, **options: Any
) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
    done = barewire("profile", "-o", str(folder / "profile"), "--json", *arguments, **options)
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout)


def calls(document: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """By name: how many calls in all ranks, and how many bytes."""
    found: dict[str, tuple[int, int]] = {}
    for row in document["calls"]:
        known = found.get(row["call"], (0, 0))
        found[row["call"]] = known[0] + row["calls"], known[1] + row["bytes"]
    return found


@pytest.mark.parametrize("name", ["mpich-5", *(pytest.param(name, marks=pytest.mark.matrix) for name in THREE[:2])])
def test_calls_are_counted_once_with_their_sizes_and_waits(name: str, tmp_path: Path) -> None:
    """The program's own numbers: 50 messages of 1 KiB, 50 exchanges of 16 B, and a rank that is 0.1 s late."""
    done, document = profiled(tmp_path, *HERE, "--", program(name, "profiled"), "requests")
    assert done.returncode == 0, done.stderr
    found = calls(document)
    assert found["MPI_Send"] == found["MPI_Recv"] == (50, 50 * 1024)
    assert found["MPI_Isend"] == found["MPI_Irecv"] == (100, 1600) and found["MPI_Waitall"] == (100, 3200)
    assert found["MPI_Allreduce"] == (2, 32) and found["MPI_Allgather"] == (2, 32) and found["MPI_Barrier"][0] == 2
    waited = document["longest"][0]
    assert (waited["call"], waited["rank"]) == ("MPI_Barrier", 1) and 0.09 < waited["time_s"] < 1
    late = {one["rank"]: one["peers_late_s"] for one in document["ranks"]}
    assert late[1] > 0.08 and late[0] == 0, "rank 1 waits for rank 0, which sleeps outside MPI"
    ranks = [one["parts"] for one in document["ranks"]]
    assert ranks[1]["waiting_s"] > 0.09 and ranks[0]["outside_s"] > 0.09
    assert 0 < document["cost_per_call_s"] < 1e-5 and document["notes"] == []
    assert "<svg" in (tmp_path / "profile" / "report.html").read_text()
    kept = [json.loads(file.read_text()) for file in sorted((tmp_path / "profile" / "ranks").iterdir())]
    assert [one["rank"] for one in kept] == [0, 1]


def test_a_call_on_several_requests_counts_those_that_it_completes(tmp_path: Path) -> None:
    """By each: rank 1 receives 16, 1600 and 160000 B, for which it asks in vain at first; persistently too."""
    done, document = profiled(tmp_path, *HERE, "--", program("mpich-5", "profiled"), "completions")
    assert done.returncode == 0, done.stderr
    found = calls(document)
    for call in ("MPI_Waitany", "MPI_Waitsome", "MPI_Testany", "MPI_Testsome", "MPI_Test", "MPI_Testall"):
        assert found[call][1] == (2 if call == "MPI_Waitany" else 1) * (16 + 1600 + 160000), call
    assert found["MPI_Testany"][0] > 3 < found["MPI_Test"][0]
    assert found["MPI_Request_get_status"][1] == 0


def test_a_wait_for_an_operation_of_unknown_size_has_none(tmp_path: Path) -> None:
    """It was counted among the empty messages."""
    done, document = profiled(tmp_path, *HERE, "--", program("mpich-5", "profiled"), "unsized")
    assert done.returncode == 0, done.stderr
    waits = [row for row in document["calls"] if row["call"] == "MPI_Wait"]
    assert [(row["bytes_from"], row["calls"]) for row in waits] == [(None, 100)]


@functools.cache
def fortran(name: str, source: str, folder: Path) -> str:
    try:
        compiler = library(name).program("mpif90")
    except MachineCannot as error:
        pytest.skip(str(error))
    built = folder / f"{source}-{name}"
    done = subprocess.run([compiler, str(SOURCES / f"{source}.f90"), "-o", str(built)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(built)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("openmpi", "with_mpif"),
        pytest.param("openmpi", "with_f08", marks=pytest.mark.matrix),
        pytest.param("mpich", "with_f08", marks=pytest.mark.matrix),
        pytest.param("mpich", "with_mpif", marks=pytest.mark.matrix),
    ],
)
def test_fortran_is_counted_once_whether_it_goes_through_c_or_not(name: str, source: str, tmp_path: Path) -> None:
    """Open MPI's functions for Fortran call PMPI, which nobody can stand before; MPICH's call MPI's for C."""
    done, document = profiled(tmp_path, *HERE, "--", fortran(name, source, tmp_path))
    assert done.returncode == 0 and "sum" in done.stderr, done.stderr
    found = calls(document)
    assert found["MPI_Send"] == found["MPI_Irecv"] == found["MPI_Wait"] == (20, 320)
    assert found["MPI_Allreduce"] == (2, 32) and found["MPI_Allgather"] == (2, 16)
    assert [one["state"] for one in document["ranks"]] == ["finalised", "finalised"]


@pytest.mark.parametrize("name", [pytest.param("openmpi", marks=pytest.mark.matrix), "mpich-5"])
def test_a_library_that_is_opened_late_and_hidden_is_seen(name: str, tmp_path: Path) -> None:
    """ctypes asks dlsym of a library opened with RTLD_LOCAL: no symbol of it is where the linker would look."""
    script = ("python3", str(SOURCES / "late.py"), str(library(name).file))
    done, document = profiled(tmp_path, *HERE, "--library", name, "--", *script)
    assert done.returncode == 0 and "sum 3.0" in done.stderr, done.stderr
    assert calls(document)["MPI_Allreduce"] == (20, 16000)


def test_threads_are_recorded_each_by_itself(tmp_path: Path) -> None:
    done, document = profiled(tmp_path, *HERE, "--", program("mpich-5", "profiled"), "threads")
    assert done.returncode == 0, done.stderr
    assert calls(document)["MPI_Send"] == calls(document)["MPI_Recv"] == (200, 50 * 1024 + 150 * 64)
    assert document["threads_unrecorded"] == 0


def test_a_fork_leaves_no_trace_and_no_profile_of_its_own(tmp_path: Path) -> None:
    done, document = profiled(tmp_path, *HERE, "--", program("openmpi", "profiled"), "forks")
    assert done.returncode == 0, done.stderr
    assert len(document["ranks"]) == 2 and calls(document)["MPI_Send"] == (150, 50 * 1024 + 100 * 8)
    assert [one["state"] for one in document["ranks"]] == ["finalised", "finalised"]


@pytest.mark.parametrize("mode", ["world", "leaves", "twice"])
def test_a_session_is_a_part_of_the_process(mode: str, tmp_path: Path) -> None:
    """From the first begin to the last end, whether of the world or of a session: 0.4 s."""
    done, document = profiled(tmp_path, *HERE, "--", program("mpich-5", "sessions"), mode)
    assert (done.returncode == 0) == (mode != "leaves"), done.stderr
    found = {one["rank"]: one for one in document["ranks"]}
    if mode == "leaves":
        assert found[1]["state"] == "running"
    else:
        assert all(one["state"] == "finalised" and one["main_s"] > 0.39 for one in found.values())


@pytest.mark.parametrize(
    "name",
    ["mpich-5", pytest.param("openmpi", marks=pytest.mark.matrix), pytest.param("openmpi-5", marks=pytest.mark.matrix)],
)
def test_spawned_processes_are_a_world_of_their_own(name: str, tmp_path: Path) -> None:
    environment = dict(os.environ) | MORE_THAN_SLOTS
    done, document = profiled(tmp_path, *HERE, "--", program(name, "profiled"), "spawns", env=environment)
    assert done.returncode == 0, done.stderr
    assert sorted((one["spawned"], one["rank"]) for one in document["ranks"]) == [(False, 0), (False, 1), (True, 0)]
    assert "Spawned by the program: 1" in document["notes"]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("mpich-5", "killed"),
        *(
            pytest.param(name, mode, marks=pytest.mark.matrix)
            for name in THREE
            for mode in ("killed", "aborts", "leaves")
        ),
    ],
)
def test_a_program_that_dies_dies_as_without_and_leaves_what_was_recorded(name: str, mode: str, tmp_path: Path) -> None:
    built = program(name, "profiled")
    alone = launched(*HERE, "--", built, mode)
    done, document = profiled(tmp_path, *HERE, "--", built, mode)
    assert done.returncode == alone.returncode != 0, (done.stderr, alone.stderr)
    assert calls(document)["MPI_Recv"] == (50, 50 * 1024), "also of the rank that was killed"
    states = {one["rank"]: one["state"] for one in document["ranks"]}
    assert states[1] == ("aborted" if mode == "aborts" else "running")
    assert any("Rank 1" in note for note in document["notes"])


def test_a_program_that_never_ends_is_ended_and_says_where_it_was(tmp_path: Path) -> None:
    built = program("openmpi", "profiled")
    done, document = profiled(tmp_path, *HERE, "--limit", "3", "--", built, "hangs")
    assert done.returncode == 1 and "had not ended after 3 s" in done.stderr
    notes = " ".join(document["notes"])
    assert "Rank 1" in notes and "in MPI_Recv since" in notes and "outside MPI since" in notes
    assert document["exit_code"] is None and jobs_left_over() == set()


def test_an_interrupted_program_says_where_it_was(tmp_path: Path) -> None:
    """As one that hangs and is ended by Ctrl-C: its record would be of no use without the page."""
    folder = tmp_path / "profile"
    command = [BAREWIRE, "profile", "-o", str(folder), "--json", *HERE, "--", program("openmpi", "profiled"), "hangs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert eventually(lambda: len([*folder.glob("ranks/*.rank")]) == 2, 20)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    document = json.loads(printed)
    notes = " ".join(document["notes"])
    assert process.returncode == 130 and "The program was interrupted" in notes
    assert "Rank 1" in notes and "in MPI_Recv since" in notes
    assert document["exit_code"] is None and jobs_left_over() == set()
    assert (folder / "report.html").exists() and not [*folder.glob("ranks/*.rank")]


def test_a_fortran_program_that_never_ends_says_where_it_was(tmp_path: Path) -> None:
    _, document = profiled(tmp_path, *HERE, "--limit", "3", "--", fortran("openmpi", "with_mpif", tmp_path), "hang")
    notes = " ".join(document["notes"])
    assert "in MPI_Recv since" in notes and "outside MPI" not in notes


def test_what_others_ask_of_dlsym_is_answered_as_without(tmp_path: Path) -> None:
    """RTLD_NEXT means: after who asks. Were it asked by the profiler, a library after it would find itself for ever.

    CFLAGS of the user's environment do not change that.
    """
    (tmp_path / "next.c").write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <sys/types.h>\n"
        'pid_t getppid(void) { return ((pid_t(*)(void))dlsym(RTLD_NEXT, "getppid"))() + 0; }\n'
    )
    other = tmp_path / "next.so"
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "next.c"), "-o", str(other)], check=True)
    # Of a library of one function: the profiler's other thousand have no part in it.
    one = tmp_path / "one.so"
    (tmp_path / "one.c").write_text("int MPI_Send(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "one.c"), "-o", str(one)], check=True)
    make = ["make", "-s", "-C", str(ROOT / "mpi" / "profiler"), f"LIBRARY={one}", f"OUT={tmp_path}"]
    subprocess.run(make, check=True, env=dict(os.environ) | {"CFLAGS": "-O0 -fno-optimize-sibling-calls"})
    environment = dict(os.environ) | {"LD_PRELOAD": f"{tmp_path / PROFILER_FILE}:{other}"}
    command = ["python3", "-c", "import os; print(os.getppid())"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=20)
    assert done.returncode == 0 and done.stdout.strip() == str(os.getpid()), done.stderr


def test_a_function_that_the_library_lacks_is_lacking_in_the_profiler_too() -> None:
    """mpi4py looks whether there is an MPI_Send_c, which Open MPI has not, and calls what it finds."""
    look = "import ctypes; own = ctypes.CDLL(None); print(*(hasattr(own, name) for name in ('MPI_Send', 'MPI_Send_c')))"
    for name, seen in (("openmpi", "True False"), ("mpich-5", "True True")):
        environment = dict(os.environ) | {"LD_PRELOAD": str(build_profiler(library(name)))}
        done = subprocess.run(["python3", "-c", look], capture_output=True, text=True, env=environment, check=False)
        assert done.stdout.strip() == seen, done.stderr


def test_a_folder_that_cannot_be_written_is_said_and_harms_nothing(tmp_path: Path) -> None:
    built = program("mpich-5", "profiled")
    environment = dict(os.environ) | {
        "LD_PRELOAD": str(build_profiler(library("mpich-5"))),
        "BAREWIRE_PROFILE": str(tmp_path / "none"),
    }
    done = launched(*HERE, "--", built, "requests", env=environment)
    assert done.returncode == 0 and "this rank is not profiled" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-n", "2", "--library", "mpich", "--", "no-such-program"), 2, "no program 'no-such-program'"),
        (("-n", "2", "--library", "mpich", "--limit", "0", "--", "true"), 2, "above 0"),
        (("-n", "2", "--library", "mpich", "--rate", "1gbit", "--", "true"), 2, "add --lab"),
        (("-n", "2", "--library", "mpich", "--fabric", "tcp", "-o", "FULL", "--", "true"), 2, "is not empty"),
        # Not MPICH 4's launcher: on a busy machine it dies of a program that ends at once (SIGPIPE).
        (("-n", "2", "--library", "openmpi", "--fabric", "tcp", "-o", "NEW", "--", "true"), 1, "called MPI_Init"),
    ],
)
def test_bad_input_says_what_to_do(arguments: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    library("mpich")
    library("openmpi")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    places = {"FULL": str(tmp_path / "full"), "NEW": str(tmp_path / "new")}
    done = barewire("profile", *(places.get(word, word) for word in arguments))
    assert done.returncode == code and said in " ".join(done.stderr.split()), done.stderr


# One line of calls.def: name, its arguments, and which of them tells what.
_ENTRY = re.compile(
    r"^CALL(?:_BOTH)?\((\w+), (?:[a-z_]+, )?(\d+), (?:\d+, )?([A-Z_]+)((?:, \.\w+ = \d+)*)\)$", re.MULTILINE
)
_ROLES: dict[str, Callable[[str], bool]] = {
    "count": lambda name: name in ("count", "sendcount", "recvcount", "origin_count"),
    "count_2": lambda name: name in ("recvcount", "sendcount"),
    "counts": lambda name: name in ("sendcounts", "recvcounts"),
    "type": lambda name: name in ("datatype", "type", "sendtype", "recvtype", "origin_datatype"),
    "type_2": lambda name: name in ("recvtype", "sendtype"),
    "partitions": lambda name: name == "partitions",
    "buffer": lambda name: name in ("sendbuf", "recvbuf"),
    "comm": lambda name: name == "comm",
    "peer": lambda name: name in ("dest", "source", "root", "target_rank", "rank"),
    "request": lambda name: name in ("request", "newcomm_request"),
    "requests": lambda name: name in ("request", "array_of_requests"),
    "request_count": lambda name: name in ("count", "incount"),
    "completed": lambda name: name in ("index", "indx", "array_of_indices"),
    "completed_count": lambda name: name == "outcount",
    "flag": lambda name: name == "flag",
    "wide": lambda name: True,
}


@pytest.mark.parametrize("name", [*WITH_LIBFABRIC, "mpich"])
def test_the_table_of_calls_is_what_the_librarys_header_declares(name: str) -> None:
    """Every prototype that a library has: as many arguments, and in each role one whose name says so."""
    header = _header_of(name)
    table = (ROOT / "mpi" / "profiler" / "calls.def").read_text()
    entries = _ENTRY.findall(table)
    assert len(entries) == sum(line.startswith("CALL") for line in table.splitlines())
    compared = 0
    for call, count, _, roles in entries:
        declared = re.search(rf"\bint\s+MPI_{call}\s*\(([^;]*?)\)\s*[^();]*(?:\([^;]*\))?[^;]*;", header)
        if declared is None:
            continue
        names = [_name_of(argument) for argument in declared[1].split(",")]
        assert len(names) == int(count), call
        for role, position in re.findall(r"\.(\w+) = (\d+)", roles):
            assert _ROLES[role](names[int(position) - 1]), (call, role, names)
        compared += 1
    # Open MPI 4.1 has those of MPI 3.1.
    assert compared > 165


def _header_of(name: str) -> str:
    chosen = library(name)
    try:
        compiler = chosen.program("mpicc")
    except MachineCannot as error:
        pytest.skip(str(error))
    environment = dict(os.environ) | {"I_MPI_ROOT": str(chosen.prefix)}
    command = [compiler, "-E", "-P", "-x", "c", "-"]
    done = subprocess.run(command, input="#include <mpi.h>\n", capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def _name_of(argument: str) -> str:
    return re.sub(r"\[.*", "", argument).replace("*", " ").split()[-1]
