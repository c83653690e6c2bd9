# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire enable`, `disable`, `status`, `modulefile`: plain mpirun over Barewire."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from barewire import installed
from barewire.cli import complete, options
from barewire.cli.output import print_document
from barewire.enable import modulefile as modulefiles
from barewire.enable.changes import (
    Change,
    also_disabled,
    apply,
    check_provider,
    own_files,
    plan_disable,
    plan_enable,
    possible_files,
    side_effects,
)
from barewire.enable.files import Scope
from barewire.enable.settings import FALLBACKS, Wanted
from barewire.enable.state import LibraryState, folders_in_use, state_of
from barewire.errors import MachineCannot, WrongUse, unknown
from barewire.mpi.libraries import Library, find_library, installed_libraries

FORMATS = {"lua": modulefiles.lua, "tcl": modulefiles.tcl, "slurm": modulefiles.slurm}

System = Annotated[bool, typer.Option("--system", help="for all users of this machine, as root by default")]
User = Annotated[bool, typer.Option("--user", help="for yourself, as all others by default")]
Fallback = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="what ranks without Barewire do: tcp (use TCP) or none (the job ends)",
        autocompletion=complete.names(lambda: FALLBACKS),
    ),
]
Provider = Annotated[
    Path | None,
    typer.Option(metavar="DIRECTORY", help="where libbarewire-fi.so is", show_default="this installation's"),
]
Interface = Annotated[str | None, options.INTERFACE]
Libraries = Annotated[str | None, options.LIBRARIES]


def enable(
    system: System = False,
    user: User = False,
    library: Libraries = None,
    fallback: Fallback = FALLBACKS[0],
    provider: Provider = None,
    interface: Interface = None,
    as_json: options.AsJson = False,
) -> None:
    """Let plain mpirun, mpiexec and srun use Barewire, by marked lines in files that each MPI library reads."""
    scope = _scope(system, user)
    wanted = _wanted(provider, fallback, interface)
    check_provider(wanted, scope)
    home = _home()
    changes, refused = plan_enable(_libraries(library), wanted, scope, home)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    if not changes:
        raise MachineCannot(f"no MPI library can be enabled: {reasons or f'none is installed: {installed.MPI_FIX}'}")
    if library is not None and refused:
        raise MachineCannot(f"nothing was enabled, because not all of --library can be: {reasons}")
    apply(changes)
    notes = side_effects(changes, installed_libraries(), wanted, home) if scope is Scope.USER else []
    _print_changes(changes, scope, as_json, refused, notes)


def disable(
    system: System = False, user: User = False, library: Libraries = None, as_json: options.AsJson = False
) -> None:
    """Remove what `barewire enable` wrote, and nothing else."""
    scope = _scope(system, user)
    named, home = _libraries(library), _home()
    # Without names also what was enabled for libraries that are gone.
    files = (possible_files if library is None else own_files)(named, scope, home)
    changes = plan_disable(files, scope)
    notes = [] if library is None else also_disabled(changes, named, installed_libraries(), scope, home)
    apply(changes)
    _print_changes(changes, scope, as_json, notes=notes)


def status(library: Libraries = None, as_json: options.AsJson = False) -> None:
    """Report for each MPI library whether its plain launcher uses Barewire, by which line, and what overrides it."""
    home = _home()
    states = [state_of(found, os.environ, home, _here(home)) for found in _libraries(library)]
    if as_json:
        print_document("status", {"libraries": [_document(state) for state in states]})
        return
    if not states:
        typer.echo(f"no MPI library is installed: {installed.MPI_FIX}")
    for state in states:
        _print_state(state)
    if len(folders := folders_in_use(states)) > 1:
        typer.echo(f"different providers are in force: {', '.join(folders)}; the ranks of a job must use one version")


def modulefile(
    form: Annotated[
        str,
        typer.Argument(
            metavar="lua|tcl|slurm",
            help="for Lmod, environment-modules, or a TaskProlog",
            autocompletion=complete.names(lambda: FORMATS),
        ),
    ],
    fallback: Fallback = FALLBACKS[0],
    provider: Provider = None,
    interface: Interface = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a modulefile, for one shell, or a TaskProlog of Slurm; the settings are those of `barewire enable`."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    text = FORMATS[form](_wanted(provider, fallback, interface))
    if as_json:
        print_document("modulefile", {"format": form, "text": text})
    else:
        typer.echo(text, nl=False)


def _scope(system: bool, user: bool) -> Scope:
    if system and user:
        raise WrongUse("--system and --user exclude each other: run the command once for each")
    return Scope.SYSTEM if system or (os.geteuid() == 0 and not user) else Scope.USER


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise MachineCannot("this user has no home, where libraries look for a user's own file: set HOME") from None


def _here(home: Path) -> Path:
    """Return the shell's folder; if that has been removed, the home, in which nothing is looked for twice."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return home


def _libraries(names: str | None) -> list[Library]:
    if names is None:
        return installed_libraries()
    return [find_library(name) for name in dict.fromkeys(name.strip() for name in names.split(","))]


def _wanted(provider: Path | None, fallback: str, interface: str | None) -> Wanted:
    return Wanted((provider or installed.PROVIDER).absolute(), fallback, interface)


def _print_changes(
    changes: Sequence[Change],
    scope: Scope,
    as_json: bool,
    refused: Mapping[str, str] = MappingProxyType({}),
    notes: Sequence[str] = (),
) -> None:
    if as_json:
        files = [
            {"file": str(change.file), "action": change.action, "libraries": _names(change.libraries)}
            for change in changes
        ]
        print_document("enable", {"scope": scope, "files": files, "refused": dict(refused), "notes": notes})
        return
    for change in changes:
        libraries = f" ({', '.join(_names(change.libraries))})" if change.libraries else ""
        typer.echo(f"{change.action}: {change.file}{libraries}")
    for name, reason in refused.items():
        typer.echo(f"not enabled: {name}: {reason}")
    for note in notes:
        typer.echo(f"note: {note}")
    if not changes:
        typer.echo(f"nothing is enabled by --{scope}")


def _print_state(state: LibraryState) -> None:
    verdict = "over Barewire" if state.in_force else "NOT over Barewire" if state.by else "not enabled"
    typer.echo(f"{state.library.name} ({state.library}): {verdict}")
    if state.by:
        typer.echo(f"  provider in {state.provider or 'no folder'}")
    for what, lines in (("by", state.by), ("problem", state.problems), ("note", state.notes)):
        for line in lines:
            typer.echo(f"  {what}: {line}")


def _names(libraries: Sequence[Library]) -> list[str]:
    return [library.name for library in libraries]


def _document(state: LibraryState) -> dict[str, object]:
    return {
        "library": state.library.name,
        "version": str(state.library),
        "in_force": state.in_force,
        "by": state.by,
        "provider": state.provider,
        "problems": state.problems,
        "notes": state.notes,
    }
