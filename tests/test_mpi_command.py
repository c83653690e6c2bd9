# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire mpi` as its user runs it: real libraries over real fabrics, small; whose fault it is if not."""

import json
import os
import re
import signal
import stat
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import BAREWIRE, ROOT, barewire, eventually, processes_with
from mpi_libraries import WITH_LIBFABRIC, library, needs

from barewire.errors import MachineCannot
from barewire.models.naming import read_mpi_subject
from barewire.mpi import suite
from barewire.results.store import read_run, samples

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

SHORT = ("--launches", "1", "--samples", "5", "--warmup", "1", "--seconds", "0.01")
SWEEP = ("--", "--points", "4", "--train", "16")


def mpi(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return barewire("mpi", *arguments, **options)


def libraries(least: int) -> list[str]:
    """Names of those installed that reach every fabric here and can build; a loud skip below `least`."""
    found = []
    for name in WITH_LIBFABRIC:
        try:
            library(name).program("mpicc")
        except (pytest.skip.Exception, MachineCannot):
            continue
        found.append(name)
    if len(found) < least:
        pytest.skip(f"fewer than {least} MPI libraries: make setup; apt install openmpi-bin libopenmpi-dev")
    return found


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One run of several tests under all libraries over TCP and Barewire."""
    needs("barewire")
    directory = tmp_path_factory.mktemp("mpi") / "run"
    chosen = ",".join(libraries(3))
    where = ("--library", chosen, "--fabric", "barewire,tcp", "--sizes", "8,20000", "-o", str(directory))
    patterns = mpi("pingpong,stream,alltoall", *where, *SHORT, "--json")
    assert patterns.returncode == 0, patterns.stderr
    return directory, json.loads(patterns.stdout)


def test_every_test_of_every_library_over_every_fabric_has_its_series(measured: tuple[Path, dict[str, Any]]) -> None:
    directory, document = measured
    assert document["complete"] and document["parameters"]["kind"] == "mpi"
    # A virtual machine's cores may be moved meanwhile.
    assert [warning for warning in document["warnings"] if not warning.startswith("cores ")] == []
    expected = {f"{name}/{fabric}" for name in libraries(3) for fabric in ("barewire", "tcp")}
    for test, unit in (("pingpong", "us"), ("stream", "Mbit/s"), ("alltoall", "us")):
        series = [one for one in document["series"] if one["test"] == test]
        assert {one["subject"] for one in series} == expected
        assert {one["message_bytes"] for one in series} == {8, 20000}
        assert all(one["unit"] == unit and one["median"] > 0 and one["ranks"] == 2 for one in series)
    assert {one["variant"] for one in document["series"] if one["test"] == "pingpong"} == {"blocking-standard"}
    assert len({one["variant"] for one in document["series"] if one["test"] == "alltoall"}) == 5
    assert all(read_mpi_subject(one["subject"]) for one in document["launches"])
    order = [one["subject"] for one in document["launches"]]
    assert len(order) == 3 * len(expected) and order != sorted(order)
    assert not (directory / "launches").exists()


def test_ranks_are_on_hosts_and_cores_of_their_own(measured: tuple[Path, dict[str, Any]]) -> None:
    _, document = measured
    for launch in document["launches"]:
        start = launch["start"]
        assert start["hosts"] == ["h1", "h2"] and start["ranks"] == 2
        if len(os.sched_getaffinity(0)) == 2:
            assert len({cpu for cpu, _ in start["cpus"]}) == 2 and {allowed for _, allowed in start["cpus"]} == {1}
    named = {launch["subject"].split("/")[0]: launch["start"]["library"] for launch in document["launches"]}
    assert all(str(library(name)).split()[-1] in said for name, said in named.items()), (
        "each is the library it is called"
    )


def test_every_sample_is_on_disk_warm_up_too(measured: tuple[Path, dict[str, Any]]) -> None:
    directory, document = measured
    frame = samples(directory)
    assert {*frame["phase"].unique()} == {"warmup", "measure"}
    one = next(one for one in document["series"] if one["test"] == "alltoall")
    keys = {name: one[name] for name in ("test", "subject", "variant", "message_bytes")}
    part = frame.filter(pl.all_horizontal(pl.col(name) == value for name, value in keys.items()))
    slowest = part.filter(pl.col("phase") == "measure").group_by("block").agg(pl.col("value").max())
    assert slowest["value"].median() == pytest.approx(one["median"]) and {*part["rank"]} == {0, 1}


def test_the_report_and_the_comparison_tell_the_same(measured: tuple[Path, dict[str, Any]]) -> None:
    directory, document = measured
    assert barewire("report", str(directory)).returncode == 0
    page = (directory / "report.html").read_text()
    for test in ("pingpong", "stream", "alltoall"):
        assert f'<section id="{test}-1-1-2' in page
    assert "executions of mpirun" in page and "the same library over TCP" in page
    compared = json.loads(barewire("compare", str(directory), "--json").stdout)["comparisons"]
    assert {(one["subject"], one["against"]) for one in compared} == {
        (f"{name}/barewire", f"{name}/tcp") for name in libraries(3)
    }
    variants = barewire("compare", str(directory), "--variant", "collective", "--json")
    assert {one["variant"] for one in json.loads(variants.stdout)["comparisons"]} == {
        one["variant"] for one in document["series"] if one["test"] == "alltoall"
    } - {"collective"}


def test_a_run_is_modelled_and_more_ranks_are_predicted_from_it(
    measured: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Two sizes are no line, but enough to predict between them."""
    directory, document = measured
    modelled = barewire("model", str(directory), "--json")
    assert modelled.returncode == 0, modelled.stderr
    fits = json.loads(modelled.stdout)["latency"]
    assert {fit["subject"] for fit in fits} == {one["subject"] for one in document["series"]}
    assert all("3 sizes or more" in fit["hockney"]["cannot_say"] for fit in fits)
    (tmp_path / "model.json").write_text(modelled.stdout)
    asked = ("--kernel", "bcast", "-n", "2,4", "--cores", "4", "--sizes", "8,20000", "--json")
    done = barewire("predict", str(tmp_path / "model.json"), *asked)
    assert done.returncode == 0, done.stderr
    trees = [one for one in json.loads(done.stdout)["predictions"] if one["way"] == "binomial tree"]
    times = {(one["subject"], one["ranks"], one["message_bytes"]): one["time_us"]["value"] for one in trees}
    for fit in fits:
        two, four = (times[fit["subject"], ranks, 8] for ranks in (2, 4))
        assert four == pytest.approx(2 * two) and two > 0
        (median,) = (
            one["median"]
            for one in document["series"]
            if (one["test"], one["subject"], one["message_bytes"]) == ("pingpong", fit["subject"], 8)
        )
        assert two == pytest.approx(median)
    assert barewire("predict", str(directory), "--kernel", "nosuch").returncode == 2


@pytest.mark.matrix
def test_parameters_of_logp_are_fitted_and_shown(tmp_path: Path) -> None:
    """Two messages so different that their overheads are, too; over TCP, where both are plain to see."""
    library("openmpi")
    output = ("-o", str(tmp_path / "run"))
    done = mpi("logp", "--library", "openmpi", "--fabric", "tcp", "--sizes", "8,65536", *SHORT, *output, *SWEEP)
    assert done.returncode == 0, done.stderr
    assert "Parametrised LogP: openmpi/tcp, 2 ranks" in done.stdout and "EEL µs" in done.stdout
    run = read_run(tmp_path / "run")
    medians = {(one.quantity, one.message_bytes): one.median for one in run.series}
    for size in (8, 65536):
        assert medians["eel", size] > 0 and medians["gap", size] > 0
    # What a busy machine bends beyond reading is a warning, and nothing is made up.
    told = {quantity for quantity, size in medians if size == 8}
    assert {"os", "or"} <= told or any("logp openmpi/tcp" in warning for warning in run.warnings)
    assert barewire("report", str(tmp_path / "run")).returncode == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Against the computation" in page and "Os + Or ≤ 2·EEL" in page


def test_an_eager_limit_moves_the_switch_to_rendezvous(tmp_path: Path) -> None:
    """Debian's Open MPI over TCP, whose rendezvous costs a round trip: the break is where the limit was put."""
    library("openmpi")
    sizes = ",".join(
        str(size) for size in (64, 256, 1024, 2048, 3072, 4000, 4096, 4200, 5000, 6000, 8000, 10000, 14000)
    )
    where = ("--library", "openmpi", "--fabric", "tcp", "--eager", "4096", "-o", str(tmp_path / "run"))
    effort = ("--launches", "3", "--samples", "200", "--seconds", "0.05")
    done = mpi("pingpong", *where, *effort, "--sizes", sizes, "--mtu", "9000", "--json")
    assert done.returncode == 0, done.stderr
    (law,) = json.loads(done.stdout)["laws"]
    assert law["subject"] == "openmpi/tcp+eager=4096"
    assert any(one["low"] <= 4096 and one["high"] > 4000 and one["jump"] > 0 for one in law["breaks"]), law["breaks"]


def test_mtus_and_eager_limits_are_factors_of_one_run(tmp_path: Path) -> None:
    """On a wire six frames take longer than one: 8000 bytes on the wrong links would be faster than possible."""
    library("openmpi")
    where = ("--library", "openmpi", "--fabric", "tcp", "--rate", "100mbit", "-o", str(tmp_path / "run"))
    done = mpi("pingpong", *where, "--mtu", "9000,1500", "--eager", "default,4KiB", "--sizes", "8000", *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    subjects = [f"openmpi/tcp{eager}+mtu={mtu}" for eager in ("", "+eager=4096") for mtu in (1500, 9000)]
    assert sorted(one["subject"] for one in document["launches"]) == sorted(subjects)
    limits = {one["subject"]: one["limit"] for one in document["series"]}
    assert limits[subjects[0]] == limits[subjects[2]] > 1.04 * limits[subjects[1]]
    assert {one["verdict"] for one in document["series"]} == {"ok"}


@pytest.mark.matrix  # beside other tests TCP's times vary too much for a verdict
def test_refined_sizes_locate_the_second_segment(tmp_path: Path) -> None:
    """Over TCP a message that fills more than one segment of 1448 bytes, with the library's header, takes longer."""
    library("openmpi")
    where = ("--library", "openmpi", "--fabric", "tcp", "--sizes", "1KiB..2KiB", "-o", str(tmp_path / "run"))
    effort = ("--launches", "4..8", "--samples", "200", "--seconds", "0.02")
    done = mpi("pingpong", *where, *effort, "--refine", "0.1", "--refine-smallest", "128", "--json")
    assert done.returncode == 0, done.stderr
    medians = {one["message_bytes"]: one["median"] for one in json.loads(done.stdout)["series"]}
    steps = [
        (low, high)
        for low, high in pairwise(sorted(medians))
        if high - low <= 128 and medians[high] > 1.2 * medians[low]
    ]
    assert len(steps) == 1 and 1250 <= steps[0][0] < 1448, medians


def test_ranks_that_share_a_host_share_its_cores_and_the_run_says_so(tmp_path: Path) -> None:
    library("openmpi")
    where = ("--library", "openmpi", "--fabric", "tcp", "--lab", "pair", "-n", "4", "-o", str(tmp_path / "run"))
    done = mpi("halo", *where, "--sizes", "8", "--variants", "irecv-isend", *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["launches"][0]["start"]["hosts"] == ["h1", "h1", "h2", "h2"]
    if len(os.sched_getaffinity(0)) < 4:
        assert any("more ranks than cores (4)" in warning for warning in document["warnings"])


def test_this_machine_alone_is_a_place_too(tmp_path: Path) -> None:
    """Shared memory needs one host; the launcher binds the ranks."""
    library("openmpi")
    where = ("--hosts", "localhost", "--library", "openmpi", "--fabric", "shm", "-o", str(tmp_path / "run"))
    done = mpi("pingpong", *where, "--sizes", "8", *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["series"]
    assert one["subject"] == "openmpi/shm" and one["verdict"] == "no limit known"


def test_in_an_allocation_srun_starts_the_ranks(tmp_path: Path) -> None:
    """A stand-in for srun writes down what it was asked for, and runs the program as a launcher would."""
    launcher = library("mpich-5").program("mpirun")
    srun = tmp_path / "srun"
    srun.write_text(f"""#!/bin/sh
printf '%s\\n' "$*" >>{tmp_path}/asked
while [ "$1" != -n ]; do shift; done
ranks=$2
while [ "${{1#/}}" = "$1" ]; do shift; done
unset SLURM_JOB_ID SLURM_JOB_NUM_NODES SLURM_NTASKS
exec {launcher} -launcher fork -n "$ranks" "$@"
""")
    srun.chmod(stat.S_IRWXU)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "2"}
    environment = dict(os.environ) | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    where = ("--slurm", "--library", "mpich-5", "--fabric", "shm")
    output = ("-o", str(tmp_path / "run"))
    done = mpi("pingpong", *where, "--sizes", "8", *SHORT, *output, env=environment)
    assert done.returncode == 2 and "within one host" in done.stderr, done.stderr
    environment |= {"SLURM_JOB_NUM_NODES": "1"}
    done = mpi("pingpong", *where, "--sizes", "8", *SHORT, *output, env=environment)
    assert done.returncode == 0, done.stderr
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.startswith("-n 2 --export=ALL --mpi=pmi2 --cpu-bind=cores ")


def test_the_job_script_of_the_guide_is_one() -> None:
    guide = (ROOT / "docs" / "mpi.md").read_text()
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", guide, re.DOTALL)
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert script.count("#SBATCH") >= 4 and "--slurm" in script
    # Every option that it uses is one of the command's.
    known = mpi("--help", env=dict(os.environ) | {"COLUMNS": "200"}).stdout
    for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", script.partition("set -euo pipefail")[2]):
        assert option in known or option in ("--order",), option


# What goes wrong


@pytest.mark.parametrize(
    ("test", "arguments", "code", "said"),
    [
        ("pingpong", ("-n", "3"), 2, "pingpong: needs an even number of ranks, not 3"),
        ("pingpong", ("--pairs", "7"), 2, "--pairs 7 needs twice as many ranks; there are 2"),
        ("pingpong", ("--variants", "nosuch"), 2, "no variant 'nosuch'"),
        ("halo", ("--", "--nosuch", "1"), 2, "unknown option --nosuch"),
        ("pingpong", ("--", "--corrupt", "1"), 1, "WRONG RESULT"),
        ("pingpong", ("--library", "mpich", "--fabric", "barewire"), 3, "built for ucx only"),
        ("pingpong", ("--fabric", "ofi-tcp", "--eager", "1024"), 3, "no eager limit over ofi-tcp"),
        ("pingpong", ("--fabric", "shm"), 2, "within one host"),
        ("pingpong", ("--refine", "0"), 2, "between 0 and 1"),
        ("pingpong", ("--refine", "0.05"), 2, "a range of message sizes"),
        ("logp", ("--refine", "0.05", "--sizes", "8..64"), 2, "which logp does not give"),
    ],
)
def test_whose_fault_it_is(tmp_path: Path, test: str, arguments: tuple[str, ...], code: int, said: str) -> None:
    for name in ("openmpi", "mpich"):
        library(name)
    chosen = arguments if "--library" in arguments else ("--library", "openmpi", *arguments)
    chosen = chosen if "--fabric" in arguments else ("--fabric", "tcp", *chosen)
    done = mpi(test, "--sizes", "8", *SHORT, "-o", str(tmp_path / "run"), *chosen)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split()), done.stderr


def test_a_wrong_result_names_launch_rank_and_byte_and_the_run_is_marked(tmp_path: Path) -> None:
    library("openmpi")
    where = ("--library", "openmpi", "--fabric", "tcp", "--sizes", "64", "-o", str(tmp_path / "run"))
    done = mpi("pingpong", *where, *SHORT, "--", "--corrupt", "1")
    assert done.returncode == 1
    assert re.search(r"launch 0 \(pingpong openmpi/tcp × 2\) ended with code 1", done.stderr)
    assert re.search(r"rank \d+.*WRONG RESULT.*byte \d+ of 64", done.stderr)
    assert "marked incomplete" in done.stderr
    run = read_run(tmp_path / "run")
    assert not run.complete and "WRONG RESULT" in str(run.stopped_by)


def test_a_rank_that_dies_ends_the_run_with_what_was_said(tmp_path: Path) -> None:
    """Long enough to be found: the rank of the second host is killed while it measures."""
    library("openmpi")
    where = ("--library", "openmpi", "--fabric", "tcp", "--sizes", "8", "-o", str(tmp_path / "run"))
    command = [BAREWIRE, "mpi", "pingpong", *where, "--launches", "1", "--seconds", "60", "--samples", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert eventually(lambda: len(ranks_of(tmp_path)) == 2, 30)
        time.sleep(0.3)
        os.kill(ranks_of(tmp_path)[-1], signal.SIGKILL)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 1, said
    assert "launch 0 (pingpong openmpi/tcp × 2) ended with code" in said and "Last output" in said
    assert not read_run(tmp_path / "run").complete


def test_a_launch_that_hangs_is_ended_after_its_patience(tmp_path: Path) -> None:
    """A rank that is stopped says nothing more."""
    library("openmpi")
    where = ("--library", "openmpi", "--fabric", "tcp", "--sizes", "8", "-o", str(tmp_path / "run"))
    effort = ("--launches", "1", "--seconds", "60", "--samples", "1000000", "--patience", "2")
    with subprocess.Popen(
        [BAREWIRE, "mpi", "pingpong", *where, *effort], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        assert eventually(lambda: len(ranks_of(tmp_path)) == 2, 30)
        stopped = ranks_of(tmp_path)[-1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            _, said = running.communicate(timeout=60)
        finally:
            if stopped in ranks_of(tmp_path):
                os.kill(stopped, signal.SIGCONT)
    assert running.returncode == 1 and "hangs: no new record for 2 s" in said, said


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    library("openmpi")
    (tmp_path / "file").touch()
    where = ("--library", "openmpi", "--fabric", "tcp", "-o", str(tmp_path / "file" / "run"))
    done = mpi("pingpong", *where, *SHORT)
    assert done.returncode == 2 and f"{tmp_path}/file/run cannot be created" in done.stderr, done.stderr


def ranks_of(marker: Path) -> list[int]:
    """The ranks that write into this directory, by number."""
    found = []
    for number in processes_with(os.environ["XDG_RUNTIME_DIR"]):
        try:
            command = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command[0].startswith(str(suite.BUILT).encode()) and str(marker).encode() in b" ".join(command):
            found.append(int(number))
    return sorted(found)
