# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What was measured of a cluster: values without a judgement."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any

SCHEMA = "barewire-cluster/1"


@dataclass(frozen=True)
class Path:
    """One direction between two hosts: a stream alone, a stream with its opposite at once, and a series of round trips.

    Rates are of the wire, with all of Ethernet's overhead. None means that nothing came through.
    """

    bandwidth_bit_s: float | None
    sent: int
    lost: int
    reordered: int
    both_sent: int
    both_lost: int
    both_bandwidth_bit_s: float | None
    # Largest payload tried that arrived, and the smaller of the two interfaces' MTUs, which should.
    mtu_passed: int | None
    mtu_expected: int
    # Of the round trip: the same for both directions.
    round_trip_ns: float | None

    @property
    def loss(self) -> float:
        """Share of frames lost, alone."""
        return self.lost / self.sent if self.sent else 0.0

    @property
    def both_loss(self) -> float:
        """Share of frames lost while the other direction was busy as well."""
        return self.both_lost / self.both_sent if self.both_sent else 0.0

    @property
    def is_dead(self) -> bool:
        """Whether next to nothing comes through."""
        return self.sent > 0 and self.lost >= 0.9 * self.sent


@dataclass(frozen=True)
class Together:
    """A path's stream while every host sends and receives one."""

    bandwidth_bit_s: float | None
    sent: int
    lost: int


@dataclass(frozen=True)
class HostState:
    """A host: what its system says, and what its cores gave to a program that computes."""

    interface: str
    mtu: int
    carrier: str = "packet"
    speed_mbit_s: int | None = None
    expected_speed_mbit_s: int | None = None
    expected_mtu: int | None = None
    duplex: str | None = None
    # The same for hosts that share a kernel, such as those of a lab, and the cores that it may use.
    machine: str = ""
    cores: tuple[int, ...] = ()
    # Share of the time for which the program had a core, and time of a fixed amount of work on it.
    core_share: float | None = None
    work_ns: float | None = None
    # New errors of the interface during the check, by the kernel's names.
    errors: Mapping[str, int] = field(default_factory=dict)
    # What the doctor found missing, or did not like, with its fix.
    doctor: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """All hosts and paths. A host without an agent is in `unreachable`, with the reason."""

    hosts: Mapping[str, HostState]
    paths: Mapping[tuple[str, str], Path]
    together: Mapping[tuple[str, str], Together] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    # Paths measured while no other was: what a port gives when the switch is idle.
    alone: frozenset[tuple[str, str]] = frozenset()

    def share_core(self, ends: tuple[str, str]) -> bool:
        """Return whether two hosts share a core, so that their processes take turns."""
        first, second = (self.hosts[end] for end in ends)
        return first.machine == second.machine and bool({*first.cores} & {*second.cores})

    @property
    def shares_cores(self) -> bool:
        """Return whether any two hosts share a core: then only one pair is measured at a time."""
        return any(map(self.share_core, combinations(self.hosts, 2)))

    def to_json(self) -> dict[str, Any]:
        """Return it for --json."""
        return {
            "hosts": {name: asdict(host) for name, host in self.hosts.items()},
            "unreachable": dict(self.unreachable),
            "paths": [{"from": a, "to": b, **asdict(path)} for (a, b), path in self.paths.items()],
            "together": [{"from": a, "to": b, **asdict(path)} for (a, b), path in self.together.items()],
            "shares_cores": self.shares_cores,
        }


def confirmed(first: Path, second: Path) -> Path:
    """Combine a measurement with a longer one of the same path alone.

    Noise of a machine makes a path slower and never faster, so the better of two rates and times counts. Losses are
    those of the second, longer test: it confirms them by itself.
    """
    return replace(
        second,
        bandwidth_bit_s=_best(max, first.bandwidth_bit_s, second.bandwidth_bit_s),
        both_bandwidth_bit_s=_best(max, first.both_bandwidth_bit_s, second.both_bandwidth_bit_s),
        mtu_passed=_best(max, first.mtu_passed, second.mtu_passed),
        round_trip_ns=_best(min, first.round_trip_ns, second.round_trip_ns),
    )


def _best(choose: Any, *values: Any) -> Any:
    known = [value for value in values if value is not None]
    return choose(known) if known else None
