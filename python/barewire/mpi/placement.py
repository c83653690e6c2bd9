# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which host gets how many ranks; pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from barewire.errors import WrongUse

LOCAL_HOST = "localhost"
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?::(\d{1,6})|\s+slots\s*=\s*(\d{1,6}))?")


@dataclass(frozen=True)
class Place:
    """A host and what it can take: `ranks` is None where nobody said."""

    host: str
    ranks: int | None = None


def parse_hosts(text: str) -> list[Place]:
    """Read `a,b` or `a:4,b:4`."""
    return _distinct([_parse(part) for part in text.split(",")], f"--hosts {text}")


def parse_hostfile(text: str, name: str) -> list[Place]:
    """Read lines `a`, `a:4` or `a slots=4`; # begins a comment."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    places = [_parse(line) for line in lines if line]
    if not places:
        raise WrongUse(f"hostfile {name} names no host; write one a line: a, a:4 or a slots=4")
    return _distinct(places, f"hostfile {name}")


def spread(ranks: int, places: Sequence[Place]) -> list[tuple[str, int]]:
    """Give consecutive ranks to hosts in order: each its number where one is given, else all about the same.

    Hosts that get none are left out. WrongUse if there are more ranks than the given numbers.
    """
    if any(place.ranks is not None for place in places):
        room = [1 if place.ranks is None else place.ranks for place in places]
        if sum(room) < ranks:
            raise WrongUse(f"{ranks} ranks, but the hosts take {sum(room)}: name more, or give them larger numbers")
    else:
        each, more = divmod(ranks, len(places))
        room = [each + (index < more) for index in range(len(places))]
    shares = []
    for place, most in zip(places, room, strict=True):
        share = min(most, ranks)
        ranks -= share
        if share:
            shares.append((place.host, share))
    return shares


def _parse(text: str) -> Place:
    match = _HOST.fullmatch(text.strip())
    if match is None:
        raise WrongUse(f"'{text}' is no host; write a name, or a:4 for one that takes 4 ranks")
    number = match[2] or match[3]
    return Place(match[1], int(number) if number else None)


def _distinct(places: list[Place], where: str) -> list[Place]:
    names = [place.host for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WrongUse(f"{where} names {', '.join(twice)} twice; write {twice[0]}:2 for two ranks there")
    return places
