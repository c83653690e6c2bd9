# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Gives flows paths and gets their rules laid, moved and removed, in the order that `laying` says; no clock, no I/O."""

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from barewire.sdn.classify.classifier import Known
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.laying import can_loop, stages
from barewire.sdn.controller.outbox import Outbox
from barewire.sdn.controller.routes import Route, Routes
from barewire.sdn.controller.rules import NUMBER_MASK, Kind, cookie, flow_matches
from barewire.sdn.controller.settings import Settings
from barewire.sdn.flow import Flow, FlowKey, Pattern, Placed, View
from barewire.sdn.openflow.messages import DeleteRule, Rule, SetRule
from barewire.sdn.strategies import Placement, Strategy
from barewire.topology import Network, Path, Port
from barewire.topology.paths import Paths


@dataclass
class Picture:
    """What the rest of the controller knows of the network, for views."""

    paths: Paths
    load_byte_s: Mapping[Port, float]
    received_byte_s: Mapping[Port, float]
    patterns: tuple[Pattern, ...] = ()


StrategyOf = Callable[[str], Strategy]


class Router:
    """Flows to paths, paths to rules."""

    def __init__(self, settings: Settings, hosts: Hosts, outbox: Outbox, strategy_of: StrategyOf, first: int) -> None:
        """Begin without flows; `first` is the number of the first, so that those of an earlier controller differ."""
        self.routes = Routes()
        self.picture = Picture(Paths(Network((), (), {})), {}, {})
        self._settings, self._hosts, self._outbox = settings, hosts, outbox
        self._strategy_of = strategy_of
        self._numbers = itertools.count(first)
        self._reservations: dict[Path, float] = {}
        # Called with each flow that is forgotten.
        self.forgotten: Callable[[Route], None] = lambda _: None

    def view(self, now: float, fixed: frozenset[FlowKey] = frozenset()) -> View:
        """Return what strategies may know now."""
        picture = self.picture
        return View(
            picture.paths.network,
            now,
            self.routes.placed,
            picture.load_byte_s,
            picture.received_byte_s,
            picture.patterns,
            self.routes.crossing,
            fixed,
            self._reserved(now),
        )

    def place(self, key: FlowKey, known: Known, identification: int, now: float) -> Route | None:
        """Give a new flow a path and begin to lay its rules; None if there is no path between its hosts."""
        flow = Flow(key, known.profile, identification, known.volume_bytes)
        placement = self._chosen(flow, now)
        if placement is None:
            return None
        placed = self._placed(flow, placement, now)
        route = Route(self._number(), placed, flow_matches(key, self._hosts), now, placement.reason, known.by)
        self.routes.add(route)
        self._lay(route)
        return route

    def replace(self, route: Route, now: float, known: Known | None = None, is_broken: bool = False) -> bool:
        """Give a placed flow the path that its strategy chooses now; False if there is none and it was removed."""
        flow = route.placed.flow
        if known is not None:
            flow = replace(flow, profile=known.profile, volume_bytes=known.volume_bytes)
            route.known_by = known.by
        self.routes.leave(route)
        placement = self._chosen(flow, now)
        if placement is None:
            self.remove(route)
            return False
        route.why = placement.reason
        self.move(route, replace(self._placed(flow, placement, now), rate_byte_s=route.placed.rate_byte_s), is_broken)
        return True

    def move(self, route: Route, placed: Placed, is_broken: bool = False) -> None:
        """Give a flow another path, or no more than another profile or rate; sooner if its old path is broken."""
        changed = placed.path != route.path
        self.routes.put(route, placed)
        if changed:
            self._lay(route, is_broken)

    def rearrange(self, profiles: Mapping[str, str], names: Collection[str], now: float) -> int:
        """Ask the strategies of these names for better paths, each for its own flows; return how many moved.

        `profiles` is each profile's strategy by name.
        """
        moved = 0
        for name in names:
            mine = {profile for profile, strategy in profiles.items() if strategy == name}
            strategy = self._strategy_of(next(iter(mine)))
            others = frozenset(route.key for route in self.routes if route.placed.flow.profile not in mine)
            try:
                wanted = strategy.rearrange(self.view(now, others))
            except Exception as error:  # a plug-in's mistake must not stop the network
                self._outbox.say("strategy failed", f"{name} failed to rearrange, so flows stay: {error!r}")
                continue
            for key, path in wanted.items():
                route = self.routes.get(key)
                if route is None or key in others or path == route.path:
                    continue
                if path not in self.picture.paths.between(key.source, key.destination):
                    self._outbox.say("strategy failed", f"{name} chose no shortest path for {key}; the flow stays")
                    continue
                route.why = f"rearranged by {name}"
                self.move(route, replace(route.placed, path=path))
                moved += 1
        return moved

    def links_lost(self, lost: Collection[Port], now: float) -> tuple[int, int]:
        """Re-place all flows that leave through ports that are gone; return how many, and how many have no path."""
        affected = {route for port in lost for route in self.routes.over(port)}
        moved = sum(
            self.replace(route, now, is_broken=True) for route in sorted(affected, key=lambda route: route.number)
        )
        return moved, len(affected) - moved

    def relay(self, route: Route) -> None:
        """Lay all rules of a flow's path again, whatever is believed to stand."""
        route.unsure |= route.standing.keys()
        self._lay(route)

    def remove(self, route: Route) -> None:
        """Forget a flow and delete its rules."""
        for switch in list(route.standing):
            self._delete(route, switch)
        self.forget(route)

    def forget(self, route: Route) -> None:
        """Forget a flow whose rules end by themselves."""
        route.plan += 1
        if route.placed.reserved_until_s == math.inf:
            self._reservations.pop(route.path, None)
        self.routes.remove(route)
        self.forgotten(route)

    def adopt(self, key: FlowKey, placed: Placed, number: int, standing: Mapping[str, int], now: float) -> Route:
        """Take over a flow whose rules a controller before this one laid."""
        route = Route(
            number, placed, flow_matches(key, self._hosts), now, "found in the switches", standing=dict(standing)
        )
        route.laid_s = now
        self.routes.add(route)
        if placed.reserved_until_s > now:
            self._reservations[placed.path] = placed.reserved_until_s
        return route

    def rules_at(self, route: Route, switch: str, now: float) -> list[Rule]:
        """Return the rules that a flow has in a switch: the first switch's end it, the others' a little later."""
        settings = self._settings
        is_first = route.path[0].node == switch
        reserve_s = route.placed.reserved_until_s - route.placed.since_s if route.placed.reserved_until_s else 0.0
        value = cookie(Kind.FLOW, route.number, max(reserve_s, 0.0))
        margin = 0 if is_first else settings.margin_s
        # What is laid again is not to live longer for it.
        age_s = int(min(max(now - route.placed.since_s, 0.0), settings.hard_s - 1)) if settings.hard_s else 0
        idle_s = settings.idle_s + margin if settings.idle_s else 0
        hard_s = settings.hard_s - age_s + margin if settings.hard_s else 0
        out = (route.standing[switch],)
        return [
            Rule(match, priority, value, out, idle_s, hard_s, notify=is_first and number == 0)
            for number, (match, priority) in enumerate(route.matches)
        ]

    def _number(self) -> int:
        while self.routes.numbered(number := next(self._numbers) % 0xFFFF_FFFF + 1) is not None:
            pass
        return number

    def _chosen(self, flow: Flow, now: float) -> Placement | None:
        paths = self.picture.paths.between(flow.key.source, flow.key.destination)
        if not paths:
            return None
        strategy = self._strategy_of(flow.profile)
        try:
            placement = strategy.place(flow, paths, self.view(now))
        except Exception as error:  # a plug-in's mistake must not stop the network
            self._outbox.say("strategy failed", f"{strategy.name} failed, so the first path is taken: {error!r}")
            return Placement(paths[0], reason=f"{strategy.name} failed")
        if placement.path not in paths:
            self._outbox.say("strategy failed", f"{strategy.name} chose no shortest path; the first is taken")
            return Placement(paths[0], reason=f"{strategy.name} chose no shortest path")
        return placement

    def _placed(self, flow: Flow, placement: Placement, now: float) -> Placed:
        until_s = now + placement.reserve_s if placement.reserve_s else 0.0
        if until_s:
            self._reservations[placement.path] = max(until_s, self._reservations.get(placement.path, 0.0))
        return Placed(flow, placement.path, now, until_s)

    def _reserved(self, now: float) -> Mapping[Path, float]:
        over = [path for path, until_s in self._reservations.items() if until_s <= now]
        for path in over:
            del self._reservations[path]
        return self._reservations

    def _lay(self, route: Route, is_broken: bool = False) -> None:
        """Plan a flow's path from what stands, and begin."""
        route.plan += 1
        route.unsure |= route.waiting
        standing = {switch: 0 if switch in route.unsure else port for switch, port in route.standing.items()}
        route.stages, route.waiting, route.laid_s = stages(route.path, standing | route.stood_in), set(), None
        if (
            is_broken
            and route.stages
            and not route.unsure
            and not can_loop(route.path, route.standing, self.picture.paths.network.peers)
        ):
            route.stages = [[hop for stage in route.stages for hop in stage]]
        self._outbox.at(0.0, partial(self._go_on, route, route.plan))

    def _go_on(self, route: Route, plan: int, now: float) -> None:
        """Send the next stage of a plan, or finish it."""
        if plan != route.plan or route.waiting:
            return
        if not route.stages:
            route.laid_s = now
            if route.standing.keys() - {hop.node for hop in route.path}:
                self._outbox.at(now + self._settings.drain_s, partial(self._drain, route, plan))
            return
        stage = route.stages.pop(0)
        route.waiting = {hop.node for hop in stage}
        for hop in stage:
            self.lay_at(route, hop, now)
            self._outbox.when_confirmed(hop.node, partial(self._confirmed, route, plan, hop.node))

    def lay_at(self, route: Route, hop: Port, now: float) -> None:
        """Send a flow's rules to one switch of its path."""
        route.standing[hop.node] = hop.number
        route.unsure.add(hop.node)
        for rule in self.rules_at(route, hop.node, now):
            self._outbox.send(hop.node, SetRule(rule))

    def _confirmed(self, route: Route, plan: int, switch: str, done: bool) -> None:
        # What is not confirmed stays so until the switch connects again, or its links are given up.
        if plan != route.plan or not done:
            return
        route.unsure.discard(switch)
        route.waiting.discard(switch)
        if not route.waiting:
            self._outbox.at(0.0, partial(self._go_on, route, plan))

    def _drain(self, route: Route, plan: int, _now: float) -> None:
        """Delete the rules that a moved flow left behind; nothing is under way to them any more."""
        if plan != route.plan:
            return
        for switch in route.standing.keys() - {hop.node for hop in route.path}:
            self._delete(route, switch)
            del route.standing[switch]
            route.unsure.discard(switch)
            self.routes.forget(route, switch)

    def _delete(self, route: Route, switch: str) -> None:
        for rule in self.rules_at(route, switch, 0.0):
            self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie, NUMBER_MASK))
