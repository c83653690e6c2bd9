# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Who leads a pair: two elections, switches with roles by OpenFlow 1.3, faults of all kinds, simulated time."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from barewire.sdn.controller import election as module
from barewire.sdn.controller.election import BEAT_S, LISTEN_S, SILENT_S, TERM_MAX, Change, Election
from barewire.sdn.openflow.messages import Role, RoleReply, RoleRequest, SwitchError

STEP_S = 0.01
# A takeover, with the last beat and a step of the simulation.
TAKEOVER_S = SILENT_S + BEAT_S + 0.1


def stale(request: RoleRequest) -> SwitchError:
    return SwitchError(11, 0, "role request failed, code 0", request, is_not_master=True)


@dataclass
class RoleSwitch:
    """A switch's roles, as in OpenFlow 1.3.5, 6.3.4 and 7.3.9."""

    roles: dict[str, Role] = field(default_factory=dict)
    generation: int | None = None

    def answer(self, who: str, request: RoleRequest) -> RoleReply | SwitchError:
        if request.role in (Role.MASTER, Role.SLAVE):
            if self.generation is not None and (request.generation - self.generation) % (1 << 64) >= 1 << 63:
                return stale(request)
            self.generation = request.generation
        if request.role is Role.MASTER:
            self.roles = {one: Role.SLAVE if role is Role.MASTER else role for one, role in self.roles.items()}
        if request.role is not Role.NOCHANGE:
            self.roles[who] = request.role
        return RoleReply(self.roles[who], self.generation)

    def masters(self) -> list[str]:
        return [who for who, role in self.roles.items() if role is Role.MASTER]


