# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire run` on hosts that it did not make: by a real sshd on each of two, and as a job of a real Slurm."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_site import ADDRESSES, Cluster, standing_cluster
from conftest import BAREWIRE, PROBE, barewire, eventually
from mpi_libraries import USUAL, library, needs, program

from barewire.mpi import Family, Job, start
from barewire.mpi.explain import read_evidence

pytestmark = pytest.mark.usefixtures("lab_allowed")

ON_BOTH = ("run", "-n", "2", "--hosts", ADDRESSES, "--interface", "eth0")
MEASURE = ("mpi", "pingpong", "--library", "openmpi,mpich-5", "--fabric", "barewire", "--interface", "eth0")
MEASURE += ("--sizes", "8", "--launches", "1..1", "--seconds", "0.05", "--json")
# What runs in a host besides this shell and is this program. Nothing is started to find it: there are many processes.
KILL = """
for process in /proc/[0-9]*; do
    [ $process/exe -ef "$0" ] && [ $process/ns/net -ef /proc/self/ns/net ] && kill -9 ${process#/proc/} && exit 0
done
exit 1
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Cluster]:
    """Two hosts with a sshd on each."""
    needs("barewire")
    with standing_cluster() as cluster:
        cluster.allow_ssh()
        yield cluster


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    """Two hosts that are a cluster of Slurm's."""
    needs("barewire")
    with standing_cluster() as cluster:
        cluster.start_slurm()
        yield cluster


@pytest.mark.parametrize("name", USUAL)
def test_a_program_runs_over_frames_on_two_hosts_that_ssh_reaches(hosts: Cluster, name: str) -> None:
    """Nothing but the launcher's own ssh takes the ranks there, and every byte that they get is checked."""
    done = hosts.barewire(*ON_BOTH, "--explain", "--json", "--", program(name, "pingpong"), "100", "1024")
    assert done.returncode == 0, done.stderr
    assert path_of(done)["ranks"]["taken"] == "1 on 10.77.0.1, 1 on 10.77.0.2"
    has_run_over_frames(done)


@pytest.mark.parametrize("name", ["openmpi", "openmpi-5", "mpich-5"])
def test_a_plain_launcher_in_a_shell_with_the_module_passes_its_variables_on_by_ssh(hosts: Cluster, name: str) -> None:
    """Unlike the lab's replacement, sshd passes on nothing of the shell's, so the launcher must."""
    job = Job(library(name), (("10.77.0.1", 1), ("10.77.0.2", 1)), (), witness_of(name), in_lab=True, as_root=True)
    environment = {"PATH": hosts.environment()["PATH"], "HOME": str(hosts.folder)} | module_variables(hosts.folder)
    options = {"capture_output": True, "text": True, "timeout": 60, "check": False}
    done = hosts.lab.run("h1", job.command({}), env=environment, **options)
    seen_by_ranks_over_frames(done)


@pytest.mark.parametrize("name", USUAL)
def test_a_host_without_sshd_is_an_error_and_no_hang(hosts: Cluster, name: str) -> None:
    """Nobody listens at h2's second address."""
    hosts.lab.run("h2", ["ip", "address", "replace", "10.77.0.3/24", "dev", "eth0"], check=True)
    where = ("--hosts", "10.77.0.1,10.77.0.3", "--interface", "eth0")
    done = hosts.barewire("run", "-n", "2", *where, "--", program(name, "pingpong"), "100", "8")
    assert done.returncode not in (0, 130), done.stdout
    reasons = ["10.77.0.3 port 22: Connection refused"]
    if name == "intel":
        reasons = ["Unable to run bstrap_proxy on 10.77.0.3"]
    elif name == "mpich-5":
        # Its launcher may end before it has passed on what ssh said.
        reasons.append("Launch proxy failed")
    assert any(reason in done.stderr for reason in reasons), done.stderr
    assert "bytes" not in done.stdout


@pytest.mark.parametrize("name", USUAL)
def test_a_rank_that_is_killed_on_the_other_host_ends_the_run(hosts: Cluster, name: str) -> None:
    endless = program(name, "stream")
    with running(hosts, endless) as process:
        kill = ["sh", "-c", KILL, endless]
        assert eventually(lambda: hosts.lab.run("h2", kill, check=False).returncode == 0, 30), "it runs on h2"
        assert process.wait(30) not in (0, 130)
    assert eventually(lambda: hosts.lab.run("h1", kill, check=False).returncode == 1), "the other rank has ended, too"


