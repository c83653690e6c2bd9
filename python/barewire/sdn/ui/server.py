# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Serves the live page and its events over aiohttp, beside the API.

GET /ui             the page: no secret, so no token needed
GET /ui/events      server-sent events, with the token in the header, which a page can only send through fetch
PUT /ui/experiment  the progress of an experiment, for the page
"""

import asyncio
import base64
import hashlib
import json
from functools import cache
from importlib.resources import files

from aiohttp import web

from barewire.sdn.ui.feed import Feed

PAGE = "/ui"
VIEWERS_MAX = 16
# A viewer that takes nothing for this time is gone; so is a controller that sends nothing, for the page.
WRITE_S = 15.0


class Ui:
    """The page of one feed, for a bounded number of viewers; its events need the token, the empty page does not."""

    public = frozenset({PAGE})

    def __init__(self, feed: Feed, viewers_max: int = VIEWERS_MAX, write_s: float = WRITE_S) -> None:
        """`write_s` is the time that a viewer has to take an event."""
        self.feed = feed
        self._viewers_max, self._write_s = viewers_max, write_s

    def add_routes(self, application: web.Application) -> None:
        """Add the page's routes."""
        application.router.add_get(PAGE, self._page)
        application.router.add_get(f"{PAGE}/events", self._events)
        application.router.add_put(f"{PAGE}/experiment", self._set_experiment)
        application.on_shutdown.append(self._end)

    async def _end(self, _application: web.Application) -> None:
        await self.feed.close()

    async def _page(self, _request: web.Request) -> web.Response:
        return page_response()

    async def _set_experiment(self, request: web.Request) -> web.Response:
        try:
            document = json.loads(await request.read())
        except (ValueError, RecursionError) as error:
            raise web.HTTPBadRequest(reason=f"the body is not JSON ({type(error).__name__})") from error
        self.feed.set_experiment(document)
        return web.Response(status=204)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self.feed.is_over:
            return web.json_response({"error": "the page has ended, the network goes on: see the events"}, status=503)
        if self.feed.viewers >= self._viewers_max:
            text = f"{self.feed.viewers} pages are open already, and there may be {self._viewers_max}: close one"
            return web.json_response({"error": text}, status=503, headers={"Retry-After": "30"})
        self.feed.viewers += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            await response.prepare(request)
            try:
                await self._send(response)
            except (ConnectionError, TimeoutError):
                # The viewer has closed its page, or takes nothing: nobody's error, and nothing to wait for.
                if request.transport is not None:
                    request.transport.abort()
        finally:
            self.feed.viewers -= 1
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        """Write each kind of state whenever it is newer than the viewer's, while this controller leads."""
        feed, seen = self.feed, 0
        await self._write(response, feed.history())
        while feed.is_shown:
            newer = [event for number, event in feed.states.values() if number > seen]
            seen = feed.number
            await self._write(response, b"".join(newer))
            async with feed.changed:
                if feed.number == seen and feed.is_shown:
                    await feed.changed.wait()

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if data:
            async with asyncio.timeout(self._write_s):
                await response.write(data)


def page_response() -> web.Response:
    """Return the page, which may load nothing and send nothing anywhere else."""
    text, policy = page()
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=text, content_type="text/html", headers=headers)


@cache
def page() -> tuple[str, str]:
    """Return the page, and the policy that allows nothing but its own script and style."""
    assets = files("barewire.sdn.ui") / "assets"
    style = (files("barewire.report") / "assets" / "report.css").read_text() + (assets / "page.css").read_text()
    script = "\n".join((assets / name).read_text() for name in ("stream.js", "tree.js", "page.js"))
    text = (assets / "page.html").read_text().replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
