# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The two sides of a measurement: hosts of a lab, or two real machines."""

import contextlib
import os
import secrets
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from barewire.errors import WrongUse
from barewire.lab import Lab
from barewire.measure.distance import CoreWatch, first_two
from barewire.models.wire import Link

LOCAL_NAMES = ("localhost", "local")


def parse_remote_shell(text: str) -> tuple[str, ...]:
    """Return the words of `--remote-shell`; WrongUse if the first is no command, or a quotation is not closed."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WrongUse(f"--remote-shell {text}: {error}") from None
    if not words:
        raise WrongUse("--remote-shell must name a command, such as 'ssh -p 2222'")
    if shutil.which(words[0]) is None:
        raise WrongUse(f"--remote-shell {words[0]}: there is no such command")
    return tuple(words)


@dataclass(frozen=True)
class Station:
    """One side of a measurement; None leaves a value to the programs."""

    host: str
    interface: str | None
    address: str | None = None
    mac: str | None = None
    cpus: tuple[int, ...] = ()
    # Socket of the broker that grants sockets for LLC; None if the program opens its own.
    broker: str | None = None


def watch_of(stations: Iterable[Station], patience_s: float = 0.0) -> CoreWatch | None:
    """Return what watches the distance of the stations' first two cores, if they have two of this machine."""
    own = sorted(os.sched_getaffinity(0))
    cores = first_two(station.cpus or (own if station.host in LOCAL_NAMES else ()) for station in stations)
    return None if cores is None else CoreWatch(cores, patience_s)


class Site(Protocol):
    """Two stations, and how to start programs on them."""

    @property
    def active(self) -> Station:
        """The side that drives the measurement."""

    @property
    def passive(self) -> Station:
        """The side that answers."""

    @property
    def link(self) -> Link:
        """The limits of the link between the two."""

    @property
    def shaped_rate_bit_s(self) -> float | None:
        """The rate that a sender must enforce itself, because the link exerts no back-pressure."""

    @property
    def shares_core(self) -> bool:
        """Whether the stations share a core."""

    @property
    def can_run_floor(self) -> bool:
        """Whether the floor is measured as the limit that a virtual link lacks."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of a run must know about the site."""

    def listen(self) -> contextlib.AbstractContextManager[tuple[str, str]]:
        """Yield the addresses at which the passive probe listens and the active one connects, for one launch."""

    def popen(self, station: Station, command: Sequence[str], **arguments: Any) -> "subprocess.Popen[Any]":
        """Start a program on a station."""

    def on_one_host(self) -> "Site":
        """Return the same site with both sides on the first station's host, where endpoints share memory."""


@dataclass(frozen=True)
class LabSite:
    """The first two hosts of a lab. Control uses a Unix socket, so that the link carries the measurement only."""

    lab: Lab
    # Brokers' sockets by the host's name.
    brokers: Mapping[str, str] = field(default_factory=dict)
    # Both sides on the first host, the passive one on the cores of the second.
    is_one_host: bool = False
    warnings: tuple[str, ...] = ()

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
        """The lab's link."""
        return Link(self.lab.link.rate_bit_s, self.lab.link.mtu)

    @property
    def shaped_rate_bit_s(self) -> float | None:
        """The lab's rate: its shaper is behind the sender's interface and exerts no back-pressure."""
        return self.lab.link.rate_bit_s

    @property
    def shares_core(self) -> bool:
        """Whether the hosts share a core."""
        return bool({*self.active.cpus} & {*self.passive.cpus})

    @property
    def can_run_floor(self) -> bool:
        """Whether the machine is the limit: there is neither a rate nor loss, so a minimal program can measure it."""
        return self.lab.link.rate_bit_s is None and not self.lab.link.loss

    @contextlib.contextmanager
    def listen(self) -> Iterator[tuple[str, str]]:
        """Yield a socket of this launch for both; other launches in this lab have their own."""
        socket = self.lab.directory / f"control-{secrets.token_hex(4)}"
        try:
            yield f"unix:{socket}", f"unix:{socket}"
        finally:
            socket.unlink(missing_ok=True)

    def popen(self, station: Station, command: Sequence[str], **arguments: Any) -> "subprocess.Popen[Any]":
        """Start a program on a host of the lab."""
        return self.lab.popen(station.host, command, **arguments)

    def on_one_host(self) -> "LabSite":
        """Return the site with both sides on the first host."""
        return replace(self, is_one_host=True)

    def _station(self, number: int) -> Station:
        host = self.lab.hosts[number]
        return Station(host.name, host.interface, host.address, host.mac, host.cpus, broker=self.brokers.get(host.name))


@dataclass(frozen=True)
class RemoteSite:
    """Two machines with `barewire-probe` installed; programs are started through a remote shell.

    `localhost` is this machine and needs no shell. `rate_bit_s` is the link's, for the physical limit.
    """

    active: Station
    passive: Station
    remote_shell: tuple[str, ...] = ("ssh", "-o", "BatchMode=yes")
    port: int = 5288
    rate_bit_s: float | None = None
    mtu: int = 1500
    shares_core: bool = False
    can_run_floor: bool = False
    # A real interface exerts back-pressure.
    shaped_rate_bit_s: float | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def parse(cls, hosts: str, interface: str | None, remote_shell: str | None, **rest: Any) -> "RemoteSite":
        """Read `a,b`; WrongUse if these are not two hosts."""
        names = [name.strip() for name in hosts.split(",")]
        if len(names) != 2 or not all(names):
            raise WrongUse(f"'{hosts}' does not name two hosts; write --hosts a,b ('localhost' is this machine)")
        if names[1] in LOCAL_NAMES and names[0] not in LOCAL_NAMES:
            raise WrongUse(
                f"{names[0]} would connect to itself by the name {names[1]}: write --hosts {names[1]},{names[0]}, "
                "or the name by which it reaches this machine"
            )
        if remote_shell is not None:
            rest["remote_shell"] = parse_remote_shell(remote_shell)
        return cls(Station(names[0], interface), Station(names[1], interface), **rest)

    @property
    def link(self) -> Link:
        """The rate and MTU that the caller specified."""
        return Link(self.rate_bit_s, self.mtu)

    @contextlib.contextmanager
    def listen(self) -> Iterator[tuple[str, str]]:
        """Yield any address there, and the user's name of the host here."""
        # Without the user, who is for the remote shell.
        host = "localhost" if self.passive.host in LOCAL_NAMES else self.passive.host.rpartition("@")[2]
        if _has_only_ipv6(host):
            yield f"[::]:{self.port}", f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        else:
            yield f"0.0.0.0:{self.port}", f"{host}:{self.port}"

    def popen(self, station: Station, command: Sequence[str], **arguments: Any) -> "subprocess.Popen[Any]":
        """Start a program on a machine; a remote machine finds native programs by name."""
        if station.host in LOCAL_NAMES:
            return subprocess.Popen(list(command), **arguments)
        remote = shlex.join([Path(command[0]).name, *command[1:]])
        return subprocess.Popen([*self.remote_shell, station.host, remote], **arguments)

    def on_one_host(self) -> "RemoteSite":
        """Return the site with both sides on the first machine."""
        return replace(self, passive=self.active)


def _has_only_ipv6(host: str) -> bool:
    """Whether a name or address leads to IPv6 only; False for a name that only the remote shell knows."""

    def has(family: socket.AddressFamily) -> bool:
        with contextlib.suppress(OSError, UnicodeError):
            return bool(socket.getaddrinfo(host, None, family))
        return False

    return not has(socket.AF_INET) and has(socket.AF_INET6)
