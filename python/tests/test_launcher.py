# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a launcher gets from `barewire run`, `try` and `profile`: input, environment and signals."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from barewire.mpi import start
from barewire.mpi.libraries import Family

# A launcher as Hydra's: its own input, then the program.
_SHOWING_INPUT = ("sh", "-c", 'readlink /proc/$$/fd/0; exec "$@"', "sh")


class _Launched:
    """A job of any library whose launcher is the command itself."""

    in_slurm = False

    def __init__(self, command: Sequence[str], family: Family = Family.MPICH, settings: dict[str, str] | None = None):
        self.words, self.settings = tuple(command), settings or {}
        self.library = SimpleNamespace(family=family)
        self.program, self.shares = self.words, (("h1", 1),)

    def with_mark(self, _mark: str) -> "_Launched":
        return self

    def with_program(self, program: Sequence[str], _extra: object) -> "_Launched":
        return _Launched((*_SHOWING_INPUT, *program), self.library.family, self.settings)

    def environment(self) -> dict[str, str]:
        return self.settings

    def command(self, _inherited: object) -> list[str]:
        return list(self.words)


def output_of(job: Any, lab: Any = None, stdin: IO[bytes] | int | None = subprocess.DEVNULL) -> list[str]:
    with tempfile.TemporaryFile("w+") as output:
        assert start.run_limited(job, lab, 30, stdin=stdin, stdout=output) == 0
        output.seek(0)
        return output.read().splitlines()


def test_an_empty_input_given_as_a_file_goes_to_hydras_ranks_directly(tmp_path: Path) -> None:
    """As `try` gives it: Hydra's mpiexec may die of passing on its end."""
    (tmp_path / "empty").touch()
    for empty in (os.devnull, tmp_path / "empty"):
        with Path(empty).open("rb") as given:
            launcher, rank = output_of(_Launched(["readlink", "/proc/self/fd/0"]), stdin=given)
        assert launcher.startswith("pipe:") and rank == os.devnull, empty


@pytest.mark.parametrize("given", ["file", "proc"])
def test_any_other_input_is_the_launchers(given: str, tmp_path: Path) -> None:
    """Also of a file without a size, as those of the kernel are."""
    (tmp_path / "file").write_text("input\n")
    file = tmp_path / "file" if given == "file" else Path("/proc/self/mounts")
    with file.open("rb") as stdin:
        assert len(output_of(_Launched(["cat"]), stdin=stdin)) >= 1


class _Lab:
    """A lab whose hosts are this machine."""

    def remote_shell(self) -> tuple[str, dict[str, str]]:
        return "", {}

    def command(self, _host: str, command: list[str]) -> list[str]:
        return command


_OF_A_CLUSTER = {
    "SLURM_JOBID": "7",
    "SLURM_NODELIST": "node1",
    "PBS_NODEFILE": "/none",
    "SLURM_TMPDIR": "/tmp",
    "OMPI_MCA_oob_tcp_if_include": "eth1",
    "OMP_NUM_THREADS": "2",
}


def test_on_a_labs_hosts_launchers_know_nothing_of_the_machines_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would start ranks on the allocation's nodes; what programs read stays, and interfaces that a user names."""
    for name, value in _OF_A_CLUSTER.items():
        monkeypatch.setenv(name, value)
    printing = _Launched(["printenv", *_OF_A_CLUSTER, "PATH"], Family.OPEN_MPI)
    assert output_of(printing) == [*_OF_A_CLUSTER.values(), os.environ["PATH"]]
    showing = _Launched(["sh", "-c", f"printenv {' '.join(_OF_A_CLUSTER)}; true"], Family.OPEN_MPI)
    assert output_of(showing, _Lab()) == ["/tmp", "eth1", "2"]


def test_interfaces_that_a_user_excludes_do_not_contradict_those_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI refuses to have both."""
    monkeypatch.setenv("OMPI_MCA_btl_tcp_if_exclude", "docker0")
    showing = ["sh", "-c", "printenv OMPI_MCA_btl_tcp_if_exclude; true"]
    assert output_of(_Launched(showing, Family.OPEN_MPI)) == ["docker0"]
    chosen = {"OMPI_MCA_btl_tcp_if_include": "eth1"}
    assert output_of(_Launched(showing, Family.OPEN_MPI, chosen)) == []
    # Providers that are excluded, by any name of that list.
    for name in ("OMPI_MCA_mtl_ofi_provider_exclude", "OMPI_MCA_opal_common_ofi_provider_exclude"):
        monkeypatch.setenv(name, "sockets")
        showing = ["sh", "-c", f"printenv {name}; true"]
        assert output_of(_Launched(showing, Family.OPEN_MPI)) == ["sockets"]
        chosen = {"OMPI_MCA_mtl_ofi_provider_include": "barewire"}
        assert output_of(_Launched(showing, Family.OPEN_MPI, chosen)) == []


# A launcher that ends with the number of the signal that it gets; it says when it is ready.
_TRAPPING = "trap 'exit 10' USR1; trap 'exit 12' USR2; echo ready; while :; do sleep 0.05; done"
_RUNNING = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from test_launcher import _Launched, _TRAPPING
from barewire.mpi import start
from barewire.mpi.libraries import Family
sys.exit(start.run(_Launched(["sh", "-c", _TRAPPING], Family.OPEN_MPI), None))
"""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_that_programs_take_for_requests_reach_the_launcher(number: signal.Signals) -> None:
    """As a batch system sends them before a job's time is over: launchers pass them on to the ranks."""
    with subprocess.Popen([sys.executable, "-c", _RUNNING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(30) == number
