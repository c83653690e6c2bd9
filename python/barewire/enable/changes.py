# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What enabling and disabling change. All files are planned before any is written, so a bad one stops the command.

Each file is replaced as a whole, by renaming: whoever interrupts the command finds every file old or new.
"""

import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from barewire import installed
from barewire.enable.block import find, insert, remove
from barewire.enable.files import ENV_LIST, Form, Scope, Target, home_parameters, system_parameters, target
from barewire.enable.settings import Wanted
from barewire.errors import BarewireError, MachineCannot, WrongUse
from barewire.mpi.fabrics import PROVIDER_FILE
from barewire.mpi.libraries import Family, Library


@dataclass(frozen=True)
class Change:
    """A file's text before and after, None where there is no file. `folders` are those to create or to remove.

    `shared`: all users read the file, so folders that are created for it are open to them, whatever the umask is.
    """

    file: Path
    before: str | None
    after: str | None
    folders: int = 0
    libraries: tuple[Library, ...] = ()
    shared: bool = False

    @property
    def action(self) -> str:
        """What happens to the file, in one word."""
        if self.before == self.after:
            return "unchanged"
        if self.before is None:
            return "created"
        return "removed" if self.after is None else "changed"


def check_provider(wanted: Wanted, scope: Scope) -> None:
    """Reject a provider that is missing, or that other users of this machine cannot read."""
    file = wanted.provider / PROVIDER_FILE
    if not file.is_file():
        raise MachineCannot(f"no {PROVIDER_FILE} in {wanted.provider}: {installed.FIX}, or give --provider FOLDER")
    closed = [folder for folder in file.resolve().parents if not folder.stat().st_mode & stat.S_IXOTH]
    if scope is Scope.SYSTEM and (closed or not file.stat().st_mode & stat.S_IROTH):
        raise MachineCannot(
            f"other users cannot read {file}{f' below {closed[-1]}' if closed else ''}: copy its folder to where they "
            "can, such as /opt/barewire, and give --provider"
        )


def plan_enable(
    libraries: Sequence[Library], wanted: Wanted, scope: Scope, home: Path
) -> tuple[list[Change], dict[str, str]]:
    """Return the changes that enable these libraries, and why others cannot be, by name."""
    targets: dict[Path, list[Target]] = {}
    refused = {}
    for library in libraries:
        try:
            chosen = target(library, scope, home, libraries)
            chosen.lines(wanted, "")
            targets.setdefault(chosen.file, []).append(chosen)
        except MachineCannot as error:
            refused[library.name] = str(error)
    shared = home_parameters(home)
    without = [library.name for library in libraries if _is_open_mpi_5(library) and library.name in refused]
    if without and wanted.fallback == "none" and shared in targets:
        for each in targets.pop(shared):
            refused[each.library.name] = (
                f"{', '.join(without)} would also read {shared}, but have no provider: use --fallback tcp or --system"
            )
    changes = []
    for file, sharing in targets.items():
        try:
            changes.append(_enabled(file, sharing, wanted, scope))
        except MachineCannot as error:
            refused |= {each.library.name: str(error) for each in sharing}
    return changes, refused


def side_effects(changes: Iterable[Change], installed: Iterable[Library], wanted: Wanted, home: Path) -> list[str]:
    """Return what the changes do to installed libraries that were not named: all versions of Open MPI read one file."""
    changed = {change.file: change.libraries for change in changes}
    named = {library.file for libraries in changed.values() for library in libraries}
    notes = []
    for library in installed:
        if home_parameters(home) not in changed or library.family is not Family.OPEN_MPI or library.file in named:
            continue
        fives = [_is_open_mpi_5(sharing) for sharing in changed[home_parameters(home)]]
        reads = f"{library.name} also reads {home_parameters(home)}"
        if all(fives) and not _is_open_mpi_5(library):
            notes.append(f"{reads}, and ends jobs that are started with -x: add --library {library.name}")
        elif not any(fives) and _is_open_mpi_5(library) and wanted.fallback == "none":
            notes.append(
                f"{reads}, and finds no provider, so its jobs end: add --library {library.name}, or --fallback tcp"
            )
    return notes


def plan_disable(files: Iterable[Path], scope: Scope) -> list[Change]:
    """Return the changes that remove this scope's blocks from those of the files that have one."""
    changes = []
    for file in files:
        text = read(file)
        block = None if text is None else find(text, str(file))
        if text is None or block is None or block.scope != scope:
            continue
        rest = remove(text, block)
        gone = block.folders is not None and not rest.strip()
        changes.append(Change(file, text, None if gone else rest, folders=block.folders or 0))
    return changes


def possible_files(libraries: Iterable[Library], scope: Scope, home: Path) -> list[Path]:
    """Return every file that enabling may have written for these libraries, or for others that are gone."""
    system = Path("/etc/openmpi/openmpi-mca-params.conf")
    fixed = [home_parameters(home), home / ".mpiexec.hydra.conf", home / ".mpiexec.conf"]
    files = dict.fromkeys(fixed if scope is Scope.USER else [system])
    for library in libraries:
        files |= dict.fromkeys(_files_of(library, scope, home))
    return list(files)


