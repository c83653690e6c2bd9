# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Rules by which the switches forward without a controller: the default path of all frames without a flow rule.

    table 0   a flow's own rule ─▶ its path
              (edge port) ─▶ a copy to the controller, then table 1       the controller learns, and places new flows
              (other ports) ─▶ table 1
    table 1   (destination) ─▶ next hop of a shortest path                one for each destination, by its MAC address
              (ARP request or solicitation for a known address) ─▶ only to its owner
              (all else) ─▶ flooded along a spanning tree

They have no time-outs, so they outlive the controller. Every next hop is nearer to the destination, as in the paths of
flows, so a frame that takes rules of both kinds cannot loop. Where only one next hop is nearer, as on all ways down a
fat-tree, it is also that of every path, and flows need no rule of their own. No clock, no I/O.
"""

import itertools
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial

from barewire.sdn.controller.default_rules import DefaultRules, Place, mac_of, place_of
from barewire.sdn.controller.discovery import Discovery
from barewire.sdn.controller.hosts import Address, Host, Hosts
from barewire.sdn.controller.outbox import Outbox
from barewire.sdn.controller.rules import (
    DEFAULT_TABLE,
    PRIORITY_ASKED,
    Kind,
    asked_match,
    asked_of,
    asked_rule,
    destination_rule,
    edge_rules,
    flood_rule,
    kind_of,
)
from barewire.sdn.controller.settings import Settings
from barewire.sdn.openflow.messages import AddRule, DeleteRule, Rule
from barewire.topology import Port
from barewire.topology.network import natural

# New links usually come in groups, such as those of a switch that connects: the rules follow after this time.
QUIET_S = 0.3
# Rules computed at a time, some 5 ms; the next slice begins after the pause.
SLICE_RULES = 500
SLICE_S = 0.001
# Rules that a full table had no room for are installed again after this time, doubled by each further refusal.
AGAIN_S, AGAIN_MAX_S = 1.0, 8.0

# Rules to the hosts of a port that is down stay for this time, in which a host restarts: else all that is sent to them
# would be flooded. Whoever moves elsewhere meanwhile usually says so; after this time it is found without.
DOWN_S = 60.0

_Hops = Mapping[str, tuple[tuple[int, ...], int]]


class DefaultPath:
    """Keeps the default rules of all switches as the network requires, by sending the differences."""

    def __init__(
        self, settings: Settings, discovery: Discovery, hosts: Hosts, outbox: Outbox, *, carries_flows: bool = True
    ) -> None:
        """Begin without links. Without `carries_flows`, flows need rules of their own everywhere."""
        self._carries_flows = carries_flows
        self._settings, self._discovery, self._hosts, self._outbox = settings, discovery, hosts, outbox
        self._rules = DefaultRules()
        # Ports that were edges for an earlier controller. A port whose link is not found yet looks like one, too.
        self._found_edges: set[Port] = set()
        # By switch, found rules to hosts at such a port, which are still to be learnt.
        self._to_learn: dict[str, list[Rule]] = {}
        self._peers: Mapping[Port, Port] = {}
        # By destination switch: each switch's next hops, and the number of choices that remain after them.
        self._hops: dict[str, _Hops] = {}
        # Hosts that have changed, then switches of hosts, whose rules are still to be installed.
        self._changed: dict[str, None] = {}
        self._pending: dict[str, None] = {}
        # By MAC address, hosts whose port is down, with the port and since when.
        self._down: dict[str, tuple[Port, float]] = {}
        self._due_s: float | None = None
        # When the next slice is due, and when all but the rules to hosts were installed.
        self._slice_s = self._installed_s = 0.0
        self._tree: dict[str, set[int]] = {}
        # By switch, the number of flood rules with fewer ports that it has not confirmed.
        self._shrinking: Counter[str] = Counter()
        self._began_s: float | None = None
        # Switches that have refused a rule to a host since they connected, for another reason than a full table.
        self._refused: set[str] = set()
        # By switch and table, rules that it had no room for, and how long they wait for some; until there is room for
        # all of them.
        self._without_room: dict[tuple[str, int], dict[Place, Rule]] = {}
        self._wait_s: dict[tuple[str, int], float] = {}

    def found(self, switch: str, rules: Iterable[Rule], now: float) -> None:
        """Take over the default rules of a switch that has connected."""
        if self._began_s is None:
            self._began_s = now
            self._outbox.at(now + self._settings.orphans_s, self._install_others)
        self._refused.discard(switch)
        for table in (0, DEFAULT_TABLE):
            self._without_room.pop((switch, table), None)
            self._wait_s.pop((switch, table), None)
        self._rules.begin(switch, rules)
        found = self._rules.all(switch)
        for rule in filter(is_outdated, found):
            self._delete(switch, rule)
        edges = {number for rule in found if (number := rule.match.in_port) is not None}
        self._found_edges = {port for port in self._found_edges if port.node != switch}
        self._found_edges |= {Port(switch, number) for number in edges}
        to_hosts = [rule for rule in found if mac_of(rule) is not None and not is_outdated(rule)]
        self._to_learn[switch] = [rule for rule in to_hosts if rule.out[0] in edges]
        if found and not self._discovery.ports(switch):
            # An earlier controller had it, and perhaps neighbours that connect later.
            self._discovery.expect_edges(switch, edges, self._began_s + self._settings.orphans_s)
        self._all_pending()
        self._work_at(now + QUIET_S, now)

    def was_edge(self, port: Port) -> bool:
        """Return whether an earlier controller, or this one, knew that a port led to no switch."""
        return port in self._found_edges

    def forget_edge(self, port: Port) -> None:
        """Learn no hosts from the rules to a port whose number means another port now."""
        self._found_edges.discard(port)

    def carries(self, hop: Port, host: str) -> bool:
        """Return whether all that a switch sends to a host leaves through this port, without rules of flows."""
        # Hosts that have changed in this turn are taken at its end.
        changes = self._hosts.has_changed or self._changed or self._pending
        return self._due_s is None and not changes and hop.node in self._rules and self.is_only(hop, host)

    def is_only(self, hop: Port, host: str) -> bool:
        """Return whether no other port of a switch is on a shortest path to a host."""
        known = self._hosts.by_name.get(host)
        if not self._carries_flows or self._lacks_rules(hop.node) or known is None or known.port is None:
            return False
        if hop.node == known.port.node:
            return hop == known.port
        ports, _ = self._hops_to(known.port.node).get(hop.node, ((), 1))
        return ports == (hop.number,)

    def installed_port(self, switch: str, mac: str) -> int | None:
        """Return the output port of a switch's rule to a host, None without one."""
        rule = self._rules.at(switch, place_of(destination_rule(mac, 0)))
        return None if rule is None else rule.out[0]

    def refused(self, switch: str, rule: Rule, is_table_full: bool, now: float) -> bool:
        """Handle a switch that refused a base, edge or default rule; return whether it is the first one.

        What a full table had no room for is installed again later. While a switch lacks default rules, flows need rules
        of their own there: until there is room for all, or after another refusal until it connects again.
        """
        is_default = rule.table == DEFAULT_TABLE
        is_first = not self._lacks_rules(switch) if is_default else (switch, rule.table) not in self._wait_s
        if is_default:
            self._rules.remove(switch, rule)
        if is_table_full:
            self._wait_for_room(switch, rule, now)
        elif is_default:
            self._refused.add(switch)
        return is_first

    def forget(self, switch: str) -> None:
        """Forget the rules of a disconnected switch, which reports them when it connects again."""
        self._rules.forget(switch)
        self._to_learn.pop(switch, None)

    def port_down(self, port: Port, hosts: Iterable[Host], now: float) -> None:
        """Keep the rules to hosts whose port went down, in case it comes up again soon."""
        self._down |= {host.mac: (port, now) for host in hosts}
        self._outbox.at(now + DOWN_S, self._stay_down)

    def links_changed(self, peers: Mapping[Port, Port], now: float, is_urgent: bool) -> None:
        """Follow new links after a while, or at once if links have failed (`is_urgent`)."""
        self._peers, self._hops = peers, {}
        self._up_no_more(mac for mac, (port, _) in self._down.items() if port in peers)
        self._all_pending()
        self._work_at(now if is_urgent else now + QUIET_S, now)

    def hosts_changed(self, now: float) -> None:
        """Follow hosts that were attached, detached or got an address; at once unless links are changing.

        Called at the end of each turn, which installs the next slice of rules.
        """
        if self._due_s is None or self._due_s <= now:
            self._work(now)

    def ports_changed(self, now: float) -> None:
        """Follow ports that came up, once it is known where they lead."""
        when_s = now + self._settings.settle_s + 0.01
        self._outbox.at(when_s, partial(self._settled, when_s))

    def age(self, now: float) -> None:
        """Delete rules to hosts that an earlier controller knew, and that have not been seen since."""
        if self._began_s is None or now < self._began_s + self._settings.orphans_s:
            return
        self._changed.update(dict.fromkeys(mac for mac in self._rules.hosts if mac not in self._hosts.by_mac))

    def _lacks_rules(self, switch: str) -> bool:
        return switch in self._refused or (switch, DEFAULT_TABLE) in self._wait_s

    def _stay_down(self, now: float) -> None:
        self._up_no_more(mac for mac, (_, since_s) in self._down.items() if now >= since_s + DOWN_S)

    def _up_no_more(self, macs: Iterable[str]) -> None:
        """Delete the rules to hosts that have not come up at their port."""
        for mac in list(macs):
            del self._down[mac]
            self._changed[mac] = None

    def _settled(self, due_s: float, now: float) -> None:
        if due_s > self._installed_s:  # when many ports come up, most are done with an earlier one
            self._install_others(now)

    def _all_pending(self) -> None:
        self._pending = {host.port.node: None for host in self._hosts.attached() if host.port is not None}

    def _work_at(self, when_s: float, now: float) -> None:
        """Begin at this time, and no longer at an earlier or later one; what is due is not put off."""
        if self._due_s is None or self._due_s > now:
            self._due_s = when_s
            self._outbox.at(when_s, self._due)

    def _due(self, now: float) -> None:
        if self._due_s is not None and now >= self._due_s:
            self._due_s = None
            self._install_others(now)

    def _work(self, now: float) -> None:
        """Install rules to changed hosts, then to all hosts of pending switches, a slice at a time."""
        for mac, address in self._hosts.take_lost():
            self._delete_asked(mac, address)
        self._changed.update(dict.fromkeys(self._hosts.take_changed()))
        rules = 0
        while self._changed and rules < SLICE_RULES:
            mac = next(iter(self._changed))
            del self._changed[mac]
            host = self._hosts.by_mac.get(mac)
            if host is not None and host.port is None and mac in self._down:
                continue
            self._down.pop(mac, None)
            if host is None or host.port is None:
                rules += self._delete_host(mac)
            else:
                rules += self._install_host(host, self._rules)
        while self._pending and rules < SLICE_RULES:
            switch = next(iter(self._pending))
            del self._pending[switch]
            rules += sum(self._install_host(host, self._rules) for host in self._hosts.at_switch(switch))
        if (self._changed or self._pending) and self._slice_s <= now:
            self._slice_s = now + SLICE_S
            self._outbox.at(self._slice_s, lambda _: None)  # for another turn

    def _install_others(self, now: float) -> None:
        """Install all but the rules to hosts, which the end of this turn begins with."""
        self._installed_s = now
        self._take_over_hosts(now)
        self._install_edges(now)
        self._install_trees(now)

    # Rules to hosts

    def _install_host(self, host: Host, switches: Iterable[str]) -> int:
        """Install the rules of switches to one host; return how many they are."""
        assert host.port is not None
        wanted = 0
        for switch, hop in self._next_hops(host, switches):
            rules = [destination_rule(host.mac, hop)]
            rules += [asked_rule(address, host.mac, hop) for address in host.addresses]
            for rule in rules:
                self._install(switch, rule)
            wanted += len(rules)
        return wanted

    def _next_hops(self, host: Host, switches: Iterable[str]) -> Iterator[tuple[str, int]]:
        """The output port towards a host at each of the switches that has a path.

        Destinations are spread over equal next hops by their MAC addresses as numbers: of those that are numbered in
        sequence, as in a lab, every link carries equally many (D-mod-k).
        """
        assert host.port is not None
        end = host.port.node
        toward = self._hops_to(end)
        number = int(host.mac.replace(":", ""), 16)
        for switch in switches:
            if switch == end:
                yield switch, host.port.number
            elif (hops := toward.get(switch)) is not None:
                ports, later = hops
                yield switch, ports[number // later % len(ports)]

    def _hops_to(self, end: str) -> _Hops:
        if end not in self._hops:
            self._hops[end] = next_hops(self._peers, end)
        return self._hops[end]

    def _delete_host(self, mac: str) -> int:
        """Delete the rules to a host; return how many they were."""
        found = self._rules.to_host(mac)
        for switch, rule in found:
            self._delete(switch, rule)
        return len(found)

    def _delete_asked(self, mac: str, address: Address) -> None:
        """Delete the rules of an address that a host has lost, unless another one has it, whose rules replace them."""
        owner = self._hosts.with_address(address.ip, address.vlan)
        if owner is not None and owner.port is not None:
            return
        place = (DEFAULT_TABLE, asked_match(address), PRIORITY_ASKED)
        for switch in self._rules:
            rule = self._rules.at(switch, place)
            if rule is not None and rule.set_eth_dst == mac:
                self._delete(switch, rule)

    def _take_over_hosts(self, now: float) -> None:
        """Learn hosts without a frame: where they are expected, and from an earlier controller's rules."""
        edges = set(self._discovery.edge_ports(now))
        for mac, port in self._hosts.expected.items():
            if port in edges and ((host := self._hosts.by_mac.get(mac)) is None or host.port is None):
                self._hosts.learn(mac, port, now)
        for mac, (port, _) in self._down.items():
            if port in edges and (host := self._hosts.by_mac.get(mac)) is not None and host.port is None:
                self._hosts.learn(mac, port, now)
        edges &= self._found_edges
        for switch, rules in self._to_learn.items():
            self._to_learn[switch] = [rule for rule in rules if not self._learnt(switch, rule, edges, now)]

    def _learnt(self, switch: str, rule: Rule, edges: Container[Port], now: float) -> bool:
        """Learn a host from a found rule if its port is an edge; return whether nothing is to be learnt any more."""
        if self._rules.at(switch, place_of(rule)) != rule:
            return True  # it is there no more: the host was not seen for long, or is elsewhere
        owner, port = mac_of(rule), Port(switch, rule.out[0])
        if owner is None or port not in edges:
            return False
        known = self._hosts.by_mac.get(owner)
        is_placed = known is not None and known.port is not None
        host, address = known if is_placed else self._hosts.learn(owner, port, now), asked_of(rule)
        if host is not None and address is not None and address not in host.addresses:
            self._hosts.learn_address(host, address, now)
        return host is not None

    # Ports

    def _install_edges(self, now: float) -> None:
        """Install the rules that copy frames to the controller at edge ports, and delete those of other ports."""
        for port in self._discovery.edge_ports(now):
            if port.node in self._rules:
                for rule in edge_rules(port.number):
                    self._install(port.node, rule)
        for switch in self._rules:
            # Until it has said which ports it has, none of them is gone.
            ports = self._discovery.ports(switch) if self._discovery.is_connected(switch) else None
            for rule in self._rules.copies(switch):
                in_port = rule.match.in_port or 0
                is_gone = ports is not None and in_port not in ports
                if is_gone or self._discovery.is_between_switches(Port(switch, in_port)):
                    self._delete(switch, rule)

    def _install_trees(self, now: float) -> None:
        """Install the spanning tree: all switches first stop using links that leave it, then use those that join it.

        So there is no loop at any time in which a broadcast would circulate.
        """
        wanted = {switch: set(ports) for switch, ports in spanning_tree(self._peers, self._rules).items()}
        for port in self._discovery.edge_ports(now):
            if port.node in wanted:
                wanted[port.node].add(port.number)
        self._tree = wanted
        for switch, ports in wanted.items():
            if self._flooded(switch) - ports:
                self._install(switch, flood_rule(self._flooded(switch) & ports))
                self._shrinking[switch] += 1
                self._outbox.when_confirmed(switch, partial(self._shrunk, switch))
        self._grow()

    def _shrunk(self, switch: str, _is_done: bool) -> None:
        # A switch that disconnects gets no more frames along the tree, whatever its own rule says.
        self._shrinking[switch] -= 1
        self._shrinking += Counter()  # without zeros
        self._grow()

    def _grow(self) -> None:
        """Install the whole tree once all switches, also of earlier trees, have stopped using links that leave it."""
        if self._shrinking:
            return
        for switch, ports in self._tree.items():
            if switch in self._rules:
                self._install(switch, flood_rule(ports))

    def _flooded(self, switch: str) -> set[int]:
        rule = self._rules.at(switch, place_of(flood_rule(())))
        return set() if rule is None else set(rule.out)

    # Single rules

    def _install(self, switch: str, rule: Rule) -> None:
        if self._rules.put(switch, rule):
            self._outbox.send(switch, AddRule(rule))

    def _wait_for_room(self, switch: str, rule: Rule, now: float) -> None:
        key = switch, rule.table
        waiting = self._without_room.setdefault(key, {})
        if not waiting:
            self._wait_s[key] = min(2 * self._wait_s[key], AGAIN_MAX_S) if key in self._wait_s else AGAIN_S
            self._outbox.at(now + self._wait_s[key], partial(self._install_again, key, waiting))
        waiting[place_of(rule)] = rule

    def _install_again(self, key: tuple[str, int], rules: Mapping[Place, Rule], _now: float) -> None:
        """Install what a full table had no room for, as far as it is still wanted, a slice at a time."""
        if self._without_room.get(key) is not rules:
            return  # the switch has connected again since, and what it refuses now has its own time
        del self._without_room[key]
        (switch, table), waiting = key, iter(rules.items())
        for place, rule in itertools.islice(waiting, SLICE_RULES):
            if table == DEFAULT_TABLE:
                self._install_wanted(switch, rule)
            elif kind_of(rule.cookie) is Kind.BASE or self._rules.at(switch, place) == rule:
                self._outbox.send(switch, AddRule(rule))
        self._outbox.when_confirmed(switch, partial(self._installed_again, key, dict(waiting)))

    def _install_wanted(self, switch: str, refused: Rule) -> None:
        """Install the rules that a switch is to have now instead of a refused one: hosts and links may have changed."""
        mac = mac_of(refused)
        host = None if mac is None else self._hosts.by_mac.get(mac)
        if mac is None:
            self._grow()
        elif host is not None and host.port is not None:
            self._install_host(host, (switch,))

    def _installed_again(self, key: tuple[str, int], later: dict[Place, Rule], is_done: bool) -> None:
        if (waiting := self._without_room.get(key)) is not None:  # refused again
            refused = dict(waiting)
            waiting.clear()
            waiting.update(later | refused)
        elif later and is_done:
            self._without_room[key] = later
            self._outbox.at(0.0, partial(self._install_again, key, later))
        elif is_done:
            self._wait_s.pop(key, None)

    def _delete(self, switch: str, rule: Rule) -> None:
        self._rules.remove(switch, rule)
        self._outbox.send(switch, DeleteRule(rule.match, rule.priority, rule.cookie, table=rule.table))


def is_default(rule: Rule) -> bool:
    """Return whether a rule found in a switch is kept here."""
    return kind_of(rule.cookie) in (Kind.DEFAULT, Kind.EDGE)


def is_outdated(rule: Rule) -> bool:
    """Return whether a default rule is for requests in all VLANs alike, as earlier controllers installed them."""
    return rule.match.arp_target is not None and rule.match.vlan is None


def next_hops(peers: Mapping[Port, Port], end: str) -> _Hops:
    """Return each switch's ports on shortest paths to a switch, and the product of the choices after the next hop."""
    ports: dict[str, list[Port]] = {}
    for port in sorted(peers):
        ports.setdefault(port.node, []).append(port)
    distance = {end: 0}
    found: dict[str, tuple[tuple[int, ...], int]] = {end: ((), 1)}
    waiting = deque([end])
    while waiting:
        node = waiting.popleft()
        for port in ports.get(node, ()):
            peer = peers[port].node
            if peer not in distance:
                distance[peer] = distance[node] + 1
                waiting.append(peer)
    for node in sorted(distance, key=lambda node: distance[node]):
        if node != end:
            nearer = [port for port in ports[node] if distance[peers[port].node] == distance[node] - 1]
            following, later = found[peers[nearer[0]].node]
            found[node] = tuple(port.number for port in nearer), later * max(len(following), 1)
    return found


def spanning_tree(peers: Mapping[Port, Port], switches: Iterable[str]) -> dict[str, set[int]]:
    """Return each switch's ports on a spanning tree of shortest paths from the first switch; of parts, one each."""
    ports: dict[str, list[Port]] = {switch: [] for switch in switches}
    for port in sorted(peers):
        if port.node in ports and peers[port].node in ports:
            ports[port.node].append(port)
    tree: dict[str, set[int]] = {switch: set() for switch in ports}
    reached: set[str] = set()
    for root in sorted(ports, key=natural):
        waiting = deque([] if root in reached else [root])
        reached.add(root)
        while waiting:
            for port in ports[waiting.popleft()]:
                peer = peers[port]
                if peer.node not in reached:
                    reached.add(peer.node)
                    waiting.append(peer.node)
                    tree[port.node].add(port.number)
                    tree[peer.node].add(peer.number)
    return tree
