# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is in force for a plain launcher of each library, by which line, and what overrides it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from barewire.enable import block
from barewire.enable.changes import read
from barewire.enable.files import (
    ENV_LIST,
    Form,
    arguments_of,
    assignments,
    expand,
    home_parameters,
    hydra_file,
    intel_file,
    system_parameters,
)
from barewire.enable.settings import MCA, PROVIDER_PATH, missing
from barewire.errors import BarewireError
from barewire.mpi.fabrics import PROVIDER_FILE
from barewire.mpi.libraries import Family, Library

ENVIRONMENT = "environment"
# Open MPI refuses to have this list of providers and one of those not to use, which has several names.
_PROVIDERS = f"{MCA}mtl_ofi_provider_include"


@dataclass(frozen=True)
class Value:
    """One variable as a source sets it: a file with its line, or the environment. `ours`: a line of our block."""

    name: str
    value: str
    where: str
    ours: bool = False


@dataclass(frozen=True)
class LibraryState:
    """What a plain launcher of one library does. `by` are our blocks, or the environment, that make it so."""

    library: Library
    in_force: bool
    by: tuple[str, ...] = ()
    provider: str = ""
    problems: tuple[str, ...] = ()
    # What stands, and would be expected to matter, but does not.
    notes: tuple[str, ...] = ()


@dataclass
class _Sources:
    """What a library reads, the strongest last."""

    values: list[Value] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)

    def add_environment(self, environment: Mapping[str, str], *, parameters: bool) -> None:
        self.values += [
            Value(name, value, ENVIRONMENT)
            for name, value in environment.items()
            if name.startswith(MCA) == parameters and name.startswith((MCA, "FI_", "MPIR_", "I_MPI_"))
        ]

    def add_file(self, file: Path, form: Form) -> None:
        try:
            text = read(file)
            if text is None:
                return
            found = block.find(text, str(file))
        except BarewireError as error:
            self.problems.append(str(error))
            return
        ours: range = range(0)
        if found is not None:
            ours = range(found.line, found.line + len(found.body) + 2)
            self.blocks.append(f"{found.scope}: {file}, line {found.line}")
        for name, value, line in assignments(text, form):
            self.values.append(Value(name, value, f"{file}, line {line}", line in ours))


def state_of(library: Library, environment: Mapping[str, str], home: Path, here: Path) -> LibraryState:
    """Return what is in force for one library. `environment` is the shell's, `here` its folder."""
    if library.family is Family.MPICH and "ofi" not in library.netmods:
        return LibraryState(library, in_force=False, notes=(f"built for {', '.join(library.netmods)} only",))
    sources = _Sources()
    # A rank's variables come from the files rather than from the shell.
    sources.add_environment(environment, parameters=False)
    if library.family is Family.OPEN_MPI:
        _add_open_mpi(sources, library, environment, home)
    elif library.family is Family.MPICH:
        _add_mpich(sources, library, environment, home)
    else:
        _add_intel(sources, library, environment, home, here)
    effective = {value.name: value for value in sources.values}
    if library.family is Family.OPEN_MPI:
        effective = _with_list(effective)
    plain = {name: value.value for name, value in effective.items()}
    provider = _provider_of(plain.get(PROVIDER_PATH, ""))
    wrong = missing(library, plain)
    problems = list(sources.problems)
    if sources.blocks:
        problems += [
            f"{effective[name].where}: {name}={plain[name]}" if name in effective else f"nothing sets {name}"
            for name in wrong
        ]
    if not wrong and provider is None:
        problems.append(f"{effective[PROVIDER_PATH].where}: no {PROVIDER_FILE} in {plain[PROVIDER_PATH]}")
    in_force = not wrong and not problems
    by = sources.blocks or ([f"shell: {ENVIRONMENT}"] if in_force else [])
    folder = provider or plain.get(PROVIDER_PATH, "")
    return LibraryState(library, in_force, tuple(by), folder, tuple(problems), _notes(sources, effective))


