# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command in forks of a process that has imported it: hundreds of tests start it, and importing takes a second."""

import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
import tempfile
import threading
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "barewire"
PRELOADED = ["scipy.stats", *sorted(f"barewire.cli.{file.stem}" for file in (PACKAGE / "cli").glob("[a-z]*.py"))]

_context = multiprocessing.get_context("forkserver")


def prepare() -> None:
    """Start the process of which the command's are forks; before any test changes the environment."""
    _context.set_forkserver_preload(["__main__", *PRELOADED])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = _with_package(before)
    multiprocessing.forkserver.ensure_running()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def run(
    arguments: tuple[str, ...],
    *,
    timeout: float,
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
    input: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end, as `subprocess.run` with text captured; TimeoutExpired in this many seconds."""
    pipes = [os.pipe(), os.pipe()]
    with tempfile.TemporaryFile("w+") as stdin:
        stdin.write(input)
        stdin.seek(0)
        descriptors = [DupFd(descriptor) for descriptor in (stdin.fileno(), pipes[0][1], pipes[1][1])]
        environment = dict(os.environ if env is None else env)
        process = _context.Process(target=_command, args=(arguments, environment, cwd, descriptors))
        process.start()
    outputs = [b"", b""]

    def read(number: int) -> None:
        with os.fdopen(pipes[number][0], "rb", buffering=0) as end:
            while data := end.read(1 << 16):
                outputs[number] += data

    readers = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(2)]
    for (_, end), reader in zip(pipes, readers, strict=True):
        os.close(end)
        reader.start()
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        # What it started may hold the pipes for longer.
        for reader in readers:
            reader.join(1)
        raise subprocess.TimeoutExpired(["barewire", *arguments], timeout, *outputs)
    for reader in readers:
        reader.join(timeout)
    texts = [output.decode().replace("\r\n", "\n").replace("\r", "\n") for output in outputs]
    return subprocess.CompletedProcess(["barewire", *arguments], process.exitcode, *texts)


def _command(arguments: tuple[str, ...], environment: dict[str, str], folder: Any, descriptors: list[Any]) -> None:
    """Become what bin/barewire starts."""
    assert set(PRELOADED) <= sys.modules.keys(), "imported anew by every command"
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor.detach(), number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    os.environ.clear()
    os.environ.update(environment, PYTHONPATH=_with_package(environment.get("PYTHONPATH")))
    if folder is not None:
        os.chdir(folder)
    sys.argv = [str(PACKAGE / "__main__.py"), *arguments]
    from barewire.cli import main

    main()


def _with_package(path: str | None) -> str:
    return str(PACKAGE.parent) + (f":{path}" if path else "")
