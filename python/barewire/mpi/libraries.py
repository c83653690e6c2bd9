# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which MPI libraries there are, and which one a program was built with; asked of the library, not of its name."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from barewire.errors import MachineCannot, WrongUse
from barewire.mpi.remembered import recall, remember

_ROOT = Path(__file__).resolve().parents[3]
_IDENTIFY = Path(__file__).with_name("identify.py")
_TIMEOUT_S = 20
# Where libraries lie, and how --library calls them; {} is the name of the folder that the star stands for.
_PLACES = (
    (_ROOT / ".mpi", "*/lib", "{}"),
    (Path("/usr/lib"), "*-linux-gnu", ""),
    (Path("/usr/lib64"), "*/lib", "{}"),
    (Path("/opt/intel/oneapi/mpi"), "latest/lib", "oneapi"),
    (Path("/opt"), "*/lib", "{}"),
)
# Newest name last; the standard's own ABI (libmpi_abi) is another face of the same library.
_FILES = ("libmpi.so.*", "libmpich.so.*", "release/libmpi.so.*")
_NEEDED = re.compile(r"^\s*(libmpi(?:ch|_abi)?\.so\.\d+) => (not found|\S+)", re.MULTILINE)
_MPI4PY = "import importlib.util as u; s = u.find_spec('mpi4py'); print(*(s.submodule_search_locations if s else ()))"


class Family(StrEnum):
    """Libraries that are told what to do in the same way."""

    OPEN_MPI = "Open MPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"


@dataclass(frozen=True)
class Library:
    """One MPI library; `netmods` are MPICH's, which an installation is built with or without."""

    name: str
    family: Family
    version: str
    file: Path
    netmods: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return family and version."""
        return f"{self.family} {self.version}"

    @property
    def major(self) -> int:
        """The number before the first point of the version."""
        return int(self.version.split(".")[0])

    @property
    def prefix(self) -> Path:
        """The folder that it is installed in, above lib/."""
        folder = self.file.parent
        while folder.name in ("release", "lib", "lib64") or folder.name.endswith("-linux-gnu"):
            folder = folder.parent
        return folder

    def program(self, name: str) -> str:
        """Return this library's own mpirun or mpicc; MachineCannot if it has none."""
        # Distributions that have several call them by a suffix; the plain name is then anybody's.
        suffix = {Family.OPEN_MPI: ".openmpi", Family.MPICH: ".mpich", Family.INTEL: ""}[self.family]
        for candidate in (f"{name}{suffix}", name):
            path = self.prefix / "bin" / candidate
            if os.access(path, os.X_OK):
                return str(path)
        packages = {Family.OPEN_MPI: "openmpi-bin libopenmpi-dev", Family.MPICH: "mpich libmpich-dev"}
        fix = f": apt install {packages[self.family]}" if self.family in packages else ""
        raise MachineCannot(f"{self} in {self.prefix} has no {name}{fix}")


def installed_libraries() -> list[Library]:
    """Return the libraries in the places known, each once."""
    found: dict[Path, Library] = {}
    names: set[str] = set()
    for base, pattern, naming in _PLACES:
        for folder in sorted(base.glob(pattern)):
            for file in _library_files(folder):
                if file.resolve() in found or (library := identify(file)) is None:
                    continue
                default = library.family.lower().replace(" ", "")
                name = naming.format(folder.parent.name) or default
                if name not in names:
                    names.add(name)
                    found[file.resolve()] = Library(
                        name, library.family, library.version, library.file, library.netmods
                    )
    return list(found.values())


def find_library(text: str) -> Library:
    """Find the library that `--library` names: a name of `installed_libraries`, a folder, or the library's file."""
    path = Path(text)
    if path.is_dir():
        for folder in (path / "lib", path / "lib64", path):
            for file in _library_files(folder):
                if (library := identify(file)) is not None:
                    return library
        raise WrongUse(f"no MPI library in {path}/lib; give the folder above lib/ and bin/")
    if path.is_file():
        if (library := identify(path)) is not None:
            return library
        raise WrongUse(f"{path} is no MPI library that Barewire knows (Open MPI, MPICH, Intel MPI)")
    libraries = installed_libraries()
    for library in libraries:
        if library.name == text:
            return library
    raise WrongUse(f"unknown MPI library '{text}'; {_choice(libraries)}")


