# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The live page's feed: bounded states, each built once, in short turns; and what its server refuses."""

import asyncio
import json
import re
import socket
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer
from fake_switches import World, acquainted, tcp

from barewire.errors import MachineCannot, WrongUse
from barewire.sdn.api.server import Api
from barewire.sdn.bench.relay import Relay
from barewire.sdn.classify.jobs import parse_job
from barewire.sdn.controller.outbox import Event
from barewire.sdn.flow import FlowKey
from barewire.sdn.token import read_token
from barewire.sdn.ui import cables as cables_module
from barewire.sdn.ui import documents
from barewire.sdn.ui.cables import DOWN_S, Cables
from barewire.sdn.ui.feed import EVENTS_MAX, HISTORY_BYTES_MAX, HISTORY_ROWS_MAX, Feed
from barewire.sdn.ui.server import Ui, page
from barewire.topology import Network, Port, fat_tree, star

TOKEN = "a-token-of-sixteen-characters"
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}


class Observed:
    """What a feed and an API need of a shell."""

    is_leader = True

    def __init__(self, world: World) -> None:
        self.core, self.world = world.controller, world

    @property
    def now(self) -> float:
        return self.world.now


def feed_of(world: World, period_s: float = 0.02) -> Feed:
    def failed(event: Event) -> None:
        raise AssertionError(event.text)

    shell: Any = Observed(world)
    return Feed(shell, failed, period_s)


def updated(feed: Feed) -> dict[str, Any]:
    """Update a feed once for a viewer; return its states, decoded as a browser does."""
    feed.viewers = 1
    asyncio.run(feed.update())
    found = {}
    for kind, (_, event) in feed.states.items():
        match = re.fullmatch(r"event: (\w+)\ndata: ([^\n]*)\n\n", event.decode())
        assert match is not None and match[1] == kind
        found[kind] = json.loads(match[2])
    return found


# The network


def test_tiers_are_distances_from_hosts_and_servers_do_not_count() -> None:
    found = fat_tree(4, servers=2)
    cables = Cables()
    cables.update(found, 0.0)
    nodes = documents.network(found, cables, (), ())["nodes"]
    tiers = {node["name"]: node["tier"] for node in nodes}
    assert [tiers[f"s{n}"] for n in (1, 4, 5, 12, 13, 20)] == [3, 3, 2, 2, 1, 1]
    assert {node["kind"] for node in nodes if node["name"].startswith("server")} == {"server"}
    lonely = Network(("s1", "s2"), (), {})
    assert [node["tier"] for node in documents.network(lonely, Cables(), ("s3",), ("s1",))["nodes"]] == [1, 1, 1]


def test_every_cable_has_two_numbers_and_a_hosts_load_is_what_its_switch_receives() -> None:
    found = fat_tree(4, servers=0)
    cables = Cables()
    cables.update(found, 0.0)
    assert len(list(cables)) == 48 and cables.next_number == 96
    numbers = {cables.number(port) for port in found.peers}
    assert numbers == set(range(96))
    port = found.attachment("h1")
    assert port is not None
    loads = cables.loads_bit_s({port: 100.0}, {port: 5.0})
    assert (loads[cables.number(Port("h1", 1))], loads[cables.number(port)]) == (40, 800)
    assert sum(loads) == 840


def test_a_failed_cable_is_shown_for_ten_minutes_and_returns_with_its_numbers() -> None:
    found = fat_tree(4, servers=0)
    cut = Network(found.switches, found.hosts, {p: q for p, q in found.peers.items() if "s1" not in (p.node, q.node)})
    cables = Cables()
    cables.update(found, 0.0)
    before = {cable.number: (cable.a, cable.b) for cable in cables}
    cables.update(cut, 1.0)
    assert sum(cable.down_s is not None for cable in cables) == 4
    assert cables.number(Port("s1", 1)) is None
    cables.update(found, 2.0)
    assert {cable.number: (cable.a, cable.b) for cable in cables} == before
    cables.update(cut, 3.0)
    cables.update(cut, 3.0 + DOWN_S)
    assert len(list(cables)) == 44


