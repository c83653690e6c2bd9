# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a plan's steps, each a command of barewire's in a process of its own, and keeps what became of them.

A study's directory has `study.json`, and for each step its run, or `NAME.json`, the document that it printed. A step
that was finished is not run again, so an interrupted study is resumed where it was.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from barewire import __version__, installed
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.mpi import find_library, installed_libraries
from barewire.processes import end_with_this_process
from barewire.results.store import write_atomically
from barewire.study.plan import Form, Plan, Step

STUDY_FILE = "study.json"
VERSION = 1
State = Literal["done", "left out", "failed"]
# Exit codes of barewire's commands.
_WRONG_USE, _MACHINE_CANNOT, _INTERRUPTED = 2, 3, 130
_LINES_KEPT = 12
# Of links and hosts in a lab; a rate is not one of them, because real links have one, too.
_OPTIONS_OF_LABS = ("--broker", "--loss", "--mtu", "--offloads")
# A line that says what is done and left, outside of a terminal.
_PROGRESS = re.compile(r"barewire: .*: \d+ of \d+ done in ")


@dataclass(frozen=True)
class Done:
    """What became of a step: `reason` is the command's message, or what of it was left out, unless all went well.

    `build` is the Barewire that ran it; empty in studies of older versions.
    """

    state: State
    command: tuple[str, ...]
    seconds: float
    reason: str = ""
    build: str = ""

    @property
    def outcome(self) -> str:
        """Its state as a verb."""
        return self.state if self.state == "failed" else f"was {self.state}"


@dataclass(frozen=True)
class Record:
    """A study on disk. `hosts` are real ones, or None for labs on this machine; `interface` is theirs, if given."""

    plan: str
    digest: str
    form: Form
    hosts: str | None
    created: str
    steps: Mapping[str, Done] = field(default_factory=dict)
    interface: str | None = None

    @property
    def seconds(self) -> float:
        """Time of all steps."""
        return sum(step.seconds for step in self.steps.values())

    @property
    def builds(self) -> dict[str, list[str]]:
        """The builds of Barewire that measured something, each with its steps."""
        found: dict[str, list[str]] = {}
        for name, step in self.steps.items():
            if step.state == "done":
                found.setdefault(step.build or "an unknown build", []).append(name)
        return found

    def write(self, directory: Path) -> None:
        """Write it to the study's directory."""
        directory.mkdir(parents=True, exist_ok=True)
        document = {"version": VERSION, **asdict(self)}
        text = json.dumps(document, indent=1, ensure_ascii=False)
        # A folder's name that is no text is kept as JSON's escape.
        write_atomically(directory / STUDY_FILE, text.encode(errors="backslashreplace"))


def this_build() -> str:
    """The version and the commit of this installation."""
    return f"{__version__}, commit {installed.commit() or 'unknown'}"


