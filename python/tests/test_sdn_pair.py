# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A pair of controllers without switches: what the standby is told, who leads, and how clients find the leader."""

import asyncio
import gc
import json
import random
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fake_switches import World, acquainted, tcp
from test_sdn_tls import free_port
from throwaway_ca import Authority

from barewire.errors import MeasurementFailed, WrongUse
from barewire.sdn.api.client import Announced, Client
from barewire.sdn.api.peer import Peer
from barewire.sdn.api.replica import Frame, Outgoing, apply, configuration_of, decode, encode
from barewire.sdn.api.server import Api
from barewire.sdn.classify.jobs import JOBS_MAX, Job, parse_job
from barewire.sdn.classify.policy import Behaviour, Policy
from barewire.sdn.classify.recognition import REMEMBERED_S, Verdict
from barewire.sdn.classify.tenants import Tenant, Tenants
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import Shell
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import MeterCounter, Role, RoleReply, RoleRequest, SwitchError, SwitchUp, ToSwitch
from barewire.sdn.tls import Tls, load_tls
from barewire.sdn.token import make_token
from barewire.topology import Port

NAMED = {f"h{n}": f"02:ba:7e:00:00:{n:02x}" for n in range(1, 9)}
QUIET = Tenant("quiet", share=0.5, token="a-token-of-the-quiet-tenant")
TENANTS = Tenants((QUIET, Tenant("loud", token="a-token-of-the-loud-tenant")))
FLOOD_BYTES = (300_000, 1_250_000, 0)
HEAD = Frame(True, 5, 3, "x")
JOB = {"profile": "mpi", "hosts": ["h1", "h2"], "patterns": [[{"from": "h1", "to": "h2", "bytes": 5}]] * 2}


def core() -> Controller:
    return Controller(Settings(), Policy(), Hosts(NAMED), b"key", tenants=TENANTS)


def told(outgoing: Outgoing, standby: Controller, now: float) -> list[Frame]:
    """Let the leader tell what has changed; times at the standby are 1000 s earlier."""
    frames = [decode(encode(frame)[4:]) for frame in outgoing.changes(HEAD, now)]
    for frame in frames:
        apply(standby, frame, now - 1000)
    return frames


def state(controller: Controller, clock_s: float) -> dict[str, Any]:
    """What must be the same at both, by the order of jobs too, which decides between several."""
    return {
        "jobs": [replace(job, ends_s=round(job.ends_s - clock_s, 6)) for job in controller.jobs.all],
        "patterns": controller.jobs.patterns,
        "flows": sum(job.flows for job in controller.jobs.all),
        "owners": {job: tenant.name for job, tenant in controller.slices.owners.items()},
        "strategies": controller.policy.strategies,
        "verdicts": {ends: sure.profile for ends, sure in controller.recognition.verdicts()},
        "rates": controller.slices.rates(),
    }


def test_the_standby_is_told_everything_then_only_what_changes() -> None:
    leader, standby = core(), core()
    outgoing = Outgoing(leader)
    first = leader.jobs.add(parse_job({**JOB, "name": "first", "ranks": ["h1", "h1", "h2"]}, NAMED), 1500.0)
    leader.slices.owners[first.id] = QUIET
    leader.set_strategy("mpi", "stp", 1500.0)
    leader.recognition.restore(frozenset({("h1", 5, "tcp"), ("h2", 6, "tcp")}), Verdict("hadoop", 0.95, 1500.0))
    leader.recognition.restore(frozenset({("h2", 6, "tcp")}), Verdict("hadoop", 0.95, 1500.0))
    leader.slices.restore(Port("s1", 2), (5, 6, 7))
    frames = told(outgoing, standby, 1501.0)
    assert frames[0].begins and not any(frame.begins for frame in frames[1:])
    assert state(leader, 1501.0) == state(standby, 501.0)
    assert standby.jobs.get(first.id).ends_s == pytest.approx(530.0)
    assert standby.recognition.profile_of(FlowKey("h1", "h2", "tcp", 5, 6)) == "hadoop"
    assert len(told(outgoing, standby, 1501.1)) == 1, "a sign of life"
    leader.jobs.step(first.id, 1, 1502.0)
    more = told(outgoing, standby, 1502.0)
    (step,) = [one for frame in more for one in frame.jobs]
    assert step.job is None and not step.patterns and step.current == 1
    assert state(leader, 1502.0) == state(standby, 502.0)
    leader.jobs.withdraw(first.id)
    leader.slices.owners.clear()
    leader.recognition.restore(frozenset({("h2", 6, "tcp")}), None)
    told(outgoing, standby, 1503.5)
    assert state(leader, 1503.5) == state(standby, 503.5) and not standby.jobs.all


