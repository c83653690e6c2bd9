# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The default rules that each switch has, found by their place, by their host, or because they copy a port's frames.

Some hundred switches with a rule for each of a thousand hosts are too many to look through for one host. No I/O.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from barewire.sdn.controller.rules import DEFAULT_TABLE
from barewire.sdn.openflow.messages import Match, Rule

# A rule's identity in a switch: table, match, priority.
Place = tuple[int, Match, int]


class DefaultRules:
    """The rules of the connected switches, which it iterates over by name."""

    def __init__(self) -> None:
        """Begin without switches."""
        self._tables: dict[str, dict[Place, Rule]] = {}
        # By MAC address: at how many switches each of its places is taken by its rule.
        self._places: dict[str, Counter[Place]] = {}
        # By switch, those that copy the frames of a port.
        self._copies: dict[str, dict[Place, Rule]] = {}

    def __iter__(self) -> Iterator[str]:
        """The switches."""
        return iter(self._tables)

    def __contains__(self, switch: str) -> bool:
        """Return whether a switch is connected."""
        return switch in self._tables

    def at(self, switch: str, place: Place) -> Rule | None:
        """Return a switch's rule with this identity."""
        return self._tables.get(switch, {}).get(place)

    def all(self, switch: str) -> list[Rule]:
        """Return all rules of a switch."""
        return list(self._tables.get(switch, {}).values())

    def copies(self, switch: str) -> list[Rule]:
        """Return a switch's rules that copy the frames of a port."""
        return list(self._copies.get(switch, {}).values())

    @property
    def hosts(self) -> Collection[str]:
        """The MAC addresses of the hosts that have rules."""
        return self._places.keys()

    def to_host(self, mac: str) -> list[tuple[str, Rule]]:
        """Return the rules to a host, each with its switch."""
        found: list[tuple[str, Rule]] = []
        for place in self._places.get(mac, ()):
            for switch, table in self._tables.items():
                rule = table.get(place)
                if rule is not None and mac_of(rule) == mac:
                    found.append((switch, rule))
        return found

    def begin(self, switch: str, rules: Iterable[Rule]) -> None:
        """Set all rules of a switch that has connected."""
        self.forget(switch)
        self._tables[switch] = {}
        for rule in rules:
            self.put(switch, rule)

    def forget(self, switch: str) -> None:
        """Forget a switch."""
        for place, rule in self._tables.pop(switch, {}).items():
            self._leave(place, rule)
        self._copies.pop(switch, None)

    def put(self, switch: str, rule: Rule) -> bool:
        """Set a rule; False if the switch has it already, or is not connected."""
        table, place = self._tables.get(switch), place_of(rule)
        before = None if table is None else table.get(place)
        if table is None or before == rule:
            return False
        if before is not None:
            self._leave(place, before)
        table[place] = rule
        if (mac := mac_of(rule)) is not None:
            self._places.setdefault(mac, Counter())[place] += 1
        if rule.match.in_port is not None:
            self._copies.setdefault(switch, {})[place] = rule
        return True

    def remove(self, switch: str, rule: Rule) -> None:
        """Remove the rule with this rule's identity; no effect if there is none."""
        place = place_of(rule)
        if (before := self._tables.get(switch, {}).pop(place, None)) is not None:
            self._leave(place, before)
            self._copies.get(switch, {}).pop(place, None)

    def _leave(self, place: Place, rule: Rule) -> None:
        if (mac := mac_of(rule)) is not None:
            places = self._places[mac]
            places[place] -= 1
            if not places[place]:
                del places[place]
            if not places:
                del self._places[mac]


def place_of(rule: Rule) -> Place:
    """Return a rule's identity."""
    return rule.table, rule.match, rule.priority


def mac_of(rule: Rule) -> str | None:
    """Return the host of a rule of table 1, None if it is for all."""
    if rule.table != DEFAULT_TABLE or len(rule.out) != 1:
        return None
    return rule.set_eth_dst or rule.match.eth_dst