class Pair:
    """Two controllers and their switches. `cut` are pairs of names that cannot talk."""

    def __init__(self, switches: int = 3, seed: int = 1) -> None:
        print("seed", seed)
        self.random = random.Random(seed)
        self.now = 50.0
        self.switches = {f"s{n}": RoleSwitch() for n in range(1, switches + 1)}
        self.controllers: dict[str, Election] = {}
        self.frozen: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        # Connections over which nothing comes any more, which nobody has noticed.
        self.silent: set[frozenset[str]] = set()
        self.attached: set[tuple[str, str]] = set()
        self.changes: list[tuple[float, str, Change]] = []
        self.heard_s = dict.fromkeys("ab", 0.0)
        # Requests of a frozen controller's socket, which a switch still reads, are none: it sends nothing.

    def start(self, who: str, first: int | None = None) -> None:
        drawn = [] if first is None else [first]
        self.controllers[who] = Election(lambda: drawn.pop() if drawn else self.random.getrandbits(12), self.now)

    def kill(self, who: str) -> None:
        del self.controllers[who]
        self._detach(lambda one, _: one == who)

    def _detach(self, which: Callable[[str, str], bool]) -> None:
        for one, switch in [pair for pair in self.attached if which(*pair)]:
            self.attached.discard((one, switch))
            self.switches[switch].roles.pop(one, None)
            if one in self.controllers:
                self.controllers[one].disconnected(switch)

    def restart_switch(self, name: str) -> None:
        self._detach(lambda _, switch: switch == name)
        self.switches[name] = RoleSwitch()

    def talk(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self.cut

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += STEP_S
            self._connect()
            names = [who for who in self.controllers if who not in self.frozen]
            self.random.shuffle(names)
            for who in names:
                self._turn(who)
            for name, switch in self.switches.items():
                assert len(switch.masters()) <= 1, name

    def _connect(self) -> None:
        self._detach(lambda one, switch: not self.talk(one, switch))
        for who, election in self.controllers.items():
            for name, switch in self.switches.items():
                if (who, name) not in self.attached and self.talk(who, name) and who not in self.frozen:
                    self.attached.add((who, name))
                    switch.roles[who] = Role.EQUAL
                    self._exchange(who, name, election.connected(name))

    def _turn(self, who: str) -> None:
        election, other = self.controllers[who], "b" if who == "a" else "a"
        if self.talk(who, other) and self.now >= self.heard_s[who] + BEAT_S:
            self.heard_s[who] = self.now
            if other not in self.controllers:
                election.peer_refused(self.now)
            elif other not in self.frozen:
                peer = self.controllers[other]
                election.heard(peer.is_leader, peer.generation, peer.answering(self.now), self.now)
        requests = election.poll(self.now)
        for switch, some in requests.items():
            self._exchange(who, switch, some)
        assert election.next_s() > self.now
        self.changes += [(self.now, who, change) for change in election.take_changes()]

    def _exchange(self, who: str, switch: str, requests: list[RoleRequest]) -> None:
        election = self.controllers[who]
        for request in requests if frozenset((who, switch)) not in self.silent else ():
            election.switch_heard(switch, self.now)
            reply = self.switches[switch].answer(who, request)
            if isinstance(reply, RoleReply):
                election.replied(switch, reply, self.now)
            else:
                election.refused(switch, reply, self.now)

    def leaders(self) -> list[str]:
        return [who for who, election in self.controllers.items() if election.is_leader]

    def is_in_charge(self, who: str) -> bool:
        election = self.controllers[who]
        return self.leaders() == [who] and all(
            is_master(election, name) and switch.masters() == [who] for name, switch in self.switches.items()
        )


def is_master(election: Election, switch: str) -> bool:
    """Whether the switch has confirmed that this controller leads."""
    return switch in election._switches and election._switches[switch].role is Role.MASTER


def standing(seed: int = 1) -> Pair:
    """Controller a leads, b stands by."""
    pair = Pair(seed=seed)
    pair.start("a")
    pair.run(LISTEN_S + 1)
    pair.start("b")
    pair.run(LISTEN_S + 1)
    assert pair.is_in_charge("a")
    assert all(switch.roles["b"] is Role.SLAVE for switch in pair.switches.values())
    pair.changes.clear()
    return pair


def test_a_controller_alone_leads_at_once_if_nobody_listens_at_its_peers_address() -> None:
    pair = Pair()
    pair.start("a")
    pair.run(0.5)
    assert pair.is_in_charge("a")


@pytest.mark.parametrize("seed", range(10))
def test_of_two_that_start_together_one_leads(seed: int) -> None:
    pair = Pair(seed=seed)
    for who in "ab":
        pair.start(who)
    pair.run(LISTEN_S + 2)
    assert any(pair.is_in_charge(who) for who in "ab"), pair.changes


@pytest.mark.parametrize("seed", range(10))
def test_two_that_start_together_and_draw_the_same_number_find_one_leader(seed: int) -> None:
    pair = Pair(seed=seed)
    for who in "ab":
        pair.start(who, first=7)
    pair.run(LISTEN_S + 2)
    assert any(pair.is_in_charge(who) for who in "ab"), pair.changes


def test_nothing_changes_while_both_live() -> None:
    pair = standing()
    pair.run(60)
    assert pair.is_in_charge("a") and not pair.changes


@pytest.mark.parametrize("seed", range(5))
def test_the_standby_replaces_a_leader_that_was_killed_and_keeps_the_lead(seed: int) -> None:
    pair = standing(seed)
    for dead, heir in ("ab", "ba") * 3:
        pair.kill(dead)
        pair.run(TAKEOVER_S)
        assert pair.is_in_charge(heir)
        pair.start(dead)
        pair.run(LISTEN_S + 1)
        assert pair.is_in_charge(heir), "the one that comes back stands by"


def test_a_leader_that_freezes_is_replaced_and_says_so_when_it_wakes() -> None:
    pair = standing()
    pair.frozen.add("a")
    pair.run(TAKEOVER_S)
    assert pair.controllers["b"].is_leader and all(s.masters() == ["b"] for s in pair.switches.values())
    pair.frozen.clear()
    pair.run(0.2)
    assert pair.is_in_charge("b")
    (_, who, change) = pair.changes[-1]
    assert who == "a" and not change.is_leader
    assert "refuses our generation" in change.reason or "the peer leads with the newer" in change.reason
    pair.run(30)
    assert pair.is_in_charge("b")


def test_a_frozen_leader_that_wakes_without_its_peer_is_refused_by_a_switch() -> None:
    pair = standing()
    pair.frozen.add("a")
    pair.run(TAKEOVER_S)
    pair.cut.add(frozenset("ab"))
    pair.frozen.clear()
    pair.run(60)
    assert pair.is_in_charge("b"), pair.changes
    assert [who for _, who, _ in pair.changes] == ["b", "a"]
    assert "as stale" in pair.changes[-1][2].reason


def test_a_standby_that_cannot_reach_its_peer_sees_at_the_switches_that_it_leads() -> None:
    pair = standing()
    pair.cut.add(frozenset("ab"))
    pair.run(60)
    assert pair.is_in_charge("a") and not pair.changes
    pair.cut.clear()
    pair.run(1)
    assert pair.is_in_charge("a") and not pair.changes


def test_switches_that_each_reach_one_controller_obey_that_one_until_the_cut_ends() -> None:
    pair = standing()
    pair.cut |= {frozenset("ab"), frozenset(("a", "s1")), frozenset(("b", "s2")), frozenset(("b", "s3"))}
    pair.run(5)
    assert [switch.masters() for switch in pair.switches.values()] == [["b"], ["a"], ["a"]]
    pair.cut.clear()
    pair.run(2)
    assert pair.is_in_charge("b"), "the newer term"
    assert sum(not change.is_leader for _, _, change in pair.changes) == 1


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_a_leader_that_has_lost_all_switches_is_replaced_within_a_second_by_a_standby_that_has_some(how: str) -> None:
    """Their connections are closed, or die without a word."""
    pair = standing()
    getattr(pair, how).update(frozenset(("a", name)) for name in pair.switches)
    pair.run(1)
    assert pair.leaders() == ["b"]
    assert all(switch.masters() == ["b"] for switch in pair.switches.values())


def test_a_leader_stays_while_the_switches_answer_nobody_or_one_of_them_answers_it() -> None:
    pair = standing()
    everywhere = {frozenset((who, name)) for who in "ab" for name in pair.switches}
    for silent in (everywhere, everywhere - {frozenset(("a", "s1"))}, {frozenset(("a", "s1")), frozenset(("a", "s2"))}):
        pair.silent = silent
        pair.run(5)
        pair.silent = set()
        pair.run(1)
        assert pair.is_in_charge("a") and not pair.changes


def test_switches_that_remember_generations_of_earlier_controllers_are_won_back() -> None:
    pair = standing()
    for who in "ab":
        pair.kill(who)
    for switch in pair.switches.values():
        switch.generation = 700 << 44
    pair.cut |= {frozenset(("a", name)) for name in pair.switches}
    pair.start("a")
    pair.run(1)  # it leads without switches, by a term of its own
    pair.cut.clear()
    pair.run(2)
    assert pair.is_in_charge("a")


@pytest.mark.parametrize("generation", [1 << 63, (1 << 63) + 7, (1 << 64) - 2])
def test_a_generation_in_the_upper_half_is_no_leaders_and_stops_nobody(generation: int) -> None:
    election = Election(lambda: 5, 50.0)
    election.connected("s1")
    election.replied("s1", RoleReply(Role.EQUAL, generation), 50.0)
    election.replied("s1", RoleReply(Role.EQUAL, generation + 1), 50.1)
    election.heard(True, generation, 1, 50.1)
    for step in range(1, 301):
        election.poll(50.0 + step * STEP_S)
    assert election.is_leader and election.newest == election.generation


def test_the_last_term_does_not_end_the_elections() -> None:
    pair = Pair()
    for switch in pair.switches.values():
        switch.generation = TERM_MAX << 44
    pair.start("a")
    pair.run(LISTEN_S + 1)
    assert pair.is_in_charge("a"), "the number decides"
    pair.kill("a")
    pair.start("b", first=0)
    pair.run(10)
    assert any(change.is_leader for _, who, change in pair.changes if who == "b"), "it tries other numbers"


def test_a_standby_that_was_not_scheduled_does_not_mistake_its_own_pause_for_its_leaders_silence() -> None:
    pair = standing()
    standby = pair.controllers["b"]
    for pause_s in (0.3, 0.6, 5.0):
        pair.frozen.add("b")
        pair.run(pause_s)
        pair.frozen.clear()
        standby.poll(pair.now)  # a timer is called before what has arrived meanwhile is read
        pair.run(1)
    assert pair.is_in_charge("a") and not pair.changes


def test_a_standby_without_switches_waits_longer() -> None:
    pair = standing()
    pair.cut |= {frozenset(("b", name)) for name in pair.switches}
    pair.run(1)
    pair.frozen.add("a")
    pair.run(1)
    pair.frozen.clear()
    pair.run(1)
    assert pair.is_in_charge("a") and not pair.changes


def test_a_refusal_from_an_earlier_term_is_no_reason_to_step_down() -> None:
    pair = standing()
    leader = pair.controllers["a"]
    leader.refused("s1", stale(RoleRequest(Role.MASTER, leader.generation - (1 << 44))), pair.now)
    assert leader.is_leader
    leader.refused("s1", stale(RoleRequest(Role.MASTER, leader.generation)), pair.now)
    assert not leader.is_leader


def test_changes_that_a_switch_refuses_to_a_slave_end_the_lead() -> None:
    pair = standing()
    leader = pair.controllers["a"]
    leader.refused("s2", SwitchError(1, 10, "bad request, code 10", None, is_not_master=True), pair.now)
    assert not leader.is_leader and "another master" in leader.take_changes()[0].reason


@pytest.mark.parametrize("seed", range(30))
def test_any_faults_end_with_one_leader_and_no_switch_ever_has_two_masters(seed: int) -> None:
    """Random kills, freezes, cuts and restarts of switches; after the last one exactly one leads, and all obey it."""
    pair = Pair(seed=seed)
    for who in "ab":
        pair.start(who)
    for _ in range(30):
        faults: list[Callable[[], object]] = [
            lambda: pair.frozen.symmetric_difference_update({pair.random.choice("ab")}),
            lambda: pair.cut.symmetric_difference_update({frozenset("ab")}),
            lambda: pair.cut.symmetric_difference_update(
                {frozenset((pair.random.choice("ab"), pair.random.choice(list(pair.switches))))}
            ),
            lambda: pair.restart_switch(pair.random.choice(list(pair.switches))),
            lambda: _toggle(pair, pair.random.choice("ab")),
        ]
        pair.random.choice(faults)()
        pair.run(pair.random.choice((0.05, 0.3, 1.0)))
    pair.cut.clear()
    pair.frozen.clear()
    for who in "ab":
        if who not in pair.controllers:
            pair.start(who)
    pair.run(LISTEN_S + 2)
    assert any(pair.is_in_charge(who) for who in "ab"), pair.changes[-5:]
    pair.changes.clear()
    pair.run(10)
    assert not pair.changes


def _toggle(pair: Pair, who: str) -> None:
    if who in pair.controllers:
        pair.kill(who)
    else:
        pair.start(who)


def test_the_simulation_finds_a_leader_that_does_not_step_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: the checks above must be able to fail."""
    monkeypatch.setattr(module.Election, "_step_down", lambda self, reason, now: None)
    pair = standing()
    pair.frozen.add("a")
    pair.run(TAKEOVER_S)
    pair.frozen.clear()
    pair.run(2)
    assert sorted(pair.leaders()) == ["a", "b"]