@pytest.mark.parametrize("seed", range(20))
def test_any_history_leaves_both_with_the_same_jobs(seed: int) -> None:
    rng = random.Random(seed)
    leader, standby = core(), core()
    outgoing = Outgoing(leader)
    now = 2000.0
    actions: list[Callable[[list[Job]], object]] = [
        lambda _: leader.jobs.add(parse_job({**JOB, "lease_s": rng.choice((1, 5, 30))}, NAMED), now),
        lambda jobs: leader.jobs.renew(rng.choice(jobs).id, now),
        lambda jobs: leader.jobs.step(rng.choice(jobs).id, 0, now),
        lambda jobs: leader.jobs.append(rng.choice(jobs).id, ({("h2", "h1"): rng.randrange(9) + 1},), now),
        lambda jobs: leader.jobs.withdraw(rng.choice(jobs).id),
        lambda _: leader.jobs.expire(now),
    ]
    for _ in range(200):
        now += rng.random()
        jobs = leader.jobs.all
        act = rng.choice(actions if jobs else actions[:1])
        act(jobs)
        if rng.random() < 0.4:
            told(outgoing, standby, now)
            assert state(leader, now) == state(standby, now - 1000)
    later = now + 100
    leader.jobs.expire(later)
    standby.jobs.expire(later - 1000)
    assert leader.jobs.all == standby.jobs.all == []


def test_a_strategy_that_the_standby_cannot_load_is_named_and_its_own_is_kept() -> None:
    standby = core()
    theirs = {"default": "missing.module:Best", "mpi": "stp", "hadoop": "missing.module:Best:limit=3", "web": "best"}
    apply(standby, Frame(True, 5, 3, "x", strategies=theirs), 1.0)
    assert standby.policy.strategies == {**Policy().strategies, "mpi": "stp"}
    told = [event.text for event in standby.take_events() if event.kind == "strategy failed"]
    assert len(told) == 3 and "hadoop has lanes here, not the leader's missing.module:Best:limit=3" in told[1]
    assert "web has that of default here" in told[2]


def test_a_standby_does_not_grow_with_the_jobs_that_there_were() -> None:
    leader, standby = core(), core()
    outgoing, now = Outgoing(leader), 2000.0
    kept = leader.jobs.add(parse_job({**JOB, "lease_s": 3600}, NAMED), now)
    for _ in range(3 * JOBS_MAX):
        job = leader.jobs.add(parse_job(JOB, NAMED), now)
        told(outgoing, standby, now)
        leader.jobs.withdraw(job.id)
        now += 0.1
    told(outgoing, standby, now)
    assert [job.id for job in standby.jobs.all] == [kept.id]
    assert len(standby.jobs._ends) <= 2 * JOBS_MAX
    assert [job.id for job in standby.jobs.expire(now - 1000 + 3600)] == [kept.id]


