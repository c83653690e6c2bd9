# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What to do when a switch has no room for another rule, so that the network stays up. No clock, no I/O.

Flows that carry nothing make room first. If all are in use, one rule to the flow's host stands in at that switch for
this flow and others to the same host through the same port; the least used flow makes room for it.
"""

from collections import defaultdict
from dataclasses import replace

from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Outbox
from barewire.sdn.controller.router import Router
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.rules import to_host_rule
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import DeleteRule, Rule, SetRule
from barewire.topology import Port

# Idle flows that make room at once, so that not every new flow finds the table full again.
VICTIMS = 16
# How often a flow is tried before the controller carries it by itself, and for how long it does.
ATTEMPTS = 3
CARRIED_S = 10.0


class FullTables:
    """Which rules stand in, where, and for whom; and which flows the controller carries by itself."""

    def __init__(self, router: Router, hosts: Hosts, outbox: Outbox) -> None:
        """No table is full."""
        self._router, self._hosts, self._outbox = router, hosts, outbox
        # By switch and MAC address: the output port and who uses it.
        self._stand_ins: dict[tuple[str, str], tuple[int, set[Route]]] = {}
        self._attempts: defaultdict[Route, int] = defaultdict(int)
        self._carried: dict[FlowKey, float] = {}
        router.forgotten = self._forgotten

    def carries(self, key: FlowKey, now: float) -> bool:
        """Return whether a flow found no room a moment ago: its packets are sent on, no rule is tried."""
        until_s = self._carried.get(key)
        if until_s is not None and until_s <= now:
            del self._carried[key]
            return False
        return until_s is not None

    def age(self, now: float) -> None:
        """Forget which flows found no room some time ago."""
        self._carried = {key: until_s for key, until_s in self._carried.items() if until_s > now}

    def rules_at(self, switch: str) -> list[Rule]:
        """Return the rules that stand in at a switch."""
        return [to_host_rule(mac, port) for (where, mac), (port, _) in self._stand_ins.items() if where == switch]

    def refused(self, route: Route, switch: str, now: float) -> None:
        """A switch had no room for a rule of a flow's."""
        hop = next((hop for hop in route.path if hop.node == switch), None)
        if hop is None or route.standing.pop(switch, None) is None:
            return  # its other match was refused as well, or it has moved on
        self._attempts[route] += 1
        if self._attempts[route] > ATTEMPTS:
            self.give_up(route, switch, now)
        elif not self._make_room(route, switch):
            self._stand_in(route, hop, now)

    def give_up(self, route: Route, switch: str, now: float) -> None:
        """Let the controller carry a flow by itself for a while, as far as its port's allowance goes."""
        self._carried[route.key] = now + CARRIED_S
        self._outbox.say(
            "flow not laid", f"{switch} takes no rule of {route.key}: the controller carries it for a while"
        )
        self._router.remove(route)

    def stand_in_refused(self, switch: str, mac: str, now: float) -> None:
        """A switch had no room even for a rule that stands in: who relies on it is carried by the controller."""
        _, users = self._stand_ins.get((switch, mac), (0, set[Route]()))
        for route in list(users):
            self.give_up(route, switch, now)

    def _make_room(self, route: Route, switch: str) -> bool:
        idle = [other for other in self._least_used(switch, route) if other.counted_s and not other.placed.rate_byte_s]
        for victim in idle[:VICTIMS]:
            self._router.remove(victim)
        if idle:
            self._outbox.say("table full", f"{switch}: {len(idle[:VICTIMS])} idle flows made room")
            self._outbox.when_confirmed(switch, lambda _: self._again(route))
        return bool(idle)

    def _stand_in(self, route: Route, hop: Port, now: float) -> None:
        mac = self._hosts.by_name[route.key.destination].mac
        port, users = self._stand_ins.setdefault((hop.node, mac), (hop.number, set()))
        through = Port(hop.node, port)
        paths = self._router.picture.paths.between(route.key.source, route.key.destination)
        fitting = [route.path] if through in route.path else [path for path in paths if through in path]
        if not fitting:
            self.give_up(route, hop.node, now)
            return
        is_new = not users
        users.add(route)
        route.stood_in[hop.node] = port
        if is_new:
            self._outbox.say("table full", f"{hop.node}: one rule to {route.key.destination} stands in for its flows'")
            for victim in self._least_used(hop.node, route)[:1]:
                self._router.remove(victim)
            # Room is there when what made it is confirmed.
            self._outbox.when_confirmed(hop.node, lambda _: self._set(hop.node, mac))
        self._router.move(route, replace(route.placed, path=fitting[0]))
        self._outbox.when_confirmed(hop.node, lambda _: self._again(route))

    def _set(self, switch: str, mac: str) -> None:
        if (switch, mac) in self._stand_ins:
            self._outbox.send(switch, SetRule(to_host_rule(mac, self._stand_ins[switch, mac][0])))

    def _again(self, route: Route) -> None:
        if self._router.routes.get(route.key) is route:
            self._router.relay(route)

    def _forgotten(self, route: Route) -> None:
        """A flow has gone: what stood in for it alone goes, too."""
        self._attempts.pop(route, None)
        mac = self._hosts.by_name[route.key.destination].mac
        for switch in route.stood_in:
            port, users = self._stand_ins[switch, mac]
            users.discard(route)
            if not users:
                del self._stand_ins[switch, mac]
                rule = to_host_rule(mac, port)
                self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie))

    def _least_used(self, switch: str, but: Route) -> list[Route]:
        """The flows with a rule of their own in a switch, by what they carried of late; those being laid are left."""
        routes = [
            route
            for route in self._router.routes.at(switch)
            if route is not but and switch in route.standing and route.laid_s
        ]
        return sorted(routes, key=lambda route: (route.placed.rate_byte_s, route.number))
