# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Slurm's short form of host names: node[01-16,20],login; pure."""

import re

from barewire.errors import WrongUse

_HOSTS_MAX = 10_000
_RANGES_MAX = 100
_RANGES = re.compile(r"\[([0-9,-]+)\]")
# Python reads no number of more than 4300 digits.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
# Commas outside of brackets.
_SEPARATOR = re.compile(r",(?![^\[]*\])")


def expand_nodelist(text: str) -> str:
    """Return the names with commas between; a text without brackets is returned as it is. WrongUse if invalid."""
    if "[" not in text and "]" not in text:
        return text
    if text.count("[") > _RANGES_MAX:
        raise WrongUse(f"a list of nodes has more than {_RANGES_MAX} ranges in brackets")
    return ",".join(name for part in _SEPARATOR.split(text) for name in _expand(part, text))


def _expand(part: str, text: str) -> list[str]:
    match = _RANGES.search(part)
    if match is None:
        if "[" in part or "]" in part:
            raise WrongUse(f"'{text}' is not a list of nodes; write it like node[01-16,20]")
        return [part]
    numbers: list[str] = []
    for piece in match[1].split(","):
        limits = _RANGE.fullmatch(piece)
        if limits is None:
            raise WrongUse(f"'{piece}' in '{text}' is not a range; write it like node[01-16,20]")
        first, last = int(limits[1]), int(limits[2] or limits[1])
        if not 0 <= last - first < _HOSTS_MAX:
            raise WrongUse(f"'{piece}' in '{text}' must rise, by less than {_HOSTS_MAX}")
        numbers += [f"{number:0{len(limits[1])}}" for number in range(first, last + 1)]
    rests = _expand(part[match.end() :], text)
    if len(numbers) * len(rests) > _HOSTS_MAX:
        raise WrongUse(f"'{text}' names more than {_HOSTS_MAX} hosts")
    return [part[: match.start()] + number + rest for number in numbers for rest in rests]
