# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an importer reads, the text of one file, and what it returns, the numbers in it."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from barewire.errors import WrongUse
from barewire.models.naming import read_mpi_subject

# Outputs have kilobytes; a file of this size is something else.
FILE_BYTES_MAX = 64 << 20
# Below 2^63.
_SIZE_DIGITS_MAX = 18

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# Prefix of each line under mpirun --tag-output.
_RANK_TAG = re.compile(r"\[\d+,\d+\]<std(?:out|err)>: ?")
# What launchers, MPI libraries and the tools print when a launch fails.
_FAILURES = re.compile(
    r"mpi(?:run|exec) (?:noticed|detected)|exited on signal|MPI_ABORT was invoked|^Abort\(|An error occurred in MPI_"
    r"|MPI_ERR_|srun: error|slurmstepd: error|BAD TERMINATION|[Ss]egmentation fault|processes killed|^Killed$"
    r"|core dumped|Fatal error in|\w\(\): .*-\d+ \(|Test (?:NCCL|CUDA) failure"
)


class Value(NamedTuple):
    """One printed number in a unit of results; test, variant and quantity are named like our own measurements.

    `inner` is the number of operations whose mean it is, 1 if the tool does not say. `ranks` is 0 without MPI, or if
    the tool does not say. `kind` is what else was printed about it, data type, operation and root: it becomes a part of
    the variant where an import has several.
    """

    test: str
    message_bytes: int
    value: float
    unit: str
    variant: str = ""
    quantity: str = ""
    ranks: int = 0
    pairs: int = 1
    inner: int = 1
    kind: str = ""


@dataclass(frozen=True)
class Hints:
    """What the user says about the files, because most tools do not print it."""

    subject: str | None = None
    ranks: int | None = None
    test: str | None = None

    @property
    def is_mpi(self) -> bool:
        """Whether a tool that measures both MPI and other transports measured MPI."""
        return self.ranks is not None or read_mpi_subject(self.subject or "") is not None


@dataclass
class Output:
    """The numbers of one file.

    `unfinished` is the reason why the output is not whole; `left_out` names what was not imported, with reasons. Values
    may be 0 where the tool rounds them; they are no measurements, but tell repetitions apart.
    """

    version: str | None = None
    values: list[Value] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    unfinished: str | None = None


@dataclass(frozen=True)
class Text:
    """The lines of one file, without terminal colours and mpirun's tags."""

    path: Path
    lines: tuple[str, ...]
    ends_with_newline: bool

    @property
    def name(self) -> str:
        """The file's name, with escapes for what is no text."""
        return self.path.name.encode(errors="backslashreplace").decode()

    @classmethod
    def read(cls, path: Path) -> "Text":
        """Read a file; WrongUse if it is missing, empty, far too long or not text."""
        try:
            size = path.stat().st_size
            if size > FILE_BYTES_MAX:
                raise WrongUse(f"{path} has {size >> 20} MiB: no benchmark prints that much, so this is another file")
            content = path.read_bytes()
        except OSError as error:
            raise WrongUse(f"cannot read {path}: {error.strerror}") from error
        if b"\0" in content:
            raise WrongUse(f"{path} is not text: import what the benchmark printed")
        text = content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
        if not text.strip():
            raise WrongUse(f"{path} is empty")
        lines = tuple(_RANK_TAG.sub("", _ESCAPES.sub("", line)).rstrip() for line in text.splitlines())
        return cls(path, lines, text.endswith("\n"))

    def error(self, index: int, message: str) -> WrongUse:
        """Return an error about one line, counted from 0."""
        return WrongUse(f"{self.path}, line {index + 1}: {message}")

    def not_a_number(self, index: int, word: str) -> WrongUse:
        """Return the error about a word where a number must be."""
        return self.error(index, f"'{word}' is not a number" + (": write a decimal point, no comma" * ("," in word)))

    def has(self, pattern: re.Pattern[str]) -> bool:
        """Return whether any line contains the pattern."""
        return any(map(pattern.search, self.lines))

    def failure(self) -> str | None:
        """Return the first line that reports a failed launch, with its number."""
        for index, line in enumerate(self.lines):
            if _FAILURES.search(line):
                return f"line {index + 1} reports a failure: {line.strip()[:120]}"
        return None

    def cut_row(self, index: int, count: int, columns: int) -> str | None:
        """Return why a row of a table is not whole: columns are missing, or the file ends before the line does."""
        if count < columns:
            return f"line {index + 1} has {count} of {columns} columns"
        if index + 1 == len(self.lines) and not self.ends_with_newline:
            return f"line {index + 1} has no end, so its last number may be cut (if it is whole, end it with a newline)"
        return None

    def is_whole_row(self, index: int, count: int, columns: int, output: "Output") -> bool:
        """Whether a row has all columns; notes in `output` if it is cut. WrongUse if it has more than its headings."""
        if reason := self.cut_row(index, count, columns):
            output.unfinished = output.unfinished or reason
            return False
        if count > columns:
            raise self.error(index, f"{count} columns under {columns} headings")
        return True

    def number(self, index: int, word: str) -> float:
        """Return a number that is finite and not negative; WrongUse for anything else."""
        try:
            value = float(word)
        except ValueError:
            raise self.not_a_number(index, word) from None
        if not math.isfinite(value) or value < 0:
            raise self.error(index, f"{word[:40]} is not a valid measurement: the launch or the file is damaged")
        return value

    def size(self, index: int, word: str) -> int:
        """Return a message size in bytes; WrongUse for anything else, and for what samples cannot hold."""
        if not word.isdecimal() or len(word) > _SIZE_DIGITS_MAX:
            raise self.error(index, f"'{word[:40]}' is not a message size in bytes")
        return int(word)


@dataclass(frozen=True)
class Tool:
    """A benchmark whose outputs can be imported; `mark` is what an output is recognised by, for messages.

    `takes_test`: its output does not always say what was measured, so the user may.
    """

    name: str
    title: str
    mark: str
    recognises: Callable[[Text], bool]
    read: Callable[[Text, Hints], Output]
    takes_test: bool = False


def is_numeric(words: Sequence[str]) -> bool:
    """Return whether all words are numbers, NaN and infinity included."""
    try:
        for word in words:
            float(word)
    except ValueError:
        return False
    return bool(words)


def is_row(words: Sequence[str], columns: int) -> bool:
    """Return whether the words of a line below headings are a row's: numbers, or a row in which one is damaged.

    Launchers and libraries print among the rows; what they print is none.
    """
    if not words or len(words) != columns:
        return is_numeric(words)
    first, *others = words
    return first.isdecimal() or (first[0].isdigit() and not others) or is_numeric(others)


def latency(size: int, time_us: float, hints: Hints, *, inner: int = 1) -> Value:
    """Return half a round trip, named like the MPI suite's for MPI and like the probe's for others."""
    if hints.is_mpi:
        return Value("pingpong", size, time_us, "us", "blocking-standard", "half_round_trip", 2, inner=inner)
    return Value("pingpong", size, time_us, "us", inner=inner)


def goodput(test: str, size: int, rate_mbit_s: float, hints: Hints, *, inner: int = 1) -> Value:
    """Return the rate of `test`, stream or bidirectional, named likewise."""
    if hints.is_mpi:
        variant, quantity = _MPI_NAMES[test]
        return Value(test, size, rate_mbit_s, "Mbit/s", variant, quantity, 2, inner=inner)
    return Value(test, size, rate_mbit_s, "Mbit/s", inner=inner)


_MPI_NAMES = {
    "stream": ("blocking-receive", "arrival_interval"),
    "bidirectional": ("nonblocking-send", "exchange"),
}
