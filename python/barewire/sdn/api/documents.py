# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The API's views of a controller, as documents of its schema."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping

from barewire.sdn.api import schema
from barewire.sdn.classify.announcement import TrafficDocument
from barewire.sdn.classify.jobs import Job
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.shell import Shell
from barewire.sdn.strategies import names
from barewire.topology import Port
from barewire.topology.network import natural

# Flows that are looked at before the controller may do something else: 2 to 3 ms.
FLOWS_PER_TURN = 1000


def status(controller: Controller, now: float) -> schema.Status:
    """Counts of everything."""
    discovery = controller.discovery
    return schema.Status(
        switches=len(discovery.switches),
        connected=sum(discovery.is_connected(switch) for switch in discovery.switches),
        links=len(discovery.peers) // 2,
        hosts=sum(1 for _ in controller.hosts.attached()),
        flows=len(controller.router.routes),
        being_installed=sum(route.is_being_installed for route in controller.router.routes)
        + controller.router.moving
        + controller.is_planning
        + controller.labels.is_being_installed,
        jobs=len(controller.jobs.all),
        counts=dict(sorted((controller.counts + controller.reception.counts).items())),
    )


def pair(shell: Shell, api: str) -> schema.Pair:
    """Which controller leads; `api` is the URL of this one's API."""
    election, peer = shell.election, shell.peer
    if election is None:
        return schema.Pair("single", 0.0, api, None, False, None, shell.switches)
    is_leader, leads = election.is_leader, peer is not None and peer.leads(shell.now)
    return schema.Pair(
        role="leader" if is_leader else "standby",
        since_s=round(shell.now - election.since_s, 3),
        leader=api if is_leader else peer.url if peer is not None and leads else None,
        peer=None if peer is None else peer.url,
        peer_answers=peer is not None and peer.answers(shell.now),
        generation=f"{election.generation:#x}" if election.generation else None,
        switches=election.switches,
    )


def switches(controller: Controller, now: float) -> schema.Switches:
    """Each switch and its ports."""
    discovery, known = controller.discovery, set(controller.discovery.switches)

    def leads_to(port: Port) -> str | None:
        peer = controller.network().peers.get(port)
        return None if peer is None else str(peer) if peer.node in known else peer.node

    return schema.Switches(
        [
            schema.Switch(
                name,
                discovery.is_connected(name),
                controller.router.routes.count_at(name),
                [
                    schema.SwitchPort(port.number, port.name, port.is_up, leads_to(Port(name, number)))
                    for number, port in sorted(discovery.ports(name).items())
                ],
            )
            for name in sorted(known, key=natural)
        ]
    )


def hosts(controller: Controller, now: float) -> schema.Hosts:
    """Each known host, with its port if known."""
    known = sorted(controller.hosts.by_mac.values(), key=lambda host: natural(host.name))
    return schema.Hosts(
        [
            schema.Host(
                host.name,
                host.mac,
                [ip for vlan, ip in sorted(host.addresses) if not vlan],
                [schema.TaggedAddress(vlan, ip) for vlan, ip in sorted(host.addresses) if vlan],
                None if host.port is None else str(host.port),
            )
            for host in known
        ]
    )


def links(controller: Controller, now: float) -> schema.Links:
    """Each direction of each link between switches."""
    rates = controller.discovery.rate_bit_s
    peers = sorted(controller.discovery.peers.items(), key=lambda link: _order(link[0]))
    return schema.Links([schema.Link(str(port), str(peer), rates(port)) for port, peer in peers])


def loads(controller: Controller, now: float) -> schema.Loads:
    """Rates that each switch port sent and received, by the last statistics."""
    sent, received = controller.rates.load_byte_s, controller.rates.received_byte_s
    return schema.Loads(
        [schema.Load(str(port), round(sent[port]), round(received[port])) for port in sorted(sent, key=_order)]
    )


