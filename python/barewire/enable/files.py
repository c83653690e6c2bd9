# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The file in which each MPI library looks for parameters, and the lines that it understands there."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from barewire.enable.settings import MCA, Wanted, open_mpi_parameters, rank_variables
from barewire.errors import MachineCannot
from barewire.mpi.libraries import Family, Library

ENV_LIST = "mca_base_env_list"
_HYDRA_NAME = "mpiexec.hydra.conf"
# What ends a word in a file of arguments, or begins a quoted one.
_NOT_A_WORD = re.compile(r"[\s'\"\\]")
# It loads all of Open MPI's components, from a network's disk on a cluster.
_OMPI_INFO_S = 20.0


class Scope(StrEnum):
    """For whom a file is read."""

    SYSTEM = "system"
    USER = "user"


class Form(StrEnum):
    """How a file is read. HYDRA: arguments of mpiexec, and each further line is another program's."""

    MCA = "mca"
    HYDRA = "hydra"
    ARGUMENTS = "arguments"


@dataclass(frozen=True)
class Target:
    """One file that enabling writes. `env_list`: Open MPI takes its ranks' variables from a list, not from -x lines."""

    file: Path
    form: Form
    library: Library
    env_list: bool = False

    def lines(self, wanted: Wanted, rest: str) -> list[str]:
        """Return the block's lines. `rest` is the remaining text of the file."""
        variables = rank_variables(self.library, wanted)
        if self.form is not Form.MCA:
            for name, value in variables.items():
                if _NOT_A_WORD.search(value):
                    raise MachineCannot(
                        f"{self.file} cannot hold {name}={value}, which has spaces or quotes: use the modulefile "
                        "(barewire modulefile)"
                    )
            arguments = " ".join(f"-genv {name} {value}" for name, value in variables.items())
            continued = self.form is Form.HYDRA and bool(arguments_of(rest))
            if continued and self.library.major < 5:
                raise MachineCannot(
                    f"{self.file} already has other lines, and {self.library} reads only one line: use the modulefile"
                )
            return [f"{arguments} \\"] if continued else [arguments]
        lines = [f"{name} = {value}" for name, value in open_mpi_parameters(wanted).items()]
        # The last such line counts, and version 4 ends jobs that have -x lines beside it.
        earlier = [value for name, value, _ in assignments(rest, Form.MCA) if name == f"{MCA}{ENV_LIST}"][-1:]
        settings = [f"{name}={value}" for name, value in variables.items()]
        if not self.env_list and not earlier:
            return lines + [f"-x {setting}" for setting in settings]
        return [*lines, f"{ENV_LIST} = {';'.join([*earlier, *settings])}"]


def target(library: Library, scope: Scope, home: Path, libraries: Sequence[Library]) -> Target:
    """Return the file for a library, if `libraries` are enabled as well. MachineCannot if it reads none."""
    if library.family is Family.MPICH:
        file = home / f".{_HYDRA_NAME}" if scope is Scope.USER else hydra_file(library)
        return Target(file, Form.HYDRA, library)
    if library.family is Family.INTEL:
        file = home / ".mpiexec.conf" if scope is Scope.USER else intel_file(library.prefix)
        return Target(file, Form.ARGUMENTS, library)
    if library.major < 5:
        # -x lines: with mca_base_env_list it ends the jobs of users who give -x themselves.
        return Target(home_parameters(home) if scope is Scope.USER else system_parameters(library), Form.MCA, library)
    own = system_parameters(library)
    if scope is Scope.SYSTEM:
        return Target(own, Form.MCA, library, env_list=True)
    if not any(other.family is Family.OPEN_MPI and other.major < 5 for other in libraries):
        return Target(home_parameters(home), Form.MCA, library, env_list=True)
    if owner(own) == os.geteuid():
        return Target(own, Form.MCA, library, env_list=True)
    raise MachineCannot(
        f"{home_parameters(home)} cannot pass variables to Open MPI 5 and 4 at once, and you may not write {own}: use "
        f"--library {library.name} alone, --system as root, or the modulefile (barewire modulefile)"
    )


def home_parameters(home: Path) -> Path:
    """Return the file of a user's parameters that all versions of Open MPI read."""
    return home / ".openmpi" / "mca-params.conf"


def system_parameters(library: Library) -> Path:
    """Return the file of parameters that an installation of Open MPI reads for all users."""
    try:
        configured = _configured_folder(library.program("ompi_info"), library.prefix)
    except MachineCannot:
        configured = None
    usual = Path("/etc/openmpi") if library.prefix == Path("/usr") else library.prefix / "etc"
    return (configured or usual) / "openmpi-mca-params.conf"


def hydra_file(library: Library) -> Path:
    """Return the file that MPICH's mpiexec reads for all users: its path is compiled in."""
    launcher = Path(library.program("mpiexec.hydra"))
    found = re.search(rb"/[\x21-\x7e]+/" + re.escape(_HYDRA_NAME.encode()) + rb"\0", launcher.read_bytes())
    if found is None:
        raise MachineCannot(
            f"{launcher} reads no file for all users: use --user or the modulefile (barewire modulefile)"
        )
    return Path(os.fsdecode(found[0][:-1]))


def intel_file(root: Path) -> Path:
    """Return the file that Intel MPI's mpiexec reads for all users: below I_MPI_ROOT."""
    return root / "intel64" / "etc" / "mpiexec.conf"


@cache
def _configured_folder(ompi_info: str, prefix: Path) -> Path | None:
    """Return where an Open MPI was configured to look; None if unknown, or if it was moved since, with its folders."""
    command = [ompi_info, "--parsable", "--path", "prefix", "--path", "sysconfdir"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="surrogateescape", check=False, timeout=_OMPI_INFO_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    paths = dict(line.split(":", 2)[1:] for line in done.stdout.splitlines() if line.count(":") > 1)
    if Path(paths.get("prefix", "")).resolve() != prefix.resolve() or not paths.get("sysconfdir"):
        return None
    return Path(paths["sysconfdir"])


def owner(file: Path) -> int:
    """Return the owner of a file, or of the nearest folder above it that exists."""
    while not file.exists():
        file = file.parent
    return file.stat().st_uid


def assignments(text: str, form: Form) -> list[tuple[str, str, int]]:
    """Return the variables that a file sets, as a rank would see them, each with its line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if form is not Form.MCA:
            words = arguments_of(line)
            pairs = [(words[at + 1 : at + 3]) for at, word in enumerate(words) if word in ("-genv", "-env")]
            found += [(pair[0], pair[1], number) for pair in map(_name_and_value, pairs) if len(pair) == 2]
        elif match := re.match(r"\s*--?x\s+(\S+?)\s*=\s*(.*?)\s*$", line):
            found.append((match[1], match[2], number))
        elif match := re.match(r"\s*([^#\s=]+)\s*=\s*(.*?)\s*$", line):
            found.append((f"{MCA}{match[1]}", match[2], number))
    return found


def arguments_of(text: str) -> list[str]:
    """Return the words of a file of arguments, without comments."""
    return [word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split()]


def expand(effective: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Open MPI makes of its list of variables."""
    listed = effective.get(f"{MCA}{ENV_LIST}", "")
    return dict(entry.split("=", 1) for entry in listed.split(";") if "=" in entry)


def _name_and_value(words: list[str]) -> list[str]:
    return words[0].split("=", 1) if words and "=" in words[0] else words
