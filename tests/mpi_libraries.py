# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The MPI libraries that tests run under, and the test programs built with each."""

import fcntl
import functools
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, barewire

from barewire import installed
from barewire.errors import MachineCannot
from barewire.mpi import Library, installed_libraries
from barewire.mpi.fabrics import PROVIDER_FILE
from barewire.mpi.suite import build, tests

SOURCES = ROOT / "tests" / "mpi"
PROGRAMS = ROOT / "target" / "tests" / "mpi"
# All that the lists under setup/ install; how to get the one that nothing installs unasked.
FIXES = {
    "openmpi": "apt install openmpi-bin libopenmpi-dev",
    "mpich": "apt install mpich libmpich-dev",
    "openmpi-5": "make setup",
    "mpich-5": "make setup",
    "intel": "optional, under Intel's licence: setup/setup.sh intel",
}
# Debian's MPICH was built for UCX only.
WITH_LIBFABRIC = [name for name in FIXES if name != "mpich"]
# The same for tests that are alike under both of Open MPI.
USUAL = [pytest.param(name, marks=pytest.mark.matrix if name == "openmpi-5" else ()) for name in WITH_LIBFABRIC]


@functools.cache
def library(name: str) -> Library:
    """An installed library, or a loud skip."""
    for found in installed_libraries():
        if found.name == name:
            return found
    pytest.skip(f"MPI library {name} is not installed: {FIXES[name]}")


def needs(fabric: str) -> None:
    """A loud skip where a fabric is not there."""
    if fabric == "barewire" and not (installed.PROVIDER / PROVIDER_FILE).is_file():
        pytest.skip(f"no {PROVIDER_FILE}: make build")


def launched(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program by `barewire run`."""
    return barewire("run", *arguments, **options)


@functools.cache
def program(library_name: str, source: str) -> str:
    """A test program built with a library's own compiler, unless an earlier run of the tests has built it."""
    chosen = library(library_name)
    written = SOURCES / f"{source}.c"
    folder = PROGRAMS / f"{library_name}-{chosen.version}"
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / source
    newest = max(file.stat().st_mtime for file in (written, Path(__file__), *SOURCES.glob("*.h")))
    # Serializes the processes that run tests.
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists() or built.stat().st_mtime < newest:
            # Debian's MPICH declares MPI_STATUSES_IGNORE so that the compiler takes it for an array of nothing.
            flags = ["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow"]
            unfinished = folder / f"{source}.new"
            command = [_compiler(chosen), *flags, str(written), "-o", str(unfinished), "-lpthread"]
            environment = dict(os.environ) | {"I_MPI_ROOT": str(chosen.prefix)}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            assert done.returncode == 0, done.stderr
            unfinished.rename(built)
    return str(built)


@functools.cache
def suite(library_name: str) -> Path:
    """The folder of the measurements in mpi/, built with a library's own compiler as `barewire mpi` builds them."""
    return Path(measurement(library_name, *tests())).parent


@functools.cache
def measurement(library_name: str, *names: str) -> str:
    """The first of some measurements or kernels in mpi/, all of which are built; a loud skip without FFTW."""
    chosen = library(library_name)
    _compiler(chosen)
    try:
        return build(chosen, names)[names[0]]
    except MachineCannot as error:
        if "FFTW" in str(error):
            pytest.skip(str(error))
        raise


def started_alone(built: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """One rank of Open MPI 4.1 without a launcher, and without the daemon that it would start for more of them."""
    alone = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self"}
    command, environment = [built, *arguments], os.environ | alone
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def run_here(
    test: str, *arguments: str, ranks: int = 2, under: Iterable[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run a measurement on this host, by MPICH 5's own launcher; `under` is what starts each rank."""
    built = measurement("mpich-5", test)
    command = [library("mpich-5").program("mpiexec"), "-n", str(ranks), *under, built, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _compiler(chosen: Library) -> str:
    try:
        return chosen.program("mpicc")
    except MachineCannot as error:
        pytest.skip(str(error))