def test_configurations_that_differ_have_another_hash() -> None:
    one = configuration_of(core())
    assert configuration_of(core()) == one
    policy = Policy(behaviours=(Behaviour("elephant", bytes_min=5),))
    for other in (
        Controller(Settings(idle_s=7), Policy(), Hosts(NAMED), b"key", tenants=TENANTS),
        Controller(Settings(), policy, Hosts(NAMED), b"key", tenants=TENANTS),
        Controller(Settings(), Policy(), Hosts({"h1": NAMED["h1"]}), b"key", tenants=TENANTS),
        Controller(Settings(), Policy(), Hosts(NAMED), b"key"),
    ):
        assert configuration_of(other) != one
    changed = core()
    changed.set_strategy("mpi", "stp", 1.0)
    assert configuration_of(changed) == one, "strategies set at run time are told, and are no difference"


def successor(world: World) -> None:
    """Let a standby that was told everything replace the world's controller, whose connections it has already."""
    frames = list(Outgoing(world.controller).changes(HEAD, world.now))
    world.start_controller()
    for frame in frames:
        apply(world.controller, decode(encode(frame)[4:]), world.now)
    world.disconnect(tell=False)
    world.connect()
    world.pass_time(1.0)


def test_a_successor_keeps_each_flow_on_its_path_by_its_profile_and_moves_none() -> None:
    """Flows known by announcement, by behaviour and by what was learnt: no rule of theirs changes."""
    world = acquainted()
    world.policy = Policy(
        {"default": "stp", "mpi": "dmodk", "elephant": "ecmp", "hadoop": "dmodk"},
        behaviours=(Behaviour("elephant", packets_min=20),),
    )
    world.start_controller()
    world.disconnect(tell=False)
    world.connect()
    world.pass_time(2.0)
    world.controller.jobs.add(
        parse_job({"profile": "mpi", "hosts": ["h1", "h9"]}, world.controller.hosts.by_name), world.now
    )
    keys = [FlowKey("h1", "h9", "tcp", 1, 1), FlowKey("h2", "h13", "tcp", 2, 2), FlowKey("h3", "h14", "tcp", 3, 3)]
    world.controller.recognition.restore(
        frozenset({("h14", 3, "tcp"), ("h3", 3, "tcp")}), Verdict("hadoop", 0.99, world.now)
    )
    for _ in range(8):
        for key in keys:
            for _ in range(1 if key.source == "h3" else 5):
                world.send(key.source, tcp(key.source, key.destination, key.source_port, key.destination_port))
            world.settle()
        world.pass_time(0.5)

    def placed() -> dict[FlowKey, tuple[str, str, object]]:
        found = {key: world.controller.router.routes.get(key) for key in keys}
        return {
            key: (route.placed.flow.profile, route.known_by, route.path)
            for key, route in found.items()
            if route is not None
        }

    before = placed()
    assert [found[:2] for found in before.values()] == [
        ("mpi", "announced"),
        ("elephant", "behaviour"),
        ("hadoop", "learnt"),
    ]
    tables = {
        name: {place: entry.rule for place, entry in switch.table.items()} for name, switch in world.switches.items()
    }
    successor(world)
    assert placed() == before
    world.pass_time(3.0)
    assert placed() == before, "and none moves later"
    assert {
        name: {place: entry.rule for place, entry in switch.table.items()} for name, switch in world.switches.items()
    } == tables


def test_meters_begin_with_the_rates_that_the_leader_had_set() -> None:
    world = acquainted(tenants=TENANTS, link_rate_bit_s=10_000_000)
    world.pass_time(1.0)
    port = next(iter(world.controller.slices.rates()))
    world.controller.slices.restore(port, (1111, 2222, 3333))
    successor(world)
    numbers = [number for number, meter in world.switches[port.node].meters.items() if meter[0] in (1111, 2222, 3333)]
    assert len(numbers) == 3