def identify(file: Path) -> Library | None:
    """Ask a file which library it is; None if it cannot be loaded or is none that is known."""
    if (remembered := recall(file)) is not None and (library := read_version(remembered, file)) is not None:
        return library
    command = [sys.executable, "-I", "-S", str(_IDENTIFY), str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    library = read_version(done.stdout, file) if done.returncode == 0 else None
    if library is not None:
        remember(file, done.stdout)
    return library


def read_version(text: str, file: Path) -> Library | None:
    """Read what MPI_Get_library_version said."""
    if match := re.match(r"Open MPI v([\d.]+)", text):
        return Library(file.name, Family.OPEN_MPI, match[1], file)
    if match := re.match(r"Intel\(R\) MPI Library ([\d.]+)", text):
        return Library(file.name, Family.INTEL, match[1], file, ("ofi",))
    if match := re.match(r"MPICH Version:\s*([\d.]+)", text):
        device = re.search(r"MPICH Device:\s*\w+:?(.*)", text)
        return Library(file.name, Family.MPICH, match[1], file, tuple(re.findall(r"\w+", device[1] if device else "")))
    return None


def library_of_program(program: str, chosen: Library | None, environment: Mapping[str, str]) -> tuple[Library, str]:
    """Find which library a program runs with, and why.

    `chosen` is what `--library` named; a program that names its library by itself may only be given one of the same
    ABI. WrongUse if there is no such program, or if it cannot be known.
    """
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        raise WrongUse(f"no program '{program}': give its path, or a name that is on the PATH")
    file, reason = _needing_file(Path(found), environment)
    needed = _needed(file, environment) if file is not None else None
    if needed is None:
        if chosen is not None:
            return chosen, "--library"
        raise WrongUse(f"{reason or f'{found} is not linked to an MPI library'}; {_choice(installed_libraries())}")
    soname, resolved = needed
    if chosen is not None:
        under = dict(environment) | library_path(chosen, environment)
        taken = _needed(file or Path(found), under)
        if taken is None or taken[1] is None or taken[1].resolve() != chosen.file.resolve():
            raise WrongUse(f"{file} needs {soname}, which {chosen} ({chosen.file}) is not")
        return chosen, "--library"
    if resolved is None:
        raise WrongUse(
            f"{file} needs {soname}, which is in none of the linker's places; {_choice(installed_libraries())}"
        )
    library = identify(resolved)
    if library is None:
        raise MachineCannot(f"{file} needs {resolved}, which is no MPI library that Barewire knows")
    return library, f"{file.name if file else found} needs {soname}"


def library_path(library: Library, environment: Mapping[str, str]) -> dict[str, str]:
    """What makes the linker take this library first."""
    others = environment.get("LD_LIBRARY_PATH")
    folder = str(library.file.parent)
    return {"LD_LIBRARY_PATH": f"{folder}:{others}" if others else folder}


def _needing_file(program: Path, environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """The file whose needs decide: the program, or what a Python interpreter will load; else why there is none."""
    with program.open("rb") as file:
        first = file.readline(256)
    interpreter = program
    if first.startswith(b"#!"):
        words = first[2:].decode(errors="replace").split()
        name = words[1] if len(words) > 1 and words[0].endswith("/env") else (words[0] if words else "")
        interpreter = Path(shutil.which(name, path=environment.get("PATH")) or name)
        if not interpreter.name.startswith("python"):
            return None, f"{program} is a script"
    elif not first.startswith(b"\x7fELF"):
        return None, f"{program} is neither a program nor a script with an interpreter"
    if not interpreter.name.startswith("python"):
        return program, ""
    asked = subprocess.run(
        [str(interpreter), "-c", _MPI4PY], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    extensions = [file for place in asked.stdout.split() for file in Path(place).glob("MPI*.so")]
    # A wheel of mpi4py has an extension for each ABI and loads whichever library it finds.
    if len(extensions) == 1:
        return extensions[0], ""
    state = "has mpi4py for any MPI library" if extensions else "has no mpi4py"
    return None, f"{interpreter.name} {state}, so {program.name} does not say which it needs"


def _needed(file: Path, environment: Mapping[str, str]) -> tuple[str, Path | None] | None:
    """The MPI library that the dynamic linker takes for a file: its name and, where it is found, its path."""
    ldd = shutil.which("ldd")
    if ldd is None:
        raise MachineCannot("ldd(1) is missing, which tells what a program needs: apt install libc-bin")
    done = subprocess.run(
        [ldd, str(file)], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=dict(environment)
    )
    match = _NEEDED.search(done.stdout)
    if match is None:
        return None
    if match[2] == "not found":
        return match[1], None
    # /lib is a link to /usr/lib on a merged system; bin/ lies beside the real one.
    return match[1], Path(match[2]).parent.resolve() / match[1]


def _library_files(folder: Path) -> Iterator[Path]:
    for pattern in _FILES:
        # libmpi.so.40 before libmpi.so.40.30.4: what programs name.
        yield from sorted(folder.glob(pattern), key=lambda file: len(file.name))[:1]


def _choice(libraries: list[Library]) -> str:
    if not libraries:
        return "no MPI library is installed: `make setup` installs some, or give --library a folder"
    return "say --library with one of: " + ", ".join(f"{library.name} ({library})" for library in libraries)
