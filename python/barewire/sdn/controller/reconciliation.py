# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reconciles the table of a switch that connects with its intended contents, and adopts flows of an earlier controller.

No table is cleared. Missing rules are added. Rules of unknown flows are *orphans*: complete paths of them are adopted
as placed flows, the others are deleted after a while. No clock, no I/O.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from barewire.sdn.classify.classifier import Classification, FlowCounters
from barewire.sdn.controller.default_path import DefaultPath, is_default
from barewire.sdn.controller.discovery import Discovery
from barewire.sdn.controller.full_tables import FullTables
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.labels import LabelTables
from barewire.sdn.controller.outbox import FIRST_S, Outbox
from barewire.sdn.controller.router import Router
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.rules import Kind, base_rules, key_of, kind_of, number_of, reserve_of
from barewire.sdn.controller.settings import Settings
from barewire.sdn.flow import Flow, FlowKey, Placed
from barewire.sdn.openflow.messages import AddRule, DeleteRule, Match, Rule, RuleCounter, RuleList
from barewire.topology import Path, Port

# Adoption is tried this long after a new table or link, in which further ones come.
TRY_AFTER_S = 0.1
# Orphans tried, and flows and found rules compared, at a time: some 1 ms.
ADOPTED_MAX, COMPARED_MAX = 10, 20
# Another attempt after this time, doubled by each one without new links or tables in between.
TRY_AGAIN_S, TRY_AGAIN_MAX_S = 0.1, 0.8
# A host is learnt from a label's rule after this time, because ports settle.
LEARN_S = 0.5


@dataclass
class _Orphan:
    """Found rules with one flow number: by switch the output port, the time, and the rules."""

    key: FlowKey
    reserve_s: float
    age_s: float
    # Packets and bytes of its rules in the first switch.
    carried: tuple[int, int] = (0, 0)
    hops: dict[str, int] = field(default_factory=dict)
    rules: dict[str, list[Rule]] = field(default_factory=dict)
    first: str | None = None
    found_s: float = 0.0


@dataclass
class _Comparison:
    """A table that is being compared: its rules of flows by number, and how many were intended and corrected."""

    switch: str
    found: dict[int, list[tuple[Rule, RuleCounter]]] = field(default_factory=dict)
    intended: int = 0
    corrected: int = 0


