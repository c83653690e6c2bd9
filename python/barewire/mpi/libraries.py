# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Detects installed MPI libraries, and which one a program was linked to, from the library itself, not its name."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from barewire import installed
from barewire.errors import MachineCannot, WrongUse, closest
from barewire.mpi.version_cache import cached_version, store_version

_IDENTIFY = Path(__file__).with_name("identify.py")
_TIMEOUT_S = 20
# Where libraries are installed and their name for --library; {} is the name of the folder that the star matches.
_LOCATIONS = (
    installed.MPI_LIBRARIES,
    (Path("/usr/lib"), "*-linux-gnu", ""),
    (Path("/usr/lib64"), "*/lib", "{}"),
    (Path("/opt/intel/oneapi/mpi"), "latest/lib", "oneapi"),
    (Path("/opt"), "*/lib", "{}"),
)
# The newest name is last. The standard's own ABI (libmpi_abi) is another interface of the same library.
_FILES = ("libmpi.so.*", "libmpich.so.*", "release/libmpi.so.*")
_NEEDED = re.compile(r"^\s*(libmpi(?:ch|_abi)?\.so\.\d+) => (not found|.+?)(?: \(0x[0-9a-f]+\))?$", re.MULTILINE)
_MPI4PY = (
    "import importlib.util as u; s = u.find_spec('mpi4py'); "
    "print(*(s.submodule_search_locations if s else ()), sep='\\n')"
)


class Family(StrEnum):
    """Libraries that are configured in the same way."""

    OPEN_MPI = "Open MPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"


@dataclass(frozen=True)
class Library:
    """One MPI library; `netmods` are those that an MPICH installation was built with."""

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
        """The major version."""
        return int(self.version.split(".")[0])

    @property
    def prefix(self) -> Path:
        """The installation prefix, above lib/."""
        folder = self.file.parent
        while folder.name in ("release", "lib", "lib64") or folder.name.endswith("-linux-gnu"):
            folder = folder.parent
        return folder

    def program(self, name: str) -> str:
        """Return this library's own mpirun or mpicc; MachineCannot if it has none."""
        # Distributions with several libraries add a suffix; the plain name may belong to any of them.
        suffix = {Family.OPEN_MPI: ".openmpi", Family.MPICH: ".mpich", Family.INTEL: ""}[self.family]
        for candidate in (f"{name}{suffix}", name):
            path = self.prefix / "bin" / candidate
            if os.access(path, os.X_OK):
                return str(path)
        packages = {Family.OPEN_MPI: "openmpi-bin libopenmpi-dev", Family.MPICH: "mpich libmpich-dev"}
        fix = f": apt install {packages[self.family]}" if self.family in packages else ""
        raise MachineCannot(f"{self} in {self.prefix} has no {name}{fix}")


def installed_libraries() -> list[Library]:
    """Return the libraries in the known locations, each once."""
    libraries: dict[Path, Library] = {}
    names: set[str] = set()
    for base, pattern, name_format in _LOCATIONS:
        for folder in sorted(base.glob(pattern)):
            for file in _library_files(folder):
                if file.resolve() in libraries or (library := identify(file)) is None:
                    continue
                default = library.family.lower().replace(" ", "")
                name = name_format.format(folder.parent.name) or default
                if name not in names:
                    names.add(name)
                    libraries[file.resolve()] = Library(
                        name, library.family, library.version, library.file, library.netmods
                    )
    return list(libraries.values())


def find_library(name: str) -> Library:
    """Return the library that `--library` names: a name of `installed_libraries`, a folder, or the library's file.

    A name comes before a folder that happens to be called the same; `./NAME` is the folder.
    """
    installed = installed_libraries()
    for known in installed:
        if known.name == name:
            return known
    path = Path(name)
    if path.is_dir():
        for folder in (path / "lib", path / "lib64", path):
            for file in _library_files(folder):
                if (library := identify(file)) is not None:
                    return library
        raise WrongUse(f"no MPI library in {path}/lib; give the folder above lib/ and bin/")
    if path.is_file():
        if (library := identify(path)) is not None:
            return library
        raise WrongUse(f"{path} is not a supported MPI library (Open MPI, MPICH, Intel MPI)")
    close = closest(name, [known.name for known in installed])
    raise WrongUse(f"unknown MPI library '{name}'; {_choice(installed)}", close and f"did you mean '{close}'?")


def identify(file: Path) -> Library | None:
    """Load a file and return which library it is; None if it cannot be loaded or is unknown."""
    if (version := cached_version(file)) is not None and (library := read_version(version, file)) is not None:
        return library
    command = [sys.executable, "-I", "-S", str(_IDENTIFY), str(file)]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    library = read_version(completed.stdout, file) if completed.returncode == 0 else None
    if library is not None:
        store_version(file, completed.stdout)
    return library