def test_a_host_that_is_cut_off_ends_the_run_with_the_providers_reason(hosts: Cluster) -> None:
    """After its patience; Open MPI's launcher then waits for its daemon there, as docs/provider.md says.

    What a rank says just before MPI_Abort, MPICH's launcher loses in about one of forty runs on busy cores, over
    every fabric: the reason has three runs to be seen in."""
    assert any("No route to host" in said_when_cut_off(hosts) for _ in range(3))


def said_when_cut_off(hosts: Cluster) -> str:
    with running(hosts, program("mpich-5", "stream"), FI_BAREWIRE_PATIENCE="2") as process:
        before = frames(hosts)
        assert eventually(lambda: frames(hosts) > before + 20_000, 30), "ranks exchange messages"
        hosts.lab.set_link("h2", False)
        try:
            assert process.wait(30) not in (0, 130)
        finally:
            hosts.lab.set_link("h2", True)
    return (hosts.folder / "said").read_text()


@pytest.mark.parametrize("name", USUAL)
def test_a_program_runs_over_frames_in_an_allocation_of_slurms(slurm: Cluster, name: str) -> None:
    """srun starts the ranks, by PMIx for Open MPI and PMI-2 for the others."""
    command = [BAREWIRE, "run", "-n", "2", "--interface", "eth0", "--explain", "--json", "--"]
    done = slurm.run(["salloc", "-N2", "-n2", *command, program(name, "pingpong"), "100", "1024"])
    assert done.returncode == 0, done.stderr
    assert path_of(done)["ranks"]["taken"] == "2 in the allocation"
    has_run_over_frames(done)


@pytest.mark.parametrize("name", ["openmpi", "mpich-5"])
def test_srun_uses_barewire_by_its_task_prolog(slurm: Cluster, name: str) -> None:
    module_variables(slurm.folder)
    pmi = "--mpi=pmix" if library(name).family is Family.OPEN_MPI else "--mpi=pmi2"
    prolog = f"--task-prolog={slurm.folder}/prolog"
    seen_by_ranks_over_frames(slurm.run(["srun", "-N2", "-n2", pmi, prolog, *witness_of(name)]))


