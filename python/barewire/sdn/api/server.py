# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The HTTP API over aiohttp: authorisation, requests and errors. A failed request has no effect."""

import asyncio
import contextlib
import ipaddress
import re
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from aiohttp import web

from barewire.errors import BarewireError, MachineCannot, WrongUse
from barewire.sdn.api import documents, schema
from barewire.sdn.api.access import Access, Caller, ForbiddenError, QuotaError
from barewire.sdn.api.openapi import DOCUMENT
from barewire.sdn.api.replica import Frame, Outgoing, configuration_of, encode
from barewire.sdn.classify.announcement import Announcement, read
from barewire.sdn.classify.jobs import Job, UnknownJobError, parse_job
from barewire.sdn.coflow import coflow_of
from barewire.sdn.controller.election import BEAT_S
from barewire.sdn.controller.shell import Shell
from barewire.sdn.openflow.channel import Raw, Refused, remove_stale_socket, secure

# A shuffle of 192 × 192 as JSON is 1.5 MB. Decoding blocks the controller: 2 MiB take 10 ms.
BODY_BYTES_MAX = 2 << 20
# Longer bodies are checked in a thread, beside which the controller runs on; of a tenant one at a time.
_SHORT_BYTES = 32 << 10
# A request's body must have come within this time.
BODY_S = 30.0
# A connection without a request for this time is closed, and one that does not agree on TLS.
IDLE_S = 10.0
# Connections at once, with those whose TLS is not agreed yet; more are refused, so that switches have descriptors left.
CONNECTIONS_MAX = 512
# A standby that takes nothing for this time is disconnected; it connects again.
_STANDBY_S = 5.0
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[0-9.]+)):(?P<port>\d{1,5})")
CALLER = web.RequestKey("caller", Caller)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_Read = TypeVar("_Read")

_SHOWN: dict[str, Callable[..., msgspec.Struct]] = {
    "status": documents.status,
    "switches": documents.switches,
    "hosts": documents.hosts,
    "links": documents.links,
    "loads": documents.loads,
    "strategies": documents.strategies,
    "policy": documents.policy,
    "jobs": documents.jobs,
}


class _StandbyError(Exception):
    """This controller has stepped down while a request was read."""


class Pages(Protocol):
    """What else is served at the API's address, with the same token except for `public` paths."""

    public: frozenset[str]

    def add_routes(self, application: web.Application) -> None:
        """Add all routes."""


