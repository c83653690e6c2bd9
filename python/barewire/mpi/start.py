# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Starts MPI jobs in a lab or on real hosts: the user's program, or witnesses of the path."""

import os
import secrets
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from barewire.errors import MachineCannot
from barewire.mpi.fabrics import report_settings
from barewire.mpi.job import Job
from barewire.mpi.leftovers import JOB_MARK, end_marked, remove_orphaned_memory
from barewire.mpi.libraries import Family
from barewire.processes import end_with_this_process, terminate, wait

if TYPE_CHECKING:
    from barewire.lab import Lab
    from barewire.mpi.explain import Evidence

_WITNESS = Path(__file__).with_name("witness.py")
_WITNESS_TIMEOUT_S = 60.0
# A terminated launcher first ends its ranks on other hosts.
_END_TIMEOUT_S = 5.0
_SIGNALLED = 128
# By these launchers know a batch system's allocation, which has no hosts of a lab.
_NOT_IN_A_LAB = (
    *("SLURM_JOBID", "SLURM_JOB_ID", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "PBS_ENVIRONMENT", "PBS_JOBID"),
    *("PBS_NODEFILE", "LSB_JOBID", "LSB_AFFINITY_HOSTFILE", "PE_HOSTFILE", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"),
)
# One list of Open MPI has several names that end so.
_NO_PROVIDERS = "ofi_provider_exclude"
# Programs take these for requests, such as of a batch system for a checkpoint. Launchers pass them on to the ranks.
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
# In front of a program that is to have an empty input, whatever its launcher passes on.
_WITHOUT_INPUT = ("/bin/sh", "-c", 'exec "$@" </dev/null', "sh")


def run(job: Job, lab: "Lab | None") -> int:
    """Run a job and return its exit code; after a signal 128 plus its number, as in shells."""
    with _running_launcher(job, lab) as process:
        code = process.wait()
    return code if code >= 0 else _SIGNALLED - code


def witness(job: Job, lab: "Lab | None") -> "tuple[Evidence, str]":
    """Run witnesses instead of the job's program; return their observations and the whole output."""
    from barewire.mpi.explain import read_evidence

    python = sys.executable if lab is not None else job.python
    program = [python, "-I", "-S", str(_WITNESS), str(job.library.file)]
    witnesses = job.with_program(program, report_settings(job.library))
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with _running_launcher(witnesses, lab, **streams) as process:
        try:
            output, _ = process.communicate(timeout=_WITNESS_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                output, _ = process.communicate(timeout=_END_TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                # Processes that the launcher started may outlive it and keep its output open.
                process.kill()
                output = error.output or b""
    text = output.decode(errors="replace")
    return read_evidence(text), text


def run_watched(job: Job, lab: "Lab | None", output: IO[str], records: Path, patience_s: float) -> int | None:
    """Run a job and return its exit code as `run` does; None if it hung and was terminated.

    It hangs if `records`, a file that it writes, does not change for `patience_s`. Its output goes to `output`.
    This process sleeps meanwhile: it may share a core with a rank. When it does not end by itself, its processes are
    killed as by `run_limited`.
    """

    def watch(process: "subprocess.Popen[bytes]") -> int | None:
        previous = _version_of(records)
        while (code := wait(process, patience_s)) is None:
            current = _version_of(records)
            if current == previous:
                return None
            previous = current
        return code

    return _run_marked(job, lab, watch, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


def run_limited(job: Job, lab: "Lab | None", limit_s: float | None, **streams: Any) -> int | None:
    """Run a job and return its exit code as `run` does; None if it exceeded `limit_s` and was terminated.

    On timeout or interrupt all of its processes on this machine are killed, found by a mark in their environment even
    if they outlive their launcher. The launcher ends those on other hosts. `streams` are stdin, stdout and stderr as
    for Popen; the default is to inherit them.
    """
    return _run_marked(job, lab, lambda process: wait(process, limit_s), **streams)


def _run_marked(
    job: Job, lab: "Lab | None", watch: "Callable[[subprocess.Popen[bytes]], int | None]", **streams: Any
) -> int | None:
    """Run a job as long as `watch` does; kill all of its processes here unless that returns the launcher's code."""
    mark = f"{JOB_MARK}={secrets.token_hex(16)}"
    code: int | None = None
    with _running_launcher(job.with_mark(mark), lab, **streams) as process:
        try:
            code = watch(process)
        finally:
            if code is None:
                try:
                    terminate(process, _END_TIMEOUT_S)
                finally:
                    # Also if a second interrupt ended that.
                    end_marked(mark)
    return code if code is None or code >= 0 else _SIGNALLED - code


@contextmanager
def running(job: Job, lab: "Lab | None", output: IO[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a job during the block and terminate it at its end; its output goes to the file `output`."""
    with _running_launcher(job, lab, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process:
        yield process


def _version_of(file: Path) -> tuple[int, int] | None:
    try:
        state = file.stat()
    except FileNotFoundError:
        return None
    return state.st_size, state.st_mtime_ns


@contextmanager
def _running_launcher(job: Job, lab: "Lab | None", **arguments: Any) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a job's launcher during the block; at the end, terminate it and remove shared memory of killed ranks."""
    started_ns = time.time_ns()
    with _past_hydra(job, arguments.pop("stdin", None)) as (job, stdin), _passing_on() as pass_on_to:
        process = _launch(job, lab, stdin=stdin, **arguments)
        try:
            pass_on_to(process)
            yield process
        finally:
            terminate(process, _END_TIMEOUT_S)
            remove_orphaned_memory(started_ns)


@contextmanager
def _passing_on() -> Iterator[Callable[["subprocess.Popen[bytes]"], None]]:
    """Pass requests by signals on to the launcher that the yielded function names; those that are ignored stay so."""
    launchers: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def receive(number: int, _frame: object) -> None:
        for launcher in launchers:
            launcher.send_signal(number)
        if not launchers:
            early.append(number)

    def pass_on_to(launcher: "subprocess.Popen[bytes]") -> None:
        launchers.append(launcher)
        for number in early:
            launcher.send_signal(number)

    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in _PASSED_ON:
            if signal.getsignal(number) is signal.SIG_DFL:
                previous[number] = signal.signal(number, receive)
    try:
        yield pass_on_to
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _past_hydra(job: Job, stdin: IO[Any] | int | None) -> Iterator[tuple[Job, IO[Any] | int | None]]:
    """Yield the job and its launcher's stdin: an empty one goes to Hydra's ranks directly, and Hydra's does not end.

    Hydra's mpiexec passes the end of its input on to a proxy, and dies of SIGPIPE, which it handles itself, if the
    proxy's programs have ended at that moment, whenever that is.
    """
    if job.library.family is Family.OPEN_MPI or job.in_slurm or not _is_empty(stdin):
        yield job, stdin
        return
    reading, writing = os.pipe()
    try:
        yield job.with_program([*_WITHOUT_INPUT, *job.program], {}), reading
    finally:
        os.close(reading)
        os.close(writing)


def _is_empty(stdin: IO[Any] | int | None) -> bool:
    """Return whether reading gives the end at once, as of /dev/null, or of a file that is empty or was read."""
    if stdin in (subprocess.DEVNULL, subprocess.PIPE):
        return stdin == subprocess.DEVNULL
    number = 0 if stdin is None else stdin if isinstance(stdin, int) else stdin.fileno()
    try:
        state = os.fstat(number)
        if stat.S_ISREG(state.st_mode):
            # Not by its size, which is 0 for files of /proc.
            return not os.pread(number, 1, os.lseek(number, 0, os.SEEK_CUR))
        return os.path.samestat(state, Path(os.devnull).stat())
    except OSError:  # it is closed
        return False


def _inherited(job: Job, lab: "Lab | None") -> dict[str, str]:
    """Return this process's environment without what is wrong on a lab's hosts, or contradicts the job's settings."""
    dropped = {name.removesuffix("include") + "exclude" for name in job.environment() if name.endswith("_include")}
    if any(name.endswith(_NO_PROVIDERS) for name in dropped):
        dropped.update(name for name in os.environ if name.endswith(_NO_PROVIDERS))
    if lab is not None:
        dropped.update(_NOT_IN_A_LAB)
    return {name: value for name, value in os.environ.items() if name not in dropped}


def _launch(job: Job, lab: "Lab | None", **arguments: Any) -> "subprocess.Popen[bytes]":
    environment = _inherited(job, lab) | job.environment()
    command = job.command(os.environ)
    if lab is not None:
        # On the first host: the lab's names resolve there, and its daemons are reached over the lab's own link.
        environment |= lab.remote_shell()[1]
        command = lab.command(job.shares[0][0], command)
    elif threading.current_thread() is threading.main_thread():
        # A lab ends with its user, but a launcher and its ranks would run on.
        arguments["preexec_fn"] = end_with_this_process()
    try:
        return subprocess.Popen(command, env=environment, **arguments)
    except OSError as error:
        raise MachineCannot(f"{command[0]} does not start: {error.strerror}") from error
