# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The HTTP API: it matches its document, and invalid requests get a clear answer and have no effect."""

import asyncio
import contextlib
import resource
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from aiohttp import ClientSession, UnixConnector
from aiohttp.test_utils import TestClient, TestServer
from fake_switches import acquainted
from openapi_spec_validator import validate

from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.mpi.announcement import announcement
from barewire.mpi.job import Job
from barewire.mpi.libraries import Family, Library
from barewire.sdn.api import documents
from barewire.sdn.api.client import Announced, Client, GoneError
from barewire.sdn.api.openapi import DOCUMENT
from barewire.sdn.api.server import BODY_BYTES_MAX, Api
from barewire.sdn.classify.jobs import Job as AnnouncedJob
from barewire.sdn.classify.jobs import UnknownJobError, parse_job
from barewire.sdn.classify.policy import Policy
from barewire.sdn.coflow import coflow_of
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import Shell
from barewire.sdn.daemon import permit_descriptors
from barewire.sdn.token import make_token, read_token
from barewire.sdn.ui.feed import Feed
from barewire.sdn.ui.server import Ui

TOKEN = "a-token-of-sixteen-characters"
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}
JOB = {"profile": "mpi", "hosts": ["h1", "h2"], "patterns": [[{"from": "h1", "to": "h2", "bytes": 5}]] * 2}


def shell() -> Shell:
    return Shell(
        Settings(), Policy(), Hosts({"h1": "02:ba:7e:00:00:01", "h2": "02:ba:7e:00:00:02"}), [], lambda _: None
    )


def served(scenario: Callable[[TestClient[Any, Any], Shell], Awaitable[None]]) -> None:
    """Run a scenario against the API."""

    async def run() -> None:
        controller = shell()
        api = Api(controller, "127.0.0.1:8181", TOKEN)
        async with TestClient(TestServer(api.application())) as client:
            await scenario(client, controller)

    asyncio.run(run())


def schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}


def test_the_document_is_valid_openapi_and_has_every_route() -> None:
    validate(DOCUMENT)

    async def scenario(client: TestClient[Any, Any], _: Shell) -> None:
        answer = await client.get("/openapi.json")
        assert await answer.json() == DOCUMENT, "public: it is no secret"
        routes = {
            (route.method, resource.canonical)
            for resource in client.server.app.router.resources()  # type: ignore[attr-defined]
            for route in resource
            if route.method != "HEAD"
        }
        described = {
            (method.upper(), path)
            for path, item in DOCUMENT["paths"].items()
            for method in item
            if method != "parameters"
        }
        assert routes == described

    served(scenario)


@pytest.mark.parametrize(
    "name",
    ["status", "switches", "hosts", "links", "loads", "flows", "strategies", "policy", "jobs", "tenants", "pair"],
)
def test_responses_match_the_openapi_document(name: str) -> None:
    async def scenario(client: TestClient[Any, Any], _: Shell) -> None:
        await client.post("/v1/jobs", json=JOB, headers=AUTHORISED)
        answer = await client.get(f"/v1/{name}", headers=AUTHORISED)
        assert answer.status == 200
        jsonschema.validate(await answer.json(), schema(name.capitalize()))

    served(scenario)


def test_flows_links_and_switches_match_the_openapi_document() -> None:
    world = acquainted()
    flows = asyncio.run(documents.flows(world.controller, world.now))
    shown = {
        name: getattr(documents, name)(world.controller, world.now)
        for name in ("status", "switches", "hosts", "links", "loads")
    }
    for name, built in {**shown, "flows": flows}.items():
        document = msgspec.to_builtins(built)
        jsonschema.validate(document, schema(name.capitalize()))
        if name not in ("status", "loads"):
            assert len(document[name]) >= 15


def test_many_flows_are_listed_in_turns_with_the_controllers_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.sdn.api.documents.FLOWS_PER_TURN", 10)
    world, turns = acquainted(), [0]

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def scenario() -> None:
        task = asyncio.create_task(others())
        shown = (await documents.flows(world.controller, world.now)).flows
        task.cancel()
        assert len(shown) == len(world.controller.router.routes) and turns[0] >= len(shown) // 10 > 0

    asyncio.run(scenario())


async def planned(controller: Shell) -> None:
    """Wait until changed patterns have taken effect."""
    while controller.core.is_planning:
        await asyncio.sleep(0.01)