class Api:
    """Serves one controller at one address: `ADDRESS:PORT` or `unix:PATH`."""

    def __init__(
        self,
        shell: Shell,
        address: str,
        token: str,
        pages: Pages | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Check the address; `open` serves, also the pages if given. WrongUse for an invalid address.

        With `tls` an `ADDRESS:PORT` is served by HTTPS.
        """
        self.address = address
        self._shell, self._pages = shell, pages
        self._public = {"/openapi.json", *(pages.public if pages is not None else ())}
        # What both controllers of a pair answer themselves.
        self._own = {*self._public, "/v1/pair", "/v1/pair/stream"}
        self._path, self._address = parse_address(address)
        self._tls = None if self._path is not None else tls
        self.url = address if self._path is not None else f"http{'s' if tls else ''}://{address}"
        self._access = Access(
            token, shell.core.slices.tenants, lambda: (self._shell.core.jobs, self._shell.core.slices.owners)
        )
        self._configuration = configuration_of(shell.core)
        self._long_bodies: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._is_over = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Serve. MachineCannot if the system refuses."""
        self._runner = web.AppRunner(self.application(), access_log=None, keepalive_timeout=IDLE_S)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            if self._path is not None:
                remove_stale_socket(self._path)
                self._server = await loop.create_unix_server(self._accept, str(self._path))
            else:
                self._server = await loop.create_server(self._accept, *self._address)
            if self._path is not None:
                self._path.chmod(0o600)
        except OSError as error:
            await self._runner.cleanup()
            raise MachineCannot(f"cannot serve the API at {self.address}: {error.strerror or error}") from error

    async def close(self) -> None:
        """Stop serving."""
        self._is_over.set()
        if self._server is not None:
            self._server.close()
        for handshake in list(self._handshakes):
            handshake.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._path is not None:
            await asyncio.to_thread(self._path.unlink, missing_ok=True)

    def _accept(self) -> asyncio.Protocol:
        server = None if self._runner is None else self._runner.server
        if server is None or len(server.connections) + len(self._handshakes) >= CONNECTIONS_MAX:
            return Refused()
        handler, tls = server(), self._tls
        return handler if tls is None else Raw(lambda transport: self._secure(handler, transport, tls))

    def _secure(self, handler: asyncio.Protocol, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        # asyncio's own server would count a connection, and refuse it, only after its handshake.
        async def shake_hands() -> None:
            with contextlib.suppress(OSError):
                await secure(transport, handler, tls, IDLE_S)

        handshake = asyncio.get_running_loop().create_task(shake_hands())
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    def application(self) -> web.Application:
        """Return all routes, as in the OpenAPI document."""
        application = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        router = application.router
        router.add_get("/openapi.json", self._openapi)
        for name in _SHOWN:
            router.add_get(f"/v1/{name}", self._show)
        router.add_get("/v1/flows", self._flows)
        router.add_get("/v1/tenants", self._tenants)
        router.add_get("/v1/pair", self._pair)
        router.add_get("/v1/pair/stream", self._pair_stream)
        router.add_put("/v1/policy/{profile}", self._set_strategy)
        router.add_post("/v1/jobs", self._announce)
        router.add_get("/v1/jobs/{job}", self._job)
        router.add_delete("/v1/jobs/{job}", self._withdraw)
        router.add_put("/v1/jobs/{job}/lease", self._renew)
        router.add_post("/v1/jobs/{job}/step", self._step)
        router.add_post("/v1/jobs/{job}/turn", self._turn)
        router.add_post("/v1/jobs/{job}/patterns", self._append)
        if self._pages is not None:
            self._pages.add_routes(application)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Check authorisation, and return errors as JSON."""
        public = request.path in self._public
        caller = self._access.caller(request.headers.get("Authorization"))
        if not public and caller is None:
            hint = "send the header 'Authorization: Bearer TOKEN' with the token of the controller's token file"
            return _error(401, hint, {"WWW-Authenticate": "Bearer"})
        request[CALLER] = caller or Caller()
        try:
            if not public:
                self._access.check(request[CALLER], request.method, request.path, self._shell.now)
            if not self._shell.is_leader and request.path not in self._own:
                return self._elsewhere(request)
            with self._access.handling(request[CALLER]):
                return await handler(request)
        except _StandbyError:
            return self._elsewhere(request)
        except ForbiddenError as error:
            return _error(403, str(error))
        except QuotaError as error:
            return _error(429, str(error), {"Retry-After": "1"})
        except web.HTTPRequestEntityTooLarge:
            return _error(413, f"the body is longer than {BODY_BYTES_MAX} bytes: announce patterns one after another")
        except web.HTTPException as error:
            return _error(
                error.status, f"{error.reason}: {request.method} {request.path}; /openapi.json lists all requests"
            )
        except UnknownJobError as error:
            return _error(404, str(error))
        except BarewireError as error:
            return _error(422, str(error))

    def _elsewhere(self, request: web.Request) -> web.Response:
        """Send a client of the standby to the leader."""
        peer = self._shell.peer
        if peer is None or not peer.leads(self._shell.now):
            return _error(503, "this is the standby, and no leader is known yet: try again", {"Retry-After": "1"})
        text = f"this is the standby: {peer.url} leads"
        location = {} if peer.url.startswith("unix:") else {"Location": f"{peer.url}{request.path_qs}"}
        return _error(307, text, {schema.LEADER_HEADER: peer.url, **location})

    async def _pair(self, _request: web.Request) -> web.Response:
        return _answer(documents.pair(self._shell, self.url))

    async def _pair_stream(self, request: web.Request) -> web.StreamResponse:
        """Tell the other controller that this one lives and, if it leads, all that changes."""
        election = self._shell.election
        if election is None:
            return _error(409, "this controller has no peer: start it with --peer")
        if self._tls is not None and not request.get_extra_info("peercert"):
            return _error(403, "a peer shows a certificate of an authority in --tls-ca")
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        outgoing = Outgoing(self._shell.core)
        with contextlib.suppress(ConnectionError, TimeoutError):
            await response.prepare(request)
            while not self._is_over.is_set():
                now, core = self._shell.now, self._shell.core
                if outgoing.core is not core:
                    outgoing = Outgoing(core)
                head = Frame(election.is_leader, election.generation, election.answering(now), self._configuration)
                for frame in outgoing.changes(head, now) if election.is_leader else (head,):
                    async with asyncio.timeout(_STANDBY_S):
                        await response.write(encode(frame))
                    await asyncio.sleep(0)
                    if self._shell.core is not core:
                        break  # it was replaced as the leader meanwhile
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_over.wait(), BEAT_S)
        return response

    async def _openapi(self, _request: web.Request) -> web.Response:
        return web.json_response(DOCUMENT)

    async def _show(self, request: web.Request) -> web.Response:
        tenant = request[CALLER].tenant
        if tenant is not None and request.path == "/v1/jobs":
            own = self._access.jobs(request[CALLER])
            return _answer(schema.Jobs([documents.job(job, self._shell.now) for job in own]))
        if tenant is not None and request.path == "/v1/hosts":
            shown = documents.hosts(self._shell.core, self._shell.now).hosts
            mine = self._access.hosts(request[CALLER], (), {one.name for one in shown})
            return _answer(schema.Hosts([one for one in shown if one.name in mine]))
        return _answer(_SHOWN[request.path.removeprefix("/v1/")](self._shell.core, self._shell.now))

    async def _flows(self, _request: web.Request) -> web.Response:
        return _answer(await documents.flows(self._shell.core, self._shell.now))

    async def _tenants(self, request: web.Request) -> web.Response:
        tenant, shown = request[CALLER].tenant, await documents.tenants(self._shell.core)
        if tenant is not None:
            shown = schema.Tenants([one for one in shown.tenants if one.name == tenant.name])
        return _answer(shown)

    async def _set_strategy(self, request: web.Request) -> web.Response:
        chosen = await self._body(request, schema.ChosenStrategy)
        self._shell.core.set_strategy(request.match_info["profile"], chosen.strategy, self._shell.now)
        self._shell.turn_soon()
        return _answer(documents.policy(self._shell.core, self._shell.now))

    async def _announce(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        self._access.check_jobs(caller)
        # Copied, because hosts may be found while a thread checks the names.
        known = frozenset(self._shell.core.hosts.by_name)

        def parse(body: bytes) -> tuple[Job, int]:
            announcement = read(body, Announcement)
            flows = sum(map(len, announcement.patterns))
            return parse_job(announcement, self._access.hosts(caller, announcement.hosts, known)), flows

        parsed, flows = await self._checked(request, parse)
        self._access.check_jobs(caller)
        self._access.check_quota(caller, flows, len(parsed.ranks))
        core = self._shell.core
        job = core.jobs.add(parsed, self._shell.now)
        self._access.announced(caller, job)
        core.announced(job)
        return self._changed(job, 201)

    async def _job(self, request: web.Request) -> web.Response:
        return self._job_answer(self._job_of(request))

    async def _withdraw(self, request: web.Request) -> web.Response:
        self._shell.core.jobs.withdraw(self._job_of(request).id)
        self._shell.core.jobs_changed(self._shell.now)
        self._shell.turn_soon()
        return web.Response(status=204)

    async def _renew(self, request: web.Request) -> web.Response:
        return self._job_answer(self._shell.core.jobs.renew(self._job_of(request).id, self._shell.now))

    async def _step(self, request: web.Request) -> web.Response:
        step = await self._body(request, schema.Step) if request.can_read_body else schema.Step()
        return self._changed(self._shell.core.jobs.step(self._job_of(request).id, step.to, self._shell.now), 200)

    async def _turn(self, request: web.Request) -> web.Response:
        turn, job, core = await self._body(request, schema.Turn), self._job_of(request), self._shell.core
        if not turn.wants:
            core.turn_ended(job.id, self._shell.now)
            return _answer(schema.Granted(goes=False))
        coflow = None
        if core.takes_turns(job):
            # Remembered while the pattern and the network stay the same.
            coflow = await asyncio.to_thread(coflow_of, core.network(), job.pattern, core.pattern())
            self._check_leads()
            core = self._shell.core
        return _answer(schema.Granted(core.turn(self._job_of(request).id, coflow, self._shell.now)))

    async def _append(self, request: web.Request) -> web.Response:
        jobs, job_id = self._shell.core.jobs, self._job_of(request).id
        more = await self._checked(
            request, lambda body: jobs.parse_patterns(job_id, read(body, schema.Patterns).patterns)
        )
        self._access.check_quota(request[CALLER], sum(map(len, more)))
        return self._changed(self._shell.core.jobs.append(self._job_of(request).id, more, self._shell.now), 200)

    async def _body(self, request: web.Request, kind: type[_Read]) -> _Read:
        return await self._checked(request, lambda body: read(body, kind))

    async def _checked(self, request: web.Request, parse: Callable[[bytes], _Read]) -> _Read:
        """Read and check a body; HTTPBadRequest if it is not JSON, HTTPRequestTimeout if it does not come.

        _StandbyError if another controller leads by then.
        """
        tenant, length = request[CALLER].tenant, request.content_length
        is_short = length is not None and length <= _SHORT_BYTES
        try:
            async with contextlib.nullcontext() if tenant is None or is_short else self._long_bodies[tenant.name]:
                async with asyncio.timeout(BODY_S):
                    body = await request.read()
                parsed = parse(body) if len(body) <= _SHORT_BYTES else await asyncio.to_thread(parse, body)
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(reason=f"the body did not come within {BODY_S:g} s") from error
        except ValueError as error:
            raise web.HTTPBadRequest(reason="the body is not JSON") from error
        self._check_leads()
        return parsed

    def _check_leads(self) -> None:
        if not self._shell.is_leader:
            raise _StandbyError

    def _job_of(self, request: web.Request) -> Job:
        return self._access.job(request[CALLER], request.match_info["job"])

    def _changed(self, job: Job, status: int) -> web.Response:
        self._shell.core.jobs_changed(self._shell.now)
        self._shell.turn_soon()
        return self._job_answer(job, status)

    def _job_answer(self, job: Job, status: int = 200) -> web.Response:
        return _answer(documents.job(job, self._shell.now), status)


def _answer(document: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(document)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return _answer(schema.Error(text), status, headers)


def parse_address(address: str) -> tuple[Path | None, tuple[str, int]]:
    """Parse `unix:PATH`, or `ADDRESS:PORT` for one address. WrongUse with what to write."""
    if address.startswith("unix:") and len(address) > len("unix:"):
        return Path(address.removeprefix("unix:")), ("", 0)
    match = _ADDRESS.fullmatch(address)
    try:
        parsed = ipaddress.ip_address((match["six"] or match["four"]) if match else "")
    except ValueError:
        raise WrongUse(
            f"'{address}' is not an address for the API: write ADDRESS:PORT of the management network, or unix:PATH"
        ) from None
    assert match is not None
    if parsed.is_unspecified:
        raise WrongUse(f"'{address}' means all addresses: give one of the management network, or unix:PATH")
    if int(match["port"]) >= 1 << 16:
        raise WrongUse(f"'{address}': there is no port {match['port']}")
    return None, (str(parsed), int(match["port"]))
