# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Mistakes of the controller's own: each ends one piece of work, is reported, and keeps nothing else from going on."""

import asyncio
import threading
from typing import Any

import pytest
from fake_switches import World, acquainted, tcp
from test_sdn_pair import Line

from barewire.sdn.classify import recognition
from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller import core
from barewire.sdn.controller.core import AGE_EVERY_S
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.router import Rearrangement
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import Shell
from barewire.sdn.openflow.messages import BarrierReply, FromSwitch, SwitchUp


@pytest.mark.parametrize(
    ("owner", "name", "said"),
    [
        (core, "_prepared", "merging patterns"),
        (Rearrangement, "__call__", "rearranging flows"),
        (recognition, "_evaluate", "recognising flows"),
    ],
)
def test_work_beside_the_controller_that_fails_is_reported_and_done_the_next_time(
    owner: Any, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = acquainted()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, lambda *_: 1 // 0)
        world.controller.jobs_changed(world.now)
        world.pass_time(3)
    failed = [event.text for event in world.events if event.kind == "failed"]
    assert failed and all(text.startswith(f"{said}: ZeroDivisionError") for text in failed)
    work, done = getattr(owner, name), []
    monkeypatch.setattr(owner, name, lambda *given: done.append(given) or work(*given))
    world.controller.jobs_changed(world.now)
    world.pass_time(3)
    assert done


def test_what_is_done_every_few_seconds_is_done_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    world = acquainted()
    hosts, aged = world.controller.hosts, []
    with monkeypatch.context() as patched:
        patched.setattr(hosts, "age", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            world.pass_time(AGE_EVERY_S)
    monkeypatch.setattr(hosts, "age", lambda *_: aged.append(world.now))
    world.pass_time(AGE_EVERY_S + 1)
    assert aged


def with_flows(monkeypatch: pytest.MonkeyPatch) -> tuple[World, list[Route]]:
    """A network with six flows, which are moved two at a time."""
    monkeypatch.setattr("barewire.sdn.controller.router.MOVED_MAX", 2)
    world = acquainted()
    for number in range(6):
        world.send("h1", tcp("h1", "h16", number, 7))
        world.settle()
    return world, [route for route in world.controller.router.routes if route.key.destination_port == 7]


def test_a_flow_that_cannot_be_placed_again_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, routes = with_flows(monkeypatch)
    router, placed = world.controller.router, []
    replace = router.replace

    def fails(route: Route, *given: Any, **known: Any) -> bool:
        placed.append(route)
        return bool(1 // 0) if route is routes[3] else replace(route, *given, **known)

    monkeypatch.setattr(router, "replace", fails)
    router.replace_all(routes, world.now)
    with pytest.raises(ZeroDivisionError):
        world.settle()
    world.settle()
    assert placed == routes and not router.moving


def test_a_flow_that_cannot_be_moved_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, routes = with_flows(monkeypatch)
    router = world.controller.router
    move, path = router.move, router.network_state.paths.between("h1", "h16")[-1]
    assert not any(route.path == path for route in routes)
    monkeypatch.setattr(router, "move", lambda route, to: 1 // 0 if route is routes[2] else move(route, to))
    strategy = world.controller.strategy_of("default")
    router.rearranged([(strategy, {route.key: path for route in routes})], world.now)
    with pytest.raises(ZeroDivisionError):
        world.settle()
    world.settle()
    assert [route for route in routes if route.path != path] == [routes[2]]
    monkeypatch.undo()
    router.rearranged([(strategy, {routes[2].key: path})], world.now)
    assert routes[2].path == path, "later ones are moved as ever"


def test_a_message_that_cannot_be_handled_is_reported_and_the_next_one_is_handled() -> None:
    events: list[Event] = []
    handled: list[FromSwitch] = []

    def handle(_switch: str, event: FromSwitch, _now: float) -> None:
        handled.append(event)
        if event == BarrierReply(1):
            raise ZeroDivisionError("a mistake")

    async def run() -> None:
        shell = Shell(Settings(), Policy(), Hosts(), [], events.append)
        await shell.open()
        line: Any = Line()
        shell._heard(line, [SwitchUp(1)])
        shell.core.handle = handle  # type: ignore[method-assign]
        shell._heard(line, [BarrierReply(1), BarrierReply(2)])
        for _ in range(3):
            await asyncio.sleep(0)
        assert handled == [BarrierReply(1), BarrierReply(2)]
        await shell.close()

    asyncio.run(run())
    assert [event.text for event in events if event.kind == "failed"] == ["ZeroDivisionError('a mistake')"]


def test_a_plan_that_is_made_while_the_controller_ends_has_no_effect() -> None:
    """It would begin a turn after the planner's end, in which the next plan cannot be made."""
    events: list[Event] = []
    taken: list[object] = []

    async def run() -> None:
        shell = Shell(Settings(), Policy(), Hosts(), [], events.append)
        await shell.open()
        made = threading.Event()
        shell._run(lambda: made.wait(5), lambda done, _: taken.append(done), shell.now)
        await shell.close()
        shell.core.jobs_changed(shell.now)
        made.set()
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert not taken and not [event.text for event in events if event.kind == "failed"]
