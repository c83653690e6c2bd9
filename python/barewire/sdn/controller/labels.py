# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Installs the rules of labels: for each host, what its frames with each label take, in every switch. No clock, no I/O.

They depend on the network only, not on flows, have no time-outs, and stay when the controller ends. When the network
changes, changed rules are deleted everywhere before new ones are installed, because a mixture could loop frames, which
have no hop limit. Meanwhile labelled frames match the rules of flows, or take the default path.
"""

from collections.abc import Callable
from functools import partial

from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Outbox
from barewire.sdn.controller.rules import LABEL_FIRST, label_rules, last_label_rule
from barewire.sdn.openflow.messages import AddRule, DeleteRule, Match, Rule
from barewire.sdn.strategies.labels import Labels
from barewire.topology import Network

# The rules of one switch, by match.
_Table = dict[Match, Rule]


class LabelTables:
    """The intended rules of labels, by switch; none unless a strategy uses labels."""

    def __init__(self, hosts: Hosts, outbox: Outbox, is_wanted: Callable[[], bool]) -> None:
        """`is_wanted` tells whether a strategy in force uses labels."""
        self._hosts, self._outbox, self._is_wanted = hosts, outbox, is_wanted
        self._tables: dict[str, _Table] = {}
        # What the switches were told of it so far, and those that have not confirmed deletions.
        self._sent: dict[str, _Table] = {}
        self._deleting: set[str] = set()
        self._count = 1
        self._plan = 0
        self._due = 0
        self._is_due = False
        self._waiting: set[str] = set()

    @property
    def are_installed(self) -> bool:
        """Whether there are rules of labels."""
        return bool(self._tables)

    @property
    def is_being_installed(self) -> bool:
        """Whether an update is due, or not confirmed yet."""
        return self._is_due or bool(self._waiting)

    def update_at(self, when_s: float, network_of: Callable[[float], tuple[Network, frozenset[str]]]) -> None:
        """Update at a time, unless called again before; `network_of` returns the network then, and its edges."""
        self._due += 1
        self._is_due = self._is_wanted() or self.are_installed
        self._outbox.at(when_s, partial(self._update_if, self._due, network_of))

    def _update_if(self, due: int, network_of: Callable[[float], tuple[Network, frozenset[str]]], now: float) -> None:
        if due == self._due:
            self._is_due = False
            self.update(*network_of(now))

    def update(self, network: Network, edges: frozenset[str]) -> None:
        """Bring all tables in line with the network; `edges` are the switches to which hosts may be attached."""
        labels = Labels(network, edges) if self._is_wanted() else None
        wanted = {} if labels is None else self._intended(network, labels)
        self._count = 1 if labels is None else labels.count
        if wanted == self._tables:
            return
        self._tables = wanted
        self._plan += 1
        for switch, sent in self._sent.items():
            for rule in _without(sent, wanted.get(switch, {})):
                del sent[rule.match]
                self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie))
                self._deleting.add(switch)
        self._after(self._deleting, self._install)

    def rules_at(self, switch: str) -> list[Rule]:
        """Return the intended rules of a switch."""
        return list(self._tables.get(switch, {}).values())

    def has(self, switch: str, match: Match) -> bool:
        """Return whether a switch is to have a rule with this match."""
        return match in self._tables.get(switch, {})

    def labels(self) -> str | None:
        """Return the VLAN identifiers of the labels, as `3840-3843`; None if there are fewer than two paths."""
        return f"{LABEL_FIRST}-{LABEL_FIRST + self._count - 1}" if self._count > 1 else None

    def _install(self) -> None:
        self._deleting = set()
        new = {switch: _without(table, self._sent.get(switch, {})) for switch, table in self._tables.items()}
        for switch, rules in new.items():
            for rule in rules:
                self._outbox.send(switch, AddRule(rule))
        self._sent = {switch: dict(table) for switch, table in self._tables.items()}
        self._after({switch for switch, rules in new.items() if rules}, lambda: None)

    def _after(self, switches: set[str], act: Callable[[], None]) -> None:
        """Act once these switches have executed all messages so far, or are gone."""
        plan, self._waiting = self._plan, set(switches)

        def confirmed(switch: str, _done: bool) -> None:
            if plan != self._plan:
                return
            self._waiting.discard(switch)
            if not self._waiting:
                self._outbox.at(0.0, lambda _: act() if plan == self._plan else None)

        if not switches:
            act()
        for switch in switches:
            self._outbox.when_confirmed(switch, partial(confirmed, switch))

    def _intended(self, network: Network, labels: Labels) -> dict[str, _Table]:
        tables: dict[str, _Table] = {}
        for name in network.hosts:
            host = self._hosts.by_name[name]
            if host.port is None:
                continue
            self._add(tables, host.port.node, [last_label_rule(host.mac, host.port.number)])
            for switch, choice in labels.towards(host.port.node).items():
                self._add(tables, switch, label_rules(host.mac, choice, labels.count))
        return tables

    @staticmethod
    def _add(tables: dict[str, _Table], switch: str, rules: list[Rule]) -> None:
        tables.setdefault(switch, {}).update({rule.match: rule for rule in rules})


def _without(table: _Table, other: _Table) -> list[Rule]:
    """Return the rules of a table that are not in the other."""
    return [rule for match, rule in table.items() if other.get(match) != rule]
