# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Starts MPI jobs: in a lab or on real hosts, as the user's program or as witnesses of the path."""

import contextlib
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from barewire.errors import MachineCannot
from barewire.mpi.fabrics import report_settings
from barewire.mpi.job import Job
from barewire.mpi.leftovers import JOB_MARK, end_marked, remove_orphaned_memory

if TYPE_CHECKING:
    from barewire.lab import Lab
    from barewire.mpi.explain import Evidence

_WITNESS = Path(__file__).with_name("witness.py")
_WITNESS_TIMEOUT_S = 60.0
# A launcher that is asked to end ends its ranks on other hosts first.
_END_TIMEOUT_S = 5.0
_SIGNALLED = 128


def run(job: Job, lab: "Lab | None") -> int:
    """Run a job to its end and return its exit code; a signal's number counts from 128, as in shells."""
    with _started(job, lab) as process:
        code = process.wait()
    return code if code >= 0 else _SIGNALLED - code


def witness(job: Job, lab: "Lab | None") -> "tuple[Evidence, str]":
    """Run witnesses in the place of the job's program; return what they saw, and all that was printed."""
    from barewire.mpi.explain import read_evidence

    python = sys.executable if lab is not None else job.python
    program = [python, "-I", "-S", str(_WITNESS), str(job.library.file)]
    witnesses = job.with_program(program, report_settings(job.library))
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with _started(witnesses, lab, **streams) as process:
        try:
            output, _ = process.communicate(timeout=_WITNESS_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                output, _ = process.communicate(timeout=_END_TIMEOUT_S)
            except subprocess.TimeoutExpired as late:
                # What a launcher started may outlive it, and hold its output open.
                process.kill()
                output = late.output or b""
    text = output.decode(errors="replace")
    return read_evidence(text), text


def run_watched(job: Job, lab: "Lab | None", said: IO[str], records: Path, patience_s: float) -> int | None:
    """Run a job to its end and return its exit code as `run` does; None if it was ended because it hung.

    It hangs if `records`, a file that it writes, does not change for so long. What it prints goes to `said`. Until it
    ends, this process sleeps: it may share a core with a rank.
    """
    with _started(job, lab, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT) as process:
        ended = select.poll()
        handle = os.pidfd_open(process.pid)
        try:
            ended.register(handle, select.POLLIN)
            before = _state_of(records)
            while not ended.poll(patience_s * 1e3):
                now = _state_of(records)
                if now == before:
                    return None
                before = now
        finally:
            os.close(handle)
        code = process.wait()
    return code if code >= 0 else _SIGNALLED - code


def run_limited(job: Job, lab: "Lab | None", limit_s: float | None, **streams: Any) -> int | None:
    """Run a job to its end and return its exit code as `run` does; None if it was ended because it took longer.

    Then, and if this is interrupted, all of its processes on this machine are ended: known by a mark that they have
    in their environment, also where they outlive their launcher. On other hosts the launcher ends them. `streams` are
    stdin, stdout and stderr as Popen takes them; what is not given is this process's own.
    """
    mark = f"{JOB_MARK}={secrets.token_hex(16)}"
    code: int | None = None
    with _started(job.with_mark(mark), lab, **streams) as process:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(limit_s)
        finally:
            if code is None:
                _end(process)
                end_marked(mark)
    return code if code is None or code >= 0 else _SIGNALLED - code


@contextmanager
def running(job: Job, lab: "Lab | None", said: IO[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a job that runs beside the block, and is ended with it; what it prints goes to `said`."""
    with _started(job, lab, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT) as process:
        yield process


def _state_of(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


@contextmanager
def _started(job: Job, lab: "Lab | None", **arguments: Any) -> "Iterator[subprocess.Popen[bytes]]":
    """A job's launcher, which is ended with the block; what killed ranks leave in memory goes with it."""
    began_ns = time.time_ns()
    process = _start(job, lab, **arguments)
    try:
        yield process
    finally:
        _end(process)
        remove_orphaned_memory(began_ns)


def _start(job: Job, lab: "Lab | None", **arguments: Any) -> "subprocess.Popen[bytes]":
    environment = dict(os.environ) | job.environment()
    command = job.command(os.environ)
    if lab is not None:
        # In the first host: there the lab's names hold, and its daemons are reached over the lab's own link.
        environment |= lab.remote_shell()[1]
        command = lab.command(job.shares[0][0], command)
    try:
        return subprocess.Popen(command, env=environment, **arguments)
    except OSError as error:
        raise MachineCannot(f"{command[0]} does not start: {error.strerror}") from error


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
