# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The order and the limits of the controller's timers and messages."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import pytest

from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import FIRST_S, Outbox
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import BUSY_TIMERS_S, TIMERS_S, Shell
from barewire.sdn.openflow.messages import (
    BarrierReply,
    FromSwitch,
    PacketIn,
    PacketOut,
    PortList,
    PortState,
    PortStatus,
    RuleList,
    SwitchUp,
    ToSwitch,
)
from barewire.topology import Port


def test_long_work_is_spread_over_turns_and_delays_nothing_that_is_urgent() -> None:
    outbox = Outbox()
    done: list[str] = []
    for number in range(3):
        outbox.at(1.0 + number, lambda _now, name=f"slice {number}": done.append(name))
        outbox.at(0.0, lambda _now, name=f"urgent {number}": done.append(name))
    outbox.at(9.0, lambda _now: done.append("later"))

    outbox.due(5.0, lambda _: False)
    assert done == ["urgent 0", "urgent 1", "urgent 2", "slice 0"]
    assert outbox.next_s() == 2.0, "the rest is due at once"
    outbox.due(5.0, lambda _: False)
    outbox.due(5.0, lambda _: True)
    assert done[4:] == ["slice 1", "slice 2"]
    assert outbox.next_s() == 9.0


def test_what_comes_first_goes_before_older_work_and_what_it_begins_is_sent_in_the_same_turn() -> None:
    outbox = Outbox()
    done: list[str] = []

    def first(_now: float) -> None:
        done.append("first")
        outbox.at(0.0, lambda _now: done.append("begun"))

    outbox.at(1.0, lambda _now: done.append("older"))
    outbox.at(FIRST_S, first)
    outbox.due(5.0, lambda _: False)
    assert done == ["first", "begun"]
    outbox.due(5.0, lambda _: False)
    assert done[2:] == ["older"]


def test_only_urgent_timers_use_the_time_that_is_left_for_them() -> None:
    outbox = Outbox()
    done: list[str] = []
    for name, when_s in (("first", FIRST_S), ("second", FIRST_S), ("statistics", 1.0), ("age", 2.0)):
        outbox.at(when_s, lambda _now, name=name: done.append(name))
    outbox.due(5.0, lambda is_urgent: is_urgent)
    assert done == ["first", "second", "statistics"]


@pytest.mark.parametrize(
    ("is_busy", "when_s", "work_s", "least", "most"),
    [
        (True, 1.0, 0.0, 10, 1000),
        (True, 1.0, 0.3 * BUSY_TIMERS_S, 1, 4),
        (True, 1.0, 2 * BUSY_TIMERS_S, 1, 1),
        (True, FIRST_S, 0.3 * TIMERS_S, 2, 4),
        (False, 1.0, 0.3 * TIMERS_S, 2, 4),
    ],
)
def test_while_messages_wait_timers_that_are_not_urgent_have_little_time_but_some(
    is_busy: bool, when_s: float, work_s: float, least: int, most: int
) -> None:
    """A flow is classified in microseconds: one in each turn would take minutes for all."""
    done: list[float] = []

    def act(now: float) -> None:
        done.append(now)
        end_s = time.thread_time() + work_s
        while time.thread_time() < end_s:
            pass

    async def turn() -> int:
        shell = Shell(Settings(), Policy(), Hosts(), [], lambda _: None)
        shell.turn()  # its own periodic timers
        for _ in range(1000):
            shell.core.outbox.at(when_s, act)
        if is_busy:
            message: Any = object(), BarrierReply(1)
            shell._waiting.append(message)
        done.clear()
        shell.turn()
        await shell.close()
        return len(done)

    found = [asyncio.run(turn()) for _ in range(5)]  # the collector may take one turn's time
    assert max(found) >= least and min(found) >= 1 and max(found) <= most


class Line:
    """A switch's channel."""

    def __init__(self) -> None:
        self.sent: list[ToSwitch] = []

    def send(self, messages: Iterable[ToSwitch]) -> None:
        self.sent += messages


def test_probes_and_failed_links_wait_for_no_new_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of new flows at once take seconds, in which all links would count as failed."""
    monkeypatch.setattr("barewire.sdn.controller.shell.MESSAGES_S", 0.001)

    async def scenario() -> None:
        shell = Shell(Settings(), Policy(), Hosts(), [], lambda _: None)
        lines: list[Any] = [Line(), Line()]
        for number, line in enumerate(lines, start=1):
            ports = PortList((PortState(1, "p1", True), PortState(2, "p2", True)))
            shell._heard(line, [SwitchUp(number), RuleList((), ()), ports])
        shell._turn_with_messages()
        probes = [next(message for message in line.sent if isinstance(message, PacketOut)) for line in lines]
        flows: list[FromSwitch] = [PacketIn(2, bytes(64))] * 5000
        for line, probe in zip(lines, reversed(probes), strict=True):
            assert probe.out == (1,)
            shell._heard(line, [*flows, PacketIn(1, probe.frame)])
        shell._turn_with_messages()
        assert shell.core.discovery.peers == {Port("s1", 1): Port("s2", 1), Port("s2", 1): Port("s1", 1)}
        shell._heard(lines[0], [*flows, PortStatus(PortState(1, "p1", False))])
        shell._turn_with_messages()
        assert not shell.core.discovery.peers
        assert len(shell._waiting) > 10_000
        await shell.close()

    asyncio.run(scenario())
