# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sessions over asyncio: listens for switches, and transports bytes and messages."""

import asyncio
import contextlib
import re
import socket
import ssl
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from barewire.errors import MachineCannot, WrongUse
from barewire.sdn.openflow.messages import FromSwitch, ToSwitch
from barewire.sdn.openflow.session import ClosedError, Session
from barewire.sdn.tls import handshake_error, reason_of

# Unread bytes after which a switch counts as dead: 100,000 flow mods.
UNREAD_BYTES_MAX = 16 << 20
# Connections at once; a k = 16 fat-tree has 320 switches.
CHANNELS_MAX = 4096
# Time limit of a TLS handshake, and of what is still to be sent when the controller ends.
TLS_S, END_S = 10.0, 1.0
_ADDRESS = re.compile(r"(?P<scheme>tcp|ssl):(?:\[(?P<six>[0-9a-fA-F:.%\w]+)\]|(?P<four>[^:\[\]]+)):(?P<port>\d{1,5})")

OnMessage = Callable[["Channel", list[FromSwitch]], None]
OnClosed = Callable[["Channel", str], None]


class Channel(asyncio.Protocol):
    """A switch's connection. `on_message` is called with its messages, `on_closed` once with the reason of its end."""

    def __init__(self, on_message: OnMessage, on_closed: OnClosed) -> None:
        """Initialise without a connection."""
        self._on_message = on_message
        self._on_closed = on_closed
        self._why = "it closed the connection"
        self._loop = asyncio.get_running_loop()
        self._session = Session(self._loop.time())
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:  # by what it sent with the last bytes of its TLS handshake
            self._transport.abort()
            return
        self._flush()
        self._poll()

    def data_received(self, data: bytes) -> None:
        """Parse bytes and deliver messages."""
        try:
            events = self._session.receive(data, self._loop.time())
        except ClosedError as error:
            self.close(str(error))
            return
        if events:
            self._on_message(self, events)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport, self._is_over = None, True
        self._on_closed(self, reason_of(error) if error else self._why)

    def send(self, messages: Iterable[ToSwitch]) -> None:
        """Send messages; ignored after the end of the connection, which `on_closed` reports."""
        try:
            for message in messages:
                self._session.send(message)
        except ClosedError as error:
            self.close(str(error))
        else:
            self._flush()

    def close(self, why: str) -> None:
        """Close the connection after sending pending output."""
        self._why, self._is_over = why, True
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once: its switch does not read."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        outgoing, transport = self._session.outgoing, self._transport
        if not outgoing or transport is None or transport.is_closing():
            return
        transport.write(bytes(outgoing))
        outgoing.clear()
        if transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._why = f"it left {UNREAD_BYTES_MAX} bytes unread"
            transport.abort()

    def _poll(self) -> None:
        try:
            again_s = self._session.poll(self._loop.time())
        except ClosedError as error:
            self._why = str(error)
            self.abort()
            return
        self._flush()
        self._timer = self._loop.call_at(again_s, self._poll)


