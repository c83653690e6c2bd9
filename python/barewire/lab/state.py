# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Record of a lab outside of it: a JSON file and a scratch directory, in a directory private to the user.

<base>/labs/<id>.json     written atomically
<base>/labs/<id>/         scratch, accessible on all hosts
"""

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from barewire.errors import MachineCannot, WrongUse, unknown
from barewire.lab.kernel import Process
from barewire.lab.spec import LinkSpec

SCHEMA = 5
# Those of logind, which removes a user's when the last session ends; a lab may outlive it.
_SESSIONS = Path("/run/user")
# Not /run/barewire, which is the broker's and open to all users.
_OF_ROOT = Path("/run/barewire-labs")
_SHARED = Path("/tmp")
# Hosts file of barewire's own programs; crates/probe reads it.
NAMES_VARIABLE = "BAREWIRE_HOSTS"


class Wire(StrEnum):
    """What makes a frame take its time on a link."""

    CLOCK = "clock"  # a BPF program at the port, which reads the clock
    EMULATOR = "netem"  # timers
    BUCKET = "tbf"  # nothing: only the rate is limited


@dataclass(frozen=True)
class Host:
    """A host of a running lab; `pid` is the process that keeps its namespaces, in the creator's numbering.

    `inner_pid` is the same process in the lab's process namespace. `management` is its address on the management
    network of a lab with switches.
    """

    name: str
    address: str
    mac: str
    interface: str
    cpus: tuple[int, ...]
    pid: int
    start_ticks: int
    inner_pid: int
    management: str | None = None


@dataclass(frozen=True)
class LabState:
    """Everything needed to enter or end a lab; `keeper` is None while the lab is being created.

    `servers` are Open vSwitch's processes by name, in a lab with switches. `wire` is what makes a frame take its time
    on links with a rate (`Wire`).
    """

    id: str
    topology: str
    link: LinkSpec
    created: str
    persistent: bool
    user_namespace: bool
    creator: Process
    keeper: Process | None
    hosts: tuple[Host, ...]
    notes: tuple[str, ...]
    servers: Mapping[str, Process] = field(default_factory=dict)
    wire: str | None = None

    @property
    def status(self) -> str:
        """Return `running`, `being made` or `gone`."""
        if self.keeper is not None:
            return "running" if self.keeper.alive else "gone"
        return "being made" if self.creator.alive else "gone"

    def to_json(self) -> dict[str, Any]:
        """Return the document that `from_json` reads."""
        return {"schema": SCHEMA} | asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "LabState":
        """Read a state; KeyError, TypeError or ValueError if it is invalid or of another version."""
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']}, not {SCHEMA}")
        return cls(
            id=str(document["id"]),
            topology=str(document["topology"]),
            link=LinkSpec(**document["link"]),
            created=str(document["created"]),
            persistent=bool(document["persistent"]),
            user_namespace=bool(document["user_namespace"]),
            creator=Process(**document["creator"]),
            keeper=None if document["keeper"] is None else Process(**document["keeper"]),
            hosts=tuple(Host(**host | {"cpus": tuple(host["cpus"])}) for host in document["hosts"]),
            notes=tuple(document["notes"]),
            servers={name: Process(**server) for name, server in document["servers"].items()},
            wire=document["wire"],
        )


def labs_directory() -> Path:
    """Return this user's directory of labs, created if needed."""
    refusals = []
    for base in _candidates():
        try:
            return _private_directory(_private_directory(base) / "labs")
        except OSError as error:
            refusals.append(f"{base}: {error}")
    raise MachineCannot(f"no private directory for labs ({'; '.join(refusals)}). Fix: set XDG_RUNTIME_DIR to one")


def scratch_directory(lab_id: str) -> Path:
    """Return the directory of a lab's own files."""
    return labs_directory() / lab_id


def etc_directory(scratch: Path) -> Path:
    """Return the folder in a lab's scratch directory for the hosts' files of names."""
    return scratch / "etc"


def names_file(scratch: Path) -> Path:
    """Return barewire's hosts file of all hosts of a lab."""
    return etc_directory(scratch) / "barewire-hosts"


@contextlib.contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Name the directory if files in it cannot be written, as a full one; MachineCannot."""
    try:
        yield
    except OSError as error:
        raise MachineCannot(f"cannot write a lab's files to {directory}: {error.strerror}") from error


def save(state: LabState) -> None:
    """Write a lab's state atomically; MachineCannot if its directory is full."""
    with writing_to(labs_directory()):
        _save(state)


def _save(state: LabState) -> None:
    file = _state_file(state.id)
    writer = Process.of(os.getpid())
    draft = file.with_name(f"{state.id}.{writer.pid}.{writer.start_ticks}.draft")
    draft.write_text(json.dumps(state.to_json(), indent=2) + "\n")
    draft.replace(file)


def load(lab_id: str) -> LabState:
    """Read a lab's state; WrongUse if there is none."""
    file = _state_file(lab_id)
    try:
        return LabState.from_json(json.loads(file.read_text()))
    except FileNotFoundError:
        raise unknown("lab", lab_id, known_ids()) from None
    except (KeyError, TypeError, ValueError) as error:
        raise WrongUse(
            f"{file} was not written by this version ({error}); if its lab is gone, remove the file"
        ) from error


def known_ids() -> list[str]:
    """Return the ids of all labs with a state, running or gone; remove what a killed process was writing."""
    directory = labs_directory()
    for draft in directory.glob("*.draft"):
        _, *writer, _ = draft.name.split(".")
        # Earlier versions did not name the writer.
        if len(writer) != 2 or not Process(*map(int, writer)).alive:
            draft.unlink(missing_ok=True)
    return sorted(file.stem for file in directory.glob("*.json"))


def forget(lab_id: str) -> None:
    """Remove a lab's scratch directory and state."""
    shutil.rmtree(scratch_directory(lab_id), ignore_errors=True)
    _state_file(lab_id).unlink(missing_ok=True)


def _state_file(lab_id: str) -> Path:
    if not lab_id.isalnum():  # it becomes a file name
        raise WrongUse(f"'{lab_id}' is not a lab id; `barewire lab list` shows them")
    return labs_directory() / f"{lab_id}.json"


def _candidates() -> list[Path]:
    """The same with and without a session: a session's directory is the last, any other XDG_RUNTIME_DIR the first."""
    user = os.geteuid()
    candidates = [_SHARED / f"barewire-{user}"]
    if user == 0:
        candidates.insert(0, _OF_ROOT)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and Path(runtime).stat().st_uid == user:
        is_session = Path(runtime).resolve().parent == _SESSIONS
        candidates.insert(len(candidates) if is_session else 0, Path(runtime) / "barewire")
    return candidates


def _private_directory(path: Path) -> Path:
    """Create a directory that only this user can enter, or check an existing one: /tmp is shared by all users."""
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private directory of this user")
    return path