def test_the_life_cycle_of_a_job() -> None:
    async def scenario(client: TestClient[Any, Any], controller: Shell) -> None:
        made = await client.post("/v1/jobs", json=JOB, headers=AUTHORISED)
        job = await made.json()
        assert made.status == 201
        jsonschema.validate(job, schema("Job"))
        await planned(controller)
        assert controller.core.router.network_state.patterns == ({("h1", "h2"): 5},)
        path = f"/v1/jobs/{job['id']}"
        assert (await client.post(f"{path}/step", headers=AUTHORISED)).status == 200
        assert (await client.post(f"{path}/step", json={"to": 9}, headers=AUTHORISED)).status == 422
        more = await client.post(f"{path}/patterns", json={"patterns": JOB["patterns"]}, headers=AUTHORISED)
        assert (await more.json())["patterns"] == 4
        assert (await client.put(f"{path}/lease", headers=AUTHORISED)).status == 200
        shown = await client.get(path, headers=AUTHORISED)
        assert (await shown.json())["current"] == 1
        for wants in (True, False):
            turn = await client.post(f"{path}/turn", json={"wants": wants}, headers=AUTHORISED)
            jsonschema.validate(await turn.json(), schema("Granted"))
            assert (await turn.json())["goes"] == wants, "without a network nothing collides"
        assert (await client.post(f"{path}/turn", json={}, headers=AUTHORISED)).status == 422
        assert (await client.delete(path, headers=AUTHORISED)).status == 204
        for method, gone in (("GET", path), ("DELETE", path), ("PUT", f"{path}/lease"), ("POST", f"{path}/step")):
            answer = await client.request(method, gone, headers=AUTHORISED)
            assert answer.status == 404 and "announce it again" in (await answer.json())["error"]
        assert (await client.post(f"{path}/turn", json={"wants": True}, headers=AUTHORISED)).status == 404
        await planned(controller)
        assert controller.core.router.network_state.patterns == ()

    served(scenario)


def test_jobs_for_the_same_link_take_turns_and_others_do_not_wait() -> None:
    """Both directions of h1's link: two jobs to h2, one back. A withdrawn job lets the next one send."""
    world = acquainted()
    now, core = world.now, world.controller
    core.policy = core.policy.with_strategy("mpi", "planned:turns=yes").with_strategy("hadoop", "ecmp")
    names = sorted(host.name for host in core.hosts.attached())[:2]

    def announced(profile: str, *pair: str, size: int = 10**6) -> AnnouncedJob:
        pattern = [{"from": pair[0], "to": pair[1], "bytes": size}]
        return core.jobs.add(parse_job({"profile": profile, "hosts": list(pair), "patterns": [pattern]}, names), now)

    def turn(job: AnnouncedJob) -> bool:
        coflow = coflow_of(core.network(), job.pattern, core.pattern()) if core.takes_turns(job) else None
        return core.turn(job.id, coflow, now)

    long, short = announced("mpi", *names, size=10**7), announced("mpi", *names)
    back, other = announced("mpi", *names[::-1]), announced("hadoop", *names)
    assert turn(long) and turn(back), "the other direction"
    assert turn(other), "its strategy has no turns"
    assert turn(short) and not turn(long)
    core.turn_ended(short.id, now)
    assert turn(long)
    assert turn(short) and not turn(long)
    core.jobs.withdraw(short.id)
    core.jobs_changed(now)
    assert turn(long)
    with pytest.raises(UnknownJobError):
        turn(short)


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xe9"],
)
def test_without_the_token_nothing_is_shown_or_changed(header: str | None) -> None:
    async def scenario(client: TestClient[Any, Any], controller: Shell) -> None:
        headers = {} if header is None else {"Authorization": header}
        for method, path in (
            ("GET", "/v1/flows"),
            ("POST", "/v1/jobs"),
            ("PUT", "/v1/policy/mpi"),
            ("GET", "/v1/nothing"),
        ):
            answer = await client.request(method, path, json=JOB, headers=headers)
            assert answer.status == 401 and "Authorization: Bearer" in (await answer.json())["error"]
        assert not controller.core.jobs.all

    served(scenario)