def test_a_host_that_moves_leaves_no_failed_cable_and_numbers_begin_anew_before_they_grow_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cables_module, "NUMBERS_MAX", 20)
    cables = Cables()
    for move in range(40):
        peers = {Port("h1", 1): Port("s1", move + 1), Port("s1", move + 1): Port("h1", 1)}
        cables.update(Network(("s1",), ("h1",), peers), float(move))
        assert len(list(cables)) == 1 and cables.next_number <= 20
    assert cables.generation == 3


def test_of_too_many_cables_those_to_hosts_are_left_out() -> None:
    found = star(cables_module.CABLES_MAX + 7)
    cables = Cables()
    cables.update(found, 0.0)
    assert len(list(cables)) == cables_module.CABLES_MAX and cables.left_out == 7
    drawn = documents.network(found, cables, (), ())
    assert len(drawn["nodes"]) == 1 + cables_module.CABLES_MAX and drawn["left_out"] == 7


# States


def test_a_state_that_does_not_change_is_not_sent_again() -> None:
    world = acquainted()
    feed = feed_of(world)
    updated(feed)
    numbers = {kind: number for kind, (number, _) in feed.states.items()}
    world.now += 1.0
    updated(feed)
    changed = {kind for kind, (number, _) in feed.states.items() if number != numbers[kind]}
    assert changed == {"load"}, "flows are shown with their beginning, not with their age"


def test_without_viewers_flows_are_not_looked_at_and_the_history_goes_on() -> None:
    feed = feed_of(acquainted())
    assert "flows" in updated(feed)
    feed.viewers = 0
    asyncio.run(feed.update())
    assert "flows" not in feed.states and "network" in feed.states
    assert len(feed._history) == 2


def test_flows_have_their_path_from_the_host_on_and_their_reason() -> None:
    world = acquainted()
    world.controller.jobs.add(
        parse_job({"profile": "mpi", "name": "ring", "hosts": ["h1", "h16"]}, world.controller.hosts.by_name.keys()),
        world.now,
    )
    world.send("h1", tcp("h1", "h16", 2000, 5000))
    world.settle()
    feed = feed_of(world)
    state = updated(feed)["flows"]
    (flow,) = [flow for flow in state["flows"] if flow["ports"] == [2000, 5000]]
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 2000, 5000))
    assert route is not None
    assert flow["path"] == [feed._cables.number(port) for port in (Port("h1", 1), *route.path)]
    assert (flow["why"], flow["known_by"], flow["strategy"]) == ("the first path", "announced", "stp")
    assert flow["job"] == world.controller.jobs.all[0].id
    assert sum(group["flows"] for group in state["groups"]) == state["total"] == len(world.controller.router.routes)
    world.controller.jobs.withdraw(flow["job"])
    assert {flow["job"] for flow in updated(feed)["flows"]["flows"]} == {None}


def test_the_hosts_of_a_job_are_kept_as_long_as_the_job() -> None:
    hosts = frozenset(f"h{number}" for number in range(1000))
    assert documents._first(hosts) == documents._first(hosts) == [f"h{number}" for number in range(32)]
    kept = weakref.ref(hosts)
    del hosts
    assert kept() is None