def own_files(libraries: Iterable[Library], scope: Scope, home: Path) -> list[Path]:
    """Return the files that enabling has written for these libraries alone, as far as each has a file of its own."""
    files: dict[Path, None] = {}
    for library in libraries:
        for file in _files_of(library, scope, home):
            # A block of -x lines in the file that all versions read passes nothing to Open MPI 5.
            is_others = _is_open_mpi_5(library) and file == home_parameters(home) and ENV_LIST not in (read(file) or "")
            if _has_block(file, scope) and not is_others:
                files[file] = None
    return list(files)


def also_disabled(
    changes: Iterable[Change], named: Iterable[Library], installed: Iterable[Library], scope: Scope, home: Path
) -> list[str]:
    """Return which installed libraries that are not named are enabled by no other file than those to change."""
    changed, names = [change.file for change in changes], {library.file for library in named}
    return [
        f"{library.name} also reads {file}, so it is disabled too"
        for library in installed
        if library.file not in names
        for files in [_files_of(library, scope, home)]
        for file in files
        if file in changed and not any(each not in changed and _has_block(each, scope) for each in files)
    ]


def _files_of(library: Library, scope: Scope, home: Path) -> list[Path]:
    files = []
    with suppress(BarewireError):  # it reads no file of this scope
        files.append(target(library, scope, home, ()).file)
    if _is_open_mpi_5(library):
        # It may have a user's block: see target.
        files.append(system_parameters(library))
    return list(dict.fromkeys(files))


def _has_block(file: Path, scope: Scope) -> bool:
    text = read(file)
    block = None if text is None else find(text, str(file))
    return block is not None and block.scope == scope


def apply(changes: Iterable[Change]) -> None:
    """Write the changes. MachineCannot, with what to do, before any is written if one of them cannot be."""
    changes = list(changes)
    for change in changes:
        if change.after != change.before and (reason := _obstacle(change)) is not None:
            raise _cannot_write(change.file, reason, ())
    for number, change in enumerate(changes):
        try:
            if change.after is None:
                change.file.unlink()
                for folder in list(change.file.parents)[: change.folders]:
                    folder.rmdir()
            elif change.after != change.before:
                _replace(change.file, change.after, shared=change.shared)
        except OSError as error:
            if change.after is None and not change.file.exists():
                continue  # somebody else's files are in a folder that we created
            raise _cannot_write(change.file, error.strerror or str(error), changes[:number]) from error


def _obstacle(change: Change) -> str | None:
    """Return why a file cannot be written or removed, as far as that shows before."""
    file = change.file if change.after is None else change.file.resolve()
    if change.after is not None and file.exists() and not os.access(file, os.W_OK):
        return "it is read-only"
    folder = next(folder for folder in file.parents if folder.exists())
    if not folder.is_dir():
        return f"{folder} is not a folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is read-only"


def _cannot_write(file: Path, reason: str, done: Iterable[Change]) -> MachineCannot:
    text = (
        f"cannot write {file}: {reason}; --system needs root, --user a writable home; "
        "or use the modulefile (barewire modulefile)"
    )
    already = [f"{change.action} {change.file}" for change in done if change.action != "unchanged"]
    return MachineCannot(f"{text}. Already done: {', '.join(already)}" if already else text)


def read(file: Path) -> str | None:
    """Return a file's text, None if it does not exist. MachineCannot if it cannot be read."""
    try:
        return file.read_bytes().decode(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise MachineCannot(f"cannot read {file}: {error.strerror or error}") from error


def _is_open_mpi_5(library: Library) -> bool:
    return library.family is Family.OPEN_MPI and library.major >= 5


def _enabled(file: Path, sharing: Sequence[Target], wanted: Wanted, scope: Scope) -> Change:
    text = read(file)
    block = None if text is None else find(text, str(file))
    if block is not None and block.scope != scope:
        raise WrongUse(
            f"{file}, line {block.line}: already enabled by --{block.scope}: barewire disable --{block.scope}"
        )
    rest = "" if text is None else text if block is None else remove(text, block)
    folders = None if block is None else block.folders
    if text is None:
        folders = sum(not folder.exists() for folder in file.parents)
    bodies = {tuple(each.lines(wanted, rest)) for each in sharing}
    if len(bodies) > 1:
        names = ", ".join(each.library.name for each in sharing)
        raise WrongUse(f"{names} all read {file} and need other settings there: choose one with --library")
    at_top = sharing[0].form is not Form.MCA
    after = insert(rest, bodies.pop(), scope, at_top=at_top, folders=folders)
    libraries = tuple(each.library for each in sharing)
    return Change(file, text, after, libraries=libraries, shared=scope is Scope.SYSTEM)


def _replace(file: Path, text: str, *, shared: bool) -> None:
    """Replace a file's content atomically. A link stays one, and mode and owner stay."""
    file = file.resolve()
    for folder in reversed([folder for folder in file.parents if not folder.exists()]):
        folder.mkdir(exist_ok=True)
        if shared:
            folder.chmod(0o755)
    old = file.stat() if file.exists() else None
    if old is not None and not os.access(file, os.W_OK):
        raise PermissionError(None, "it is read-only")
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as temporary:
            temporary.write(text.encode(errors="surrogateescape"))
            os.fchmod(handle, 0o644 if old is None else stat.S_IMODE(old.st_mode))
            if old is not None and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(handle, old.st_uid, old.st_gid)
            temporary.flush()
            os.fsync(handle)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