def read_record(directory: Path) -> Record:
    """Read a study's record; WrongUse if there is none, or it is of another version."""
    path = directory / STUDY_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("version") != VERSION:
            raise WrongUse(f"{path} is of another version of barewire: run the study again")
        steps = {name: Done(**{**done, "command": tuple(done["command"])}) for name, done in content["steps"].items()}
        return Record(**{**content, "steps": steps})
    except OSError as error:
        raise WrongUse(f"{directory} contains no study: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WrongUse(f"{path} is damaged: {error}") from error


@contextlib.contextmanager
def only_run_of(directory: Path) -> Iterator[int]:
    """Let no other process run the study in `directory`, created if needed; WrongUse if one does.

    Yields the lock, which the steps get, so that it lasts until the last of them has ended. Without effect on file
    systems that have no locks of directories, such as NFS.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongUse(f"the study in {directory} is being run by {_holder(lock)}") from None
        except OSError:
            pass
        yield lock
    finally:
        os.close(lock)


def _holder(lock: int) -> str:
    """The process that has locked this directory, as far as the system tells."""
    status = os.fstat(lock)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5] == file and Path(f"/proc/{words[4]}").exists():
            return f"process {words[4]}"
    return "another process, or a step of it has not ended yet"


def begin(plan: Plan, directory: Path, form: Form, hosts: str | None, interface: str | None = None) -> Record:
    """Return the record of a new study, or of the same one that was begun there; WrongUse if it is another."""
    if not (directory / STUDY_FILE).exists():
        # A first record that was not written to its end is hidden.
        if directory.exists() and any(not entry.name.startswith(".") for entry in directory.iterdir()):
            raise WrongUse(f"{directory} is not empty and contains no study; a study needs a directory of its own")
        created = datetime.now(UTC).isoformat(timespec="seconds")
        record = Record(plan.name, plan.digest, form, hosts, created, interface=interface)
        record.write(directory)
        return record
    record = read_record(directory)
    if (record.plan, record.form, record.hosts, record.interface) != (plan.name, form, hosts, interface):
        on = "labs" if record.hosts is None else record.hosts
        on += f" by {record.interface}" if record.interface else ""
        raise WrongUse(f"{directory} has the {record.form} study {record.plan} on {on}: continue it as it was begun")
    if record.digest != plan.digest:
        raise WrongUse(
            f"the plan {plan.name} has changed since {directory} was begun: use another directory, or judge what was "
            f"measured there by the changed claims: barewire study report {directory} --plan FILE"
        )
    return record


def run_steps(
    plan: Plan,
    directory: Path,
    record: Record,
    progress: Callable[[int, int, str], None],
    kept_open: Sequence[int] = (),
) -> Record:
    """Run the steps that are not done yet; return the record. `kept_open` are descriptors that each step holds.

    A step that this machine cannot run is left out, one that fails is noted, and the others follow. WrongUse if a
    command is wrong, which is the plan's mistake; KeyboardInterrupt if a step was interrupted.
    """
    build = this_build()
    for number, step in enumerate(plan.steps):
        done = record.steps.get(step.name)
        if done is not None and done.state == "done":
            continue
        progress(number, len(plan.steps), step.what)
        missing = _not_made(step, plan, record)
        result = replace(missing or _run(step, directory, record, kept_open), build=build)
        record = replace(record, steps={**record.steps, step.name: result})
        record.write(directory)
    progress(len(plan.steps), len(plan.steps), "")
    if record.steps and all(done.state == "left out" for done in record.steps.values()):
        reasons = "; ".join(dict.fromkeys(done.reason for done in record.steps.values()))
        raise MachineCannot(f"this machine can run no step of the study {plan.name}: {reasons}")
    return record


def _not_made(step: Step, plan: Plan, record: Record) -> Done | None:
    """Leave a step out that reads results, or a file, of a step before it that is not done."""
    files = {word for word in step.command if word.startswith("{study}/")}
    for before in plan.steps[: plan.steps.index(step)]:
        done = record.steps[before.name]
        if done.state != "done" and files & {*before.command, f"{{study}}/{before.name}"}:
            reason = f"it needs results of step '{before.name}', which {done.outcome}"
            return Done("left out", step.command, 0.0, reason)
    return None


def _run(step: Step, directory: Path, record: Record, kept_open: Sequence[int]) -> Done:
    if record.form not in step.forms:
        return Done("left out", step.command, 0.0, f"it belongs to the {' and '.join(step.forms)} form")
    if record.hosts is not None and (needs := _of_labs(step)):
        return Done("left out", step.command, 0.0, f"needs {needs} in a lab, not real hosts")
    try:
        command, without = _command(step, directory, record)
    except MachineCannot as error:
        return Done("left out", step.command, 0.0, str(error))
    except MeasurementFailed as error:
        return Done("failed", step.command, 0.0, str(error))
    target = directory / step.name
    if target.is_dir():
        shutil.rmtree(target)
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "barewire", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a program prints may be anything.
        errors="replace",
        # A signal of the terminal reaches it once, through the study.
        process_group=0,
        pass_fds=kept_open,
        # Not SIGINT, which commands in the background of a shell ignore.
        preexec_fn=end_with_this_process(),
    )
    try:
        output, errors = process.communicate()
    except BaseException:
        # It removes its lab.
        process.terminate()
        process.communicate()
        raise
    seconds = round(time.monotonic() - started, 1)
    lines = [line for line in errors.strip().splitlines() if not _PROGRESS.match(line)]
    message = "\n".join(lines[-_LINES_KEPT:])
    match process.returncode:
        case 0:
            if "--json" in command:
                write_atomically(directory / f"{step.name}.json", output.encode())
            return Done("done", command, seconds, without)
        case code if code == _INTERRUPTED:
            raise KeyboardInterrupt
        case code if code == _WRONG_USE:
            raise WrongUse(f"step '{step.name}' of the plan: barewire {' '.join(command)}\n{message}")
        case code if code == _MACHINE_CANNOT:
            return Done("left out", command, seconds, _last_line(message))
        case code:
            return Done("failed", command, seconds, message or _ended(code))


def _ended(code: int) -> str:
    """How a command ended that said nothing, such as one that the system killed to have its memory."""
    return f"ended with code {code}" if code > 0 else f"killed by signal {-code}"


def _of_labs(step: Step) -> str:
    """What a step needs that real hosts do not have, in words: without it, its claims would be about something else."""
    if step.command[:2] == ("sdn", "bench"):
        return "a network of switches"
    found = ["--capture"] if step.lab and "--capture" in step.command else []
    found += [word for word in step.lab if word in _OPTIONS_OF_LABS or word.startswith("routed:")]
    return " and ".join(found)


def _last_line(message: str) -> str:
    """The error without progress and warnings before it."""
    lines = [line for line in message.splitlines() if line.startswith("barewire: ")] or message.splitlines()[-1:]
    return lines[-1].removeprefix("barewire: ") if lines else "the command gave no reason"


def _command(step: Step, directory: Path, record: Record) -> tuple[tuple[str, ...], str]:
    """The words of a step's command, and what of it is left out, in words.

    Options go before `--`, behind which are those of the program. MachineCannot if no library of `--library` is here,
    or not that of the program; MeasurementFailed if the program cannot be built.
    """
    words, program = _split([_filled(word, directory) for word in step.command])
    more, of_form = _split(step.quick if record.form == "quick" else step.full)
    place: tuple[str, ...] = step.lab
    if step.lab and record.hosts is not None:
        place = ("--hosts", _hosts_for(step, record.hosts))
        place += ("--interface", record.interface) if record.interface else ()
    words, without = _with_installed_libraries((*words, *place, *more))
    results = ("-o", str(directory / step.name)) if step.leaves_run else ()
    as_json = () if step.leaves_run or step.command[0] == "run" else ("--json",)
    behind = (*program, *of_form)
    return (*words, *results, *as_json, *(("--", *behind) if behind else ())), without


def _with_installed_libraries(words: Sequence[str]) -> tuple[Sequence[str], str]:
    if "--library" not in words:
        return words, ""
    place = list(words).index("--library") + 1
    wanted = words[place].split(",")
    here = {library.name for library in installed_libraries()}
    found = [name for name in wanted if name in here]
    missing = ", ".join(name for name in wanted if name not in here)
    if not found:
        raise MachineCannot(f"the MPI library {missing} is not installed here")
    return [*words[:place], ",".join(found), *words[place + 1 :]], missing and f"without {missing}, not installed here"


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Words before and behind `--`."""
    end = list(words).index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def _hosts_for(step: Step, hosts: str) -> str:
    """All hosts for jobs; the first two, without slots, for `bench`."""
    if step.command[0] != "bench":
        return hosts
    return ",".join(host.partition(":")[0] for host in hosts.split(",")[:2])


def _filled(word: str, directory: Path) -> str:
    def suite(found: re.Match[str]) -> str:
        from barewire.mpi.suite import build

        if found[1] not in {library.name for library in installed_libraries()}:
            raise MachineCannot(f"the MPI library {found[1]} is not installed here")
        library = find_library(found[1])
        return str(Path(build(library, ["pingpong"])["pingpong"]).parent)

    own = str(Path(__file__).parents[1])
    return re.sub(r"\{suite:([\w.-]+)\}", suite, word).replace("{study}", str(directory)).replace("{barewire}", own)


def document_of(directory: Path, step: str) -> dict[str, Any]:
    """Return the document that a step printed; WrongUse if it is damaged."""
    path = directory / f"{step}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WrongUse(f"{path} is missing or damaged: {error}") from error
    if not isinstance(found, dict):
        raise WrongUse(f"{path} is damaged: it is no JSON object")
    return found
