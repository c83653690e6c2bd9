# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Handling of full flow tables. No clock, no I/O.

Idle flows are evicted first. If there are none, an aggregate rule to the flow's host replaces the rules of this flow
and others to the same host through the same port at that switch; the least used flow is evicted for it.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from itertools import starmap

from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Outbox
from barewire.sdn.controller.router import Router
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.rules import to_host_rule
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import AddRule, DeleteRule, Rule
from barewire.topology import Port

# Idle flows evicted at a time, so that the next flows do not find a full table again.
EVICTED_MAX = 16
# Attempts before a flow stays on the default path, and for how long it does.
ATTEMPTS = 3
UNPLACED_S = 10.0


class FullTables:
    """The aggregate rules and their flows, and the flows that stay on the default path."""

    def __init__(self, router: Router, hosts: Hosts, outbox: Outbox) -> None:
        """Begin without full tables."""
        self._router, self._hosts, self._outbox = router, hosts, outbox
        # By switch and MAC address: the output port and the flows that use it.
        self._aggregates: dict[tuple[str, str], tuple[int, set[Route]]] = {}
        self._attempts: defaultdict[Route, int] = defaultdict(int)
        self._unplaced: dict[FlowKey, float] = {}
        router.forgotten, router.drained = self._forgotten, self._drained

    def stays_on_default_path(self, key: FlowKey, now: float) -> bool:
        """Return whether a flow is not placed, because it found no room recently."""
        until_s = self._unplaced.get(key)
        if until_s is not None and until_s <= now:
            del self._unplaced[key]
            return False
        return until_s is not None

    def age(self, now: float) -> None:
        """Remove expired entries of flows that found no room."""
        self._unplaced = {key: until_s for key, until_s in self._unplaced.items() if until_s > now}

    def rules_at(self, switch: str) -> list[Rule]:
        """Return the aggregate rules at a switch."""
        return [to_host_rule(mac, port) for (where, mac), (port, _) in self._aggregates.items() if where == switch]

    def refused(self, route: Route, switch: str, now: float) -> None:
        """Handle a switch without room for a rule of a flow."""
        hop = next((hop for hop in route.path if hop.node == switch), None)
        if hop is None or route.installed.pop(switch, None) is None:
            return  # its other match was refused as well, or it has moved
        self._attempts[route] += 1
        if self._attempts[route] > ATTEMPTS:
            self.give_up(route, switch, now)
        elif not self._make_room(route, switch):
            self._use_aggregate(route, hop, now)

    def give_up(self, route: Route, switch: str, now: float) -> None:
        """Leave a flow on the default path for a while."""
        self._unplaced[route.key] = now + UNPLACED_S
        self._outbox.emit(
            "flow not installed",
            f"{switch} has no room for a rule of {route.key}, which takes the default path for a while",
        )
        self._router.remove(route)

    def aggregate_refused(self, switch: str, mac: str, now: float) -> None:
        """Handle a switch without room for an aggregate rule: its flows stay on the default path."""
        _, users = self._aggregates.get((switch, mac), (0, set[Route]()))
        for route in list(users):
            self.give_up(route, switch, now)

    def links_lost(self, lost: Collection[Port]) -> None:
        """Delete the aggregate rules that lead to lost ports: their flows are placed again, and need not find room."""
        for (switch, mac), (port, users) in list(self._aggregates.items()):
            if Port(switch, port) in lost:
                for route in list(users):
                    self._leave(route, switch, mac)

    def _make_room(self, route: Route, switch: str) -> bool:
        idle = [
            candidate
            for candidate in self._least_used(switch, route)
            if candidate.counted_s and not candidate.placed.rate_byte_s
        ]
        for victim in idle[:EVICTED_MAX]:
            self._router.remove(victim)
        if idle:
            self._outbox.emit("table full", f"{switch}: {len(idle[:EVICTED_MAX])} idle flows evicted")
            self._outbox.when_confirmed(switch, lambda _: self._again(route))
        return bool(idle)

    def _use_aggregate(self, route: Route, hop: Port, now: float) -> None:
        mac = self._hosts.by_name[route.key.destination].mac
        port, users = self._aggregates.setdefault((hop.node, mac), (hop.number, set()))
        through = Port(hop.node, port)
        paths = self._router.network_state.paths.between(route.key.source, route.key.destination)
        fitting = [route.path] if through in route.path else [path for path in paths if through in path]
        if not fitting:
            self.give_up(route, hop.node, now)
            return
        is_new = not users
        users.add(route)
        route.aggregated[hop.node] = port
        if is_new:
            self._outbox.emit("table full", f"{hop.node}: an aggregate rule to {route.key.destination}")
            for victim in self._least_used(hop.node, route)[:1]:
                self._router.remove(victim)
            # There is room once the deletions are confirmed.
            self._outbox.when_confirmed(hop.node, lambda _: self._set(hop.node, mac))
        self._router.move(route, replace(route.placed, path=fitting[0]))
        self._outbox.when_confirmed(hop.node, lambda _: self._again(route))

    def _set(self, switch: str, mac: str) -> None:
        if (switch, mac) in self._aggregates:
            self._outbox.send(switch, AddRule(to_host_rule(mac, self._aggregates[switch, mac][0])))

    def _again(self, route: Route) -> None:
        if self._router.routes.get(route.key) is route:
            self._router.reinstall(route)

    def _forgotten(self, route: Route) -> None:
        """Let a removed flow leave its aggregate rules."""
        self._attempts.pop(route, None)
        mac = self._hosts.by_name[route.key.destination].mac
        for switch in list(route.aggregated):
            self._leave(route, switch, mac)

    def _drained(self, route: Route) -> None:
        """Let a moved flow leave the aggregate rules that its path does not use any more."""
        mac = self._hosts.by_name[route.key.destination].mac
        for hop in set(starmap(Port, route.aggregated.items())).difference(route.path):
            self._leave(route, hop.node, mac)

    def _leave(self, route: Route, switch: str, mac: str) -> None:
        """Let a flow use an aggregate rule no more; without flows it is deleted."""
        del route.aggregated[switch]
        port, users = self._aggregates[switch, mac]
        users.discard(route)
        if not users:
            del self._aggregates[switch, mac]
            rule = to_host_rule(mac, port)
            self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie))

    def _least_used(self, switch: str, excluded: Route) -> list[Route]:
        """The flows with own rules in a switch, by recent traffic, without those being installed."""
        routes = [
            route
            for route in self._router.routes.at(switch)
            if route is not excluded and switch in route.installed and route.installed_s
        ]
        return sorted(routes, key=lambda route: (route.placed.rate_byte_s, route.number))
