# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is measured: a transport and how its user waits; and by which tests."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from barewire.errors import WrongUse

TESTS = ("pingpong", "stream", "bidirectional")
TRANSPORTS = ("tcp", "udp", "raw", "llc1", "llc2", "llc3")
BUSYPOLLED = ("tcp", "udp")
WAITS = ("spin", "adaptive", "block", "busypoll")

_T = TypeVar("_T")


@dataclass(frozen=True)
class Subject:
    """A transport of the probe with a way of waiting; or the floor, which is a program of its own and spins."""

    transport: str
    wait: str = "spin"

    @property
    def name(self) -> str:
        """`tcp` for a spinning one, `tcp/block` for any other: spinning is what message passing does."""
        return self.transport if self.wait == "spin" else f"{self.transport}/{self.wait}"


FLOOR = Subject("floor")


def parse_tests(text: str) -> tuple[str, ...]:
    """Read a list of tests such as `pingpong,stream`; WrongUse names those there are."""
    return _unique(_known(name, TESTS, "test") for name in text.split(","))


def parse_subjects(transports: str, waits: str) -> tuple[Subject, ...]:
    """Read lists of transports and waits and combine them; WrongUse names those there are.

    What cannot be busy-polled is left out where other subjects are asked for as well.
    """
    chosen_transports = _unique(_known(name, TRANSPORTS, "transport") for name in transports.split(","))
    chosen_waits = _unique(_known(name, WAITS, "way of waiting") for name in waits.split(","))
    subjects = [Subject(transport, wait) for transport in chosen_transports for wait in chosen_waits]
    possible = tuple(subject for subject in subjects if subject.wait != "busypoll" or subject.transport in BUSYPOLLED)
    if not possible:
        raise WrongUse(f"only {' and '.join(BUSYPOLLED)} can be busy-polled; choose --wait spin, adaptive or block")
    return possible


def _known(name: str, names: tuple[str, ...], what: str) -> str:
    name = name.strip()
    if name not in names:
        raise WrongUse(f"unknown {what} '{name}'; there are: {', '.join(names)}")
    return name


def _unique(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
