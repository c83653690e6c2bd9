# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The live page of an experiment: at one address, whichever launch's controller runs, with the experiment's progress.

Controllers of launches are in their labs, at Unix sockets. The relay passes their events on, in a thread of its own,
and only while a page is open.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web

from barewire.errors import MachineCannot, WrongUse
from barewire.sdn.api.server import parse_address
from barewire.sdn.token import is_authorised, make_token, read_token
from barewire.sdn.ui.feed import EXPERIMENT_TEXT_MAX as TEXT_MAX
from barewire.sdn.ui.server import PAGE, WRITE_S, page_response

_END_S = 1.0
# A controller sends every second.
_TIMEOUT = ClientTimeout(total=None, sock_connect=2, sock_read=15)


@dataclass(frozen=True)
class _Upstream:
    socket: Path
    token: str


class Relay:
    """Serves the page at `ADDRESS:PORT` to those who have the token in a file, which is created if missing."""

    def __init__(self, address: str, token_file: Path) -> None:
        """Check the address; WrongUse if it is invalid, or a Unix socket."""
        self.address = address
        path, self._address = parse_address(address)
        if path is not None:
            raise WrongUse(f"--ui {address}: a browser needs ADDRESS:PORT, such as 127.0.0.1:8181")
        self._experiment: dict[str, object] | None = None
        self._token_file, self._token = token_file, ""
        self._upstream: _Upstream | None = None

    def note(self, done: int, total: int, text: str) -> None:
        """Note the experiment's progress; pages show it from the next launch on."""
        self._experiment = {"text": text[:TEXT_MAX], "done": done, "total": total}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve during the block. MachineCannot if the system refuses."""
        self._token = make_token(self._token_file)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="live-page")
        thread.start()
        try:
            runner = asyncio.run_coroutine_threadsafe(self._open(), loop).result()
            try:
                yield
            finally:
                asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    @contextmanager
    def showing(self, socket: Path, token_file: Path) -> Iterator[None]:
        """Show the controller at a Unix socket during the block."""
        self._upstream = _Upstream(socket, read_token(token_file))
        try:
            yield
        finally:
            self._upstream = None

    async def _open(self) -> web.AppRunner:
        application = web.Application()
        application.router.add_get(PAGE, self._page)
        application.router.add_get(f"{PAGE}/events", self._events)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_END_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._address).start()
        except OSError as error:
            await runner.cleanup()
            raise MachineCannot(f"cannot serve the page at {self.address}: {error.strerror or error}") from error
        return runner

    async def _page(self, _request: web.Request) -> web.Response:
        return page_response()

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if not is_authorised(request.headers.get("Authorization"), self._token):
            return web.json_response({"error": "the token is missing or wrong"}, status=401)
        upstream = self._upstream
        if upstream is None:
            return web.json_response({"error": "the next launch is being prepared"}, status=502)
        response = None
        headers = {"Authorization": f"Bearer {upstream.token}"}
        connector = UnixConnector(str(upstream.socket))
        try:
            async with (
                ClientSession("http://controller", headers=headers, connector=connector, timeout=_TIMEOUT) as session,
                session.put(f"{PAGE}/experiment", json=self._experiment),
                session.get(f"{PAGE}/events") as found,
            ):
                response = web.StreamResponse(status=found.status, headers={"Cache-Control": "no-store"})
                response.content_type = found.content_type
                await response.prepare(request)
                async for chunk in found.content.iter_any():
                    async with asyncio.timeout(WRITE_S):
                        await response.write(chunk)
                async with asyncio.timeout(WRITE_S):
                    await response.write_eof()
        except (ClientError, OSError, TimeoutError) as error:
            # The launch has ended, or the viewer has left.
            if response is None:
                return web.json_response({"error": f"the launch has ended: {error}"}, status=502)
            # A viewer that takes nothing would keep its connection, and what waits for it, for ever.
            if isinstance(error, TimeoutError) and request.transport is not None:
                request.transport.abort()
        return response
