# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Asks hosts for their interfaces; a host needs nothing but a shell for that."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barewire.cluster.hosts import ClusterHost
from barewire.cluster.reach import Reach
from barewire.cluster.remote import run
from barewire.errors import BarewireError, MeasurementFailed, WrongUse

TIMEOUT_S = 30.0
_FIELDS = 8
_ETHERNET = "1"  # ARPHRD_ETHER
# A login may print a greeting, perhaps without a line's end, so lines that count are marked.
_MARK = "barewire-interface:"
# One line for each interface. An interface that is part of a bond or a bridge has a `master`. Not all that is there is
# an interface: bonding_masters is a file.
_SCRIPT = f"""
echo
cd /sys/class/net || exit 1
for i in *; do
  [ -d "$i" ] || continue
  get() {{ cat "$i/$1" 2>/dev/null || echo -; }}
  [ -e "$i/device" ] && device=1 || device=0
  [ -e "$i/master" ] && master=1 || master=0
  [ -e "$i/wireless" ] && wireless=1 || wireless=0
  echo "{_MARK} $i $(get type) $(get operstate) $(get mtu) $(get speed) $device $master $wireless"
done
"""


@dataclass(frozen=True)
class Found:
    """An interface of a host."""

    name: str
    is_ethernet: bool
    is_up: bool
    mtu: int
    speed_mbit_s: int | None
    is_device: bool

    def __str__(self) -> str:
        """Return it for cluster.toml."""
        speed = "unknown speed" if self.speed_mbit_s is None else f"{self.speed_mbit_s} Mbit/s"
        return f"{self.name}: {'up' if self.is_up else 'down'}, {speed}, MTU {self.mtu}"


class NoAnswer(MeasurementFailed):
    """A host cannot be asked."""

    def __init__(self, host: str, reason: str) -> None:
        """`reason` does not name the host."""
        super().__init__(f"{host} cannot be asked: {reason}; try: ssh {host} true")
        self.reason = reason


Failures = Mapping[str, NoAnswer | WrongUse]


def survey(reach: Reach, names: Sequence[str], interface: str | None) -> tuple[list[ClusterHost], Failures]:
    """Ask all hosts at once; `interface` is used on each of them instead of the fastest one that is up.

    Return those that can be measured, and why others cannot: they do not answer, or have no such interface.
    """

    async def ask_all() -> list[ClusterHost | BaseException]:
        return await asyncio.gather(*(_ask(reach, name, interface) for name in names), return_exceptions=True)

    hosts: list[ClusterHost] = []
    failures: dict[str, NoAnswer | WrongUse] = {}
    for name, answer in zip(names, asyncio.run(ask_all()), strict=True):
        if isinstance(answer, NoAnswer | WrongUse):
            failures[name] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            hosts.append(answer)
    return hosts, failures


def failure_of(failures: Failures) -> BarewireError:
    """Return one error for all hosts that failed."""
    text = "\n".join(map(str, failures.values()))
    is_wrong_use = all(isinstance(failure, WrongUse) for failure in failures.values())
    return WrongUse(text) if is_wrong_use else MeasurementFailed(text)


def choose(host: str, found: Sequence[Found], interface: str | None) -> ClusterHost:
    """Choose a host's interface: the given one, or the fastest that is up, preferably a device; pure."""
    ethernet = [each for each in found if each.is_ethernet]
    if interface is not None:
        chosen = next((each for each in ethernet if each.name == interface), None)
    else:
        up = [each for each in ethernet if each.is_up]
        chosen = max(up, key=lambda each: (each.is_device, each.speed_mbit_s or 0), default=None)
    if chosen is None:
        there = "; ".join(map(str, ethernet)) or "none"
        wanted = f"Ethernet interface {interface}" if interface else "Ethernet interface that is up"
        raise WrongUse(f"{host} has no {wanted}; there are: {there}")
    return ClusterHost(host, chosen.name, chosen.speed_mbit_s, chosen.mtu, tuple(map(str, ethernet)))


def parse(text: str) -> list[Found]:
    """Read the lines of the script, and no others."""
    found = []
    for line in text.splitlines():
        mark, *fields = line.split() or [""]
        # Without an MTU it has vanished since.
        if mark != _MARK or len(fields) != _FIELDS or not fields[3].isdigit():
            continue
        name, kind, state, mtu, speed, device, master, wireless = fields
        known = speed.isdigit() and int(speed) > 0
        is_ethernet = kind == _ETHERNET and master == "0" and wireless == "0"
        # Drivers without a carrier's state say "unknown".
        is_up = state in ("up", "unknown")
        found.append(Found(name, is_ethernet, is_up, int(mtu), int(speed) if known else None, device == "1"))
    return found


async def _ask(reach: Reach, host: str, interface: str | None) -> ClusterHost:
    status, output, errors = await run(reach.command(host, ["sh", "-c", _SCRIPT]), TIMEOUT_S)
    if status != 0:
        reason = errors.strip().splitlines()[-1:] or [f"exit code {status}"]
        raise NoAnswer(host, reason[0])
    return choose(host, parse(output), interface)
