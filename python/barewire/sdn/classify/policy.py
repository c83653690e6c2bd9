# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The policy file: the strategy of each profile, and the signatures and behaviour that classify flows.

[strategies]
default = "ecmp"
mpi = "planned"

[[signature]]                       the first match wins
profile = "mpi"
protocol = "tcp"
ports = [22, "1024-1044"]           of either end

[[behaviour]]                       for flows not classified otherwise; the first match wins
profile = "elephant"
bytes_min = 10_000_000
"""

import math
import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from barewire.errors import WrongUse
from barewire.sdn.flow import DEFAULT_PROFILE, FlowKey
from barewire.sdn.strategies import named

# Without a 6 of either version of IP, with it of IPv6 only.
PROTOCOLS = ("tcp", "udp", "ip", "llc", "tcp6", "udp6", "ip6")
PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# More signatures are a mistake; each flow is matched against all of them.
SIGNATURES_MAX = 1000
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_PORT_MAX = 0xFFFF


@dataclass(frozen=True)
class Traffic:
    """Flows by protocol (one of PROTOCOLS, None: any) and by ports of either end (empty: any), as inclusive ranges.

    The ranges are sorted, and those that meet are merged.
    """

    protocol: str | None = None
    ports: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """Sort and merge the ranges, so that each new flow costs a bisection."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(self.ports):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], high)
            else:
                merged.append((low, high))
        object.__setattr__(self, "ports", tuple(merged))

    @cached_property
    def shown_ports(self) -> list[str]:
        """The ranges as text."""
        return [f"{low}-{high}" for low, high in self.ports]

    def fits(self, key: FlowKey) -> bool:
        """Return whether a flow matches."""
        if self.protocol not in (None, key.protocol, key.transport):
            return False
        if not self.ports:
            return True
        ends = (key.source_port, key.destination_port) if key.has_ports else ()
        below = [bisect_right(self.ports, (port, _PORT_MAX)) for port in ends]
        return any(at and port <= self.ports[at - 1][1] for port, at in zip(ends, below, strict=True))


@dataclass(frozen=True)
class Signature:
    """Traffic that belongs to a profile."""

    profile: str
    traffic: Traffic


@dataclass(frozen=True)
class Behaviour:
    """Bounds on the statistics of a profile's flows; None is no bound."""

    profile: str
    protocol: str | None = None
    bytes_min: float | None = None
    bytes_max: float | None = None
    packets_min: float | None = None
    packet_bytes_min: float | None = None
    packet_bytes_max: float | None = None
    age_s_min: float | None = None
    rate_byte_s_min: float | None = None

    def fits(self, key: FlowKey, packets: int, carried: int, age_s: float) -> bool:
        """Return whether a flow's statistics are within the bounds."""
        packet_bytes = carried / packets if packets else 0.0
        rate = carried / age_s if age_s > 0 else 0.0
        at_least = (
            (carried, self.bytes_min),
            (packets, self.packets_min),
            (packet_bytes, self.packet_bytes_min),
            (age_s, self.age_s_min),
            (rate, self.rate_byte_s_min),
        )
        at_most = ((carried, self.bytes_max), (packet_bytes, self.packet_bytes_max))
        return (
            self.protocol in (None, key.protocol, key.transport)
            and all(bound is None or value >= bound for value, bound in at_least)
            and all(bound is None or value <= bound for value, bound in at_most)
        )


# Ports of the published API for both profiles; LLC between two hosts is MPI over Barewire.
_MPI_PORTS = ((22, 22), (1024, 1044))
_HADOOP_PORTS = ((13562, 13562), (9000, 9000), (50010, 50010), (50020, 50020), (8030, 8040), (8480, 8490))
# Later versions' fixed ports: Spark's master and shuffle service, Dask's scheduler, HDFS 3. All others are random.
_LATER_PORTS = ((7077, 7077), (7337, 7337), (8786, 8786), (9864, 9870))
DEFAULT_SIGNATURES = (
    Signature("mpi", Traffic("llc")),
    Signature("mpi", Traffic("tcp", _MPI_PORTS)),
    Signature("hadoop", Traffic("tcp", _HADOOP_PORTS + _LATER_PORTS)),
)
DEFAULT_STRATEGIES = {DEFAULT_PROFILE: "ecmp", "mpi": "planned", "hadoop": "lanes"}


@dataclass(frozen=True)
class Policy:
    """The strategy and the criteria of each profile. Profiles without a strategy have that of `default`."""

    strategies: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_STRATEGIES))
    signatures: Sequence[Signature] = DEFAULT_SIGNATURES
    behaviours: Sequence[Behaviour] = ()

    def __post_init__(self) -> None:
        """Validate the policy."""
        if DEFAULT_PROFILE not in self.strategies:
            raise WrongUse(
                f"a policy needs a strategy for the profile {DEFAULT_PROFILE}, which all others fall back to"
            )
        for profile, strategy in self.strategies.items():
            if not PROFILE.fullmatch(profile):
                raise WrongUse(f"'{profile}' is no profile: letters, digits, . _ -, at most 63")
            named(strategy)  # raises WrongUse that lists all strategies

    def with_strategy(self, profile: str, strategy: str) -> "Policy":
        """Return the policy with another strategy for a profile."""
        return Policy({**self.strategies, profile: strategy}, self.signatures, self.behaviours)