@pytest.mark.parametrize("token", [b"\xff", b"\xff" * 16, TOKEN.encode() + b"\xff", b"\xe2\x82", b""])
def test_a_token_of_any_bytes_is_a_wrong_one(token: bytes) -> None:
    """Sent as raw bytes, which no HTTP library would: 401, and the connection stays open."""

    async def run() -> None:
        api = Api(shell(), "127.0.0.1:8181", TOKEN)
        async with TestServer(api.application()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for _ in range(2):
                writer.write(b"GET /v1/status HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 401 "), head
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                assert b"Authorization: Bearer" in await reader.readexactly(length)
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/v1/jobs", b"{", 400, "not JSON"),
        ("POST", "/v1/jobs", b"\xff", 400, "not JSON"),
        ("POST", "/v1/jobs", b"[" * 100_000, 422, "Expected `object`, got `array`"),
        ("POST", "/v1/jobs", b"[]", 422, "Expected `object`, got `array`"),
        ("POST", "/v1/jobs", b'{"profile": "mpi", "hosts": ["h9"]}', 422, "unknown hosts: h9; known are h1, h2"),
        ("POST", "/v1/jobs", b" " * (BODY_BYTES_MAX + 1), 413, "announce patterns one after another"),
        ("PUT", "/v1/policy/mpi", b'{"strategy": "best"}', 422, "there are: stp"),
        ("PUT", "/v1/policy/mpi", b'{"strategy": 3}', 422, "Expected `str`, got `int` - at `$.strategy`"),
        ("PUT", "/v1/policy/mpi", b'{"other": 3}', 422, "unknown field `other`; GET /openapi.json"),
        ("PUT", "/v1/policy/a%20b", b'{"strategy": "stp"}', 422, "is no profile"),
        ("POST", "/v1/jobs/x/step", b'{"to": 0}', 404, "there is no job x"),
        ("POST", "/v1/jobs/x/step", b'{"to": "next"}', 422, "Expected `int | null`, got `str` - at `$.to`"),
        ("GET", "/v1/nothing", b"", 404, "/openapi.json lists all requests"),
        ("DELETE", "/v1/jobs", b"", 405, "/openapi.json lists all requests"),
    ],
)
def test_an_invalid_request_gets_the_remedy_and_has_no_effect(
    method: str, path: str, body: bytes, status: int, message: str
) -> None:
    async def scenario(client: TestClient[Any, Any], controller: Shell) -> None:
        before = controller.core.policy
        answer = await client.request(method, path, data=body, headers=AUTHORISED)
        document = await answer.json()
        assert answer.status == status and message in document["error"], document
        jsonschema.validate(document, schema("Error"))
        assert controller.core.policy is before and not controller.core.jobs.all

    served(scenario)


def test_a_body_that_does_not_come_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.sdn.api.server.BODY_S", 0.1)

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)

    async def scenario(client: TestClient[Any, Any], _: Shell) -> None:
        answer = await asyncio.wait_for(client.post("/v1/jobs", data=body(), headers=AUTHORISED), 2)
        document = await answer.json()
        assert answer.status == 408 and "within 0.1 s" in document["error"]
        assert "408" in DOCUMENT["paths"]["/v1/jobs"]["post"]["responses"]

    served(scenario)


def test_hosts_may_be_found_while_a_long_announcement_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(client: TestClient[Any, Any], controller: Shell) -> None:
        def slow_check(document: object, known_hosts: Collection[str]) -> AnnouncedJob:
            for number, _ in enumerate(known_hosts):
                controller.core.hosts.by_name[f"new{number}"] = controller.core.hosts.by_name["h1"]
            return parse_job(document, known_hosts)

        monkeypatch.setattr("barewire.sdn.api.server.parse_job", slow_check)
        answer = await client.post("/v1/jobs", json=JOB, headers=AUTHORISED)
        assert answer.status == 201

    served(scenario)


def opened(folder: Path, scenario: Callable[[str], Awaitable[None]]) -> None:
    """Run a scenario against an API, and its page, at a Unix socket of its own."""

    async def run() -> None:
        controller = shell()
        await controller.open()
        feed = Feed(controller, lambda _: None, 0.05)
        running = asyncio.create_task(feed.run())
        api = Api(controller, f"unix:{folder}/api.sock", TOKEN, Ui(feed))
        await api.open()
        try:
            await scenario(f"{folder}/api.sock")
        finally:
            await api.close()
            await running
            await controller.close()

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize(
    "sent", [b"", b"GET /v1/status HTTP/1.1\r\nHost: a\r\nX: ", b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"]
)
def test_a_connection_without_a_request_ends_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("barewire.sdn.api.server.IDLE_S", 0.2)

    async def scenario(path: str) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), 3)
        assert answer.startswith(b"HTTP/1.1 200 OK") or not sent.startswith(b"GET /openapi")
        writer.close()

    opened(tmp_path, scenario)


