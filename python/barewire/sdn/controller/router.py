# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Assigns paths to flows; installs, moves and removes their rules in the order of `installation`. No clock, no I/O."""

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from barewire.sdn.classify.classifier import Classification
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.installation import can_loop, stages
from barewire.sdn.controller.outbox import FIRST_S, Outbox
from barewire.sdn.controller.routes import Route, Routes
from barewire.sdn.controller.rules import NUMBER_MASK, Kind, cookie, flow_matches
from barewire.sdn.controller.settings import Settings
from barewire.sdn.flow import Flow, FlowKey, Pattern, Placed, View
from barewire.sdn.openflow.messages import AddRule, DeleteRule, Rule
from barewire.sdn.strategies import Placement, Strategy
from barewire.sdn.strategies.strategy import RESERVE_MAX_S
from barewire.topology import Network, Path, Port
from barewire.topology.paths import Paths

# Flows moved at a time: some 1 ms.
MOVED_MAX = 8
# Flows over a failed link placed again at a time, and twice at once: some 50 ms, so that signs of life are not late.
LOST_MAX = 250


@dataclass
class NetworkState:
    """The controller's knowledge of the network, for views."""

    paths: Paths
    load_byte_s: Mapping[Port, float]
    received_byte_s: Mapping[Port, float]
    patterns: tuple[Pattern, ...] = ()


StrategyOf = Callable[[str], Strategy]
# Whether packets to a host leave a switch through this port without a rule of their flow, too.
IsDefault = Callable[[Port, str], bool]
# A strategy, and the paths that it wants for some of its flows, or its failure.
Rearranged = tuple[Strategy, Mapping[FlowKey, Path] | Exception]


@dataclass(frozen=True)
class Rearrangement:
    """The work of strategies that rearrange their flows: takes long, and may be done in another thread.

    `strategies` are those that are due, with their profiles.
    """

    view: View
    strategies: Collection[tuple[Strategy, Collection[str]]]

    def __call__(self) -> list[Rearranged]:
        """Let each strategy decide on its own flows."""
        found: list[Rearranged] = []
        for strategy, profiles in self.strategies:
            fixed = frozenset(key for key, placed in self.view.placed.items() if placed.flow.profile not in profiles)
            try:
                paths = strategy.rearrange(replace(self.view, fixed=fixed))
                found.append((strategy, {key: path for key, path in paths.items() if key not in fixed}))
            except Exception as error:  # a plug-in's mistake must not stop the network
                found.append((strategy, error))
        return found