def test_history_and_events_are_bounded_by_number_and_by_bytes() -> None:
    feed = feed_of(acquainted())
    for number in range(2 * HISTORY_ROWS_MAX):
        feed._remember(f"[{number}]")
    assert json.loads(feed.history().decode().split("data: ")[1]) == [
        [number] for number in range(HISTORY_ROWS_MAX, 2 * HISTORY_ROWS_MAX)
    ]
    for _ in range(50):
        feed._remember("[" + "1" * (HISTORY_BYTES_MAX // 20) + "]")
    assert HISTORY_BYTES_MAX * 0.9 < feed._history_bytes == sum(map(len, feed._history)) <= HISTORY_BYTES_MAX
    for number in range(3 * EVENTS_MAX):
        feed.note(Event("test", f"{number} " + "x" * 10_000))
    events = updated(feed)["events"]["events"]
    assert len(events) == EVENTS_MAX and events[-1]["text"].startswith(f"{3 * EVENTS_MAX - 1} ")
    assert all(len(event["text"]) < documents.TEXT_MAX + 3 for event in events)


def test_many_flows_are_counted_in_turns_and_the_fastest_are_listed() -> None:
    """20,000 flows: another task of the loop, as the controller's work is, is never held up for long (in CPU time)."""
    world = acquainted()
    hosts = world.network.hosts
    for number in range(20_000):
        key = FlowKey(hosts[number % 16], hosts[(number + 1 + number % 7) % 16], "tcp", number % 50_000 + 1, 80)
        world.controller.router.place(key, world.controller.classification_of(key), 0, world.now)
    for number, route in enumerate(world.controller.router.routes):
        route.placed = replace(route.placed, rate_byte_s=float(number))
    feed = feed_of(world)
    feed.viewers = 1

    async def watched() -> float:
        stalls = []

        async def beat() -> None:
            last = time.thread_time()
            while True:
                await asyncio.sleep(0)
                stalls.append(time.thread_time() - last)
                last = time.thread_time()

        beating = asyncio.create_task(beat())
        await feed.update()
        beating.cancel()
        return sorted(stalls)[-1]

    # The interpreter's own pauses, such as a garbage collection, are not the feed's: the best of some updates counts.
    stall_s = min(asyncio.run(watched()) for _ in range(5))
    print(f"longest turn: {1e3 * stall_s:.1f} ms")
    assert stall_s < 0.01, stall_s
    state = updated(feed)["flows"]
    rates = [flow["rate_bit_s"] for flow in state["flows"]]
    assert state["total"] == len(world.controller.router.routes) > 20_000
    assert len(rates) == documents.FLOWS_MAX and all(one >= other for one, other in pairwise(rates))
    assert rates[0] == 8 * (state["total"] - 1)


@pytest.mark.parametrize(
    "wrong",
    [
        *(5, [], {}, {"text": "x", "done": 1}, {"text": "x", "done": 3, "total": 2}),
        *({"text": "x", "done": True, "total": 2}, {"text": "x" * 201, "done": 0, "total": 1}),
        {"text": 1, "done": 0, "total": 1},
    ],
)
def test_an_invalid_experiment_is_refused(wrong: object) -> None:
    with pytest.raises(WrongUse, match="an experiment is"):
        feed_of(acquainted()).set_experiment(wrong)


def test_a_mistake_in_the_page_ends_the_page_and_is_told() -> None:
    told: list[Event] = []
    shell: Any = Observed(acquainted())
    feed = Feed(shell, told.append, 0.01)
    shell.core = None
    asyncio.run(feed.run())
    assert feed.is_over and told[0].kind == "page failed" and "AttributeError" in told[0].text


# The server


def served(scenario: Callable[[TestClient[Any, Any], Feed, Ui], Awaitable[None]], **options: float) -> None:
    async def run() -> None:
        feed = feed_of(acquainted())
        ui = Ui(feed, **options)  # type: ignore[arg-type]
        shell: Any = feed._shell
        async with TestClient(TestServer(Api(shell, "127.0.0.1:8181", TOKEN, ui).application())) as client:
            running = asyncio.create_task(feed.run())
            await scenario(client, feed, ui)
            await feed.close()
            await running

    asyncio.run(asyncio.wait_for(run(), 20))


def test_the_page_is_public_and_complete_and_everything_else_needs_the_token() -> None:
    async def scenario(client: TestClient[Any, Any], _: Feed, ui: Ui) -> None:
        answer = await client.get("/ui")
        text = await answer.text()
        assert answer.status == 200 and answer.content_type == "text/html" and text == page()[0]
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert [link[:10] for link in re.findall(r"\b(?:src|href|url)[=(][\"']?([^\"')]*)", text)] == ["data:image"]
        assert TOKEN not in text
        for method, path in (("GET", "/ui/events"), ("PUT", "/ui/experiment"), ("GET", "/ui/events?token=" + TOKEN)):
            assert (await client.request(method, path)).status == 401
        assert ui.feed.viewers == 0

    served(scenario)


def test_an_experiment_is_set_by_http_and_nonsense_is_refused() -> None:
    async def scenario(client: TestClient[Any, Any], feed: Feed, _: Ui) -> None:
        good = {"text": "rings", "done": 1, "total": 2}
        assert (await client.put("/ui/experiment", json=good, headers=AUTHORISED)).status == 204
        for body, status in ((b"{", 400), (b"7", 422)):
            answer = await client.put("/ui/experiment", data=body, headers=AUTHORISED)
            assert answer.status == status and (await answer.json())["error"]
        await asyncio.sleep(0.1)
        assert json.loads(feed._texts["experiment"]) == {"experiment": good}

    served(scenario)


def test_viewers_get_all_states_then_only_changes_and_one_too_many_is_refused() -> None:
    async def scenario(client: TestClient[Any, Any], feed: Feed, ui: Ui) -> None:
        await asyncio.sleep(0.1)
        viewers = [await client.get("/ui/events", headers=AUTHORISED) for _ in range(2)]
        await asyncio.sleep(0.1)
        refused = await client.get("/ui/events", headers=AUTHORISED)
        assert refused.status == 503 and "2 pages are open already" in (await refused.json())["error"]
        for viewer in viewers:
            assert viewer.content_type == "text/event-stream"
            kinds = [await _kind(viewer) for _ in range(9)]
            assert kinds[0] == "history"
            all_kinds = {"network", "load", "status", "jobs", "events", "experiment", "tenants", "flows"}
            assert set(kinds[1:]) == all_kinds
        feed.note(Event("test", "something happened"))
        assert [await _kind(viewer) for viewer in viewers] == ["events"] * 2
        viewers[0].close()
        for _ in range(100):
            if ui.feed.viewers == 1:
                break
            await asyncio.sleep(0.02)
        assert (await client.get("/ui/events", headers=AUTHORISED)).status == 200

    served(scenario, viewers_max=2)


def test_a_controller_that_becomes_the_standby_ends_its_streams_and_shows_no_failed_links() -> None:
    """Its core begins anew without a network; the page then asks again, and is sent to the leader."""

    async def scenario(client: TestClient[Any, Any], feed: Feed, _: Ui) -> None:
        viewer = await client.get("/ui/events", headers=AUTHORISED)
        await _kind(viewer)
        shell: Any = feed._shell
        shell.is_leader, shell.core, shell.peer = False, World(acquainted().network).controller, None
        said = (await asyncio.wait_for(viewer.content.read(), 5)).decode()
        assert '"up":true' in said and '"up":false' not in said
        assert (await client.get("/ui/events", headers=AUTHORISED)).status == 503

    served(scenario)


def test_a_page_that_has_ended_does_not_say_that_too_many_are_open() -> None:
    async def scenario(client: TestClient[Any, Any], feed: Feed, _: Ui) -> None:
        await feed.close()
        answer = await client.get("/ui/events", headers=AUTHORISED)
        assert answer.status == 503 and "the page has ended" in (await answer.json())["error"]

    served(scenario)


async def _kind(viewer: Any) -> str:
    kind = await viewer.content.readline()
    assert (await viewer.content.readline()).startswith(b"data: ") and await viewer.content.readline() == b"\n"
    return str(kind.decode().removeprefix("event: ").strip())


def test_a_viewer_that_takes_nothing_is_dropped_and_delays_nobody() -> None:
    """It reads no byte, while the states fill all buffers between."""

    async def scenario(client: TestClient[Any, Any], feed: Feed, ui: Ui) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(f"GET /ui/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        begun = feed.number
        for number in range(500):
            feed.set_experiment({"text": "x" * 150 + str(number), "done": 0, "total": 1})
            feed._put("flows", {"padding": str(number) * 100_000})
            async with feed.changed:
                feed.changed.notify_all()
            await asyncio.sleep(0.01)
            if number > 20 and not ui.feed.viewers:
                break
        assert not ui.feed.viewers and feed.number > begun + 20
        writer.close()
        assert reader is not None

    served(scenario, write_s=0.3)


def test_ending_the_api_ends_the_streams() -> None:
    """Otherwise a controller with an open page would take a minute to end."""

    async def run() -> float:
        feed = feed_of(acquainted())
        shell: Any = feed._shell
        server = TestServer(Api(shell, "127.0.0.1:8181", TOKEN, Ui(feed)).application())
        await server.start_server()
        running = asyncio.create_task(feed.run())
        async with ClientSession() as session:
            viewer = await session.get(server.make_url("/ui/events"), headers=AUTHORISED)
            await _kind(viewer)
            begun = time.monotonic()
            await server.close()
            await running
            await viewer.content.read()
        return time.monotonic() - begun

    assert asyncio.run(run()) < 2.0


# An experiment's page


def pages_token(folder: Path) -> Path:
    """The file with the token of those who may see a relay's page."""
    file = folder / "pages-token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return file


def test_a_relay_shows_whichever_launch_runs_with_the_progress(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("the-controllers-own-token")
    token.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    before = set(threading.enumerate())
    relay = Relay(f"127.0.0.1:{port}", pages_token(tmp_path))
    relay.note(3, 54, "rings, planned")
    events = f"http://127.0.0.1:{port}/ui/events"

    async def launch(session: ClientSession) -> None:
        feed = feed_of(acquainted())
        shell: Any = feed._shell
        api = Api(shell, f"unix:{tmp_path}/api", read_token(token), Ui(feed))
        await api.open()
        running = asyncio.create_task(feed.run())
        with relay.showing(tmp_path / "api", token):
            async with session.get(events, headers=AUTHORISED) as viewer:
                assert (viewer.status, viewer.content_type) == (200, "text/event-stream")
                seen = b""
                while b'{"experiment":{"text":"rings, planned","done":3,"total":54}}' not in seen:
                    seen += await viewer.content.readany()
                assert seen.startswith(b"event: history") and b"event: network" in seen
                await api.close()
                await running
                await viewer.content.read()

    async def scenario() -> None:
        async with ClientSession() as session:
            assert (await session.get(f"http://127.0.0.1:{port}/ui")).status == 200
            assert (await session.get(events)).status == 401
            for _ in range(2):
                between = await session.get(events, headers=AUTHORISED)
                assert between.status == 502 and "next launch" in (await between.json())["error"]
                await launch(session)

    with relay.running():
        asyncio.run(asyncio.wait_for(scenario(), 20))
    assert set(threading.enumerate()) <= before, "it has ended; other tests' controllers may still have threads"


def test_a_relay_drops_a_viewer_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads no byte, while the launch's states fill all buffers between; the launch then has no viewer any more."""
    monkeypatch.setattr("barewire.sdn.bench.relay.WRITE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    token = pages_token(tmp_path)
    relay = Relay(f"127.0.0.1:{port}", token)

    async def scenario() -> None:
        feed = feed_of(acquainted())
        shell: Any = feed._shell
        api = Api(shell, f"unix:{tmp_path}/api", TOKEN, Ui(feed))
        await api.open()
        with relay.showing(tmp_path / "api", token):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(f"GET /ui/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            was_viewed = False
            for number in range(500):
                feed._put("flows", {"padding": str(number) * 100_000})
                async with feed.changed:
                    feed.changed.notify_all()
                await asyncio.sleep(0.01)
                was_viewed |= feed.viewers == 1
                if was_viewed and not feed.viewers:
                    break
            assert was_viewed and not feed.viewers
            writer.close()
        await api.close()

    with relay.running():
        asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("address", ["unix:/tmp/x", "8181", "0.0.0.0:8181"])
def test_a_relay_at_an_impossible_address_is_refused_before_a_token_is_made(address: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"ADDRESS:PORT|all addresses"):
        Relay(address, tmp_path / "token")
    assert not list(tmp_path.iterdir())


def test_a_relay_at_an_address_in_use_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        relay = Relay(f"127.0.0.1:{taken.getsockname()[1]}", pages_token(tmp_path))
        with pytest.raises(MachineCannot, match="cannot serve the page"), relay.running():
            pass
