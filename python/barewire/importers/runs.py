# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes a run of imported outputs: each execution of a tool is a launch, each printed number one sample."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import WrongUse
from barewire.importers.output import Hints, Output, Text, Tool, Value
from barewire.importers.tools import AUTO, tool_of
from barewire.measure.session import new_run
from barewire.models.wire import Link
from barewire.results.run import Launch, Run
from barewire.results.schema import sample_frame
from barewire.results.series import series_from_samples
from barewire.results.store import read_run, samples, write_run

KIND = "imported"
_NOTES_SHOWN = 4
_SUBJECT_MAX = 100
# That samples can hold.
_COUNT_MAX = (1 << 32) - 1


@dataclass(frozen=True)
class ImportPlan:
    """What to import, and what the user knows about it.

    `environment` names machine and settings: runs of the same name are comparable. With `is_partial` outputs that are
    cut short, or of failed launches, are imported as far as they go, and the run is marked incomplete.
    """

    files: tuple[Path, ...]
    format: str = AUTO
    hints: Hints = field(default_factory=Hints)
    link: Link = field(default_factory=lambda: Link(None))
    environment: str | None = None
    is_partial: bool = False

    def __post_init__(self) -> None:
        """Reject an empty plan, and a subject that breaks tables."""
        if not self.files:
            raise WrongUse("name at least one file to import")
        subject = self.hints.subject
        if subject is not None and not (subject.strip() and subject.isprintable() and len(subject) <= _SUBJECT_MAX):
            raise WrongUse(f"--subject is a name of up to {_SUBJECT_MAX} printable signs, such as openmpi/tcp")
        if (self.hints.ranks or 0) > _COUNT_MAX:
            raise WrongUse(f"--ranks is the job's number of ranks, not {self.hints.ranks}")


@dataclass(frozen=True)
class _File:
    text: Text
    tool: Tool
    output: Output
    digest: str


def import_outputs(plan: ImportPlan, directory: Path, *, command: Sequence[str], add: bool = False) -> Run:
    """Import files into a new run in `directory`, or with `add` into the imported run that is there.

    WrongUse with the file and line if a file cannot be imported; nothing is written then.
    """
    before, frames = _existing(directory, add)
    files = [_read(path, plan) for path in plan.files]
    _refuse_duplicates(before, files)
    equal = _equal_contents(before, files)
    tools = {file.tool.name: file.tool for file in files}
    if len(tools) > 1:
        names = ", ".join(f"{file.text.path} ({file.tool.title})" for file in files)
        raise WrongUse(f"the files are of several tools: {names}. Import each tool's into a run of its own, or --add")
    (tool,) = tools.values()
    subject = plan.hints.subject or tool.name
    launches = list(before.launches) if before else []
    kinds = _kinds(before, files)
    for file in files:
        for test, values in _executions(_with_kinds(file.output.values, kinds)):
            number = len(launches)
            details = {"tool": tool.name, "version": file.output.version, "file": file.text.name}
            complete, error = file.output.unfinished is None, file.output.unfinished
            # The n-th execution of each subject counts as measured beside the n-th of the others.
            before_it = sum((launch.subject, launch.test) == (subject, test) for launch in launches)
            launches.append(Launch(number, subject, test, complete, error, round=before_it, details=details))
            frames.append(_frame(number, subject, values))
    run = before or _new_run(plan, command, files)
    described = {"files": [*run.parameters["files"], *map(_description, files)]}
    run = replace(run, parameters=run.parameters | described | ({"kinds": kinds} if kinds else {}))
    run = replace(run, warnings=tuple(dict.fromkeys([*run.warnings, *_warnings(files), *equal])))
    return _written(directory, run, launches, frames)


def _existing(directory: Path, add: bool) -> tuple[Run | None, list[pl.DataFrame]]:
    if add:
        run = read_run(directory)
        if run.kind != KIND:
            raise WrongUse(f"{directory} was measured, not imported: import into a run of its own, without --add")
        return run, [samples(directory)]
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise WrongUse(f"{directory} is not empty: name another directory, or --add to an imported run")
    return None, []


def _read(path: Path, plan: ImportPlan) -> _File:
    text = Text.read(path)
    tool = tool_of(text, plan.format)
    if plan.hints.test is not None and not tool.takes_test:
        raise WrongUse(f"{tool.title} print what was measured: omit --test")
    output = tool.read(text, plan.hints)
    for value in output.values:
        if (largest := max(value.ranks, value.pairs, value.inner)) > _COUNT_MAX:
            raise WrongUse(f"{path} counts {largest} ranks, pairs or repetitions: the file is damaged")
    output.unfinished = text.failure() or output.unfinished
    if output.unfinished and not plan.is_partial:
        raise WrongUse(
            f"{path} is not whole: {output.unfinished}. Use a whole one, or import what is there with --partial"
        )
    zeros = [value for value in output.values if not value.value]
    output.left_out += [f"{value.variant or value.test}, {value.message_bytes} B: printed as 0" for value in zeros]
    if len(zeros) == len(output.values):
        reasons = f": {output.left_out[0]}" if output.left_out else ""
        raise WrongUse(f"{path} is {tool.title}'s, but has no numbers to import{reasons}")
    return _File(text, tool, output, hashlib.sha256("\n".join(text.lines).encode()).hexdigest())


