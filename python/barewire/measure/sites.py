# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where a measurement runs: two hosts of a lab, or two real machines."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from barewire.errors import WrongUse
from barewire.lab import Lab
from barewire.models.wire import Link

LOCAL_NAMES = ("localhost", "local")


@dataclass(frozen=True)
class Station:
    """One side of a measurement; what is None the programs find out or do without."""

    host: str
    interface: str | None
    address: str | None = None
    mac: str | None = None
    cpus: tuple[int, ...] = ()
    # Where the broker listens that gives out sockets for LLC; None for sockets of the program's own.
    broker: str | None = None


class Site(Protocol):
    """Two stations and a way to start programs on them."""

    @property
    def active(self) -> Station:
        """The side that drives."""

    @property
    def passive(self) -> Station:
        """The side that answers."""

    @property
    def link(self) -> Link:
        """What bounds the link between the two."""

    @property
    def shaped_rate_bit_s(self) -> float | None:
        """The rate that a sender must keep to itself, because it does not feel the link's own limit."""

    @property
    def give_way(self) -> bool:
        """Whether the stations share a core."""

    @property
    def can_run_floor(self) -> bool:
        """Whether the floor stands in for the limit that a virtual link lacks."""

    def listen(self, number: int) -> tuple[str, str]:
        """Where the passive probe listens and where the active one finds it, for launch `number`."""

    def popen(self, station: Station, command: Sequence[str], **arguments: Any) -> "subprocess.Popen[Any]":
        """Start a program on a station; the handle stands for it."""

    def on_one_host(self) -> "Site":
        """The same, but for both sides on the first station's host, where endpoints share memory."""


@dataclass(frozen=True)
class LabSite:
    """The first two hosts of a lab. Control goes through a Unix socket: the link carries the measurement alone."""

    lab: Lab
    # Where brokers listen, by the host's name.
    brokers: Mapping[str, str] = field(default_factory=dict)
    # Both sides on the first host, the passive one on the second's cores.
    is_one_host: bool = False

    @property
    def active(self) -> Station:
        """The first host."""
        return self._station(0)

    @property
    def passive(self) -> Station:
        """The second host."""
        return replace(self._station(0), cpus=self._station(1).cpus) if self.is_one_host else self._station(1)

    @property
    def link(self) -> Link:
        """The lab's own specification."""
        return Link(self.lab.link.rate_bit_s, self.lab.link.mtu)

    @property
    def shaped_rate_bit_s(self) -> float | None:
        """The shaper sits behind the sender's interface, where the sender does not feel it."""
        return self.lab.link.rate_bit_s

    @property
    def give_way(self) -> bool:
        """Whether hosts share a core."""
        return bool({*self.active.cpus} & {*self.passive.cpus})

    @property
    def can_run_floor(self) -> bool:
        """Without a rate the machine itself is the limit, and a minimal program measures that where nothing is lost."""
        return self.lab.link.rate_bit_s is None and not self.lab.link.loss

    def listen(self, number: int) -> tuple[str, str]:
        """A socket of this launch's own."""
        address = f"unix:{self.lab.directory / f'control-{number}'}"
        return address, address

    def popen(self, station: Station, command: Sequence[str], **arguments: Any) -> "subprocess.Popen[Any]":
        """Start a program inside a host."""
        return self.lab.popen(station.host, command, **arguments)

    def on_one_host(self) -> "LabSite":
        """Both sides in the first host."""
        return replace(self, is_one_host=True)

    def _station(self, number: int) -> Station:
        host = self.lab.hosts[number]
        return Station(host.name, host.interface, host.address, host.mac, host.cpus, broker=self.brokers.get(host.name))


@dataclass(frozen=True)
class RemoteSite:
    """Two machines on which `barewire-probe` is installed; programs are started through a remote shell.

    `localhost` is this machine, where no shell is needed. `rate_bit_s` is the link's, for the physical limit.
    """

    active: Station
    passive: Station
    remote_shell: tuple[str, ...] = ("ssh", "-o", "BatchMode=yes")
    port: int = 5288
    rate_bit_s: float | None = None
    mtu: int = 1500
    give_way: bool = False
    can_run_floor: bool = False
    # A real interface stops its sender by itself.
    shaped_rate_bit_s: float | None = None

    @classmethod
    def parse(cls, hosts: str, interface: str | None, remote_shell: str | None, **rest: Any) -> "RemoteSite":
        """Read `a,b`; WrongUse if these are not two hosts."""
        names = [name.strip() for name in hosts.split(",")]
        if len(names) != 2 or not all(names):
            raise WrongUse(f"'{hosts}' does not name two hosts; write --hosts a,b ('localhost' is this machine)")
        if remote_shell is not None:
            rest["remote_shell"] = tuple(shlex.split(remote_shell))
        return cls(Station(names[0], interface), Station(names[1], interface), **rest)

    @property
    def link(self) -> Link:
        """The rate that the caller knows of."""
        return Link(self.rate_bit_s, self.mtu)

    def listen(self, number: int) -> tuple[str, str]:
        """Any address there; the name that the user gave from here."""
        return f"0.0.0.0:{self.port}", f"{self.passive.host}:{self.port}"

    def popen(self, station: Station, command: Sequence[str], **arguments: Any) -> "subprocess.Popen[Any]":
        """Start a program on a machine; of a native program only the name is used there."""
        if station.host in LOCAL_NAMES:
            return subprocess.Popen(list(command), **arguments)
        remote = shlex.join([Path(command[0]).name, *command[1:]])
        return subprocess.Popen([*self.remote_shell, station.host, remote], **arguments)

    def on_one_host(self) -> "RemoteSite":
        """Both sides on the first machine."""
        return replace(self, passive=self.active)