class Listener:
    """A listening socket for switches: `unix:PATH`, `tcp:ADDRESS:PORT`, or `ssl:ADDRESS:PORT` for TLS."""

    def __init__(
        self, address: str, on_message: OnMessage, on_closed: OnClosed, tls: ssl.SSLContext | None = None
    ) -> None:
        """Check the address; `open` listens. `tls` is needed for, and used by, `ssl:` only."""
        self.address = address
        self._tls: ssl.SSLContext | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._on_message, self._on_closed = on_message, on_closed
        self._channels: set[Channel] = set()
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._endpoint = ("", 0)
        if address.startswith("unix:") and len(address) > len("unix:"):
            self._path = Path(address.removeprefix("unix:"))
        elif (match := _ADDRESS.fullmatch(address)) and 0 < int(match["port"]) < 1 << 16:
            self._endpoint = (match["six"] or match["four"], int(match["port"]))
            if match["scheme"] == "ssl":
                if tls is None:
                    raise WrongUse(f"'{address}' needs --tls-key, --tls-certificate and --tls-ca")
                self._tls = tls
        else:
            raise WrongUse(
                f"'{address}' is not an address to listen on: unix:PATH or tcp:ADDRESS:PORT (tcp:10.0.0.1:6653), or "
                "ssl:ADDRESS:PORT for TLS"
            )

    async def open(self) -> None:
        """Listen. MachineCannot if the system refuses."""
        loop = asyncio.get_running_loop()
        try:
            if self._path is not None:
                remove_stale_socket(self._path)
                self._server = await loop.create_unix_server(self._accept, str(self._path))
                self._path.chmod(0o600)
            else:
                self._server = await loop.create_server(self._accept, *self._endpoint)
        except OSError as error:
            raise MachineCannot(f"cannot listen for switches at {self.address}: {error.strerror or error}") from error

    async def close(self) -> None:
        """Close all connections and stop listening; the switches keep their rules."""
        if self._server is not None:
            self._server.close()
        for handshake in list(self._handshakes):
            handshake.cancel()
        for channel in list(self._channels):
            channel.close("the controller ends")
        until_s = asyncio.get_running_loop().time() + END_S
        while self._channels:
            await asyncio.sleep(0.01)
            if asyncio.get_running_loop().time() > until_s:
                for channel in list(self._channels):
                    channel.abort()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _accept(self) -> asyncio.Protocol:
        channel = Channel(self._on_message, self._forget)
        if len(self._channels) >= CHANNELS_MAX:
            return Refused()
        self._channels.add(channel)
        return channel if self._tls is None else Raw(lambda transport: self._secure(channel, transport))

    def _secure(self, channel: Channel, transport: asyncio.Transport) -> None:
        handshake = asyncio.get_running_loop().create_task(self._shake_hands(channel, transport))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, channel: Channel, transport: asyncio.Transport) -> None:
        """Let a channel begin once TLS is agreed. asyncio's own servers would not say why it was not."""
        assert self._tls is not None
        peer = transport.get_extra_info("peername")
        try:
            await secure(transport, channel, self._tls, TLS_S)
        except asyncio.CancelledError:
            self._forget(channel, "the controller ends")
            raise
        except OSError as error:
            self._forget(channel, f"{peer[0] if peer else 'a switch'}: {handshake_error(error)}")

    def _forget(self, channel: Channel, why: str) -> None:
        # After a failed handshake, asyncio reports the end as well.
        if channel in self._channels:
            self._channels.remove(channel)
            self._on_closed(channel, why)


class Raw(asyncio.Protocol):
    """A connection before its TLS handshake, which reads the first byte."""

    def __init__(self, begin: Callable[[asyncio.Transport], None]) -> None:
        """`begin` is called once, with the transport for `secure`."""
        self._begin = begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        raw = cast(asyncio.Transport, transport)
        raw.pause_reading()
        self._begin(raw)


async def secure(
    transport: asyncio.Transport, protocol: asyncio.Protocol, tls: ssl.SSLContext, timeout_s: float
) -> None:
    """Let a protocol begin at a raw connection once TLS is agreed. OSError says why it is not."""
    loop = asyncio.get_running_loop()
    secured = await loop.start_tls(transport, protocol, tls, server_side=True, ssl_handshake_timeout=timeout_s)
    # Otherwise it has ended meanwhile, which the protocol was told.
    if secured is not None and not secured.is_closing():
        protocol.connection_made(secured)


class Refused(asyncio.Protocol):
    """A connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """End it."""
        cast(asyncio.Transport, transport).abort()


def remove_stale_socket(path: Path) -> None:
    """Remove the socket of a process that has ended; MachineCannot if a process listens on it, or it is a file."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise MachineCannot(f"{path} is a file, not a socket: choose another path, or remove it")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                return
        raise MachineCannot(f"{path} is in use by another process: end it, or choose another path")
