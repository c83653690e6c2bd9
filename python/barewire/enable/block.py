# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The marked block of lines that `barewire enable` adds to a file of parameters; pure.

    # >>> barewire user 3f786850e387 folders=1 newline
    # Written by `barewire enable`; `barewire disable` takes it away. Do not edit.
    pml = cm
    # <<< barewire

The digest is that of the lines between first and last: a block that somebody has changed is nobody's to remove.
`folders=N`: the file was created, with N folders above it. `newline`: the line before did not end; its end is removed
with the block, unless lines were added below.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from barewire.errors import WrongUse

_NOTE = "# Written by `barewire enable`; `barewire disable` takes it away. Do not edit."
_FIRST = re.compile(
    r"# >>> barewire (?P<scope>\w+) (?P<digest>[0-9a-f]{12})(?: folders=(?P<folders>\d+))?(?P<newline> newline)?"
)
_LAST = "# <<< barewire"


@dataclass(frozen=True)
class Block:
    """A block in a text. `start` and `end` are the offsets of all that belongs to it; `line` counts from 1."""

    scope: str
    body: tuple[str, ...]
    start: int
    end: int
    line: int
    folders: int | None


def find(text: str, name: str) -> Block | None:
    """Return the block in a file's text. WrongUse if it was changed, is not complete, or is there twice."""
    lines = text.splitlines(keepends=True)
    firsts = [number for number, line in enumerate(lines) if line.startswith("# >>> barewire")]
    lasts = [number for number, line in enumerate(lines) if line.rstrip() == _LAST]
    if not firsts and not lasts:
        return None
    advice = "restore or delete these lines, then repeat the command"
    if len(firsts) != 1 or len(lasts) != 1 or lasts[0] < firsts[0]:
        where = ", ".join(str(number + 1) for number in sorted(firsts + lasts))
        raise WrongUse(f"{name}: the marks of barewire's block, lines {where}, do not make one block: {advice}")
    first, last = firsts[0], lasts[0]
    mark = _FIRST.fullmatch(lines[first].rstrip())
    body = tuple(line.rstrip("\n") for line in lines[first + 1 : last])
    if mark is None or mark["digest"] != _digest(body):
        raise WrongUse(f"{name}: barewire's block, lines {first + 1} to {last + 1}, was changed by hand: {advice}")
    start = sum(map(len, lines[:first]))
    end = start + sum(map(len, lines[first : last + 1]))
    folders = None if mark["folders"] is None else int(mark["folders"])
    newline = bool(mark["newline"]) and end == len(text)
    return Block(mark["scope"], body, start - newline, end, first + 1, folders)


def insert(text: str, body: Sequence[str], scope: str, *, at_top: bool, folders: int | None = None) -> str:
    """Return the text with a block at its top or its end; it must have none. `folders`: None if the file exists."""
    lines = (_NOTE, *body)
    newline = not at_top and bool(text) and not text.endswith("\n")
    created = "" if folders is None else f" folders={folders}"
    mark = f"# >>> barewire {scope} {_digest(lines)}{created}{' newline' if newline else ''}"
    block = "".join(f"{line}\n" for line in (mark, *lines, _LAST))
    return block + text if at_top else text + "\n" * newline + block


def remove(text: str, block: Block) -> str:
    """Return the text as it was before the block was inserted, with what was added around it since."""
    return text[: block.start] + text[block.end :]


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:12]