def _add_open_mpi(sources: _Sources, library: Library, environment: Mapping[str, str], home: Path) -> None:
    sources.add_file(system_parameters(library), Form.MCA)
    sources.add_file(home_parameters(home), Form.MCA)
    if library.major >= 5:
        # It does not read -x lines.
        sources.values = [v for v in sources.values if v.where == ENVIRONMENT or v.name.startswith(MCA)]
    sources.add_environment(environment, parameters=True)
    if any(value.name == _PROVIDERS for value in sources.values):
        sources.problems += [
            f"{value.where}: {value.name} beside mtl_ofi_provider_include: Open MPI uses no provider"
            for value in sources.values
            if value.name.endswith("ofi_provider_exclude")
        ]
    if library.major < 5 and any(value.ours and value.name == PROVIDER_PATH for value in sources.values):
        sources.problems += [
            f"{value.where}: {ENV_LIST} beside -x lines: Open MPI 4 ends jobs"
            for value in sources.values
            if value.name == f"{MCA}{ENV_LIST}"
        ]


def _add_mpich(sources: _Sources, library: Library, environment: Mapping[str, str], home: Path) -> None:
    files = [home / ".mpiexec.hydra.conf"]
    if named := environment.get("HYDRA_CONFIG_FILE"):
        files.insert(0, Path(named))
    with suppress(BarewireError):  # it reads no file for all users
        files.append(hydra_file(library))
    # It reads the first that there is, and no other.
    existing = [file for file in files if file.exists()]
    if not existing:
        return
    first, *hidden = existing
    sources.add_file(first, Form.HYDRA)
    if sources.blocks:
        lines = [line for line in (read(first) or "").splitlines() if arguments_of(line)]
        if not all(line.endswith("\\") for line in lines[:-1]):
            sources.problems.append(f"{first}: to MPICH 5 each further line is another program: repeat barewire enable")
        return
    unread = _Sources()
    for file in hidden:
        unread.add_file(file, Form.HYDRA)
    sources.problems += [f"{first} is read instead of {found}" for found in unread.blocks]


def _add_intel(sources: _Sources, library: Library, environment: Mapping[str, str], home: Path, here: Path) -> None:
    root = environment.get("I_MPI_ROOT")
    if root:
        sources.add_file(intel_file(Path(root)), Form.ARGUMENTS)
    sources.add_file(home / ".mpiexec.conf", Form.ARGUMENTS)
    if here != home:
        sources.add_file(here / "mpiexec.conf", Form.ARGUMENTS)
    if not root and not sources.blocks:
        unread = _Sources()
        unread.add_file(intel_file(library.prefix), Form.ARGUMENTS)
        sources.problems += [f"not read, as I_MPI_ROOT is not set: {found}" for found in unread.blocks]


def _with_list(effective: Mapping[str, Value]) -> dict[str, Value]:
    """Return the variables with those of Open MPI's list; the strongest list alone counts."""
    result = dict(effective)
    listed = effective.get(f"{MCA}{ENV_LIST}")
    if listed is not None:
        for name, value in expand({listed.name: listed.value}).items():
            result[name] = Value(name, value, listed.where, listed.ours)
    return result


def _provider_of(folders: str) -> str | None:
    """Return the folder in which libfabric finds our provider; None if in none of them."""
    return next((folder for folder in folders.split(":") if folder and (Path(folder) / PROVIDER_FILE).is_file()), None)


def _notes(sources: _Sources, effective: Mapping[str, Value]) -> tuple[str, ...]:
    """Return lines and variables that our block overrides, which their author may not expect."""
    return tuple(
        f"{value.where}: {value.name}={value.value} is overridden by {winner.where}"
        for value in sources.values
        if not value.ours and (winner := effective[value.name]).ours and winner.value != value.value
    )


def folders_in_use(states: Sequence[LibraryState]) -> list[str]:
    """Return the folders of the providers in force: more than one means different versions for different libraries."""
    return list(dict.fromkeys(state.provider for state in states if state.in_force))