def _refuse_duplicates(before: Run | None, files: Sequence[_File]) -> None:
    """Refuse a file that is given twice or was imported before.

    Equal contents alone are no reason: launches that print one number with two decimals often agree, and without them
    the spread would be too large.
    """
    imported = {(each["name"], each["sha256"]) for each in (before.parameters["files"] if before else ())}
    given: dict[tuple[int, int], Path] = {}
    for file in files:
        path, status = file.text.path, file.text.path.stat()
        if other := given.get((status.st_dev, status.st_ino)):
            raise WrongUse(f"{path} and {other} are the same file: it is one launch")
        if (file.text.name, file.digest) in imported:
            raise WrongUse(
                f"{path} was imported before, with the same name and the same content: it is no further launch. "
                "If it is one, rename the file"
            )
        given[status.st_dev, status.st_ino] = path


def _equal_contents(before: Run | None, files: Sequence[_File]) -> list[str]:
    """Name the new files whose content another one has, too: a copy would count as a launch."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for each in before.parameters["files"] if before else ():
        names[each["sha256"]].append(each["name"])
    for file in files:
        names[file.digest].append(file.text.name)
    found = []
    for digest in dict.fromkeys(file.digest for file in files):
        if (count := len(names[digest])) > 1:
            shown = ", ".join(names[digest][:_NOTES_SHOWN]) + (" …" if count > _NOTES_SHOWN else "")
            found.append(f"{count} files have the same content, and count as {count} launches: {shown}. Is one a copy?")
    return found


def _kinds(before: Run | None, files: Sequence[_File]) -> dict[str, str]:
    """Return by test and variant the kind whose name is the variant's alone; "" if each kind has its own name.

    The first import decides, so that what is added later has the same names.
    """
    found: dict[str, set[str]] = {}
    for value in (value for file in files for value in file.output.values if value.kind):
        found.setdefault(f"{value.test} {value.variant}", set()).add(value.kind)
    alone = {name: kinds.pop() if len(kinds) == 1 else "" for name, kinds in found.items()}
    return alone | (before.parameters.get("kinds", {}) if before else {})


def _with_kinds(values: Iterable[Value], kinds: Mapping[str, str]) -> list[Value]:
    """Return values whose variants name their kind, unless it is the one without."""

    def named(value: Value) -> Value:
        if value.kind in ("", kinds.get(f"{value.test} {value.variant}")):
            return value._replace(kind="")
        return value._replace(variant="-".join(filter(None, (value.variant, value.kind))), kind="")

    return [named(value) for value in values]


def _executions(values: Iterable[Value]) -> list[tuple[str, list[Value]]]:
    """Return the values of each launch and test: a point that a file has twice is of a second execution."""
    counts: Counter[Value] = Counter()
    executions: dict[tuple[int, str], list[Value]] = {}
    for value in values:
        point = value._replace(value=0.0, inner=1)
        if value.value:
            executions.setdefault((counts[point], value.test), []).append(value)
        counts[point] += 1
    return [(test, executions[number, test]) for number, test in sorted(executions)]


def _frame(launch: int, subject: str, values: Sequence[Value]) -> pl.DataFrame:
    columns = {name: [getattr(value, name) for value in values] for name in Value._fields if name != "kind"}
    return sample_frame(columns, launch=launch, subject=subject, phase="measure", block=0)


def _new_run(plan: ImportPlan, command: Sequence[str], files: Sequence[_File]) -> Run:
    facts = {name: value for file in files for name, value in file.output.facts.items()}
    fingerprint = None
    if plan.environment is not None:
        fingerprint = hashlib.sha256(f"{KIND}: {plan.environment}".encode()).hexdigest()[:16]
    environment = {"name": plan.environment, **facts, "fingerprint": fingerprint}
    parameters: dict[str, Any] = {"kind": KIND, "rate_bit_s": plan.link.rate_bit_s, "mtu": plan.link.mtu, "files": []}
    return new_run(command=command, seed=0, parameters=parameters, environment=environment)


def _description(file: _File) -> dict[str, Any]:
    return {
        "name": file.text.name,
        "sha256": file.digest,
        "tool": file.tool.name,
        "version": file.output.version,
    }


def _written(
    directory: Path,
    run: Run,
    launches: Sequence[Launch],
    frames: Sequence[pl.DataFrame],
) -> Run:
    frame = pl.concat(frames)
    link = Link(run.parameters["rate_bit_s"], run.parameters["mtu"])
    whole = all(launch.complete for launch in launches)
    finished = replace(
        run,
        complete=whole,
        stopped_by=None if whole else "an imported output is not whole",
        launches=tuple(launches),
        series=tuple(series_from_samples(frame, link)),
    )
    write_run(directory, finished, frame)
    return finished


def _warnings(files: Sequence[_File]) -> list[str]:
    title = files[0].tool.title
    found = [f"{title}: one number for each point, so spreads are those of launches, not of single messages."]
    if any(value.test in ("collective", "nonblocking") and not value.ranks for f in files for value in f.output.values):
        found.append(f"{title}: the number of ranks is not in the output; --ranks N records it.")
    for file in files:
        notes = file.output.left_out
        more = f"; and {len(notes) - _NOTES_SHOWN} more" if len(notes) > _NOTES_SHOWN else ""
        if notes:
            found.append(f"Left out of {file.text.name}: {'; '.join(notes[:_NOTES_SHOWN])}{more}.")
    return found
