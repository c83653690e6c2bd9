# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The HTTP API over aiohttp: authorisation, requests and errors. A failed request has no effect."""

import asyncio
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from barewire.errors import BarewireError, MachineCannot, WrongUse
from barewire.sdn.api import documents
from barewire.sdn.api.openapi import DOCUMENT
from barewire.sdn.api.token import is_authorised
from barewire.sdn.classify.jobs import Job, UnknownJobError
from barewire.sdn.controller.shell import Shell
from barewire.sdn.openflow.channel import remove_stale_socket

# A shuffle of 192 × 192 as JSON is 1.5 MB. Parsing blocks the controller: 4 MiB take 40 ms.
BODY_BYTES_MAX = 4 << 20
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[0-9.]+)):(?P<port>\d{1,5})")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_SHOWN: dict[str, Callable[..., documents.Document]] = {
    "status": documents.status,
    "switches": documents.switches,
    "hosts": documents.hosts,
    "links": documents.links,
    "loads": documents.loads,
    "flows": documents.flows,
    "strategies": documents.strategies,
    "policy": documents.policy,
    "jobs": documents.jobs,
}


class Api:
    """Serves one controller at one address: `ADDRESS:PORT` or `unix:PATH`."""

    def __init__(self, shell: Shell, address: str, token: str) -> None:
        """Check the address; `open` serves. WrongUse for an invalid address."""
        self.address = address
        self._shell, self._token = shell, token
        self._path, self._address = _parse_address(address)
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        """Serve. MachineCannot if the system refuses."""
        self._runner = web.AppRunner(self.application(), access_log=None)
        await self._runner.setup()
        site: web.BaseSite
        try:
            if self._path is not None:
                remove_stale_socket(self._path)
                site = web.UnixSite(self._runner, str(self._path))
            else:
                site = web.TCPSite(self._runner, *self._address)
            await site.start()
            if self._path is not None:
                self._path.chmod(0o600)
        except OSError as error:
            await self._runner.cleanup()
            raise MachineCannot(f"cannot serve the API at {self.address}: {error.strerror or error}") from error

    async def close(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._path is not None:
            await asyncio.to_thread(self._path.unlink, missing_ok=True)

    def application(self) -> web.Application:
        """Return all routes, as in the OpenAPI document."""
        application = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        router = application.router
        router.add_get("/openapi.json", self._openapi)
        for name in _SHOWN:
            router.add_get(f"/v1/{name}", self._show)
        router.add_put("/v1/policy/{profile}", self._set_strategy)
        router.add_post("/v1/jobs", self._announce)
        router.add_get("/v1/jobs/{job}", self._job)
        router.add_delete("/v1/jobs/{job}", self._withdraw)
        router.add_put("/v1/jobs/{job}/lease", self._renew)
        router.add_post("/v1/jobs/{job}/step", self._step)
        router.add_post("/v1/jobs/{job}/patterns", self._append)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Check authorisation, and return errors as JSON."""
        public = request.path == "/openapi.json"
        if not public and not is_authorised(request.headers.get("Authorization"), self._token):
            hint = "send the header 'Authorization: Bearer TOKEN' with the token of the controller's token file"
            return _error(401, hint, {"WWW-Authenticate": "Bearer"})
        try:
            return await handler(request)
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

    async def _openapi(self, _request: web.Request) -> web.Response:
        return web.json_response(DOCUMENT)

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(_SHOWN[request.path.removeprefix("/v1/")](self._shell.core, self._shell.now))

    async def _set_strategy(self, request: web.Request) -> web.Response:
        body = await _body(request, ("strategy",))
        if not isinstance(body.get("strategy"), str):
            raise WrongUse('write {"strategy": "ecmp"}; GET /v1/strategies lists them')
        self._shell.core.set_strategy(request.match_info["profile"], body["strategy"], self._shell.now)
        self._shell.turn()
        return web.json_response(documents.policy(self._shell.core, self._shell.now))

    async def _announce(self, request: web.Request) -> web.Response:
        body = await _json(request)
        core = self._shell.core
        job = core.jobs.announce(body, core.hosts.by_name.keys(), self._shell.now)
        core.announced(job)
        return self._changed(job, 201)

    async def _job(self, request: web.Request) -> web.Response:
        return self._answer(self._shell.core.jobs.get(request.match_info["job"]))

    async def _withdraw(self, request: web.Request) -> web.Response:
        self._shell.core.jobs.withdraw(request.match_info["job"])
        self._shell.core.jobs_changed(self._shell.now)
        self._shell.turn()
        return web.Response(status=204)

    async def _renew(self, request: web.Request) -> web.Response:
        job = self._shell.core.jobs.renew(request.match_info["job"], self._shell.now)
        return self._answer(job)

    async def _step(self, request: web.Request) -> web.Response:
        body = await _body(request, ("to",)) if request.can_read_body else {}
        to = body.get("to")
        if to is not None and (isinstance(to, bool) or not isinstance(to, int)):
            raise WrongUse('write {"to": 3} for the pattern of this number, from 0; or no body for the next one')
        return self._changed(self._shell.core.jobs.step(request.match_info["job"], to, self._shell.now), 200)

    async def _append(self, request: web.Request) -> web.Response:
        body = await _body(request, ("patterns",))
        job = self._shell.core.jobs.append(request.match_info["job"], body.get("patterns"), self._shell.now)
        return self._changed(job, 200)

    def _answer(self, job: Job, status: int = 200) -> web.Response:
        return web.json_response(documents.job(self._shell.core, job, self._shell.now), status=status)

    def _changed(self, job: Job, status: int) -> web.Response:
        self._shell.core.jobs_changed(self._shell.now)
        self._shell.turn()
        return self._answer(job, status)


async def _json(request: web.Request) -> Any:
    try:
        return json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(reason=f"the body is not JSON ({type(error).__name__})") from error


async def _body(request: web.Request, keys: tuple[str, ...]) -> dict[str, Any]:
    body = await _json(request)
    if not isinstance(body, dict) or body.keys() - set(keys):
        raise WrongUse(f"the body is a JSON object with {', '.join(keys)}")
    return body


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": text}, status=status, headers=headers)


def _parse_address(address: str) -> tuple[Path | None, tuple[str, int]]:
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