class Router:
    """Maps flows to paths, and paths to rules."""

    def __init__(self, settings: Settings, hosts: Hosts, outbox: Outbox, strategy_of: StrategyOf, first: int) -> None:
        """Begin without flows; numbers start at `first`, so that they differ from an earlier controller's."""
        self.routes = Routes()
        self.network_state = NetworkState(Paths(Network((), (), {})), {}, {})
        self._settings, self._hosts, self._outbox = settings, hosts, outbox
        self._strategy_of = strategy_of
        self._numbers = itertools.count(first)
        # Flows that strategies have rearranged and that have not moved yet: their paths and the strategy.
        self._wanted: dict[FlowKey, tuple[Path, Strategy]] = {}
        self._is_moving = False
        # Flows still to be placed again, of each event.
        self._to_replace: list[deque[Route]] = []
        # Called with each removed flow, and with each moved one when no packets follow its old path any more.
        self.forgotten: Callable[[Route], None] = lambda _: None
        self.drained: Callable[[Route], None] = lambda _: None
        # Returns the meter of a flow's rule that sends to a port.
        self.meter_of: Callable[[Route, Port], int | None] = lambda _route, _port: None
        self.is_default: IsDefault = lambda _port, _host: False

    @property
    def moving(self) -> int:
        """The number of flows that have not begun to move, or have not been placed again."""
        return len(self._wanted) + sum(map(len, self._to_replace))

    def view(self, now: float) -> View:
        """Return the strategies' view at this time."""
        network_state, reservations = self.network_state, self.routes.reservations
        reservations.expire(now)
        return View(
            network_state.paths.network,
            now,
            self.routes.placed,
            network_state.load_byte_s,
            network_state.received_byte_s,
            network_state.patterns,
            self.routes.crossing,
            self.routes.crossing_of_profiles,
            reservations=reservations.paths,
            reserved=reservations.switches,
        )

    def place(self, key: FlowKey, known: Classification, identification: int, now: float) -> Route | None:
        """Place a new flow and begin to install its rules; None if there is no path between its hosts."""
        flow = Flow(key, known.profile, identification, known.volume_bytes)
        placement = self._chosen(flow, now)
        if placement is None:
            return None
        placed = self._placed(flow, placement, now)
        route = Route(self._number(), placed, flow_matches(key, self._hosts), now, now, placement.reason, known.by)
        self.routes.add(route)
        self._install(route)
        return route

    def replace(self, route: Route, now: float, known: Classification | None = None, is_broken: bool = False) -> bool:
        """Place a flow again by its strategy; False if there is no path and it was removed."""
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
        """Give a flow another path, or only another profile or rate; without stages if its old path is broken."""
        changed = placed.path != route.path
        self.routes.put(route, placed)
        if changed:
            self._reserve(placed)
            self._install(route, is_broken)

    def rearranged(self, wanted: Iterable[Rearranged], now: float) -> None:
        """Move flows soon to the paths that strategies want."""
        for strategy, paths in wanted:
            if isinstance(paths, Exception):
                self._outbox.emit("strategy failed", f"{strategy.name} failed to rearrange, so flows stay: {paths!r}")
            else:  # looked at one by one only when they move: they may be thousands
                self._wanted.update(zip(paths, zip(paths.values(), itertools.repeat(strategy)), strict=True))
        if not self._is_moving:
            self._move_some(now)

    def _move_some(self, now: float) -> None:
        """Move flows to the paths that strategies want for them, a few at a time."""
        try:
            for key in list(itertools.islice(self._wanted, MOVED_MAX)):
                self._move_wanted(key, *self._wanted.pop(key))
        finally:  # also if one of them fails
            self._is_moving = bool(self._wanted)
            if self._is_moving:
                self._outbox.at(now, self._move_some)

    def _move_wanted(self, key: FlowKey, path: Path, strategy: Strategy) -> None:
        route = self.routes.get(key)
        # It may have ended meanwhile, or have another strategy.
        if route is None or self._strategy_of(route.placed.flow.profile) is not strategy:
            return
        try:
            if path == route.path:
                return
            leads = self.network_state.paths.leads(key.source, key.destination, path)
        except Exception:  # a plug-in's mistake: something else than a path
            leads = False
        if leads:
            route.why = f"rearranged by {strategy.name}"
            self.move(route, replace(route.placed, path=path))
        else:
            self._outbox.emit("strategy failed", f"{strategy.name} chose no path for {key}; the flow stays")

    def links_lost(self, lost: Collection[Port], now: float, then: Callable[[int, int], None]) -> None:
        """Re-place all flows over lost ports; `then` gets their number, and the number without a path."""
        affected = {route for port in lost for route in self.routes.over(port)}
        self.replace_all(sorted(affected, key=lambda route: route.number), now, frozenset(lost), then)

    def replace_all(
        self,
        routes: Iterable[Route],
        now: float,
        lost: frozenset[Port] = frozenset(),
        then: Callable[[int, int], None] = lambda _moved, _without: None,
    ) -> None:
        """Place flows again by their strategies, a few at a time; those over `lost` ports first, without stages."""
        left, counts = deque(routes), Counter[bool]()

        def replace_some(now: float) -> None:
            try:
                for _ in range(min(len(left), LOST_MAX if lost else MOVED_MAX)):
                    route = left.popleft()
                    # It may have ended meanwhile, or moved away from the ports.
                    if self.routes.get(route.key) is route and not (lost and lost.isdisjoint(route.path)):
                        counts[self.replace(route, now, is_broken=bool(lost))] += 1
            finally:  # also if one of them fails
                if left:
                    self._outbox.at(FIRST_S if lost else now, replace_some)
                else:
                    self._to_replace.remove(left)
                    then(counts[True], counts[False])

        self._to_replace.append(left)
        replace_some(now)

    def reinstall(self, route: Route) -> None:
        """Install all rules of a flow's path again."""
        route.unconfirmed |= route.installed.keys()
        self._install(route)

    def complete(self, route: Route, is_default: IsDefault, now: float) -> None:
        """Install the missing rules of a flow if the default path leaves its path where it has none.

        If that is because there is a shorter path now, the flow is placed again.
        """
        key, has_rule = route.key, route.installed.keys() | route.aggregated.keys()
        missing = [hop for hop in route.path if hop.node not in has_rule]
        if all(is_default(hop, key.destination) for hop in missing):
            return
        paths = self.network_state.paths.between(key.source, key.destination)
        if paths and len(paths[0]) < len(route.path):
            self.replace(route, now)
        else:
            self._install(route)

    def remove(self, route: Route) -> None:
        """Remove a flow and delete its rules."""
        for switch in list(route.installed):
            self._delete(route, switch)
        self.forget(route)

    def forget(self, route: Route) -> None:
        """Remove a flow whose rules expire by themselves."""
        route.plan += 1
        self.routes.remove(route)
        self.forgotten(route)

    def adopt(self, key: FlowKey, placed: Placed, number: int, installed: Mapping[str, int], now: float) -> Route:
        """Add a flow with rules installed by an earlier controller."""
        matches, why = flow_matches(key, self._hosts), "found in the switches"
        route = Route(number, placed, matches, placed.since_s, now, why, installed=dict(installed), installed_s=now)
        self.routes.add(route)
        self._reserve(placed)
        return route

    def rules_at(self, route: Route, switch: str, now: float) -> list[Rule]:
        """Return a flow's rules in a switch: those of the first switch expire first, the others slightly later."""
        settings = self._settings
        is_first = route.path[0].node == switch
        reserve_s = route.placed.reserved_until_s - route.placed.since_s if route.placed.reserved_until_s else 0.0
        value = cookie(Kind.FLOW, route.number, max(reserve_s, 0.0))
        margin = 0 if is_first else settings.margin_s
        # Reinstalled rules keep their expiry.
        age_s = int(min(max(now - route.placed.since_s, 0.0), settings.hard_s - 1)) if settings.hard_s else 0
        idle_s = settings.idle_s + margin if settings.idle_s else 0
        hard_s = settings.hard_s - age_s + margin if settings.hard_s else 0
        out = (route.installed[switch],)
        meter = self.meter_of(route, Port(switch, route.installed[switch]))
        return [
            Rule(match, priority, value, out, idle_s, hard_s, notify=is_first, meter=meter)
            for match, priority in route.matches
        ]

    def _number(self) -> int:
        while self.routes.numbered(number := next(self._numbers) % 0xFFFF_FFFF + 1) is not None:
            pass
        return number

    def _chosen(self, flow: Flow, now: float) -> Placement | None:
        paths = self.network_state.paths.between(flow.key.source, flow.key.destination)
        if not paths:
            return None
        strategy = self._strategy_of(flow.profile)
        try:
            placement = strategy.place(flow, paths, self.view(now))
            leads = self.network_state.paths.leads(flow.key.source, flow.key.destination, placement.path)
            can_reserve = 0 <= placement.reserve_s <= RESERVE_MAX_S or placement.reserve_s == math.inf
        except Exception as error:  # a plug-in's mistake must not stop the network
            self._outbox.emit("strategy failed", f"{strategy.name} failed, so the first path is used: {error!r}")
            return Placement(paths[0], reason=f"{strategy.name} failed")
        if not leads:
            self._outbox.emit("strategy failed", f"{strategy.name} chose no path; the first shortest is used")
            return Placement(paths[0], reason=f"{strategy.name} chose no path")
        if not can_reserve:
            text = f"{strategy.name} reserved a path for {placement.reserve_s} s, which is neither from 0 to"
            self._outbox.emit("strategy failed", f"{text} {RESERVE_MAX_S} nor infinite; nothing is reserved")
            return Placement(placement.path, reason=placement.reason)
        return placement

    def _placed(self, flow: Flow, placement: Placement, now: float) -> Placed:
        placed = Placed(flow, placement.path, now, now + placement.reserve_s if placement.reserve_s else 0.0)
        self._reserve(placed)
        return placed

    def _reserve(self, placed: Placed) -> None:
        """Reserve a flow's path beyond its end; an endless reservation is the flow's own, and goes with it."""
        if 0 < placed.reserved_until_s < math.inf:
            self.routes.reservations.add(placed.path, placed.reserved_until_s)

    def _install(self, route: Route, is_broken: bool = False) -> None:
        """Plan the stages from the installed rules, and begin."""
        route.plan += 1
        route.unconfirmed |= route.waiting
        # The first switch always has a rule, which counts the flow and notices its end.
        default = {hop.node: hop.number for hop in route.path[1:] if self.is_default(hop, route.key.destination)}
        installed = {switch: 0 if switch in route.unconfirmed else port for switch, port in route.installed.items()}
        known = default | installed | route.aggregated
        route.stages, route.waiting, route.installed_s = stages(route.path, known), set(), None
        # A new flow has no other rules: its packets take the default path wherever one is missing.
        is_new = not route.installed and not route.aggregated
        peers = self.network_state.paths.network.peers
        needs_no_order = is_new or (is_broken and not can_loop(route.path, route.installed, peers))
        if needs_no_order and route.stages and not route.unconfirmed:
            route.stages = [[hop for stage in route.stages for hop in stage]]
        self._outbox.at(0.0, partial(self._advance, route, route.plan))

    def _advance(self, route: Route, plan: int, now: float) -> None:
        """Send the next stage of a plan, or finish it."""
        if plan != route.plan or route.waiting:
            return
        if not route.stages:
            route.installed_s = now
            old = itertools.starmap(Port, (*route.installed.items(), *route.aggregated.items()))
            if not set(old).issubset(route.path):
                self._outbox.at(now + self._settings.drain_s, partial(self._drain, route, plan))
            return
        stage = route.stages.pop(0)
        route.waiting = {hop.node for hop in stage}
        for hop in stage:
            self.install_at(route, hop, now)
            self._outbox.when_confirmed(hop.node, partial(self._confirmed, route, plan, hop.node))

    def install_at(self, route: Route, hop: Port, now: float) -> None:
        """Send a flow's rules to one switch of its path."""
        route.installed[hop.node] = hop.number
        route.unconfirmed.add(hop.node)
        for rule in self.rules_at(route, hop.node, now):
            self._outbox.send(hop.node, AddRule(rule))

    def _confirmed(self, route: Route, plan: int, switch: str, done: bool) -> None:
        # Unconfirmed until the switch connects again, or its links are given up.
        if plan != route.plan or not done:
            return
        route.unconfirmed.discard(switch)
        route.waiting.discard(switch)
        if not route.waiting:
            self._outbox.at(0.0, partial(self._advance, route, plan))

    def _drain(self, route: Route, plan: int, _now: float) -> None:
        """Delete the old rules of a moved flow after its packets have drained."""
        if plan != route.plan:
            return
        for switch in route.installed.keys() - {hop.node for hop in route.path}:
            self._delete(route, switch)
            del route.installed[switch]
            route.unconfirmed.discard(switch)
            self.routes.forget(route, switch)
        self.drained(route)

    def _delete(self, route: Route, switch: str) -> None:
        for rule in self.rules_at(route, switch, 0.0):
            self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie, NUMBER_MASK))
