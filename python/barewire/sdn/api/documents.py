# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The API's views of a controller, as JSON."""

import math
from collections.abc import Mapping
from typing import Any

from barewire.sdn.classify.jobs import Job, job_document
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.routes import Route
from barewire.sdn.strategies import names
from barewire.topology import Port
from barewire.topology.network import natural

Document = Mapping[str, Any]


def status(controller: Controller, now: float) -> Document:
    """Counts of everything."""
    discovery = controller.discovery
    return {
        "switches": len(discovery.switches),
        "connected": sum(discovery.is_connected(switch) for switch in discovery.switches),
        "links": len(discovery.peers) // 2,
        "hosts": sum(1 for _ in controller.hosts.attached()),
        "flows": len(controller.router.routes),
        "being_laid": sum(route.is_being_installed for route in controller.router.routes)
        + controller.labels.is_being_installed,
        "jobs": len(controller.jobs.all),
        "counts": dict(sorted((controller.counts + controller.reception.counts).items())),
    }


def switches(controller: Controller, now: float) -> Document:
    """Each switch and its ports."""
    discovery = controller.discovery
    return {
        "switches": [
            {
                "name": name,
                "connected": discovery.is_connected(name),
                "flows": len(controller.router.routes.at(name)),
                "ports": [
                    {
                        "number": port.number,
                        "name": port.name,
                        "up": port.is_up,
                        "leads_to": _peer(controller, Port(name, number)),
                    }
                    for number, port in sorted(discovery.ports(name).items())
                ],
            }
            for name in sorted(discovery.switches, key=natural)
        ]
    }


def hosts(controller: Controller, now: float) -> Document:
    """Each known host, with its port if known."""
    known = sorted(controller.hosts.by_mac.values(), key=lambda host: natural(host.name))
    return {
        "hosts": [
            {
                "name": host.name,
                "mac": host.mac,
                "addresses": sorted(host.addresses),
                "port": None if host.port is None else str(host.port),
            }
            for host in known
        ]
    }


def links(controller: Controller, now: float) -> Document:
    """Each direction of each link between switches."""
    rates = controller.discovery.rate_bit_s
    return {
        "links": [
            {"from": str(port), "to": str(peer), "rate_bit_s": rates(port)}
            for port, peer in sorted(controller.discovery.peers.items(), key=lambda link: _order(link[0]))
        ]
    }


def loads(controller: Controller, now: float) -> Document:
    """Rates that each switch port sent and received, by the last statistics."""
    sent, received = controller.rates.load_byte_s, controller.rates.received_byte_s
    return {
        "loads": [
            {"port": str(port), "sent_byte_s": round(sent[port]), "received_byte_s": round(received[port])}
            for port in sorted(sent, key=_order)
        ]
    }


def flows(controller: Controller, now: float) -> Document:
    """Each flow with its path, its profile and the basis of classification, its strategy's reason, and its traffic."""
    return {"flows": [_flow(route, now) for route in controller.router.routes]}


def strategies(controller: Controller, now: float) -> Document:
    """All available strategies."""
    return {"strategies": names()}


def policy(controller: Controller, now: float) -> Document:
    """The policy in force."""
    return {
        "strategies": dict(controller.policy.strategies),
        "signatures": [
            {
                "profile": signature.profile,
                "protocol": signature.traffic.protocol,
                "ports": [f"{low}-{high}" for low, high in signature.traffic.ports],
            }
            for signature in controller.policy.signatures
        ],
        "behaviours": [
            {name: value for name, value in vars(behaviour).items() if value is not None}
            for behaviour in controller.policy.behaviours
        ],
    }


def jobs(controller: Controller, now: float) -> Document:
    """All announced jobs."""
    return {"jobs": [job(controller, announced, now) for announced in controller.jobs.all]}


def job(controller: Controller, announced: Job, now: float) -> Document:
    """One job, with the labels that its frames may have."""
    return {**job_document(announced, now), "labels": controller.labels_of(announced.profile, now)}


def _flow(route: Route, now: float) -> Document:
    key, placed = route.key, route.placed
    return {
        "source": key.source,
        "destination": key.destination,
        "protocol": key.protocol,
        "source_port": key.source_port,
        "destination_port": key.destination_port,
        "profile": placed.flow.profile,
        "known_by": route.known_by,
        "path": [str(port) for port in placed.path],
        "why": route.why,
        "laid": route.installed_s is not None,
        "age_s": round(now - placed.since_s, 3),
        "rate_byte_s": round(placed.rate_byte_s),
        "bytes": route.bytes,
        "packets": route.packets,
        "reserved_s": None
        if math.isinf(placed.reserved_until_s)
        else round(max(placed.reserved_until_s - now, 0.0), 3),
    }


def _peer(controller: Controller, port: Port) -> str | None:
    peer = controller.network().peers.get(port)
    return None if peer is None else str(peer) if peer.node in controller.discovery.switches else peer.node


def _order(port: Port) -> tuple[tuple[str, int], int]:
    return natural(port.node), port.number
