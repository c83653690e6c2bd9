# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Distribution of ranks over hosts; pure."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from barewire.errors import WrongUse

LOCAL_HOST = "localhost"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HOST = re.compile(rf"({_NAME})(?::(\d{{1,6}})|\s+slots\s*=\s*(\d{{1,6}}))?(?:\s+max[-_]slots\s*=\s*\d+)?")


@dataclass(frozen=True)
class HostSlots:
    """A host and its number of ranks; `ranks` is None if unspecified."""

    host: str
    ranks: int | None = None


def parse_hosts(text: str) -> list[HostSlots]:
    """Read `a,b` or `a:4,b:4`."""
    host_slots = [_parse(part) for part in text.split(",")]
    names = [entry.host for entry in host_slots]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise WrongUse(f"--hosts {text} names {', '.join(repeated)} twice; write {repeated[0]}:2 for two ranks there")
    return host_slots


def parse_hostfile(text: str, name: str) -> list[HostSlots]:
    """Read lines `a`, `a:4` or `a slots=4`; # starts a comment.

    As for mpirun, a host on several lines has as many ranks as these say together, one for a line without a number: a
    job's file of PBS has a line for each rank.
    """
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    host_slots = [_parse(line) for line in lines if line]
    if not host_slots:
        raise WrongUse(f"hostfile {name} names no host; write one per line: a, a:4 or a slots=4")
    names = [entry.host for entry in host_slots]
    if len(set(names)) == len(names):
        return host_slots
    slots = Counter[str]()
    for entry in host_slots:
        slots[entry.host] += 1 if entry.ranks is None else entry.ranks
    return [HostSlots(host, ranks) for host, ranks in slots.items()]


def is_host_name(text: str) -> bool:
    """Return whether `--hosts` and hostfiles take it as a name."""
    return re.fullmatch(_NAME, text) is not None


def spread(ranks: int, host_slots: Sequence[HostSlots]) -> list[tuple[str, int]]:
    """Assign consecutive ranks to hosts in order: a host's own number if it has one, otherwise equal shares.

    Hosts without ranks are omitted. WrongUse if there are more ranks than slots.
    """
    if any(entry.ranks is not None for entry in host_slots):
        slots = [1 if entry.ranks is None else entry.ranks for entry in host_slots]
        if sum(slots) < ranks:
            raise WrongUse(f"{ranks} ranks, but the hosts take {sum(slots)}: add hosts, or raise their numbers")
    else:
        each, remainder = divmod(ranks, len(host_slots))
        slots = [each + (index < remainder) for index in range(len(host_slots))]
    shares = []
    for entry, share_max in zip(host_slots, slots, strict=True):
        share = min(share_max, ranks)
        ranks -= share
        if share:
            shares.append((entry.host, share))
    return shares


def _parse(text: str) -> HostSlots:
    match = _HOST.fullmatch(text.strip())
    if match is None:
        raise WrongUse(f"'{text}' is not a host; write a name, or a:4 for a host with 4 ranks")
    number = match[2] or match[3]
    return HostSlots(match[1], int(number) if number else None)