def test_the_successor_shares_out_a_link_only_when_it_knows_demands() -> None:
    """As Open vSwitch does, the counters restart when a rate is set. The flood brings twice the link's rate."""
    world = acquainted(tenants=TENANTS, link_rate_bit_s=10_000_000)
    slices, now = world.controller.slices, world.now
    port = next(iter(slices.rates()))
    slices.restore(port, (1_000_000, 4700, 4700))
    numbers = [(port.number << 6 | index) + 1 for index in range(3)]
    for count in range(1, 6):
        later = 0.5 * count
        came = [MeterCounter(number, count * each, later) for number, each in zip(numbers, FLOOD_BYTES, strict=True)]
        slices.counted(port.node, came, now + later)
        assert slices.rates()[port] == ([1_000_000, 4700, 4700] if count == 1 else [1_000_000, 4700, 1_000_000])


class Line:
    """A switch's channel whose messages the test makes up."""

    def __init__(self) -> None:
        self.sent: list[ToSwitch] = []
        self.closed = ""

    def send(self, messages: Iterable[ToSwitch]) -> None:
        self.sent += messages

    def close(self, why: str) -> None:
        self.closed = why


def test_a_replaced_core_is_gone_at_once() -> None:
    """The daemon lets the collector look at everything once an hour: leaders that alternate would fill the memory."""

    async def run() -> None:
        shell = Shell(Settings(), Policy(), Hosts(NAMED), [], lambda _: None, is_paired=True)
        before = weakref.ref(shell.core)
        gc.disable()
        try:
            shell.reset()
        finally:
            gc.enable()
        assert before() is None

    asyncio.run(run())


def test_a_switch_that_no_pair_can_control_is_named_and_disconnected_and_deposes_no_leader() -> None:
    """One has a generation in the upper half, as Open vSwitch keeps it of an earlier program; one has no roles."""
    events: list[Event] = []

    async def run() -> None:
        shell = Shell(Settings(), Policy(), Hosts(NAMED), [], events.append, is_paired=True)
        assert shell.election is not None
        lines: list[Any] = [Line(), Line(), Line()]
        shell._heard(lines[0], [SwitchUp(1)])
        shell.election._lead(shell.now)
        shell.turn()
        claim = RoleRequest(Role.MASTER, shell.election.generation)
        shell._heard(lines[0], [RoleReply(Role.MASTER, claim.generation)])
        assert shell.election.answering(shell.now) == 1
        shell._heard(lines[1], [SwitchUp(2)])
        assert [one.role for one in lines[1].sent] == [Role.NOCHANGE, Role.MASTER], "in this order"
        stale = SwitchError(11, 0, "role request failed, code 0", claim, is_not_master=True)
        shell._heard(lines[1], [RoleReply(Role.EQUAL, (1 << 63) + 7), stale])
        shell._heard(lines[2], [SwitchUp(3)])
        shell._heard(lines[2], [SwitchError(1, 1, "bad request, code 1", one) for one in lines[2].sent])
        await asyncio.sleep(0.05)
        assert shell.is_leader and shell.election._switches["s1"].role is Role.MASTER
        assert not lines[0].closed and "restart the switch" in lines[1].closed and "roles" in lines[2].closed
        await shell.close()

    asyncio.run(run())
    told = [event.text for event in events if event.kind == "connection refused"]
    assert [text[:22] for text in told] == ["s2: its generation 0x8", "s3: it refuses to give"]


# Two processes' worth of controllers in one event loop, which a thread runs.

_Result = TypeVar("_Result")


