# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The other controller of a pair: follows its stream of frames, and connects again whenever that ends.

Each controller follows the other. The standby applies what the leader tells; both hear whether the other one lives.
"""

import asyncio
import contextlib
import errno
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

import aiohttp

from barewire.errors import WrongUse
from barewire.sdn.api.client import is_api_url
from barewire.sdn.api.replica import FRAME_BYTES_MAX, LENGTH_BYTES, Frame, apply, configuration_of, decode
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.shell import Shell
from barewire.sdn.tls import reason_of

# A peer that says nothing for this time does not answer. Frames come ten times a second.
SILENT_S = 1.0
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=SILENT_S, sock_read=2 * SILENT_S)
_AGAIN_S = 0.1
# Errors that say that no process listens there.
_REFUSED = (errno.ECONNREFUSED, errno.ENOENT, errno.ECONNRESET)
_HINTS = {
    401: "it refuses our token: give both controllers the same token file",
    403: "it refuses us as its peer: give both controllers the operator's token, and TLS to both or none",
    404: "it is no controller that can have a peer",
    409: "it was started without --peer",
}


class _RestartError(Exception):
    """The stream must begin again."""


class _ProtocolError(Exception):
    """What the peer answers is not a stream of frames."""


class Peer:
    """Follows the controller at `url`: `http://`, `https://` or `unix:`, as for clients of its API."""

    def __init__(
        self, url: str, shell: Shell, token: str, tell: Callable[[Event], None], tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls` is needed for `https://`. WrongUse for an invalid URL; `run` follows."""
        if not is_api_url(url):
            raise WrongUse(f"--peer {url}: write the other controller's API as https://ADDRESS:PORT or unix:PATH")
        parts = urlsplit(url)
        if parts.scheme == "https" and tls is None:
            raise WrongUse(f"--peer {url} needs --tls-key, --tls-certificate and --tls-ca")
        self.url = url.rstrip("/")
        self._path = parts.path if parts.scheme == "unix" else None
        self._shell, self._token, self._tell, self._tls = shell, token, tell, tls
        self._configuration = configuration_of(shell.core)
        self._frame: Frame | None = None
        self._heard_s = 0.0
        # Whether this standby's core has had everything from the beginning of a stream.
        self._has_begun = False
        self._told = ""
        self._differs = False

    def answers(self, now: float) -> bool:
        """Return whether it has given a sign of life lately."""
        return self._frame is not None and now < self._heard_s + SILENT_S

    def leads(self, now: float) -> bool:
        """Return whether it has said lately that it leads."""
        return self._frame is not None and self._frame.is_leader and self.answers(now)

    async def run(self) -> None:
        """Follow until cancelled."""
        connector = (
            aiohttp.UnixConnector(self._path) if self._path else aiohttp.TCPConnector(ssl=self._tls or True, limit=1)
        )
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
            while True:
                try:
                    await self._follow(session)
                except Exception as error:  # whatever it sends, and whatever fails here, it must be followed again
                    with contextlib.suppress(Exception):
                        self._lost(str(error) or type(error).__name__)
                await asyncio.sleep(_AGAIN_S)

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        """Follow one connection until it ends, and say why if that is news."""
        base = "http://localhost" if self._path else self.url
        headers = {"Authorization": f"Bearer {self._token}"}
        self._has_begun = False
        try:
            async with session.get(f"{base}/v1/pair/stream", headers=headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise _ProtocolError(_HINTS.get(answer.status, f"it answers with status {answer.status}"))
                while True:
                    self._take(await _frame(answer.content))
        except aiohttp.ClientConnectorCertificateError as error:
            self._lost(reason_of(error.certificate_error))
        except aiohttp.ClientConnectorError as error:
            if isinstance(error, aiohttp.ClientConnectorSSLError):
                self._lost(reason_of(error.os_error))
                return
            if error.os_error.errno in _REFUSED and self._shell.election is not None:
                self._shell.election.peer_refused(self._shell.now)
                self._shell.turn()
            self._lost(f"nobody answers ({error.os_error.strerror or error.os_error})")
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            # A peer that ends closes its stream; the next attempt finds out more.
            if not isinstance(error, asyncio.IncompleteReadError | aiohttp.ClientPayloadError):
                self._lost(reason_of(error) if isinstance(error, OSError) else str(error) or type(error).__name__)
        except _RestartError:
            pass

    def _take(self, frame: Frame) -> None:
        shell, election = self._shell, self._shell.election
        assert election is not None
        now = shell.now
        was_lost, self._frame, self._heard_s = not self.answers(now), frame, now
        if was_lost:
            self._told = ""
            self._tell(Event("peer", f"{self.url} answers, as the {'leader' if frame.is_leader else 'standby'}"))
        if frame.configuration != self._configuration and not self._differs:
            self._differs = True
            text = "hosts, signatures, tenants or time-outs, so the network will change with the leader"
            self._tell(Event("pair differs", f"{self.url} was started with other {text}"))
        election.heard(frame.is_leader, frame.generation, frame.switches, now)
        shell.turn()
        if election.is_leader or not frame.is_leader:
            self._has_begun = False
        elif frame.begins:
            shell.reset()
            apply(shell.core, frame, now)
            self._has_begun = True
            self._tell(Event("standby", f"this controller stands by: {self.url} leads"))
        elif self._has_begun:
            apply(shell.core, frame, now)
        else:
            # It told us everything while we led.
            raise _RestartError
        if not election.is_leader:
            for event in shell.core.take_events():
                self._tell(event)

    def _lost(self, why: str) -> None:
        if why != self._told:
            self._told = why
            self._tell(Event("peer lost", f"{self.url}: {why}"))


async def _frame(stream: aiohttp.StreamReader) -> Frame:
    length = int.from_bytes(await stream.readexactly(LENGTH_BYTES), "big")
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"it sent a frame of {length} bytes")
    return decode(await stream.readexactly(length))