def test_a_stream_of_events_and_a_long_request_outlast_idle_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barewire.sdn.api.server.IDLE_S", 0.2)

    def slow_coflow(*given: Any) -> Any:
        time.sleep(0.8)
        return coflow_of(*given)

    monkeypatch.setattr("barewire.sdn.api.server.coflow_of", slow_coflow)

    async def scenario(path: str) -> None:
        async with (
            ClientSession(connector=UnixConnector(path), headers=AUTHORISED) as session,
            session.get("http://a/ui/events") as viewer,
        ):
            assert (viewer.status, viewer.content_type) == (200, "text/event-stream")
            put = await session.put("http://a/v1/policy/mpi", json={"strategy": "planned:turns=yes"})
            assert put.status == 200
            made = await (await session.post("http://a/v1/jobs", json=JOB)).json()
            begun = time.monotonic()
            turn = await session.post(f"http://a/v1/jobs/{made['id']}/turn", json={"wants": True})
            assert turn.status == 200 and (await turn.json())["goes"] and time.monotonic() > begun + 0.7
            await session.put("http://a/ui/experiment", json={"text": "later", "done": 1, "total": 2})
            seen = b""
            while b'"text":"later"' not in seen:
                seen += await asyncio.wait_for(viewer.content.readany(), 3)
                assert not viewer.content.at_eof()

    opened(tmp_path, scenario)


def test_connections_above_the_limit_are_refused_until_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barewire.sdn.api.server.CONNECTIONS_MAX", 3)
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"

    async def first_bytes(path: str) -> tuple[bytes, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(path)
        with contextlib.suppress(ConnectionError):
            writer.write(asked)
            return await asyncio.wait_for(reader.read(15), 3), writer
        return b"", writer

    async def scenario(path: str) -> None:
        answers = [await first_bytes(path) for _ in range(5)]
        assert [answer for answer, _ in answers] == [b"HTTP/1.1 200 OK"] * 3 + [b""] * 2
        answers[0][1].close()
        await asyncio.sleep(0.1)
        answer, last = await first_bytes(path)
        assert answer == b"HTTP/1.1 200 OK"
        for _, writer in (*answers, (answer, last)):
            writer.close()

    opened(tmp_path, scenario)


def test_the_controller_may_have_as_many_descriptors_as_the_system_permits() -> None:
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, 256), hard))
        permit_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_a_strategy_is_set_for_a_profile() -> None:
    async def scenario(client: TestClient[Any, Any], controller: Shell) -> None:
        answer = await client.put("/v1/policy/mpi", json={"strategy": "isolated:seconds=30"}, headers=AUTHORISED)
        assert answer.status == 200 and (await answer.json())["strategies"]["mpi"] == "isolated:seconds=30"
        assert controller.core.policy.strategies["mpi"] == "isolated:seconds=30"

    served(scenario)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("0.0.0.0:8181", "means all addresses"),
        ("[::]:8181", "means all addresses"),
        (":8181", "is not an address"),
        ("localhost:8181", "is not an address"),
        ("127.0.0.1:70000", "there is no port"),
        ("unix:", "is not an address"),
    ],
)
def test_the_api_is_served_at_one_address_only(place: str, message: str) -> None:
    async def scenario() -> None:
        with pytest.raises(WrongUse, match=message.replace("[", r"\[")):
            Api(shell(), place, TOKEN)

    asyncio.run(scenario())


def test_a_token_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "new" / "token"
    token = make_token(file)
    assert file.stat().st_mode & 0o777 == 0o600 and len(token) > 30 and make_token(file) == token == read_token(file)
    file.chmod(0o640)
    with pytest.raises(WrongUse, match="chmod 600"):
        read_token(file)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(WrongUse, match="does not contain a token"):
        read_token(file)
    with pytest.raises(WrongUse, match="no token in"):
        read_token(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineCannot, match="cannot create token file"):
        make_token(tmp_path / "file" / "token")


def test_programs_that_make_the_token_at_once_read_the_same_one(tmp_path: Path) -> None:
    """Each of many at the same moment; the file is never there without its contents, and nothing else stays."""
    for number in range(20):
        file = tmp_path / str(number) / "token"
        begin = threading.Barrier(8)

        def make(file: Path = file, begin: threading.Barrier = begin) -> str:
            begin.wait()
            return make_token(file)

        with ThreadPoolExecutor(8) as programs:
            made = [programs.submit(make) for _ in range(8)]
        assert {one.result() for one in made} == {read_token(file)} and list(file.parent.iterdir()) == [file]


