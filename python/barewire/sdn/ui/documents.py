# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the live page shows, as JSON. Every list has a bound, and says how much it leaves out. No I/O.

Times are seconds of the system's clock, so that they do not change while nothing happens: `epoch_s` is the difference
from the controller's clock.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from barewire.sdn.classify.jobs import Job
from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.routes import Route
from barewire.sdn.flow import DEFAULT_PROFILE
from barewire.sdn.ui.cables import Cables
from barewire.topology import Network, Port
from barewire.topology.checks import is_server
from barewire.topology.network import natural

Document = Mapping[str, Any]
# The fastest flows are listed one by one; all are counted.
FLOWS_MAX = 400
JOBS_MAX = 100
HOSTS_PER_JOB_MAX = 32
TEXT_MAX = 300
# The first hosts of jobs that live.
_first_hosts: "WeakKeyDictionary[frozenset[str], list[str]]" = WeakKeyDictionary()


def network(found: Network, cables: Cables, lost: Collection[str], edges: Collection[str]) -> Document:
    """Nodes in tiers and cables. `lost` are disconnected switches, `edges` switches with ports for hosts."""
    tiers = _tiers(found, lost, edges)
    ends = {port.node for cable in cables for port in (cable.a, cable.b)}
    hosts = [host for host in found.hosts if host in ends]
    return {
        "nodes": [
            {
                "name": name,
                "kind": "server" if is_server(name) else "host" if name in found.host_numbers else "switch",
                "tier": tier,
                "connected": name not in lost,
            }
            for name, tier in [*tiers.items(), *((host, 0) for host in hosts)]
        ],
        "cables": [
            {
                "a": str(cable.a),
                "b": str(cable.b),
                "number": cable.number,
                "up": cable.down_s is None,
                "rates": [_rate(found, cable.a, cable.b), _rate(found, cable.b, cable.a)],
            }
            for cable in cables
        ],
        "left_out": cables.left_out,
    }


def _rate(found: Network, port: Port, peer: Port) -> int | None:
    """A direction's rate in bit/s; a host's port is as fast as the switch's."""
    return found.rates_bit_s.get(port) or found.rates_bit_s.get(peer)


def _tiers(found: Network, lost: Collection[str], edges: Collection[str]) -> dict[str, int]:
    """Each switch's distance from the nearest host plus one; switches that none is near to are at the edge."""
    at_hosts = {port.node for host in found.hosts if not is_server(host) and (port := found.attachment(host))}
    row = sorted((at_hosts or set(edges)) & set(found.switches), key=natural)
    tiers: dict[str, int] = {}
    tier = 1
    while row:
        tiers |= dict.fromkeys(row, tier)
        beyond = {found.peers[port].node for name in row for port in found.ports[name]} - found.host_numbers.keys()
        row = sorted(beyond - tiers.keys(), key=natural)
        tier += 1
    return tiers | {name: 1 for name in sorted({*found.switches, *lost}, key=natural) if name not in tiers}


def status(controller: Controller) -> Document:
    """Counts, and the policy in force."""
    discovery = controller.discovery
    return {
        "switches": len(discovery.switches),
        "connected": sum(map(discovery.is_connected, discovery.switches)),
        "links": len(discovery.peers) // 2,
        "hosts": sum(1 for _ in controller.hosts.attached()),
        "flows": len(controller.router.routes),
        "jobs": len(controller.jobs.all),
        "policy": dict(controller.policy.strategies),
        "counts": dict(sorted((controller.counts + controller.reception.counts).items())),
    }


class FlowSums:
    """Counts and rates of flows by profile, strategy and basis of classification, added a few flows at a time."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.flows: Counter[tuple[str, str]] = Counter()
        self.rate_byte_s: Counter[tuple[str, str]] = Counter()

    def add(self, routes: Iterable[Route]) -> None:
        """Add flows."""
        for route in routes:
            group = route.placed.flow.profile, route.known_by
            self.flows[group] += 1
            self.rate_byte_s[group] += round(route.placed.rate_byte_s)

    def to_json(self, policy: Policy) -> list[Document]:
        """Return the groups, the fastest first."""
        return [
            {
                "profile": profile,
                "strategy": strategy_of(policy, profile),
                "known_by": known_by,
                "flows": count,
                "rate_bit_s": 8 * self.rate_byte_s[profile, known_by],
            }
            for (profile, known_by), count in sorted(
                self.flows.items(), key=lambda group: (-self.rate_byte_s[group[0]], group[0])
            )
        ]


def strategy_of(policy: Policy, profile: str) -> str:
    """Return the strategy of a profile, with its parameters."""
    return policy.strategies.get(profile) or policy.strategies[DEFAULT_PROFILE]


def flow(route: Route, cables: Cables, policy: Policy, job: str | None, epoch_s: float) -> Document:
    """One flow: its path as numbers of directions, the first from its host."""
    key, profile = route.key, route.placed.flow.profile
    found = [cables.number(port) for port in (Port(key.source, 1), *route.path)]
    return {
        "source": key.source,
        "destination": key.destination,
        "protocol": key.protocol,
        "ports": [key.source_port, key.destination_port] if key.has_ports else None,
        "profile": profile,
        "strategy": strategy_of(policy, profile),
        "known_by": route.known_by,
        "why": route.why[:TEXT_MAX],
        "job": job,
        "rate_bit_s": round(8 * route.placed.rate_byte_s),
        "since_s": round(route.placed.since_s + epoch_s, 1),
        "installed": route.installed_s is not None,
        "path": [number for number in found if number is not None],
    }


def _first(hosts: frozenset[str]) -> list[str]:
    """The first hosts of a job, looked for once: it may have 100,000."""
    if (first := _first_hosts.get(hosts)) is None:
        first = _first_hosts[hosts] = heapq.nsmallest(HOSTS_PER_JOB_MAX, hosts, key=natural)
    return first


def jobs(all_jobs: Sequence[Job]) -> Document:
    """Announced jobs, the latest first, with the number of the current pattern."""
    return {
        "total": len(all_jobs),
        "jobs": [
            {
                "id": job.id,
                "name": job.name,
                "profile": job.profile,
                "hosts": _first(job.hosts),
                "host_count": len(job.hosts),
                "ranks": len(job.ranks),
                "patterns": len(job.patterns),
                "current": job.current,
                "current_flows": len(job.patterns[job.current]) if job.current < len(job.patterns) else None,
            }
            for job in reversed(all_jobs[-JOBS_MAX:])
        ],
    }