def read_version(text: str, file: Path) -> Library | None:
    """Parse the string of MPI_Get_library_version."""
    if match := re.match(r"Open MPI v([\d.]+)", text):
        return Library(file.name, Family.OPEN_MPI, match[1], file)
    if match := re.match(r"Intel\(R\) MPI Library ([\d.]+)", text):
        return Library(file.name, Family.INTEL, match[1], file, ("ofi",))
    if match := re.match(r"MPICH Version:\s*([\d.]+)", text):
        device = re.search(r"MPICH Device:\s*\w+:?(.*)", text)
        return Library(file.name, Family.MPICH, match[1], file, tuple(re.findall(r"\w+", device[1] if device else "")))
    return None


def library_of_program(program: str, chosen: Library | None, environment: Mapping[str, str]) -> tuple[Library, str]:
    """Return the library that a program runs with, and the reason.

    `chosen` is the library of `--library`; it must have the ABI that the program is linked to, if it is linked to any.
    WrongUse if the program does not exist, or if its library cannot be determined.
    """
    program_path = shutil.which(program, path=environment.get("PATH"))
    if program_path is None:
        if "/" in program and Path(program).is_file():
            raise WrongUse(f"{program} may not be executed: chmod +x {program}, or give its interpreter before it")
        raise WrongUse(f"no program '{program}': give its path, or a name that is on the PATH")
    file, reason = _needing_file(Path(program_path), environment)
    needed = _needed(file, environment) if file is not None else None
    if needed is None:
        if chosen is not None:
            return chosen, "--library"
        raise WrongUse(
            f"{reason or f'{program_path} is not linked to an MPI library'}; {_choice(installed_libraries())}"
        )
    soname, resolved = needed
    if chosen is not None:
        linker_environment = dict(environment) | library_path(chosen, environment)
        linked = _needed(file or Path(program_path), linker_environment)
        if linked is None or linked[1] is None or linked[1].resolve() != chosen.file.resolve():
            if linked is not None and linked[1] is not None and linked[1].name == chosen.file.name:
                raise WrongUse(
                    f"{file} takes {linked[1]} whatever library is chosen, because it names that folder itself (RPATH)"
                )
            raise WrongUse(f"{file} needs {soname}, which {chosen} ({chosen.file}) is not")
        return chosen, "--library"
    if resolved is None:
        raise WrongUse(f"{file} needs {soname}, which the linker does not find; {_choice(installed_libraries())}")
    library = identify(resolved)
    if library is None:
        raise MachineCannot(f"{file} needs {resolved}, which is not a supported MPI library")
    return library, f"{file.name if file else program_path} needs {soname}"


def library_path(library: Library, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that puts this library first in the linker's search path."""
    previous = environment.get("LD_LIBRARY_PATH")
    folder = str(library.file.parent)
    return {"LD_LIBRARY_PATH": f"{folder}:{previous}" if previous else folder}


def _needing_file(program: Path, environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """Return the file that is linked to MPI: the program, or a Python interpreter's extension; otherwise why not."""
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except PermissionError:
        return None, f"{program} may be executed but not read"
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
    folders = _output([str(interpreter), "-c", _MPI4PY]).splitlines()
    extensions = [file for folder in folders for file in Path(folder).glob("MPI*.so")]
    # A wheel of mpi4py has an extension for each ABI and loads any library that it finds.
    if len(extensions) == 1:
        return extensions[0], ""
    state = "has an mpi4py for any MPI library" if extensions else "has no mpi4py"
    return None, f"{interpreter.name} {state}, so the library of {program.name} is unknown"


def _needed(file: Path, environment: Mapping[str, str]) -> tuple[str, Path | None] | None:
    """Return the MPI library that the dynamic linker resolves for a file: its name and, where it is found, its path."""
    ldd = shutil.which("ldd")
    if ldd is None:
        raise MachineCannot("ldd(1) is missing, which lists a program's libraries: apt install libc-bin")
    match = _NEEDED.search(_output([ldd, str(file)], environment))
    if match is None:
        return None
    if match[2] == "not found":
        return match[1], None
    # On a merged system /lib links to /usr/lib; bin/ lies beside the latter.
    return match[1], Path(match[2]).parent.resolve() / match[1]


def _output(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    try:
        # Names of files need not be text.
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
        ).stdout
    except subprocess.TimeoutExpired:
        raise MachineCannot(
            f"{command[0]} did not answer within {_TIMEOUT_S} s: name the MPI library, --library"
        ) from None


def _library_files(folder: Path) -> Iterator[Path]:
    for pattern in _FILES:
        # libmpi.so.40 before libmpi.so.40.30.4: the name that programs are linked to.
        yield from sorted(folder.glob(pattern), key=lambda file: len(file.name))[:1]


def _choice(libraries: list[Library]) -> str:
    if not libraries:
        return f"no MPI library is installed: {installed.MPI_FIX}, or give --library a folder"
    return "choose with --library one of: " + ", ".join(f"{library.name} ({library})" for library in libraries)