class Running:
    """An API on a Unix socket, in a thread with its own event loop."""

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "token"
        self.url = f"unix:{folder}/api.sock"
        token = make_token(self.token_file)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

        async def begin() -> Shell:
            controller = shell()
            self._api = Api(controller, self.url, token)
            await self._api.open()
            return controller

        self.shell = asyncio.run_coroutine_threadsafe(begin(), self._loop).result(5)

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._api.close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    api = Running(tmp_path)
    yield api
    api.end()


def test_a_program_announces_a_job_steps_and_withdraws_it(running: Running) -> None:
    client = Client(running.url, running.token_file)
    job = client.announce(JOB)
    assert client.step(job["id"])["current"] == 1
    assert client.append(job["id"], JOB["patterns"])["patterns"] == 4  # type: ignore[arg-type]
    assert [job["id"] for job in client.get("jobs")["jobs"]] == [job["id"]]
    client.withdraw(job["id"])
    with pytest.raises(GoneError):
        client.renew(job["id"])
    with pytest.raises(WrongUse, match="unknown hosts: h7"):
        client.announce({"profile": "mpi", "hosts": ["h7"]})
    assert client.set_strategy("mpi", "stp")["strategies"]["mpi"] == "stp"


def test_a_job_waits_for_labels_that_are_still_being_installed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(running.url, running.token_file)
    pending = {"strategies": {"default": "stp", "mpi": "spray"}, "labels": {}, "labels_pending": True}
    settled = pending | {"labels": {"mpi": "3840-3843"}, "labels_pending": False}
    said: list[str] = []
    policies = iter([pending, pending, settled])
    monkeypatch.setattr(client, "get", lambda name: next(policies))
    monkeypatch.setattr("barewire.sdn.api.client.AGAIN_S", 0.01)
    assert client.labels("mpi", said.append) == "3840-3843" and not said
    monkeypatch.setattr("barewire.sdn.api.client.LABELS_PATIENCE_S", 0.02)
    monkeypatch.setattr(client, "get", lambda name: pending)
    assert client.labels("mpi", said.append) is None
    assert said == ["labels were still being installed after 0.02 s: frames may take one path"]


def test_a_job_stays_announced_while_it_runs_even_if_the_controller_forgets_it(running: Running) -> None:
    complaints: list[str] = []
    client = Client(running.url, running.token_file)
    with Announced(client, {**JOB, "lease_s": 1}, complaints.append) as announced:
        first = announced.id
        threading.Event().wait(1.5)
        assert [job["id"] for job in client.get("jobs")["jobs"]] == [first], "renewed"
        client.withdraw(first)  # as a controller that restarts would
        threading.Event().wait(0.8)
        assert announced.id != first and [job["id"] for job in client.get("jobs")["jobs"]] == [announced.id]
    assert client.get("jobs")["jobs"] == [] and not complaints


def test_a_missing_controller_is_reported(tmp_path: Path) -> None:
    token = tmp_path / "token"
    make_token(token)
    with pytest.raises(MeasurementFailed, match="is it running"):
        Client(f"unix:{tmp_path}/none", token).get("status")
    for url in ("ftp://somewhere", "http://10.0.0.1:81810", "http://10.0.0.1:http", "http://[::1:8181", "unix:", "h1"):
        with pytest.raises(WrongUse, match="write http://ADDRESS:PORT or unix:PATH"):
            Client(url, token)


def test_a_job_that_the_controller_has_forgotten_needs_no_withdrawal(running: Running) -> None:
    complaints: list[str] = []
    client = Client(running.url, running.token_file)
    with Announced(client, JOB, complaints.append) as announced:
        client.withdraw(announced.id)  # as a controller that restarts would
    assert not complaints


def test_the_announcement_of_barewire_run() -> None:
    library = Library("mpich", Family.MPICH, "4.0", Path("/lib/libmpi.so"))
    job = Job(library, (("localhost", 2), ("b", 1)), (), ("./program", "x"))
    assert announcement(job, "barewire", "a") == {
        "name": "./program",
        "profile": "mpi",
        "hosts": ["a", "b"],
        "ranks": ["a", "a", "b"],
        "traffic": [{"protocol": "llc"}],
    }
    assert announcement(job, "ofi-tcp", "a")["traffic"] == []