async def flows(controller: Controller, now: float) -> schema.Flows:
    """Each flow with its path, its profile and the basis of classification, its strategy's reason, and its traffic.

    In turns with the controller's work, as `tenants`.
    """
    shown: list[schema.Flow] = []
    routes = list(controller.router.routes)
    for at in range(0, len(routes), FLOWS_PER_TURN):
        shown += [_flow(route, now) for route in routes[at : at + FLOWS_PER_TURN]]
        await asyncio.sleep(0)
    return schema.Flows(shown)


def strategies(controller: Controller, now: float) -> schema.Strategies:
    """All available strategies."""
    return schema.Strategies(names())


def policy(controller: Controller, now: float) -> schema.Policy:
    """The policy in force."""
    in_force = controller.policy
    return schema.Policy(
        dict(in_force.strategies),
        [schema.Signature(one.profile, one.traffic.protocol, one.traffic.shown_ports) for one in in_force.signatures],
        [{name: value for name, value in vars(one).items() if value is not None} for one in in_force.behaviours],
        {profile: labels for profile in in_force.strategies if (labels := controller.labels_of(profile)) is not None},
        controller.labels.is_being_installed,
    )


def jobs(controller: Controller, now: float) -> schema.Jobs:
    """All announced jobs."""
    return schema.Jobs([job(one, now) for one in controller.jobs.all])


async def tenants(controller: Controller) -> schema.Tenants:
    """Each tenant, what its flows carry, and the ports at which it is limited, in turns with the controller's work."""
    sent: Counter[str] = Counter()
    routes = list(controller.router.routes)
    for at in range(0, len(routes), FLOWS_PER_TURN):
        sent += controller.slices.sent_bit_s(routes[at : at + FLOWS_PER_TURN])
        await asyncio.sleep(0)
    return tenants_with(controller, sent)


def tenants_with(controller: Controller, sent_bit_s: Mapping[str, int]) -> schema.Tenants:
    """Return the tenants, with known rates by name."""
    slices, alive = controller.slices, {job.id for job in controller.jobs.all}
    owned = Counter(tenant.name for job, tenant in slices.owners.items() if job in alive)
    limited = slices.limited()
    return schema.Tenants(
        [
            schema.Tenant(
                name=tenant.name,
                hosts=sorted(tenant.hosts, key=natural),
                share=tenant.share,
                ceiling=tenant.ceiling,
                jobs=owned[tenant.name],
                jobs_max=tenant.jobs_max,
                sent_bit_s=sent_bit_s.get(tenant.name, 0),
                limited=[str(port) for port in limited[tenant.name]],
            )
            for tenant in slices.tenants.all
        ]
    )


def job(announced: Job, now: float) -> schema.Job:
    """An announced job."""
    return schema.Job(
        id=announced.id,
        name=announced.name,
        profile=announced.profile,
        hosts=sorted(announced.hosts),
        ranks=len(announced.ranks),
        traffic=[TrafficDocument(one.protocol, [*one.shown_ports]) for one in announced.traffic],  # type: ignore[arg-type]
        patterns=len(announced.patterns),
        current=announced.current,
        lease_s=announced.lease_s,
        ends_in_s=round(max(announced.ends_s - now, 0.0), 3),
    )


def _flow(route: Route, now: float) -> schema.Flow:
    key, placed = route.key, route.placed
    is_endless = math.isinf(placed.reserved_until_s)
    return schema.Flow(
        source=key.source,
        destination=key.destination,
        protocol=key.protocol,
        source_port=key.source_port,
        destination_port=key.destination_port,
        profile=placed.flow.profile,
        known_by=route.known_by,
        path=[str(port) for port in placed.path],
        why=route.why,
        installed=route.installed_s is not None,
        age_s=round(now - route.began_s, 3),
        rate_byte_s=round(placed.rate_byte_s),
        bytes=route.bytes,
        packets=route.packets,
        reserved_s=None if is_endless else round(max(placed.reserved_until_s - now, 0.0), 3),
    )


def _order(port: Port) -> tuple[tuple[str, int], int]:
    return natural(port.node), port.number
