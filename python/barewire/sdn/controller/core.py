# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller without sockets: messages of switches and `now` in, messages for switches and a deadline out.

session ─▶ handle(switch, event, now) ─▶ discovery, reception, router, reconciliation, statistics
        ◀─ poll(now) ─▶ {switch: messages}, next_s(now), events
"""

import contextlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from barewire.sdn.classify.classifier import Classification, FlowCounters, classify
from barewire.sdn.classify.jobs import Job, Jobs, Merged
from barewire.sdn.classify.model import Model
from barewire.sdn.classify.policy import Policy
from barewire.sdn.classify.recognition import Evaluation, Recognition
from barewire.sdn.classify.tenants import Tenants
from barewire.sdn.coflow import Coflow, Turns, takes_turns
from barewire.sdn.controller.default_path import DefaultPath
from barewire.sdn.controller.discovery import Discovery
from barewire.sdn.controller.full_tables import FullTables
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.labels import LabelTables
from barewire.sdn.controller.outbox import Event, HasTime, Outbox
from barewire.sdn.controller.reception import Reception
from barewire.sdn.controller.reconciliation import Reconciliation
from barewire.sdn.controller.router import Rearrangement, Router
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.rules import KIND_MASK, OURS_MASK, Kind, cookie, kind_of, number_of
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.slices import PERIOD_S as SLICES_PERIOD_S
from barewire.sdn.controller.slices import Slices
from barewire.sdn.controller.statistics import PortRates
from barewire.sdn.flow import DEFAULT_PROFILE, FlowKey, Pattern
from barewire.sdn.openflow.messages import (
    AddRule,
    BarrierReply,
    FromSwitch,
    MeterCounters,
    PacketIn,
    PortCounters,
    PortList,
    PortState,
    PortStatus,
    Request,
    RequestKind,
    RuleCounter,
    RuleCounters,
    RuleList,
    RuleRemoved,
    SetMeter,
    SwitchDown,
    SwitchError,
    SwitchUp,
    ToSwitch,
    Why,
)
from barewire.sdn.strategies import Strategy, named
from barewire.sdn.strategies.load import is_idle
from barewire.sdn.strategies.spray import uses_labels
from barewire.topology import Network, Port
from barewire.topology.network import natural
from barewire.topology.paths import Paths

# Interval of removing stale state, and the age at which a silent unnamed host is removed.
AGE_EVERY_S = 10.0
HOST_FORGOTTEN_S = 600.0
# A flow without a rule in its first switch does not report its end: it counts as ended after this time.
UNINSTALLED_S = 30.0
# Between two steps of recognition, in which waiting messages are handled.
RECOGNISE_PAUSE_S = 0.001
# Flows that are counted, or given rules, at a time: some 1 ms.
FLOWS_MAX = 20

# A flow that is known by these stays so, whatever it carries, until a job comes or goes: then all are classified again.
_UNCOUNTED = ("announced", "signature")

# Work beside the controller, as events name it.
_MERGING, _REARRANGING, _RECOGNISING = "merging patterns", "rearranging flows", "recognising flows"

_NO_PATTERN: Pattern = {}

# Executes work that takes long, beside the controller, then calls the second function with its result and the time.
Run = Callable[[Callable[[], Any], Callable[[Any, float], None], float], None]


def run_at_once(work: Callable[[], Any], then: Callable[[Any, float], None], now: float) -> None:
    """Execute work before returning, for callers without threads."""
    then(work(), now)


class Controller:
    """One network's controller."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        hosts: Hosts,
        key: bytes,
        first: int = 0,
        tenants: Tenants | None = None,
        model: Model | None = None,
    ) -> None:
        """`key` is the secret that authenticates probes; `first` a random number at which flow numbers begin.

        `model` recognises flows that neither announcements nor the policy classify.
        """
        self.settings, self.policy, self.hosts = settings, policy, hosts
        self.jobs = Jobs()
        # By the tenant who announced, None for the operator: tenants have shares, and do not wait for each other.
        self._turns: defaultdict[str | None, Turns] = defaultdict(Turns)
        self.recognition = Recognition(model, settings.flow_statistics_s)
        self.outbox = Outbox()
        self.rates = PortRates()
        self.discovery = Discovery(settings)
        self.router = Router(settings, hosts, self.outbox, self.strategy_of, first)
        self.slices = Slices(tenants or Tenants(), self.discovery, self.jobs, self.outbox)
        self.router.meter_of = self.slices.meter_of
        self.full = FullTables(self.router, hosts, self.outbox)
        self.labels = LabelTables(hosts, self.outbox, self._uses_labels)
        parts = (self.discovery, hosts, self.router, self.full, self.outbox, self.classification_of)
        has_tenants = bool(self.slices.tenants.all)
        self.reception = Reception(settings, key, *parts, self._is_current, has_tenants=has_tenants)
        # Flows of tenants need rules with meters everywhere.
        self.default_path = DefaultPath(settings, self.discovery, hosts, self.outbox, carries_flows=not has_tenants)
        self.router.is_default = self.default_path.carries
        self.reconciliation = Reconciliation(settings, *parts, self.default_path, self.labels, has_tenants=has_tenants)
        self.counts: Counter[str] = Counter()
        self._strategies: dict[str, Strategy] = {}
        self._peers: dict[Port, Port] = {}
        self._hosts_version = -1
        # Ports at which several hosts were found, which was said.
        self._shared: set[Port] = set()
        # Links of disconnected switches that may still forward, kept until their grace period ends; and those that the
        # default path uses.
        self._in_doubt: dict[str, dict[Port, Port]] = {}
        self._default_peers: dict[Port, Port] = {}
        # When a switch was asked for the counters that it has not answered with yet.
        self._requested_s: dict[str, float] = {}
        self._rearranged_s: dict[str, float] = {}
        self._patterns_changed = False
        # Executes plans; replaced by callers that have a thread for them.
        self.run: Run = run_at_once
        # What is being done there: one of _MERGING, _REARRANGING, _RECOGNISING at most once.
        self._at_work: set[str] = set()
        self._plan_is_due = False
        self._merged = Merged()
        # Flows still to be classified again, and whether all are afterwards, since a job has changed meanwhile.
        self._unclassified: Iterator[Route] = iter(())
        self._is_classifying = self._must_classify = False
        self._every(settings.port_statistics_s, self._ask_ports)
        self._every(settings.flow_statistics_s, self._ask_flows)
        self._every(AGE_EVERY_S, self._age)
        if self.slices.tenants.all:
            self._every(SLICES_PERIOD_S, self._ask_meters)

    def handle(self, switch: str, event: FromSwitch, now: float) -> None:
        """Process a message of a switch."""
        match event:
            case PacketIn():
                self.counts["frames"] += 1
                self.reception.frame(switch, event, now)
            case BarrierReply(token):
                self.outbox.confirmed(switch, token)
            case RuleRemoved():
                self._rule_removed(switch, event)
            case SwitchError():
                self._switch_error(switch, event, now)
            case SwitchUp():
                self.outbox.open(switch)
                self._requested_s.pop(switch, None)
                self.slices.forget_switch(switch)
                self.outbox.send(switch, Request(RequestKind.RULES, cookie(Kind.BASE) & OURS_MASK, OURS_MASK))
            case PortList(ports):
                self._port_list(switch, ports, now)
            case RuleList():
                self._refresh(now)
                self.reconciliation.compare(switch, event, now)
                # A switch sends probes up only if it has the base rules.
                self.outbox.when_confirmed(switch, lambda _: self.outbox.send(switch, Request(RequestKind.PORTS)))
            case PortStatus():
                self._port_status(Port(switch, event.port.number), event, now)
            case PortCounters(counters):
                self.rates.counted(switch, counters, now)
            case MeterCounters(counters):
                self.slices.counted(switch, counters, now)
            case RuleCounters(counters):
                self._rule_counters(switch, counters, now)
            case SwitchDown(reason):
                self._switch_down(switch, reason, now)

    @property
    def is_planning(self) -> bool:
        """Whether patterns are being merged, or strategies at work, beside the controller."""
        return not self._at_work.isdisjoint((_MERGING, _REARRANGING))

    def poll(self, now: float, has_time: HasTime = lambda _: True) -> dict[str, list[ToSwitch]]:
        """Process due timers while there is time, and return the pending messages."""
        self.reception.probes(now)
        for job in self.jobs.expire(now):
            self.outbox.emit("job", f"the lease of job {job.id} has expired")
            self.jobs_changed(now)
        self._refresh(now)
        self.reception.place_waiting(now)
        self._plan(now)
        self._rearrange(now)
        self.outbox.due(now, has_time)
        # Timers may have found hosts; frames, their addresses.
        self._refresh(now)
        self.default_path.hosts_changed(now)
        return self.outbox.take()

    def next_s(self, now: float) -> float:
        """Return when to poll again, at the latest."""
        later = (
            self.outbox.next_s(),
            self.jobs.next_s(),
            self.discovery.next_s(),
            *self._next_rearranging(now).values(),
        )
        return min(when for when in later if when is not None)

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self.outbox.events = self.outbox.events, []
        return events

    def classification_of(self, key: FlowKey, carried: FlowCounters | None = None) -> Classification:
        """Classify a flow."""
        return classify(key, self.policy, self.jobs, carried, self.recognition.profile_of(key))

    def strategy_of(self, profile: str) -> Strategy:
        """Return the strategy of a profile."""
        text = self._strategy_name(profile)
        if text not in self._strategies:
            self._strategies[text] = named(text)
        return self._strategies[text]

    def set_strategy(self, profile: str, strategy: str, now: float) -> None:
        """Set a profile's strategy; its flows are soon placed again. WrongUse if there is no such strategy."""
        before = {route: self._strategy_name(route.placed.flow.profile) for route in self.router.routes}
        self.policy = self.policy.with_strategy(profile, strategy)
        self._refresh(now)
        self.labels.update_at(now, self._network_and_edges)
        changed = [route for route, name in before.items() if self._strategy_name(route.placed.flow.profile) != name]
        self.router.replace_all(changed, now)
        self.outbox.emit("policy", f"profile {profile} has strategy {strategy}")

    def jobs_changed(self, now: float) -> None:
        """Handle changed jobs or patterns: soon flows may change their profile or their tenant, and may move."""
        self._plan_is_due = True
        if any(turns.any for turns in self._turns.values()):
            alive = {job.id for job in self.jobs.all}
            for turns in self._turns.values():
                turns.retain(alive)
        self._must_classify = True
        if not self._is_classifying:
            self._is_classifying = True
            self.outbox.at(now, self._classify_next)

    def turn(self, job_id: str, coflow: Coflow | None, now: float) -> bool:
        """Return whether a job may send its coflow now; one that needs no turn (None) may. Renews its lease."""
        self.jobs.renew(job_id, now)
        turns = self._turns_of(job_id)
        if coflow is None:
            turns.end(job_id)
            return True
        turns.want(job_id, coflow, now)
        return job_id in turns.going(now)

    def turn_ended(self, job_id: str, now: float) -> None:
        """A job has sent what it had its turn for. Renews its lease."""
        self.jobs.renew(job_id, now)
        self._turns_of(job_id).end(job_id)

    def takes_turns(self, job: Job) -> bool:
        """Return whether a job waits for its turn: its profile's strategy says so, and it has a pattern."""
        return job.pattern is not None and takes_turns(self.strategy_of(job.profile))

    def labels_of(self, profile: str) -> str | None:
        """Return the VLAN identifiers by which frames of a profile choose their paths; None if they cannot."""
        return self.labels.labels() if uses_labels(self.strategy_of(profile)) else None

    def pattern(self) -> Pattern:
        """Return the current patterns of all jobs together, as far as they have taken effect."""
        patterns = self.router.network_state.patterns
        return patterns[0] if patterns else _NO_PATTERN

    def network(self) -> Network:
        """Return the network as discovered."""
        return self.router.network_state.paths.network

    def announced(self, job: Job) -> None:
        """Emit an event for an announced job."""
        self.outbox.emit("job", f"job {job.id} '{job.name}' of profile {job.profile} on {len(job.hosts)} hosts")

    def _turns_of(self, job_id: str) -> Turns:
        tenant = self.slices.owners.get(job_id)
        return self._turns[None if tenant is None else tenant.name]

    def _classify_next(self, now: float) -> None:
        """Classify a flow again, which may have to be compared with a thousand jobs, then the next one."""
        route = next(self._unclassified, None)
        if route is None:
            self._is_classifying, self._must_classify = self._must_classify, False
            self._unclassified = iter(self.router.routes) if self._is_classifying else iter(())
        if self._is_classifying:
            self.outbox.at(now, self._classify_next)  # also if this flow fails
        if route is not None and self.router.routes.get(route.key) is route:
            age_s = now - route.began_s
            carried = FlowCounters(route.packets, route.bytes, age_s) if route.counted_s else None
            if self.slices.changed(route):
                for switch in route.installed:
                    self._send_rules(route, switch, now)
            self._classify_again(route, self.classification_of(route.key, carried), now)

    def _plan(self, now: float) -> None:
        """Merge the changed patterns, and let strategies prepare; the patterns then take effect. One at a time."""
        if not self._plan_is_due or _MERGING in self._at_work:
            return
        self._plan_is_due = False
        strategies = [self.strategy_of(profile) for profile in self.policy.strategies]
        preparing = [prepare for strategy in strategies if (prepare := getattr(strategy, "prepare", None)) is not None]
        known = self.router.network_state.patterns
        work = partial(_prepared, self._merged, known, self.jobs.patterns, preparing, self.network())
        self._beside(_MERGING, work, self._planned, now)

    def _planned(self, patterns: tuple[Pattern, ...], _now: float) -> None:
        self.router.network_state.patterns = patterns
        self._patterns_changed = True

    def _beside(self, what: str, work: Callable[[], Any], then: Callable[[Any, float], None], now: float) -> None:
        """Execute work beside the controller, then call `then`; if it fails, an event says so instead."""
        self._at_work.add(what)

        def finished(done: Any, now: float) -> None:
            self._at_work.remove(what)
            if isinstance(done, Exception):
                self.outbox.emit("failed", f"{what}: {done!r}")
            else:
                then(done, now)

        self.run(partial(_tried, work), finished, now)

    def _strategy_name(self, profile: str) -> str:
        return self.policy.strategies.get(profile) or self.policy.strategies[DEFAULT_PROFILE]

    def _is_current(self) -> bool:
        return self.discovery.peers is self._peers and self.hosts.version == self._hosts_version

    def _refresh(self, now: float) -> None:
        """Rebuild the network if links or hosts have changed, and re-place flows that lost their path.

        Once a turn, not for each host or link that is found: a large network takes some 10 ms.
        """
        if self._is_current():
            return
        before, peers = self._peers, self.discovery.peers
        for port in peers.keys() - before.keys():
            for host in self.hosts.forget_port(port):
                self.outbox.emit("host", f"{host.name} is not at {port}, which leads to {peers[port]}")
        network = self._network()
        self._peers, self._hosts_version = peers, self.hosts.version
        # Plans are of one network.
        self._plan_is_due |= bool(self.router.network_state.patterns) or _MERGING in self._at_work
        rates = self.rates
        known = self.router.network_state.paths if peers is before else None
        self.router.network_state.paths = Paths(network, known)
        self.router.network_state.load_byte_s, self.router.network_state.received_byte_s = (
            rates.load_byte_s,
            rates.received_byte_s,
        )
        self.reconciliation.try_soon(now)
        self.labels.update_at(now + self.settings.settle_s, self._network_and_edges)
        # Flows over a switch in its grace period are left in place.
        lost = {port for port, peer in before.items() if self._peers.get(port) != peer} - self._doubted().keys()
        # The flows need rules of their own wherever the default path may change by this.
        self._follow_links(now, is_urgent=bool(lost))
        self._re_place(lost, now)
        gained = self._peers.keys() - before.keys()
        if gained:
            # Before the default path uses them.
            self._complete(list(self.router.routes), now)
            self.outbox.emit("links found", _listed(gained))

    def _follow_links(self, now: float, *, is_urgent: bool) -> None:
        """Let the default path use all links that may forward: also those of flows over switches in their grace period,
        whose packets take it where their path has no rule."""
        is_up = self.discovery.is_up
        doubted = {port: peer for port, peer in self._doubted().items() if is_up(port) and is_up(peer)}
        links = doubted | self._peers
        if links != self._default_peers:
            self._default_peers = links
            self.default_path.links_changed(links, now, is_urgent)

    def _complete(self, routes: Collection[Route], now: float) -> None:
        """Install missing rules of flows where the default path may no longer be that of their path."""
        self._in_turns(routes, lambda route: self.router.complete(route, self.default_path.is_only, now), now)

    def _uses_labels(self) -> bool:
        # The rule of a label cannot tell whose a frame is, so it would pass by the tenants' meters.
        return not self.slices.tenants.all and any(
            uses_labels(self.strategy_of(profile)) for profile in self.policy.strategies
        )

    def _network_and_edges(self, now: float) -> tuple[Network, frozenset[str]]:
        return self.network(), frozenset(port.node for port in self.discovery.edge_ports(now))

    def _network(self) -> Network:
        peers = dict(self.discovery.peers)
        hosts = []
        # A network has one host at a port: of several, as behind a bridge, a named one.
        for host in sorted(self.hosts.attached(), key=lambda host: not host.is_named):
            assert host.port is not None
            if not self.discovery.is_connected(host.port.node):
                continue
            if host.port not in peers:
                peers[host.port] = Port(host.name, 1)
                peers[Port(host.name, 1)] = host.port
                hosts.append(host.name)
            elif host.port not in self.discovery.peers and host.port not in self._shared:
                self._shared.add(host.port)
                text = "flows of one are placed, if possible of a named one; those of the others take the default path"
                self.outbox.emit("host", f"several hosts are at {host.port}: {text}")
        switches = [switch for switch in self.discovery.switches if self.discovery.is_connected(switch)]
        rates = {port: rate for port in peers if (rate := self.discovery.rate_bit_s(port)) is not None}
        return Network(tuple(sorted(switches, key=natural)), tuple(sorted(hosts, key=natural)), peers, rates)

    def _re_place(self, lost: Collection[Port], now: float) -> None:
        if lost:
            self.full.links_lost(lost)
            self.router.links_lost(lost, now, partial(self._re_placed, lost))

    def _re_placed(self, lost: Collection[Port], moved: int, without: int) -> None:
        self.outbox.emit("links lost", f"{_listed(lost)}: {moved} flows re-placed, {without} have no path")

    def _port_list(self, switch: str, ports: Iterable[PortState], now: float) -> None:
        links, before = self._in_doubt.pop(switch, {}), self.discovery.ports(switch)
        self.discovery.switch_up(switch, ports, now)
        self.slices.add_meters(switch, lambda: self._meters_added(switch))
        self.default_path.ports_changed(now)
        for port in {host.port for host in self.hosts.attached() if host.port and host.port.node == switch}:
            known = self.discovery.ports(switch).get(port.number)
            is_other = known is not None and known.name != before.get(port.number, known).name
            if is_other:
                self.default_path.forget_edge(port)
            if known is None or not known.is_up or is_other:
                self._detach(port, is_gone=known is None or is_other, now=now)
        self._refresh(now)
        # Links lost while it was disconnected; those to other disconnected switches have their
        # grace period if both ports are up.
        gone = {port: peer for port, peer in links.items() if self._peers.get(port) != peer}
        doubted, is_up = self._doubted(), self.discovery.is_up
        self._re_place({port for port in gone if port not in doubted or not (is_up(port) and is_up(gone[port]))}, now)

    def _doubted(self) -> dict[Port, Port]:
        return {port: peer for links in self._in_doubt.values() for port, peer in links.items()}

    def _port_status(self, port: Port, event: PortStatus, now: float) -> None:
        before = self.discovery.ports(port.node).get(port.number, event.port)
        self.discovery.update_port(port.node, event.port, event.is_gone, now)
        self.slices.add_meters(port.node, lambda: self._meters_added(port.node))
        self.default_path.ports_changed(now)
        is_other = event.port.name != before.name
        if is_other:
            self.default_path.forget_edge(port)
        if event.is_gone or not event.port.is_up or is_other:
            self._detach(port, is_gone=event.is_gone or is_other, now=now)
            self._refresh(now)
            # The other end is a switch in its grace period, so the link is lost.
            peer = self._doubted().get(port)
            if peer is not None:
                self._follow_links(now, is_urgent=True)
                self._re_place({port, peer}, now)

    def _detach(self, port: Port, *, is_gone: bool, now: float) -> None:
        """Detach the hosts of a port that is down, which may come up again unless it `is_gone`."""
        hosts = self.hosts.forget_port(port)
        if not is_gone:
            self.default_path.port_down(port, hosts, now)

    def _switch_down(self, switch: str, reason: str, now: float) -> None:
        self.outbox.close(switch)
        self.outbox.emit("switch lost", f"{switch}: {reason}; its flows stay for {self.settings.switch_grace_s:g} s")
        # Those of other disconnected switches, or of its own earlier connection, are no peers any more.
        known = self._doubted() | self.discovery.peers
        links = {port: peer for port, peer in known.items() if switch in (port.node, peer.node)}
        self._in_doubt[switch] = links
        self.discovery.switch_down(switch, now)
        self.default_path.forget(switch)
        self.reconciliation.forget(switch)
        self.rates.forget(switch)
        self.outbox.at(now + self.settings.switch_grace_s, lambda later: self._give_up(switch, links, later))

    def _give_up(self, switch: str, links: Mapping[Port, Port], now: float) -> None:
        if self._in_doubt.get(switch) is not links:
            return  # it is connected again, or was disconnected again since
        del self._in_doubt[switch]
        self.discovery.forget(switch, now)
        self._refresh(now)
        for route in self.router.routes.at(switch):
            route.installed.pop(switch, None)
            if all(port.node != switch for port in route.path):
                self.router.routes.forget(route, switch)
        at_switch = {port for route in self.router.routes.at(switch) for port in route.path if port.node == switch}
        self._follow_links(now, is_urgent=False)
        self._re_place(at_switch, now)
        self.outbox.emit(
            "switch given up", f"{switch} is still disconnected; flows are routed around it where possible"
        )

    def _rule_removed(self, switch: str, gone: RuleRemoved) -> None:
        """Handle the end of a flow's first rule, by time-out or deletion; the later rules expire by themselves."""
        route = self.router.routes.numbered(number_of(gone.cookie)) if kind_of(gone.cookie) is Kind.FLOW else None
        if route is not None and len(route.matches) > 1 and gone.why is not Why.HARD:
            return  # its other rule may be busy: it has ended once the statistics have neither
        if route is not None and route.path[0].node == switch and not route.is_being_installed:
            self.counts[f"flows ended: {gone.why}"] += 1
            self.router.forget(route)

    def _ask_meters(self, now: float) -> None:
        self.slices.ask({switch for switch in self.discovery.switches if self.router.routes.count_at(switch)}, now)

    def _meters_added(self, switch: str) -> None:
        """Let the rules of flows through a switch refer to its meters."""

        def send(now: float) -> None:
            def send_rules(route: Route) -> None:
                if switch in route.installed:
                    self._send_rules(route, switch, now)

            self._in_turns(self.router.routes.at(switch), send_rules, now)

        self.outbox.at(0.0, send)

    def _send_rules(self, route: Route, switch: str, now: float) -> None:
        for rule in self.router.rules_at(route, switch, now):
            self.outbox.send(switch, AddRule(rule))

    def _switch_error(self, switch: str, refused: SwitchError, now: float) -> None:
        if isinstance(refused.request, SetMeter):
            self.slices.refused(switch, refused)
            return
        if isinstance(refused.request, Request) and refused.request.question is RequestKind.RULE_COUNTERS:
            self._requested_s.pop(switch, None)
        rule = refused.request.rule if isinstance(refused.request, AddRule) else None
        kind = None if rule is None else kind_of(rule.cookie)
        route = self.router.routes.numbered(number_of(rule.cookie)) if rule and kind is Kind.FLOW else None
        if route is not None and refused.is_table_full:
            self.full.refused(route, switch, now)
            return
        if rule is not None and kind in (Kind.BASE, Kind.EDGE, Kind.DEFAULT):
            is_first = self.default_path.refused(switch, rule, refused.is_table_full, now)
            if is_first and kind is Kind.DEFAULT:
                self._complete(self.router.routes.at(switch), now)
            if refused.is_table_full and not is_first:
                return  # it was said of another one
        self.outbox.emit("switch refused", f"{switch} refused {rule or refused.request or 'a message'}: {refused.text}")
        if route is not None:
            self.full.give_up(route, switch, now)
        elif rule is not None and kind is Kind.TO_HOST:
            self.full.aggregate_refused(switch, rule.match.eth_dst or "", now)

    def _ask_ports(self, _now: float) -> None:
        for switch in self.discovery.switches:
            self.outbox.send(switch, Request(RequestKind.PORT_COUNTERS))

    def _ask_flows(self, now: float) -> None:
        self.recognition.forget(now)
        self.outbox.at(now + RECOGNISE_PAUSE_S, self._recognise_all)
        # One after the other, so that their answers do not come at once.
        switches = sorted(self.router.routes.first_switches())
        for number, switch in enumerate(switches):
            delay_s = self.settings.flow_statistics_s * number / len(switches)
            self.outbox.at(now + delay_s, partial(self._ask_flows_of, switch))

    def _ask_flows_of(self, switch: str, now: float) -> None:
        # An answer is judged by when it was asked for. A switch that connects again first gets the rules that it lacks.
        is_ready = self.discovery.is_connected(switch) and not self.reconciliation.is_comparing(switch)
        if switch not in self._requested_s and is_ready:
            self._requested_s[switch] = now
            self.outbox.send(switch, Request(RequestKind.RULE_COUNTERS, cookie(Kind.FLOW) & KIND_MASK, KIND_MASK))

    def _recognise_all(self, now: float) -> None:
        if _RECOGNISING not in self._at_work:
            self._beside(_RECOGNISING, self.recognition.round(now), self._evaluated, now)

    def _evaluated(self, evaluation: Evaluation, now: float) -> None:
        self.recognition.evaluated(evaluation, now)
        self._recognise(now)

    def _recognise(self, now: float) -> None:
        """Judge a few conversations, then let messages pass."""
        changed, more = self.recognition.step(now)
        for key in changed:
            for direction in (key, key.reversed()):
                if (route := self.router.routes.get(direction)) is not None:
                    carried = FlowCounters(route.packets, route.bytes, now - route.began_s)
                    self._classify_again(route, self.classification_of(direction, carried), now)
        if more:
            self.outbox.at(now + RECOGNISE_PAUSE_S, self._recognise)

    def _rule_counters(self, switch: str, counters: Iterable[RuleCounter], now: float) -> None:
        """Update flows' traffic from the counters of their first switch."""
        packets: Counter[int] = Counter()
        carried: Counter[int] = Counter()
        for counter in counters:
            packets[number_of(counter.cookie)] += counter.packets
            carried[number_of(counter.cookie)] += counter.bytes
        requested_s = self._requested_s.pop(switch, 0.0)

        def count(route: Route) -> None:
            if route.path[0].node != switch or switch not in route.installed:
                return
            if route.number in packets:
                self._flow_counted(route, packets[route.number], carried[route.number], now)
            elif route.installed_s is not None and route.installed_s < requested_s:
                self.counts["flows ended unsaid"] += 1
                self.router.forget(route)

        self._in_turns(self.router.routes.at(switch), count, now)

    def _in_turns(self, routes: Collection[Route], act: Callable[[Route], None], now: float) -> None:
        """Let `act` see each flow, a few at a time, except those that have ended meanwhile."""

        def some(left: Iterator[Route], _now: float) -> None:
            for route in itertools.islice(left, FLOWS_MAX):
                if self.router.routes.get(route.key) is route:
                    act(route)

        left = iter(routes)
        for _ in range(0, len(routes), FLOWS_MAX):
            self.outbox.at(now, partial(some, left))

    def _flow_counted(self, route: Route, packets: int, carried: int, now: float) -> None:
        since_s = route.counted_s or route.began_s
        if now > since_s and carried >= route.bytes:
            rate = (carried - route.bytes) / (now - since_s)
            idle = is_idle(rate, now - route.began_s, self.network())
            if (rate, idle) != (route.placed.rate_byte_s, route.placed.is_idle):
                self.router.routes.put(route, replace(route.placed, rate_byte_s=rate, is_idle=idle))
        if packets > route.packets:
            route.seen_s = now
        route.packets, route.bytes, route.counted_s = packets, carried, now
        self.recognition.counted(route.key, packets, carried, route.began_s, now)
        if route.known_by not in _UNCOUNTED:
            counters = FlowCounters(packets, carried, now - route.began_s)
            self._classify_again(route, self.classification_of(route.key, counters), now)

    def _classify_again(self, route: Route, known: Classification, now: float) -> None:
        flow, route.known_by = route.placed.flow, known.by
        if (known.profile, known.volume_bytes) == (flow.profile, flow.volume_bytes):
            return
        if self._strategy_name(known.profile) != self._strategy_name(flow.profile):
            self.router.replace(route, now, known)
            return
        same = replace(flow, profile=known.profile, volume_bytes=known.volume_bytes)
        self.router.move(route, replace(route.placed, flow=same))

    def _rearrange(self, now: float) -> None:
        due = {name for name, at_s in self._next_rearranging(now).items() if self._patterns_changed or now >= at_s}
        if not due:
            return
        self._patterns_changed = False
        self._rearranged_s |= dict.fromkeys(due, now)
        if not len(self.router.routes):
            return
        profiles: defaultdict[str, set[str]] = defaultdict(set)
        for profile in self.router.routes.crossing_of_profiles.keys() | self.policy.strategies.keys():
            profiles[self._strategy_name(profile)].add(profile)
        strategies = [(self._strategies[name], profiles[name]) for name in sorted(due)]
        work = Rearrangement(self.router.view(now).snapshot(), strategies)
        self._beside(_REARRANGING, work, self.router.rearranged, now)

    def _next_rearranging(self, now: float) -> dict[str, float]:
        """When each strategy rearranges next: not while strategies are at work; infinite if only on new patterns."""
        if _REARRANGING in self._at_work:
            return {}
        found = {}
        for profile, name in self.policy.strategies.items():
            period_s = self.strategy_of(profile).period_s
            found[name] = self._rearranged_s.setdefault(name, now) + period_s if period_s else math.inf
        return found

    def _age(self, now: float) -> None:
        self.hosts.age(now - HOST_FORGOTTEN_S, self._hosts_in_use)
        self.reception.age(now)
        self.full.age(now)
        self.default_path.age(now)

        def age(route: Route) -> None:
            if route.path[0].node not in route.installed and route.seen_s < now - UNINSTALLED_S:
                self.router.remove(route)

        self._in_turns(list(self.router.routes), age, now)

    def _hosts_in_use(self) -> set[str]:
        ends = {name for route in self.router.routes for name in (route.key.source, route.key.destination)}
        # Hosts whose frames are labelled are not heard of.
        return ends | set(self.network().hosts) if self.labels.are_installed else ends

    def _every(self, period_s: float, act: Callable[[float], None]) -> None:
        def again(now: float) -> None:
            self.outbox.at(now + period_s, again)  # also if this time fails
            act(now)

        self.outbox.at(0.0, again)


def _tried(work: Callable[[], Any]) -> Any:
    """Return the result of work, or its failure."""
    try:
        return work()
    except Exception as error:
        return error


def _prepared(
    merged: Merged,
    known: tuple[Pattern, ...],
    parts: Mapping[str, Pattern],
    preparing: Collection[Callable[[Network, tuple[Pattern, ...]], None]],
    network: Network,
) -> tuple[Pattern, ...]:
    patterns = merged.update(parts)
    if patterns == known:
        patterns = known  # what strategies remember of it stays valid
    for prepare in preparing:
        # A plug-in's mistake shows, and is reported, when it places flows.
        with contextlib.suppress(Exception):
            prepare(network, patterns)
    return patterns


def _listed(ports: Collection[Port]) -> str:
    some = ", ".join(str(port) for port in sorted(ports)[:8])
    return some + (f" and {len(ports) - 8} more" if len(ports) > 8 else "")
