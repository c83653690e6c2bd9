# SPDX-License-Identifier: Apache-2.0 OR MIT
"""After `barewire enable` a plain mpirun of each library sends its messages over Barewire, and after `disable` not.

Ranks inspect themselves (`barewire.mpi.witness`): the files they have mapped, and by what they reach their peers. Their
environment has no variable of any MPI library or of libfabric; only the lab's replacement of ssh is named in one.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import barewire, stand_up
from mpi_libraries import SOURCES, USUAL, WITH_LIBFABRIC, library, needs

from barewire import installed
from barewire.lab import Lab
from barewire.mpi import Job, start
from barewire.mpi.explain import Evidence, read_evidence
from barewire.mpi.fabrics import PROVIDER_FILE
from barewire.mpi.libraries import Family
from barewire.mpi.placement import LOCAL_HOST

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

BOTH, ONE = (("h1", 1), ("h2", 1)), ((LOCAL_HOST, 2),)
# A host on which the provider is not installed.
LACKING = ("sh", "-c", '[ $(hostname) = h1 ] || export FI_PROVIDER_PATH=/none; exec "$@"', "sh")
WITNESS = Path(start.__file__).with_name("witness.py")


class Site:
    """Two hosts, and the home of a user who has nothing in it."""

    def __init__(self, lab: Lab, home: Path) -> None:
        self.lab, self.home = lab, home
        (lab.directory / "tmp").mkdir()

    def barewire(self, *arguments: str, code: int = 0) -> str:
        """Run the command as this user."""
        done = barewire(*arguments, env=self.environment())
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def witnesses(
        self,
        name: str,
        shares: tuple[tuple[str, int], ...] = BOTH,
        more: dict[str, str] | None = None,
        by: tuple[str, ...] = (),
    ) -> tuple[int, Evidence, str]:
        """Start witnesses by the library's plain launcher: its exit code, what they saw, and the whole output.

        `by` is a command that starts each.
        """
        chosen = library(name)
        shell, hosts = self.lab.remote_shell()
        program = (*by, sys.executable, "-I", "-S", str(WITNESS), str(chosen.file))
        job = Job(chosen, shares, (), program, remote_shell=shell, in_lab=True, as_root=True, python=sys.executable)
        environment = self.environment() | job.environment() | hosts | (more or {})
        if chosen.family is Family.INTEL:
            environment["I_MPI_ROOT"] = str(chosen.prefix)
        command = self.lab.command("h1", job.command(environment))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        output = done.stdout + done.stderr
        return done.returncode, read_evidence(output), output

    def environment(self) -> dict[str, str]:
        """Nothing that concerns MPI."""
        kept = {name: os.environ[name] for name in ("PATH", "XDG_RUNTIME_DIR")}
        return kept | {"HOME": str(self.home), "TMPDIR": str(self.lab.directory / "tmp")}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    needs("barewire")
    with stand_up("pair") as lab:
        yield Site(lab, tmp_path)


def over_barewire(evidence: Evidence) -> list[bool]:
    return [any(file.endswith(f"/{PROVIDER_FILE}") for file in rank["files"]) for rank in evidence.ranks]


@pytest.mark.parametrize("name", USUAL)
def test_plain_mpirun_uses_barewire_from_enable_to_disable(name: str, site: Site) -> None:
    library(name)
    site.barewire("enable", "--user", "--library", name)
    (state,) = json.loads(site.barewire("status", "--library", name, "--json"))["libraries"]
    assert state["in_force"] and not state["problems"] and state["by"][0].startswith("user: "), state

    code, evidence, output = site.witnesses(name)
    assert code == 0 and over_barewire(evidence) == [True, True], output
    assert [list(rank["reached"].values()) for rank in evidence.ranks] == [["frames"], ["frames"]], output
    assert all("eth0" in rank["packet"] for rank in evidence.ranks)
    code, evidence, output = site.witnesses(name, ONE)
    assert code == 0 and over_barewire(evidence) == [True, True], output

    alone = site.lab.command("h1", [sys.executable, "-I", "-S", str(WITNESS), str(library(name).file)])
    done = subprocess.run(alone, capture_output=True, text=True, timeout=60, check=False, env=site.environment())
    assert done.returncode == 0, f"a program without a launcher runs as before: {done.stderr}"
    if library(name).family is not Family.OPEN_MPI:
        # Hydra's file would override the variables of `barewire run`.
        tcp = ("run", "-n", "2", "--lab", site.lab.id, "--fabric", "tcp", "--library", name, "--explain", "--", "true")
        site.barewire(*tcp)

    assert "removed: " in site.barewire("disable", "--user", "--library", name)
    code, evidence, output = site.witnesses(name)
    assert code == 0 and over_barewire(evidence) == [False, False], output
    left = [path.name for path in site.home.iterdir() if path.name != ".cache"]
    assert left == [], "what was created is gone"


@pytest.mark.parametrize("name", [pytest.param("openmpi", marks=pytest.mark.matrix), "openmpi-5", "mpich-5"])
def test_without_the_provider_a_job_falls_back_or_ends_as_chosen(name: str, site: Site, tmp_path: Path) -> None:
    library(name)
    provider = tmp_path / "provider"
    provider.mkdir()
    shutil.copy(installed.PROVIDER / PROVIDER_FILE, provider)
    for fallback in ("tcp", "none"):
        arguments = ("--user", "--library", name, "--provider", str(provider), "--fallback", fallback)
        site.barewire("enable", *arguments)
        if fallback == "tcp":
            code, evidence, output = site.witnesses(name)
            assert code == 0 and over_barewire(evidence) == [True, True], output
            code, evidence, output = site.witnesses(name, by=LACKING)
            assert code != 0 and not evidence.ranks, f"a job of both kinds of ranks ends, and does not hang: {output}"
        (provider / PROVIDER_FILE).rename(provider / "hidden")
        code, evidence, output = site.witnesses(name)
        (state,) = json.loads(site.barewire("status", "--library", name, "--json"))["libraries"]
        assert not state["in_force"] and f"no {PROVIDER_FILE} in" in state["problems"][0], state
        (provider / "hidden").rename(provider / PROVIDER_FILE)
        if fallback == "tcp":
            assert code == 0 and over_barewire(evidence) == [False, False], output
            assert all(rank["tcp_peers"] for rank in evidence.ranks), output
        else:
            assert code != 0 and not evidence.ranks, output


# Open MPI 4.1 gives each daemon's ranks two seconds to end when one has failed.
AT_ONCE = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}
# On one host only. Open MPI 4's launcher draws a token for the job, the others none.
TOKEN = ("sh", "-c", '[ $(hostname) = h2 ] || export FI_BAREWIRE_TOKEN=1f; exec "$@"', "sh")


@pytest.mark.parametrize("name", USUAL[:-1])
def test_ranks_with_different_tokens_say_so_and_end_at_once(name: str, site: Site) -> None:
    library(name)
    site.barewire("enable", "--user", "--library", name)
    started = time.monotonic()
    code, evidence, output = site.witnesses(name, more=AT_ONCE, by=TOKEN)
    assert code != 0 and not evidence.ranks and time.monotonic() - started < 12, output
    said = (
        "another job token than"
        if name == "openmpi"
        else "(no job token, this process has one|a job token, this process none)"
    )
    lines = [line for line in output.splitlines() if "barewire: " in line]
    # One from each host, of which the library may end one before it speaks.
    assert 1 <= len(lines) <= 2 and all(
        re.search(f"barewire: the peer has {said}.*: set the same", line) for line in lines
    ), output


def _other_version(folder: Path) -> Path:
    """A folder with a provider of another version."""
    provider = installed.PROVIDER / PROVIDER_FILE
    flags = ["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f'-DPROVIDER="{provider}"']
    command = ["gcc", *flags, str(SOURCES / "other_version.c"), "-o", str(folder / PROVIDER_FILE), "-ldl"]
    if shutil.which("gcc") is None or not Path("/usr/include/rdma/providers/fi_prov.h").is_file():
        pytest.skip("no libfabric headers or compiler: make setup")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", USUAL[:-1])
def test_ranks_of_two_versions_say_so_and_end_at_once(name: str, site: Site, tmp_path: Path) -> None:
    """With one version they communicate, whichever it is."""
    library(name)
    site.barewire("enable", "--user", "--library", name)
    other = f"export FI_PROVIDER_PATH={_other_version(tmp_path)}"
    if name == "openmpi":
        code, evidence, output = site.witnesses(name, by=("sh", "-c", f'{other}; exec "$@"', "sh"))
        assert code == 0 and [list(rank["reached"].values()) for rank in evidence.ranks] == [["frames"]] * 2, output
    by = ("sh", "-c", f'[ $(hostname) = h1 ] || {other}; exec "$@"', "sh")
    started = time.monotonic()
    code, evidence, output = site.witnesses(name, more=AT_ONCE, by=by)
    assert code != 0 and not evidence.ranks and time.monotonic() - started < 12, output
    said = [line for line in output.splitlines() if "barewire: " in line]
    assert said and len(said) <= 2 and all("install the same Barewire on all hosts" in line for line in said), output


def test_a_shells_variables_serve_all_libraries_at_once(site: Site) -> None:
    """What a modulefile sets, as a TaskProlog prints it."""
    script = site.home / "prolog"
    script.write_text(site.barewire("modulefile", "slurm"))
    printed = subprocess.run(["sh", str(script)], capture_output=True, text=True, check=True, env={}).stdout
    variables = dict(line.removeprefix("export ").split("=", 1) for line in printed.splitlines())
    names = [name for name in WITH_LIBFABRIC if name != "intel"]
    for name in names:
        code, evidence, output = site.witnesses(name, more=variables)
        assert code == 0 and over_barewire(evidence) == [True, True], f"{name}: {output}"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("enable", "--system", "--user"), 2, "exclude each other"),
        (("enable", "--library", "lam"), 2, "unknown MPI library 'lam'"),
        (("enable", "--fallback", "udp"), 2, "unknown --fallback 'udp'; there are: tcp, none"),
        (("enable", "--user", "--provider", "/nowhere"), 3, "no libbarewire-fi.so in /nowhere"),
        (("enable", "--user", "--library", "mpich"), 3, "no MPI library can be enabled: mpich: MPICH 4"),
        (("modulefile", "csh"), 2, "unknown format 'csh'; there are: lua, tcl, slurm"),
    ],
)
def test_bad_input_says_what_to_do(arguments: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    if "mpich" in arguments:
        library("mpich")
        needs("barewire")
    done = barewire(*arguments, env=dict(os.environ) | {"HOME": str(tmp_path)})
    assert done.returncode == code and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and not list(tmp_path.rglob("*.conf"))
