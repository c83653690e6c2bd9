# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tenants: which flows and hosts are whose, their shares of links, and their quotas at the API. Pure but for tokens."""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from barewire.errors import WrongUse
from barewire.sdn.token import read_token

# Each has a meter at each port of each switch.
TENANTS_MAX = 63
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEYS = (
    "name",
    "hosts",
    "share",
    "ceiling",
    "token_file",
    "jobs_max",
    "ranks_max",
    "pattern_flows_max",
    "requests_per_s",
)


@dataclass(frozen=True)
class Tenant:
    """A tenant: `share` of every link's rate is guaranteed, and it gets at most `ceiling`, both from 0 to 1.

    Its flows are those of jobs announced with its token, and those that its hosts send.
    """

    name: str
    hosts: frozenset[str] = frozenset()
    share: float = 0.0
    ceiling: float = 1.0
    token: str | None = None
    jobs_max: int = 100
    ranks_max: int = 100_000
    pattern_flows_max: int = 100_000
    requests_per_s: float = 50.0


@dataclass(frozen=True)
class Tenants:
    """All tenants, in the order of their file."""

    all: tuple[Tenant, ...] = ()
    by_host: Mapping[str, Tenant] = field(default_factory=dict)

    def of_host(self, host: str) -> Tenant | None:
        """Return the tenant that a host belongs to."""
        return self.by_host.get(host)


def parse_tenants(text: str, file: str, known_hosts: Collection[str], folder: Path) -> Tenants:
    """Parse a tenants file; token files are relative to `folder`. WrongUse names the tenant and the remedy."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also of a number of thousands of digits
        raise WrongUse(f"tenants {file}: {error}; the file is TOML") from None
    entries = document.get("tenant", [])
    if (
        document.keys() - {"tenant"}
        or not isinstance(entries, list)
        or not all(isinstance(one, dict) for one in entries)
    ):
        raise WrongUse(f"tenants {file}: write each tenant as [[tenant]], and nothing else")
    if not 1 <= len(entries) <= TENANTS_MAX:
        raise WrongUse(f"tenants {file}: it has {len(entries)} tenants; there may be 1 to {TENANTS_MAX}")
    tenants = tuple(
        _tenant(entry, f"tenants {file}, tenant {n}", known_hosts, folder) for n, entry in enumerate(entries, 1)
    )
    _check_together(tenants, f"tenants {file}")
    return Tenants(tenants, {host: tenant for tenant in tenants for host in tenant.hosts})


def _tenant(entry: Mapping[str, Any], where: str, known_hosts: Collection[str], folder: Path) -> Tenant:
    if unknown := sorted(entry.keys() - set(_KEYS)):
        raise WrongUse(f"{where}: there is no '{unknown[0]}'; there are {', '.join(_KEYS)}")
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WrongUse(f'{where}: needs a name, such as name = "hpc": letters, digits, . _ -, at most 63')
    where = f"{where} ('{name}')"
    share, ceiling = _fraction(entry, "share", 0.0, where), _fraction(entry, "ceiling", 1.0, where)
    if not ceiling or ceiling < share:
        raise WrongUse(f"{where}: its ceiling {ceiling:g} must be above 0, and at least its share {share:g}")
    given = entry.get("token_file")
    if given is not None and not isinstance(given, str):
        raise WrongUse(f'{where}: token_file is a path, such as "hpc.token"')
    hosts = _hosts(entry.get("hosts", []), where, known_hosts)
    if not hosts and given is None:
        raise WrongUse(f"{where}: it has neither hosts nor a token_file, so no flow would be its own: give one of them")
    return Tenant(
        name,
        hosts,
        share,
        ceiling,
        None if given is None else read_token(folder / given),
        _count(entry, "jobs_max", Tenant.jobs_max, where),
        _count(entry, "ranks_max", Tenant.ranks_max, where),
        _count(entry, "pattern_flows_max", Tenant.pattern_flows_max, where),
        float(_count(entry, "requests_per_s", int(Tenant.requests_per_s), where)),
    )


def _hosts(given: object, where: str, known: Collection[str]) -> frozenset[str]:
    if not isinstance(given, list) or not all(isinstance(host, str) for host in given):
        raise WrongUse(f'{where}: hosts are a list of names, such as ["h1", "h2"]')
    if missing := sorted(set(given) - set(known)):
        listed = ", ".join(sorted(known)[:20]) or "none: add --hosts-file"
        raise WrongUse(f"{where}: unknown hosts {', '.join(missing[:20])}; known are {listed}")
    return frozenset(given)


def _fraction(entry: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WrongUse(f"{where}: {key} is a fraction of each link from 0 to 1, such as 0.5, not {value!r}")
    return float(value)


def _count(entry: Mapping[str, Any], key: str, default: int, where: str) -> int:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WrongUse(f"{where}: {key} is a whole number from 1, not {value!r}")
    return value


def _check_together(tenants: Sequence[Tenant], where: str) -> None:
    total = sum(tenant.share for tenant in tenants)
    if total > 1 + 1e-9:
        shares = " + ".join(f"{tenant.share:g} ({tenant.name})" for tenant in tenants)
        raise WrongUse(f"{where}: the shares are {shares} = {total:g}, more than a link has: their sum is at most 1")
    for one, other in combinations(tenants, 2):
        if one.name == other.name:
            raise WrongUse(f"{where}: two tenants are named '{one.name}'")
        if both := sorted(one.hosts & other.hosts):
            raise WrongUse(
                f"{where}: {', '.join(both[:20])} cannot belong to '{one.name}' and to '{other.name}': "
                "give each host to one tenant; tenants that share hosts have a token_file and no hosts"
            )
        if one.token is not None and one.token == other.token:
            raise WrongUse(f"{where}: '{one.name}' and '{other.name}' have the same token: give each its own")