class Reconciliation:
    """Compares actual with intended tables."""

    def __init__(
        self,
        settings: Settings,
        discovery: Discovery,
        hosts: Hosts,
        router: Router,
        full: FullTables,
        outbox: Outbox,
        classification_of: Callable[[FlowKey, FlowCounters | None], Classification],
        default_path: DefaultPath,
        labels: LabelTables,
        *,
        has_tenants: bool = False,
    ) -> None:
        """Begin without orphans; `classification_of` classifies a flow, by its traffic too."""
        self._has_tenants = has_tenants
        self._default_path = default_path
        self._settings, self._discovery, self._hosts = settings, discovery, hosts
        self._router, self._full, self._outbox, self._classification_of = router, full, outbox, classification_of
        self._labels = labels
        self._comparing: dict[str, _Comparison] = {}
        self._orphans: dict[int, _Orphan] = {}
        self._due_s = math.inf
        self._is_adopting = False
        self._again_s = TRY_AGAIN_S

    def compare(self, switch: str, found: RuleList, now: float) -> None:
        """Reconcile the table of a switch that has just connected: flows a few at a time, all else at once."""
        self._default_path.found(switch, filter(is_default, found.rules), now)
        comparison = _Comparison(switch)
        others: dict[tuple[Match, int], tuple[Rule, RuleCounter]] = {}
        for rule, counter in zip(found.rules, found.counters, strict=True):
            if kind_of(rule.cookie) is Kind.FLOW:
                comparison.found.setdefault(number_of(rule.cookie), []).append((rule, counter))
            elif not is_default(rule):
                others[rule.match, rule.priority] = rule, counter
        for rule in (*base_rules(), *self._full.rules_at(switch), *self._labels.rules_at(switch)):
            installed, _ = others.pop((rule.match, rule.priority), (None, None))
            self._correct(comparison, rule, installed)
        labels = [rule for rule, _ in others.values() if kind_of(rule.cookie) is Kind.LABEL]
        if labels:
            self._keep_labels(switch, labels, now)
        for rule, counter in others.values():
            self._classify_rule(switch, rule, counter, now)
        self._comparing[switch] = comparison
        self._compare_some(comparison, iter(self._router.routes.at(switch)), now)

    def _compare_some(self, comparison: _Comparison, routes: Iterator[Route], now: float) -> None:
        """Give the switch the rules of the next few flows that it lacks, then classify what else was found.

        Before all else that is due, so no orphan is adopted before all its rules are known.
        """
        switch = comparison.switch
        if self._comparing.get(switch) is not comparison:
            return  # it has disconnected, and perhaps connected again
        some = list(itertools.islice(routes, COMPARED_MAX))
        numbers = [] if some else list(itertools.islice(comparison.found, COMPARED_MAX))
        if not some and not numbers:
            del self._comparing[switch]
            text = f"{comparison.intended} rules intended, {comparison.corrected} were installed"
            self._outbox.emit("switch ready", f"{switch}: {text}")
            self.try_soon(now)
            return
        self._outbox.at(FIRST_S, partial(self._compare_some, comparison, routes))  # also if one of these fails
        for route in some:
            if self._router.routes.get(route.key) is route:
                self._compare_flow(comparison, route, now)
            else:
                # It has ended meanwhile: its rules were deleted, or expire.
                comparison.found.pop(route.number, None)
        for number in numbers:
            for rule, counter in comparison.found.pop(number):
                self._classify_rule(switch, rule, counter, now)

    def _compare_flow(self, comparison: _Comparison, route: Route, now: float) -> None:
        switch, numbered = comparison.switch, comparison.found.pop(route.number, ())
        found = {(rule.match, rule.priority): rule for rule, _ in numbered}
        for rule in self._router.rules_at(route, switch, now) if switch in route.installed else ():
            self._correct(comparison, rule, found.pop((rule.match, rule.priority), None))
        for rule in found.values():
            self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie))
        if route.is_being_installed:
            self._router.reinstall(route)
        else:
            self._router.complete(route, partial(self._is_found, switch), now)

    def _correct(self, comparison: _Comparison, intended: Rule, installed: Rule | None) -> None:
        comparison.intended += 1
        if installed is None or not _is_same(installed, intended):
            self._outbox.send(comparison.switch, AddRule(intended))
            comparison.corrected += 1

    def forget(self, switch: str) -> None:
        """Compare no more of the table of a switch that has disconnected; it reports it when it connects again."""
        self._comparing.pop(switch, None)

    def is_comparing(self, switch: str) -> bool:
        """Return whether a switch that has connected does not have all its flows' rules yet."""
        return switch in self._comparing

    def try_soon(self, now: float) -> None:
        """Schedule an adoption attempt after new links or tables."""
        if self._orphans:
            self._again_s = TRY_AGAIN_S
            self._try_at(now + TRY_AFTER_S)

    def _is_found(self, switch: str, hop: Port, host: str) -> bool:
        """Whether a switch that has just connected still has the default rule to a host; others are not asked."""
        mac = self._hosts.by_name[host].mac
        return hop.node != switch or self._default_path.installed_port(switch, mac) == hop.number

    def _classify_rule(self, switch: str, rule: Rule, counter: RuleCounter, now: float) -> None:
        """Classify an unexpected rule: foreign, to be deleted, or an orphan."""
        kind = kind_of(rule.cookie)
        if kind in (None, Kind.DROP, Kind.LABEL):
            return  # foreign, or it expires by itself, or it is kept for now
        key = key_of(rule, self._hosts) if kind is Kind.FLOW and len(rule.out) == 1 else None
        number = number_of(rule.cookie)
        known = self._router.routes.numbered(number)
        if kind is Kind.FLOW and known is not None and switch in known.installed:
            return  # the flow has moved back here while the table was compared
        if key is None or self._router.routes.get(key) is not None or known is not None:
            self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie, table=rule.table))
            return
        orphan = self._orphans.setdefault(number, _Orphan(key, reserve_of(rule.cookie), counter.age_s, found_s=now))
        orphan.hops[switch] = rule.out[0]
        orphan.rules.setdefault(switch, []).append(rule)
        orphan.found_s = now
        if rule.notify:
            # The rules of both matches of an LLC flow are there.
            before = (orphan.age_s, *orphan.carried) if orphan.first == switch else (0.0, 0, 0)
            orphan.first, orphan.age_s = switch, max(before[0], counter.age_s)
            orphan.carried = before[1] + counter.packets, before[2] + counter.bytes

    def _keep_labels(self, switch: str, rules: Sequence[Rule], now: float) -> None:
        """Keep labels' rules of an earlier controller until this one knows the network; learn their hosts' ports."""
        for rule in rules:
            if rule.pops_vlan and rule.out and rule.match.eth_dst is not None:
                self._outbox.at(now + LEARN_S, partial(self._learn, rule.match.eth_dst, Port(switch, rule.out[0])))
        self._outbox.at(now + self._settings.orphans_s, partial(self._delete_labels, switch, rules))

    def _learn(self, mac: str, port: Port, now: float) -> None:
        known = self._hosts.by_mac.get(mac)
        is_edge = self._discovery.is_settled(port, now) and not self._discovery.is_between_switches(port)
        if is_edge and (known is None or known.port is None):
            self._hosts.learn(mac, port, now)

    def _delete_labels(self, switch: str, rules: Iterable[Rule], _now: float) -> None:
        for rule in rules:
            if not self._labels.has(switch, rule.match):
                self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie))

    def _adopt(self, now: float) -> None:
        if now < self._due_s or self._is_adopting:
            return  # it was tried sooner, or is being tried
        self._is_adopting = True
        self._adopt_some(iter(list(self._orphans.items())), Counter(), now)

    def _adopt_some(self, left: Iterator[tuple[int, _Orphan]], counts: Counter[bool], now: float) -> None:
        """Try the next orphans, and the others later in this turn or in the following ones."""
        some = list(itertools.islice(left, ADOPTED_MAX))
        if some:
            self._outbox.at(now, partial(self._adopt_some, left, counts))  # also if one of these fails
            for number, orphan in some:
                self._try(number, orphan, counts, now)
            return
        self._is_adopting, self._due_s = False, math.inf
        if counts:
            text = f"{counts[True]} flows adopted, {counts[False]} stale ones deleted"
            self._outbox.emit("rules taken over", text)
        if self._orphans:
            self._try_at(now + self._again_s)
            self._again_s = min(2 * self._again_s, TRY_AGAIN_MAX_S)

    def _try(self, number: int, orphan: _Orphan, counts: Counter[bool], now: float) -> None:
        """Adopt an orphan, or delete its rules once it is too old; otherwise it waits for another attempt."""
        path, is_free = self._path_of(orphan), self._router.routes.get(orphan.key) is None
        if path is not None and is_free and not self._knows_hosts(orphan, path, now):
            path = None
        if path is None and now < orphan.found_s + self._settings.orphans_s and not self._is_broken(orphan):
            return
        del self._orphans[number]
        is_adopted = path is not None and is_free
        counts[is_adopted] += 1
        if path is None or not is_adopted:
            self._delete(orphan, orphan.hops.keys() - self._standing(orphan.key))
            return
        self._delete(orphan, orphan.hops.keys() - {hop.node for hop in path})
        self._take_over(number, orphan, path, now)

    def _try_at(self, when_s: float) -> None:
        if when_s < self._due_s:
            self._due_s = when_s
            self._outbox.at(when_s, self._adopt)

    def _is_up(self, port: Port) -> bool:
        state = self._discovery.ports(port.node).get(port.number)
        return state is not None and state.is_up

    def _path_of(self, orphan: _Orphan) -> Path | None:
        """The path of an orphan's packets by its rules and the default path, from the first switch to an edge port."""
        path: list[Port] = []
        switch = orphan.first
        while switch is not None and all(hop.node != switch for hop in path):
            number = orphan.hops.get(switch) or self._default_path.installed_port(switch, self._mac(orphan, "eth_dst"))
            if number is None:
                return None
            port = Port(switch, number)
            path.append(port)
            peer = self._discovery.peers.get(port)
            if peer is None:
                return tuple(path) if self._default_path.was_edge(port) and self._is_up(port) else None
            switch = peer.node
        return None

    def _is_broken(self, orphan: _Orphan) -> bool:
        """Whether an orphan's rules lead out of a port that is down, so that no path will be found."""
        states = (self._discovery.ports(switch).get(number) for switch, number in orphan.hops.items())
        return any(state is not None and not state.is_up for state in states)

    def _knows_hosts(self, orphan: _Orphan, path: Path, now: float) -> bool:
        """Add the hosts of an orphan; return whether both are known, which the limits of hosts may prevent."""
        # The path's last port leads to the host, which may not have sent since this controller started.
        self._hosts.learn(self._mac(orphan, "eth_dst"), path[-1], now)
        self._hosts.add_without_port(self._mac(orphan, "eth_src"), now)
        return {orphan.key.source, orphan.key.destination} <= self._hosts.by_name.keys()

    def _take_over(self, number: int, orphan: _Orphan, path: Path, now: float) -> None:
        since_s = now - orphan.age_s
        classification = self._classification_of(orphan.key, FlowCounters(*orphan.carried, orphan.age_s))
        flow = Flow(orphan.key, classification.profile, volume_bytes=classification.volume_bytes)
        until_s = since_s + orphan.reserve_s if orphan.reserve_s else 0.0
        installed = {hop.node: hop.number for hop in path if hop.node in orphan.hops}
        route = self._router.adopt(orphan.key, Placed(flow, path, since_s, until_s), number, installed, now)
        route.known_by = classification.by
        self._correct_meters(route, orphan, now)
        self._router.complete(route, self._default_path.is_only, now)

    def _correct_meters(self, route: Route, orphan: _Orphan, now: float) -> None:
        """Send rules again that refer to other meters than now, since the earlier controller had other tenants."""
        for switch in route.installed:
            meters = {rule.match: rule.meter for rule in orphan.rules[switch]}
            for rule in self._router.rules_at(route, switch, now):
                # With tenants, meters that are not confirmed yet are referred to once they are.
                if rule.meter != meters.get(rule.match) and (rule.meter is not None or not self._has_tenants):
                    self._outbox.send(switch, AddRule(rule))

    def _mac(self, orphan: _Orphan, end: str) -> str:
        mac: str = getattr(next(iter(orphan.rules.values()))[0].match, end)
        return mac

    def _standing(self, key: FlowKey) -> set[str]:
        route = self._router.routes.get(key)
        return set() if route is None else set(route.installed)

    def _delete(self, orphan: _Orphan, switches: Iterable[str]) -> None:
        for switch in switches:
            for rule in orphan.rules[switch]:
                self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie))


def _is_same(installed: Rule, intended: Rule) -> bool:
    """Whether a rule has the intended effect, regardless of its remaining time."""
    return (
        (installed.out, installed.goto) == (intended.out, intended.goto)
        and number_of(installed.cookie) == number_of(intended.cookie)
        and kind_of(installed.cookie) is kind_of(intended.cookie)
        and installed.notify == intended.notify
        and installed.pops_vlan == intended.pops_vlan
    )
