# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The C suite in mpi/: lists its measurements and kernels, and builds them with a library's compiler."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from barewire import installed
from barewire.errors import MachineCannot, MeasurementFailed, unknown
from barewire.models.catalogue import TESTS, Program, names_of_tests
from barewire.mpi.libraries import Library

SOURCES = installed.MPI_SOURCES
BUILT = installed.built_mpi()
# Identifies the library that a folder was built for, and the package that built it; for others it is rebuilt.
_STAMP = "built-for"
_LINES_SHOWN = 8
# All other tests measure every variant.
_USUAL_VARIANTS = {test.name: test.usual for test in TESTS if test.program is Program.mpi and test.usual is not None}
_ALL = "all"


def tests() -> tuple[str, ...]:
    """Names of the measurements."""
    return names_of_tests(Program.mpi)


def kernels() -> tuple[str, ...]:
    """Names of the kernels."""
    return names_of_tests(Program.kernel)


def parse_tests(text: str) -> tuple[str, ...]:
    """Read `pingpong,stream`; WrongUse lists the known tests."""
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in chosen:
        if name not in (*tests(), *kernels()):
            raise unknown("test", name, (*tests(), *kernels()))
    return chosen


def variants_of(chosen: Sequence[str], variants: str | None) -> dict[str, str]:
    """Return each test's variants, from `--variants` or the defaults; a test without an entry measures all."""
    if variants == _ALL:
        return {}
    if variants is not None:
        return dict.fromkeys(chosen, variants)
    return {test: _USUAL_VARIANTS[test] for test in chosen if test in _USUAL_VARIANTS}


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
            _clear_if_stale(folder, f"{library}\n{library.file.resolve()}\n{compiler}\n{installed.sources_version()}")
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
