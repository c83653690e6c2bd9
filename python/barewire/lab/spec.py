# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Specification of a lab as validated values: its topology and its links."""

import re
from dataclasses import dataclass

from barewire.errors import WrongUse, unknown
from barewire.topology import Network, parse
from barewire.topology.checks import is_server
from barewire.topology.parse import KINDS
from barewire.topology.rate import check_rate

# Limited by /24 addresses and bridge ports; larger emulations would measure the scheduler, not a network.
STAR_HOSTS_MIN, STAR_HOSTS_MAX = 2, 250
# IPv4 needs 68 (RFC 791); a veth and a bridge carry at most 65535.
MTU_BYTES_MIN, MTU_BYTES_MAX = 68, 65535

RECEIVE_ON = ("sender", "receiver")

TOPOLOGIES = ("pair", "star:N", "routed:N", *(kind for kind in KINDS if kind != "star:N"))
_SWITCHED = ("fat-tree", "leaf-spine", "dragonfly")
# Some times around the earth; longer ones would be a mistake.
DELAY_US_MAX = 1e6
_DELAY_UNITS_US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
_DELAY = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s)|0")
_LOSS = re.compile(r"(\d+(?:\.\d+)?)\s*%|0")


@dataclass(frozen=True)
class LinkSpec:
    """Every link of a lab: rate in bit/s of wire time (None is unshaped), MTU in bytes, offloads on or off.

    `loss` is the share, 0 to 1, of a host's frames that the kernel drops at random. `receive_on` selects the side whose
    core runs the kernel's receive processing: `sender`, veth's default, or `receiver`, as between real hosts.
    `delay_us` is the time that a frame travels, which varies by up to `jitter_us` in both directions; frames keep their
    order.
    """

    rate_bit_s: int | None = None
    mtu: int = 1500
    offloads: bool = False
    loss: float = 0.0
    receive_on: str = RECEIVE_ON[0]
    delay_us: float = 0.0
    jitter_us: float = 0.0

    def __post_init__(self) -> None:
        """Reject invalid values."""
        check_rate(self.rate_bit_s)
        if not MTU_BYTES_MIN <= self.mtu <= MTU_BYTES_MAX:
            raise WrongUse(f"MTU {self.mtu} is outside {MTU_BYTES_MIN} to {MTU_BYTES_MAX} bytes")
        if not 0 <= self.loss <= 1:
            raise WrongUse(f"a loss of {self.loss:.0%} is outside 0 to 100%")
        if self.loss and self.offloads:
            raise WrongUse("with offloads a lost frame would be one of up to 64 KiB: use loss without offloads")
        if self.receive_on not in RECEIVE_ON:
            raise unknown("core to receive on", self.receive_on, RECEIVE_ON)
        if not 0 <= self.delay_us <= DELAY_US_MAX:
            raise WrongUse(f"a delay of {_time(self.delay_us)} is outside 0 to {_time(DELAY_US_MAX)}")
        if not 0 <= self.jitter_us <= self.delay_us:
            raise WrongUse(f"a jitter of {_time(self.jitter_us)} is outside 0 to the delay, {_time(self.delay_us)}")
        if self.delay_us and self.rate_bit_s is None:
            raise WrongUse("a link with a delay needs a rate: add --rate, such as 1gbit")


@dataclass(frozen=True)
class Topology:
    """What joins a lab's hosts: one link (pair), a kernel bridge (star:N), a router, or a network of switches."""

    name: str
    hosts: tuple[str, ...]
    network: Network | None = None

    @property
    def workers(self) -> tuple[str, ...]:
        """The hosts for ranks by default: all but servers."""
        return tuple(host for host in self.hosts if not is_server(host))

    def __str__(self) -> str:
        """Return the text that `parse_topology` accepts."""
        return self.name


def parse_topology(text: str) -> Topology:
    """Read one of `TOPOLOGIES`; the name of a TOML file ends in .toml."""
    if text == "pair":
        return Topology("pair", ("h1", "h2"))
    kind, _, count = text.partition(":")
    counted = re.fullmatch(r"[0-9]{1,9}", count) is not None and STAR_HOSTS_MIN <= int(count) <= STAR_HOSTS_MAX
    if kind in ("star", "routed") and counted:
        return Topology(f"{kind}:{int(count)}", tuple(f"h{number}" for number in range(1, int(count) + 1)))
    if kind not in _SWITCHED and not text.endswith(".toml"):
        raise unknown("topology", text, TOPOLOGIES, f"; N from {STAR_HOSTS_MIN} to {STAR_HOSTS_MAX}, K even")
    return topology_of(parse(text), text)


def topology_of(network: Network, name: str = "custom") -> Topology:
    """Return the topology of a lab with these switches under a name for display."""
    return Topology(name, network.hosts, network)


def parse_loss(text: str) -> float:
    """Parse `1%`, `0.1 %` or `0` as a share; LinkSpec checks its range."""
    match = _LOSS.fullmatch(text.strip())
    if match is None:
        # A bare 0.1 could be a share or percent.
        raise WrongUse(f"unknown loss '{text}'; write it as 0.1% or 1%")
    return float(match[1] or 0) / 100


def parse_delay(text: str) -> float:
    """Parse `50us`, `1.5 ms` or `0` as µs; LinkSpec checks its range."""
    match = _DELAY.fullmatch(text.strip())
    if match is None:
        raise WrongUse(f"unknown delay '{text}'; write it as 50us or 1.5ms")
    return float(match[1] or 0) * _DELAY_UNITS_US.get(match[2], 0.0)


def _time(us: float) -> str:
    return f"{us:g} µs" if us < 1e3 else f"{us / 1e3:g} ms"