class Controllers:
    """Controllers a and b, each with its API at a Unix socket, or by HTTPS."""

    def __init__(self, folder: Path, tls: tuple[Tls, Tls] | None = None, ports: tuple[int, int] = (0, 0)) -> None:
        self.folder, self.tls = folder, dict(zip("ab", tls, strict=True)) if tls else {}
        self.token_file = folder / "token"
        self.token = make_token(self.token_file)
        self.addresses = {
            name: f"127.0.0.1:{port}" if tls else f"unix:{folder}/{name}.sock"
            for name, port in zip("ab", ports, strict=True)
        }
        self.urls = {name: f"https://{one}" if tls else one for name, one in self.addresses.items()}
        self.shells: dict[str, Shell] = {}
        self.apis: dict[str, Api] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.events: list[tuple[str, Event]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def start(self, name: str, token: str | None = None) -> None:
        other = "b" if name == "a" else "a"
        tls = self.tls.get(name)

        async def begin() -> None:
            shell = Shell(
                Settings(), Policy(), Hosts(NAMED), [], lambda event: self.events.append((name, event)), is_paired=True
            )
            api = Api(shell, self.addresses[name], self.token, tls=tls.api if tls else None)
            peer = Peer(
                self.urls[other],
                shell,
                token or self.token,
                lambda event: self.events.append((name, event)),
                tls.peer if tls else None,
            )
            shell.peer = peer
            await shell.open()
            await api.open()
            self.shells[name], self.apis[name] = shell, api
            self.tasks[name] = asyncio.create_task(peer.run())

        self.do(begin())

    def end(self, name: str) -> None:
        async def finish() -> None:
            self.tasks[name].cancel()
            await asyncio.gather(self.tasks.pop(name), return_exceptions=True)
            await self.apis.pop(name).close()
            await self.shells.pop(name).close()

        self.do(finish())

    def close(self) -> None:
        for name in list(self.shells):
            self.end(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def leads(self, name: str) -> bool:
        return self.shells[name].is_leader

    def client(self, names: str = "ab") -> Client:
        return Client(",".join(self.urls[name] for name in names), self.token_file)

    def said(self, name: str, kind: str) -> list[str]:
        return [event.text for who, event in self.events if who == name and event.kind == kind]


def no_plug_in(name: str) -> None:
    raise WrongUse("no such plug-in")


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Controllers]:
    controllers = Controllers(tmp_path)
    controllers.start("a")
    assert eventually(lambda: controllers.leads("a"))
    controllers.start("b")
    assert eventually(lambda: bool(controllers.said("b", "standby")))
    yield controllers
    controllers.close()


def test_a_job_lives_on_with_the_standby_and_its_client_finds_it(pair: Controllers) -> None:
    complaints: list[str] = []
    client = pair.client()
    with Announced(client, {**JOB, "lease_s": 2}, complaints.append) as announced:
        client.step(announced.id, 1)
        client.set_strategy("hadoop", "stp")
        assert eventually(lambda: pair.shells["b"].core.policy.strategies["hadoop"] == "stp")
        assert pair.shells["b"].core.jobs.get(announced.id).current == 1
        pair.end("a")
        began = time.monotonic()
        assert client.get("jobs")["jobs"][0]["current"] == 1, "the client waits for the new leader"
        assert time.monotonic() - began < 2
        assert pair.leads("b") and client.get("policy")["strategies"]["hadoop"] == "stp"
        time.sleep(1.5)
        assert [job["id"] for job in client.get("jobs")["jobs"]] == [announced.id], "renewed there"
        pair.start("a")
        assert eventually(lambda: bool(pair.said("a", "standby")))
        assert not pair.leads("a")
        assert eventually(lambda: [job.id for job in pair.shells["a"].core.jobs.all] == [announced.id])
    assert not complaints
    assert eventually(lambda: not pair.shells["a"].core.jobs.all), "withdrawn at both"


def test_a_service_that_was_recognised_long_ago_is_known_to_the_successor(pair: Controllers) -> None:
    service = frozenset({("h2", 6, "tcp")})
    pair.shells["a"].core.recognition.restore(service, Verdict("hadoop", 0.95, pair.shells["a"].now))
    standby = pair.shells["b"]
    assert eventually(lambda: bool(standby.core.recognition.verdicts()))
    standby.core.recognition.restore(service, Verdict("hadoop", 0.95, standby.now - REMEMBERED_S - 1))
    pair.end("a")
    assert eventually(lambda: pair.leads("b"))
    recognition, now = standby.core.recognition, standby.now
    recognition.evaluated(recognition.round(now)(), now)
    assert recognition.profile_of(FlowKey("h1", "h2", "tcp", 5, 6)) == "hadoop"
    recognition.evaluated(recognition.round(now + REMEMBERED_S + 1)(), now + REMEMBERED_S + 1)
    assert recognition.profile_of(FlowKey("h1", "h2", "tcp", 5, 6)) is None


def test_a_client_of_the_standby_is_sent_to_the_leader(pair: Controllers) -> None:
    only = pair.client("b")
    document = only.get("pair")
    assert (document["role"], document["leader"], document["peer_answers"]) == ("standby", pair.urls["a"], True)
    job = only.announce(JOB)
    assert pair.shells["a"].core.jobs.get(job["id"])
    assert pair.client("a").get("pair")["leader"] == pair.urls["a"]


def test_a_leader_that_is_replaced_while_it_was_stopped_says_so_and_stands_by(pair: Controllers) -> None:
    """Its loop stops, as by SIGSTOP; the other one takes over, and the first steps down when it hears of it."""
    leader, standby = pair.shells["a"], pair.shells["b"]
    assert leader.election is not None and standby.election is not None

    async def claim() -> None:
        standby.election._lead(standby.now)  # type: ignore[union-attr]
        standby.turn()

    job = pair.client().announce(JOB)
    assert eventually(lambda: standby.core.jobs.find(job["id"]) is not None)
    pair.do(claim())
    assert eventually(lambda: not pair.leads("a"))
    assert pair.leads("b")
    assert eventually(lambda: any("newer generation" in text for text in pair.said("a", "standby")))
    assert eventually(lambda: leader.core.jobs.find(job["id"]) is not None), "and follows the new leader"
    assert pair.client().get("jobs")["jobs"][0]["id"] == job["id"]


def test_the_standby_follows_again_after_a_frame_that_it_cannot_apply(
    pair: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistakes = [WrongUse("a mistake"), KeyError()]

    def fails(core: Controller, frame: Frame, now: float) -> None:
        if mistakes:
            raise mistakes.pop()
        apply(core, frame, now)

    monkeypatch.setattr("barewire.sdn.api.peer.apply", fails)
    job = pair.client().announce(JOB)
    assert eventually(lambda: pair.shells["b"].core.jobs.find(job["id"]) is not None)
    assert pair.said("b", "peer lost") == [f"{pair.urls['a']}: {why}" for why in ("KeyError", "a mistake")]


@pytest.mark.parametrize("fails", ["election", "tell"])
def test_a_mistake_while_the_peer_is_away_does_not_end_following(
    pair: Controllers, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def mistake(*_: object) -> None:
        mistakes.append(time.monotonic())
        raise ZeroDivisionError("a mistake")

    mistakes: list[float] = []
    election, peer = pair.shells["b"].election, pair.shells["b"].peer
    assert isinstance(peer, Peer)
    with monkeypatch.context() as patched:
        if fails == "election":
            patched.setattr(election, "peer_refused", mistake)
        else:
            patched.setattr(peer, "_tell", mistake)
        pair.end("a")
        assert eventually(lambda: len(mistakes) > 1)
    pair.start("a")
    assert eventually(lambda: peer._heard_s > mistakes[-1])


def test_a_strategy_that_only_the_leader_has_is_told_at_the_standby(
    pair: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barewire.sdn.api.replica.named", no_plug_in)
    pair.client().set_strategy("mpi", "stp")
    assert eventually(lambda: bool(pair.said("b", "strategy failed")))
    assert "mpi has planned here, not the leader's stp: no such plug-in" in pair.said("b", "strategy failed")[1]
    pair.client().announce(JOB)
    assert eventually(lambda: bool(pair.shells["b"].core.jobs.all)), "and all else is followed"


@pytest.mark.parametrize(
    ("method", "path", "document"),
    [
        ("POST", "/v1/jobs", JOB),
        ("PUT", "/v1/policy/mpi", {"strategy": "stp"}),
        ("POST", "/v1/jobs/JOB/step", {"to": 1}),
        ("POST", "/v1/jobs/JOB/patterns", {"patterns": JOB["patterns"]}),
        ("POST", "/v1/jobs/JOB/turn", {"wants": True}),
    ],
)
def test_a_request_whose_body_comes_after_a_step_down_is_sent_to_the_new_leader(
    pair: Controllers, method: str, path: str, document: dict[str, Any]
) -> None:
    leader, standby = pair.shells["a"], pair.shells["b"]
    path = path.replace("JOB", pair.client().announce(JOB)["id"])
    assert eventually(lambda: bool(standby.core.jobs.all))
    body = json.dumps(document).encode()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_unix_connection(pair.addresses["a"].removeprefix("unix:"))
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {pair.token}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        await asyncio.sleep(0.1)
        assert leader.election is not None
        leader.election._step_down("test", leader.now)
        leader.turn()
        writer.write(body[5:])
        line = await reader.readline()
        writer.close()
        return line

    assert pair.do(ask()).split()[1] in (b"307", b"503")
    assert leader.core.policy.strategies["mpi"] == "planned"


def test_a_pair_with_different_tokens_says_what_to_do(tmp_path: Path) -> None:
    controllers = Controllers(tmp_path)
    try:
        controllers.start("a")
        assert eventually(lambda: controllers.leads("a"))
        controllers.start("b", token="another-token-of-some-length")
        assert eventually(lambda: bool(controllers.said("b", "peer lost")))
        assert "the same token file" in controllers.said("b", "peer lost")[0]
    finally:
        controllers.close()


def test_without_any_leader_a_client_says_so_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.sdn.api.client.PATIENCE_S", 0.3)
    make_token(tmp_path / "token")
    with pytest.raises(MeasurementFailed, match=r"none1.*none2.*is it running"):
        Client(f"unix:{tmp_path}/none1,unix:{tmp_path}/none2", tmp_path / "token").get("status")
    with pytest.raises(WrongUse, match="of a pair both with a comma between"):
        Client(f"unix:{tmp_path}/none1,ftp://x", tmp_path / "token")


@pytest.mark.parametrize("url", ["ftp://x", "unix:", "http://", "10.0.0.2:8181"])
def test_an_invalid_peer_is_refused(url: str) -> None:
    async def run() -> None:
        with pytest.raises(WrongUse, match="--peer"):
            Peer(url, Shell(Settings(), Policy(), Hosts(), [], lambda _: None, is_paired=True), "t", lambda _: None)
        with pytest.raises(WrongUse, match="needs --tls-key"):
            Peer("https://x", Shell(Settings(), Policy(), Hosts(), [], lambda _: None), "t", lambda _: None)

    asyncio.run(run())


def test_a_pair_over_tls_trusts_only_its_authority(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    ports = free_port(), free_port()
    own = load_tls(authority.files("a", "127.0.0.1"), is_paired=True)
    other = load_tls(authority.files("b", "127.0.0.1"), is_paired=True)
    controllers = Controllers(tmp_path, (own, other), ports)
    try:
        for name in "ab":
            controllers.start(name)
        assert eventually(lambda: any(controllers.said(name, "standby") for name in "ab"), 10)
        assert sum(map(controllers.leads, "ab")) == 1
        controllers.end("b")
        controllers.tls["b"] = load_tls(stranger.files("c", "127.0.0.1"), is_paired=True)
        controllers.start("b")
        assert eventually(lambda: any("authority that signed" in text for text in controllers.said("b", "peer lost")))
        assert eventually(lambda: any("authority that signed" in text for text in controllers.said("a", "peer lost")))
    finally:
        controllers.close()