def test_a_job_script_runs_and_its_exit_code_is_the_programs(slurm: Cluster) -> None:
    """The script of docs/provider.md, by sbatch."""
    script = slurm.folder / "job.sh"
    script.write_text(f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --output={slurm.folder}/job.log
export FI_BAREWIRE_INTERFACE=eth0
{BAREWIRE} run -n "$SLURM_NTASKS" --explain --json -- {program("mpich-5", "pingpong")} 100 8
{BAREWIRE} run -n "$SLURM_NTASKS" --library mpich-5 -- sh -c 'exit 7'
""")
    done = slurm.run(["sbatch", "--parsable", str(script)])
    assert done.returncode == 0, done.stderr

    # `sbatch --wait` looks ever more seldom.
    def ended() -> str:
        job = slurm.run(["scontrol", "show", "job", done.stdout.strip()]).stdout
        return job if "JobState=RUNNING" not in job and "JobState=PENDING" not in job else ""

    assert eventually(lambda: bool(ended()), 60), ended()
    said = (slurm.folder / "job.log").read_text()
    assert "ExitCode=7:0" in ended(), ended() + said
    assert '"bytes": 8' in said and "2 answered: 1 on h1, 1 on h2" in said


def test_hosts_of_an_allocation_that_are_named_are_all_that_srun_takes(slurm: Cluster) -> None:
    """srun -w alone would take the allocation's other node, too."""
    command = [BAREWIRE, "run", "-n", "2", "--hosts", "h2", "--fabric", "tcp", "--explain", "--json"]
    done = slurm.run(["salloc", "-N2", "-n4", *command, "--library", "mpich-5", "--", "hostname"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["h2", "h2"]
    assert path_of(done)["ranks"]["seen"] == "2 answered: 2 on h2"


def test_ranks_that_srun_puts_elsewhere_are_noticed(slurm: Cluster) -> None:
    """Three ranks as 1 and 2, where srun fills the first node first."""
    command = [BAREWIRE, "run", "-n", "3", "--hosts", "h1:1,h2:2", "--fabric", "tcp", "--explain"]
    done = slurm.run(["salloc", "-N2", "-n4", *command, "--library", "mpich-5", "--", "hostname"])
    assert done.returncode == 3 and "ranks: they are 2 on h1, 1 on h2" in done.stderr, done.stderr


def test_more_ranks_than_the_allocation_takes_are_sruns_error(slurm: Cluster) -> None:
    command = [BAREWIRE, "run", "-n", "5", "--fabric", "tcp", "--library", "mpich-5", "--", "hostname"]
    done = slurm.run(["salloc", "-N2", "-n2", *command])
    assert done.returncode == 1 and "More processors requested than permitted" in done.stderr, done.stderr


def test_libraries_are_measured_in_an_allocation(slurm: Cluster) -> None:
    done = slurm.run(["salloc", "-N2", "-n2", BAREWIRE, *MEASURE, "--slurm", "-o", str(slurm.folder / "run")])
    assert measured(done) == {"openmpi/barewire", "mpich-5/barewire"}


def test_libraries_are_measured_on_hosts_that_ssh_reaches(hosts: Cluster) -> None:
    done = hosts.barewire(*MEASURE, "--hosts", ADDRESSES, "-o", str(hosts.folder / "run"))
    assert measured(done) == {"openmpi/barewire", "mpich-5/barewire"}


@pytest.mark.matrix
def test_a_study_is_made_on_hosts_that_ssh_reaches(hosts: Cluster) -> None:
    """Steps that only a lab can make are left out, and the page says so; what is left has verdicts."""
    folder = hosts.folder / "study"
    hosts.put_program("barewire-probe", f'exec {PROBE} "$@"')
    done = hosts.barewire("study", "run", "paz2010", "--quick", *ON_BOTH[3:], "-o", str(folder))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Step 'capture' was left out: needs --capture in a lab, not real hosts" in " ".join(done.stdout.split())
    assert (folder / "raw" / "run.json").is_file(), done.stdout


def measured(done: "subprocess.CompletedProcess[str]") -> set[str]:
    assert done.returncode == 0, done.stderr
    return {series["subject"] for series in json.loads(done.stdout)["series"] if series["message_bytes"] == 8}


@contextlib.contextmanager
def running(hosts: Cluster, endless: str, **more: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A stream between both hosts that lasts, which is ended with the block; what it says is in a file."""
    command = [BAREWIRE, *ON_BOTH, "--", endless, "1000000"]
    with (hosts.folder / "said").open("w") as said:
        process = hosts.lab.popen("h1", command, env=hosts.environment(**more), stdout=said, stderr=said)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()


def frames(hosts: Cluster) -> int:
    """How many h2 has sent."""
    counter = ["cat", "/sys/class/net/eth0/statistics/tx_packets"]
    return int(hosts.lab.run("h2", counter, capture_output=True, check=True).stdout)


def path_of(done: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, str]]:
    line = next(line for line in done.stderr.splitlines() if line.startswith("{"))
    return {row["what"]: row for row in json.loads(line)["path"]}


def has_run_over_frames(done: "subprocess.CompletedProcess[str]") -> None:
    path = path_of(done)
    assert path["ranks"]["seen"] == "2 answered: 1 on h1, 1 on h2"
    assert "libbarewire-fi.so" in path["provider"]["taken"] and "2 of 2" in path["provider"]["seen"]
    assert path["interface"]["taken"] == "eth0, MTU 1500"
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [result["bytes"] for result in results] == [0, *(2**power for power in range(11))]


def module_variables(folder: Path) -> dict[str, str]:
    """What a modulefile sets; the file `prolog`, a TaskProlog, prints the same."""
    prolog = folder / "prolog"
    prolog.write_text(barewire("modulefile", "slurm").stdout)
    prolog.chmod(0o755)
    printed = subprocess.run([str(prolog)], capture_output=True, text=True, check=True, env={}).stdout
    return dict(line.removeprefix("export ").split("=", 1) for line in printed.splitlines())


def witness_of(name: str) -> tuple[str, ...]:
    """A rank that inspects itself."""
    return (sys.executable, "-I", "-S", str(Path(start.__file__).with_name("witness.py")), str(library(name).file))


def seen_by_ranks_over_frames(done: "subprocess.CompletedProcess[str]") -> None:
    ranks = read_evidence(done.stdout).ranks
    assert done.returncode == 0 and len(ranks) == 2, done.stdout + done.stderr
    assert [list(rank["reached"].values()) for rank in ranks] == [["frames"], ["frames"]], ranks
