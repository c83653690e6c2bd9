# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads nccl-tests and rccl-tests (all_reduce_perf …): times, and bus bandwidth, out of place and in place."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from barewire.errors import WrongUse
from barewire.importers.output import Hints, Output, Text, Tool, Value

_HEADER = re.compile(r"^#\s+size\s+count\s+type\s.*\btime\s+algbw\s+busbw")
_UNITS = re.compile(r"^#\s+\(B\)\s+\(elements\)")
_VERSION = re.compile(r"^# [nr]ccl-tests version (\S+)")
_START = re.compile(r"^# Collective test starting: (\w+)")
_RANK = re.compile(r"^#\s+Rank\s+(\d{1,18})\s+(?:Group\s+\d+\s+)?Pid")
_BEGIN = re.compile(r"^# nThread \d+ nGpus ")
_WRONG = re.compile(r"^# Out of bounds values : (\d+) (\w+)")
_END = re.compile(r"^# Avg bus bandwidth")
_OPERATIONS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce-scatter",
    "broadcast": "bcast",
    "reduce": "reduce",
    "alltoall": "alltoall",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "sendrecv",
    "hypercube": "hypercube",
}
_UNITS_EXPECTED = ["(B)", "(elements)", "(us)", "(GB/s)", "(GB/s)"]
_NOT_CHECKED = "N/A"


@dataclass
class _Section:
    """One execution of one program."""

    operation: str | None = None
    ranks: int = 0
    columns: tuple[str, ...] = ()
    is_whole: bool = True


def _read(text: Text, hints: Hints) -> Output:
    output = Output()
    section = _Section()
    for index, line in enumerate(text.lines):
        if version := _VERSION.match(line):
            output.version = version[1]
        elif start := _START.match(line):
            _end(output, section)
            section = _Section(operation=start[1])
        elif _BEGIN.match(line):
            # Older versions do not print the program's name: this is their first line.
            _end(output, section)
            section = _Section(operation=section.operation if not section.columns else None)
        elif rank := _RANK.match(line):
            section.ranks = max(section.ranks, int(rank[1]) + 1)
        elif _HEADER.match(line):
            section.columns, section.is_whole = tuple(line.removeprefix("#").split()), False
        elif _UNITS.match(line) and not set(_UNITS_EXPECTED) >= set(line.removeprefix("#").split()):
            raise text.error(index, f"unknown units; known: {' '.join(_UNITS_EXPECTED)}")
        elif wrong := _WRONG.match(line):
            if wrong[1] != "0":
                raise text.error(index, f"{wrong[1]} results were wrong: these numbers are worth nothing")
        elif _END.match(line):
            section.is_whole = True
        elif section.columns and line.split()[:1] and line.split()[0].isdecimal():
            _row(output, text, index, section, hints)
    _end(output, section)
    return output


def _end(output: Output, section: _Section) -> None:
    if not section.is_whole:
        output.unfinished = output.unfinished or "the line '# Avg bus bandwidth' is missing"


def _row(output: Output, text: Text, index: int, section: _Section, hints: Hints) -> None:
    words = text.lines[index].split()
    first = section.columns.index("time")
    if len(words) > first and len(words) != len(section.columns) and not all(map(_is_cell, words[first:])):
        return
    if not text.is_whole_row(index, len(words), len(section.columns), output):
        return
    variant, kind = _variant(text, section, hints), _kind(section.columns[:first], words)
    size, ranks = text.size(index, words[0]), hints.ranks or section.ranks
    if not size:
        # All-to-all prints one such row for each requested size that is less than an element for each rank.
        return
    # time, algbw, busbw, #wrong (in old versions error); out of place, then in place.
    for place, suffix in enumerate(("", "-in-place")):
        cells = words[first + 4 * place : first + 4 * place + 4]
        if len(cells) < 4 or _NOT_CHECKED in cells[:3]:
            continue
        if section.columns[first + 3] == "#wrong" and cells[3] != _NOT_CHECKED and text.number(index, cells[3]):
            raise text.error(index, f"{cells[3]} results were wrong: these numbers are worth nothing")
        time_us, _, bus_gb_s = (text.number(index, cell) for cell in cells[:3])
        of_point = Value("collective", size, time_us, "us", variant + suffix, "time_mean", ranks, kind=kind)
        bus = of_point._replace(value=bus_gb_s * 8e3, unit="Mbit/s", quantity="bus_bandwidth")
        output.values += [of_point, bus]


def _kind(columns: Sequence[str], words: Sequence[str]) -> str:
    """Return data type, operation and root, without those that the collective does not have: `float-sum`."""
    cells = dict(zip(columns, words, strict=False))
    operation, root = cells.get("redop", "none"), cells.get("root", "-1")
    parts = [cells["type"], *([operation] if operation != "none" else []), *([f"root{root}"] if root != "-1" else [])]
    return "-".join(parts)


def _is_cell(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word == _NOT_CHECKED
    return True


def _variant(text: Text, section: _Section, hints: Hints) -> str:
    """Return the collective's name: from the output, the user or the file's name."""
    for name in filter(None, (hints.test, section.operation, text.path.name)):
        for operation in sorted(_OPERATIONS, key=len, reverse=True):
            if operation in name:
                return _OPERATIONS[operation]
    raise WrongUse(
        f"{text.path} does not say which collective this is: say --test all_reduce, or name the file after the "
        f"program, such as all_reduce_perf.txt; known: {', '.join(_OPERATIONS)}"
    )


NCCL_TESTS = Tool(
    "nccl-tests",
    "nccl-tests",
    "a heading '# size count type … time algbw busbw'",
    lambda text: text.has(_HEADER),
    _read,
    takes_test=True,
)
