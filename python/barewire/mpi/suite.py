# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The C suite in mpi/: lists its measurements and kernels, and builds them with a library's compiler."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from barewire import installed
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.mpi.libraries import Library

SOURCES = installed.MPI_SOURCES
BUILT = installed.built_mpi()
# Identifies the library that a folder was built for; for another library of the same name it is rebuilt.
_STAMP = "built-for"
_LINES_SHOWN = 8
# Defaults of tests whose variants are modes of sending and receiving; all other tests measure every variant.
_DEFAULT_VARIANTS = {
    "pingpong": "blocking-standard",
    "stream": "blocking-receive",
    "bidirectional": "nonblocking-send",
    "overlap": "pingpong,local-standard,local-synchronous,local-receive",
    "overhead": "gap-send,gap-isend,gap-receive,call-send,call-receive",
    "logp": "roundtrip,gap,gap-send,gap-receive",
}
_ALL = "all"


def tests() -> tuple[str, ...]:
    """Names of the measurements."""
    return tuple(sorted(file.stem for file in SOURCES.glob("*.c")))


def kernels() -> tuple[str, ...]:
    """Names of the kernels."""
    return tuple(sorted(file.stem for file in (SOURCES / "kernels").glob("*.c")))


def parse_tests(text: str) -> tuple[str, ...]:
    """Read `pingpong,stream`; WrongUse lists the known tests."""
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [name for name in chosen if name not in (*tests(), *kernels())]
    if unknown:
        raise WrongUse(
            f"unknown test '{unknown[0]}'; there are: {', '.join(tests())}; and the kernels {', '.join(kernels())}"
        )
    return chosen


def variants_of(chosen: Sequence[str], variants: str | None) -> dict[str, str]:
    """Return each test's variants, from `--variants` or the defaults; a test without an entry measures all."""
    if variants == _ALL:
        return {}
    if variants is not None:
        return dict.fromkeys(chosen, variants)
    return {test: _DEFAULT_VARIANTS[test] for test in chosen if test in _DEFAULT_VARIANTS}


def build(library: Library, names: Sequence[str]) -> dict[str, str]:
    """Build programs for a library if necessary, and return their paths by name.

    MachineCannot if its compiler or FFTW is missing.
    """
    compiler, make = library.program("mpicc"), shutil.which("make")
    if make is None:
        raise MachineCannot("make is missing, which builds the measurements: apt install make")
    folder = BUILT / library.name
    programs = {name: folder / name for name in names}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Serializes concurrent builds.
        with (folder.parent / f"{library.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _clear_if_stale(folder, f"{library}\n{library.file.resolve()}\n{compiler}\n")
            jobs = f"-j{len(os.sched_getaffinity(0))}"
            command = [
                make,
                jobs,
                "-C",
                str(SOURCES),
                f"MPICC={compiler}",
                f"OUT={folder}",
                *map(str, programs.values()),
            ]
            environment = dict(os.environ) | {"I_MPI_ROOT": str(library.prefix)}
            completed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise MeasurementFailed(
            f"cannot build in {error.filename or folder}: {error.strerror}{installed.NOT_WRITABLE}"
        ) from error
    if completed.returncode != 0:
        raise MachineCannot(_why_not_built(library, completed.stderr))
    return {name: str(path) for name, path in programs.items()}


def _clear_if_stale(folder: Path, identity: str) -> None:
    stamp = folder / _STAMP
    if stamp.exists() and stamp.read_text() == identity:
        return
    shutil.rmtree(folder)
    folder.mkdir()
    stamp.write_text(identity)


def _why_not_built(library: Library, errors: str) -> str:
    if "fftw3" in errors:
        return "the kernels need FFTW with its header: apt install libfftw3-dev"
    shown = "\n".join(errors.strip().splitlines()[-_LINES_SHOWN:])
    return f"{library}'s compiler does not build the measurements in {SOURCES}:\n{shown}"