def parse_policy(text: str, name: str) -> Policy:
    """Parse a policy file. WrongUse with line and remedy. Without signatures the published ones apply."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also of a number of thousands of digits
        raise WrongUse(f"policy {name}: {error}; the file is TOML") from None
    where = _Where(text, name)
    unknown = sorted(document.keys() - {"strategies", "signature", "behaviour"})
    if unknown:
        raise WrongUse(
            f"{where.of(unknown[0])}: there is no '{unknown[0]}'; use [strategies], [[signature]], [[behaviour]]"
        )
    strategies = dict(DEFAULT_STRATEGIES)
    given = document.get("strategies", {})
    if not isinstance(given, dict):
        raise WrongUse(f'{where.of("strategies")}: write [strategies] with lines profile = "strategy"')
    for profile, strategy in given.items():
        try:
            strategies = dict(Policy({**strategies, profile: str(strategy)}).strategies)
        except WrongUse as error:
            raise WrongUse(f"{where.of(profile)}: {error}") from None
    signatures = [
        _signature(entry, where.table("signature", number)) for number, entry in _tables(document, "signature", where)
    ]
    behaviours = [
        _behaviour(entry, where.table("behaviour", number)) for number, entry in _tables(document, "behaviour", where)
    ]
    return Policy(strategies, tuple(signatures) if "signature" in document else DEFAULT_SIGNATURES, tuple(behaviours))


def parse_traffic(document: Mapping[str, Any], where: str) -> Traffic:
    """Read `protocol` and `ports`. WrongUse, beginning with `where`, says what they may be."""
    protocol = document.get("protocol")
    if protocol is not None and protocol not in PROTOCOLS:
        raise WrongUse(f"{where}: there is no protocol {protocol!r}; there are {', '.join(PROTOCOLS)}")
    ports = document.get("ports", [])
    if not isinstance(ports, list):
        raise WrongUse(f'{where}: ports are a list, such as [22, "1024-1044"]')
    if ports and protocol in ("ip", "ip6", "llc"):
        raise WrongUse(f"{where}: {protocol} has no ports; leave them out, or write tcp or udp")
    return Traffic(protocol, tuple(_range(port, where) for port in ports))


def _range(port: object, where: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(str(port)) if not isinstance(port, bool) else None
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not low <= high <= _PORT_MAX:
        raise WrongUse(f'{where}: {port!r} is no port; write 22, or "1024-1044"')
    return low, high


def _signature(entry: Mapping[str, Any], where: str) -> Signature:
    _check_keys(entry, ("profile", "protocol", "ports"), where)
    traffic = parse_traffic(entry, where)
    if traffic == Traffic():
        raise WrongUse(f"{where}: a signature needs a protocol or ports; for all other flows set the profile default")
    return Signature(_profile(entry, where), traffic)


def _behaviour(entry: Mapping[str, Any], where: str) -> Behaviour:
    bounds = [field.name for field in fields(Behaviour) if field.name not in ("profile", "protocol")]
    _check_keys(entry, ("profile", "protocol", *bounds), where)
    given = {name: entry[name] for name in bounds if name in entry}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise WrongUse(f"{where}: {name} is a number from 0, not {value!r}")
    if not given:
        raise WrongUse(f"{where}: a behaviour needs a bound: {', '.join(bounds)}")
    traffic = parse_traffic({"protocol": entry.get("protocol")}, where)
    return Behaviour(_profile(entry, where), traffic.protocol, **given)


def _check_keys(entry: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    if unknown := sorted(entry.keys() - set(allowed)):
        raise WrongUse(f"{where}: there is no '{unknown[0]}'; there are {', '.join(allowed)}")


def _profile(entry: Mapping[str, Any], where: str) -> str:
    profile = entry.get("profile")
    if not isinstance(profile, str) or not PROFILE.fullmatch(profile):
        raise WrongUse(f'{where}: needs a profile, such as profile = "mpi"')
    return profile


def _tables(document: Mapping[str, Any], name: str, where: "_Where") -> list[tuple[int, Mapping[str, Any]]]:
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise WrongUse(f"{where.of(name)}: write each {name} as [[{name}]]")
    if len(entries) > SIGNATURES_MAX:
        raise WrongUse(f"{where.of(name)}: {len(entries)} are more than {SIGNATURES_MAX}; use ranges of ports")
    return list(enumerate(entries))


class _Where:
    """Line numbers of a TOML file, which its parser does not report."""

    def __init__(self, text: str, name: str) -> None:
        self._lines, self._name = text.splitlines(), name

    def of(self, word: str) -> str:
        """The first line that begins with a key or a table's name."""
        begin = re.compile(rf"""\s*(\[+\s*)?["']?{re.escape(word)}["']?\s*[\]=.]""")
        return self._said(next((n for n, line in enumerate(self._lines, start=1) if begin.match(line)), 1))

    def table(self, name: str, number: int) -> str:
        """The line in which table `number`, from 0, begins."""
        head = re.compile(rf"\s*\[\[\s*{name}\s*\]\]")
        lines = [n for n, line in enumerate(self._lines, start=1) if head.match(line)]
        return self._said(lines[number] if number < len(lines) else 1)

    def _said(self, line: int) -> str:
        return f"policy {self._name}, line {line}"
