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
from barewire.sdn.controller.rules import NUMBER_MASK, Kind, cookie, flow_matches
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.ways import Way, Ways
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
        self.ways = Ways()
        self.picture = Picture(Paths(Network((), (), {})), {}, {})
        self._settings, self._hosts, self._outbox = settings, hosts, outbox
        self._strategy_of = strategy_of
        self._numbers = itertools.count(first)
        self._reservations: dict[Path, float] = {}
        # Called with each flow that is forgotten.
        self.forgotten: Callable[[Way], None] = lambda _: None

    def view(self, now: float, fixed: frozenset[FlowKey] = frozenset()) -> View:
        """Return what strategies may know now."""
        picture = self.picture
        return View(
            picture.paths.network,
            now,
            self.ways.placed,
            picture.load_byte_s,
            picture.received_byte_s,
            picture.patterns,
            self.ways.crossing,
            fixed,
            self._reserved(now),
        )

    def place(self, key: FlowKey, known: Known, identification: int, now: float) -> Way | None:
        """Give a new flow a path and begin to lay its rules; None if there is no path between its hosts."""
        flow = Flow(key, known.profile, identification, known.volume_bytes)
        placement = self._chosen(flow, now)
        if placement is None:
            return None
        placed = self._placed(flow, placement, now)
        way = Way(self._number(), placed, flow_matches(key, self._hosts), now, placement.reason, known.by)
        self.ways.add(way)
        self._lay(way)
        return way

    def replace(self, way: Way, now: float, known: Known | None = None, is_broken: bool = False) -> bool:
        """Give a placed flow the path that its strategy chooses now; False if there is none and it was removed."""
        flow = way.placed.flow
        if known is not None:
            flow = replace(flow, profile=known.profile, volume_bytes=known.volume_bytes)
            way.known_by = known.by
        self.ways.leave(way)
        placement = self._chosen(flow, now)
        if placement is None:
            self.remove(way)
            return False
        way.why = placement.reason
        self.move(way, replace(self._placed(flow, placement, now), rate_byte_s=way.placed.rate_byte_s), is_broken)
        return True

    def move(self, way: Way, placed: Placed, is_broken: bool = False) -> None:
        """Give a flow another path, or no more than another profile or rate; sooner if its old path is broken."""
        changed = placed.path != way.path
        self.ways.put(way, placed)
        if changed:
            self._lay(way, is_broken)

    def rearrange(self, profiles: Mapping[str, str], names: Collection[str], now: float) -> int:
        """Ask the strategies of these names for better paths, each for its own flows; return how many moved.

        `profiles` is each profile's strategy by name.
        """
        moved = 0
        for name in names:
            mine = {profile for profile, strategy in profiles.items() if strategy == name}
            strategy = self._strategy_of(next(iter(mine)))
            others = frozenset(way.key for way in self.ways if way.placed.flow.profile not in mine)
            try:
                wanted = strategy.rearrange(self.view(now, others))
            except Exception as error:  # a plug-in's mistake must not stop the network
                self._outbox.say("strategy failed", f"{name} failed to rearrange, so flows stay: {error!r}")
                continue
            for key, path in wanted.items():
                way = self.ways.get(key)
                if way is None or key in others or path == way.path:
                    continue
                if path not in self.picture.paths.between(key.source, key.destination):
                    self._outbox.say("strategy failed", f"{name} chose no shortest path for {key}; the flow stays")
                    continue
                way.why = f"rearranged by {name}"
                self.move(way, replace(way.placed, path=path))
                moved += 1
        return moved

    def links_lost(self, lost: Collection[Port], now: float) -> tuple[int, int]:
        """Re-place all flows that leave through ports that are gone; return how many, and how many have no path."""
        affected = {way for port in lost for way in self.ways.over(port)}
        moved = sum(self.replace(way, now, is_broken=True) for way in sorted(affected, key=lambda way: way.number))
        return moved, len(affected) - moved

    def relay(self, way: Way) -> None:
        """Lay all rules of a flow's path again, whatever is believed to stand."""
        way.unsure |= way.standing.keys()
        self._lay(way)

    def remove(self, way: Way) -> None:
        """Forget a flow and delete its rules."""
        for switch in list(way.standing):
            self._delete(way, switch)
        self.forget(way)

    def forget(self, way: Way) -> None:
        """Forget a flow whose rules end by themselves."""
        way.plan += 1
        if way.placed.reserved_until_s == math.inf:
            self._reservations.pop(way.path, None)
        self.ways.remove(way)
        self.forgotten(way)

    def adopt(self, key: FlowKey, placed: Placed, number: int, standing: Mapping[str, int], now: float) -> Way:
        """Take over a flow whose rules a controller before this one laid."""
        way = Way(number, placed, flow_matches(key, self._hosts), now, "found in the switches", standing=dict(standing))
        way.laid_s = now
        self.ways.add(way)
        if placed.reserved_until_s > now:
            self._reservations[placed.path] = placed.reserved_until_s
        return way

    def rules_at(self, way: Way, switch: str, now: float) -> list[Rule]:
        """Return the rules that a flow has in a switch: the first switch's end it, the others' a little later."""
        settings = self._settings
        is_first = way.path[0].node == switch
        reserve_s = way.placed.reserved_until_s - way.placed.since_s if way.placed.reserved_until_s else 0.0
        value = cookie(Kind.FLOW, way.number, max(reserve_s, 0.0))
        margin = 0 if is_first else settings.margin_s
        # What is laid again is not to live longer for it.
        age_s = int(min(max(now - way.placed.since_s, 0.0), settings.hard_s - 1)) if settings.hard_s else 0
        idle_s = settings.idle_s + margin if settings.idle_s else 0
        hard_s = settings.hard_s - age_s + margin if settings.hard_s else 0
        out = (way.standing[switch],)
        return [
            Rule(match, priority, value, out, idle_s, hard_s, notify=is_first and number == 0)
            for number, (match, priority) in enumerate(way.matches)
        ]

    def _number(self) -> int:
        while self.ways.numbered(number := next(self._numbers) % 0xFFFF_FFFF + 1) is not None:
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

    def _lay(self, way: Way, is_broken: bool = False) -> None:
        """Plan a flow's path from what stands, and begin."""
        way.plan += 1
        way.unsure |= way.waiting
        standing = {switch: 0 if switch in way.unsure else port for switch, port in way.standing.items()}
        way.stages, way.waiting, way.laid_s = stages(way.path, standing | way.stood_in), set(), None
        if (
            is_broken
            and way.stages
            and not way.unsure
            and not can_loop(way.path, way.standing, self.picture.paths.network.peers)
        ):
            way.stages = [[hop for stage in way.stages for hop in stage]]
        self._outbox.at(0.0, partial(self._go_on, way, way.plan))

    def _go_on(self, way: Way, plan: int, now: float) -> None:
        """Send the next stage of a plan, or finish it."""
        if plan != way.plan or way.waiting:
            return
        if not way.stages:
            way.laid_s = now
            if way.standing.keys() - {hop.node for hop in way.path}:
                self._outbox.at(now + self._settings.drain_s, partial(self._drain, way, plan))
            return
        stage = way.stages.pop(0)
        way.waiting = {hop.node for hop in stage}
        for hop in stage:
            self.lay_at(way, hop, now)
            self._outbox.when_confirmed(hop.node, partial(self._confirmed, way, plan, hop.node))

    def lay_at(self, way: Way, hop: Port, now: float) -> None:
        """Send a flow's rules to one switch of its path."""
        way.standing[hop.node] = hop.number
        way.unsure.add(hop.node)
        for rule in self.rules_at(way, hop.node, now):
            self._outbox.send(hop.node, SetRule(rule))

    def _confirmed(self, way: Way, plan: int, switch: str, done: bool) -> None:
        # What is not confirmed stays so until the switch connects again, or its links are given up.
        if plan != way.plan or not done:
            return
        way.unsure.discard(switch)
        way.waiting.discard(switch)
        if not way.waiting:
            self._outbox.at(0.0, partial(self._go_on, way, plan))

    def _drain(self, way: Way, plan: int, _now: float) -> None:
        """Delete the rules that a moved flow left behind; nothing is under way to them any more."""
        if plan != way.plan:
            return
        for switch in way.standing.keys() - {hop.node for hop in way.path}:
            self._delete(way, switch)
            del way.standing[switch]
            way.unsure.discard(switch)
            self.ways.forget(way, switch)

    def _delete(self, way: Way, switch: str) -> None:
        for rule in self.rules_at(way, switch, 0.0):
            self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie, NUMBER_MASK))
