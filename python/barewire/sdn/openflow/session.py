# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One connection to a switch: bytes and `now` in, messages and bytes out; no socket, no clock.

hello ⇄ hello → features → ready: anything goes, echo in both directions
                              any malformed, oversized or late message → ClosedError, for this switch only
"""

import itertools
import struct

from os_ken.ofproto import ofproto_v1_3 as of

from barewire.sdn.openflow.codec import HEADER, VERSION, MalformedError, decode, encode, framed, hello, versions_of
from barewire.sdn.openflow.messages import (
    BarrierReply,
    BarrierRequest,
    FromSwitch,
    PacketOut,
    Request,
    RoleRequest,
    SwitchError,
    SwitchUp,
    ToSwitch,
)

# Time limit of a handshake.
HANDSHAKE_S = 10.0
# Silence after which an echo is requested, and after which a switch counts as dead: three lost echoes.
ECHO_AFTER_S = 5.0
DEAD_AFTER_S = 15.0
# Size limit of a multipart reply: about 600,000 of our rules; a switch with more is disconnected.
MULTIPART_BYTES_MAX = 64 << 20
# Limit on unanswered requests and barriers, and on rules not confirmed by a barrier.
PENDING_MAX = 200_000

# Messages that a switch answers, so that a barrier does not confirm them.
_ANSWERED = (Request, BarrierRequest)
# The first byte of TLS, where an OpenFlow version should be.
_TLS_HANDSHAKE = 22
# Errors of a controller that another one has replaced: a stale generation, and a change as a slave.
_NOT_MASTER = (
    (of.OFPET_ROLE_REQUEST_FAILED, of.OFPRRFC_STALE),
    (of.OFPET_BAD_REQUEST, of.OFPBRC_IS_SLAVE),
)
_ERROR_NAMES = {
    value: name.removeprefix("OFPET_").lower().replace("_", " ")
    for name, value in vars(of).items()
    if name.startswith("OFPET_")
}


class ClosedError(Exception):
    """The connection must be closed, with the reason."""


class Session:
    """The controller's side of a connection."""

    def __init__(self, now: float) -> None:
        """Begin with our hello in `outgoing`."""
        self.outgoing = bytearray(hello(1))
        self._received = bytearray()
        self._xid = 1
        self._state = "hello"
        self._began_s = self._heard_s = now
        self._asked_echo_s = 0.0
        self._parts_bytes = 0
        # By xid, in sending order: requests and, until a barrier, messages that may be refused.
        self._pending: dict[int, ToSwitch] = {}
        self._parts: dict[int, list[bytes]] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is done."""
        return self._state == "ready"

    def send(self, message: ToSwitch) -> None:
        """Append a message's bytes to `outgoing`. Rules must eventually be followed by a barrier: see PENDING_MAX.

        ClosedError if it leaves too many unanswered, or if a message is longer than OpenFlow can say.
        """
        if len(self._pending) >= PENDING_MAX:
            raise ClosedError(f"it left {PENDING_MAX} requests unanswered")
        xid = self._next_xid()
        if not isinstance(message, PacketOut):
            self._pending[xid] = message
        try:
            self.outgoing += encode(message, xid)
        except struct.error as error:  # it claims more ports than one rule can send to
            raise ClosedError(f"a message to it cannot be encoded: {error}") from error

    def receive(self, data: bytes, now: float) -> list[FromSwitch]:
        """Parse received bytes and return messages; may append replies to `outgoing`. ClosedError at the end."""
        self._heard_s = now
        self._received += data
        events = []
        at = 0
        try:
            while len(self._received) - at >= HEADER.size:
                version, kind, length, xid = HEADER.unpack_from(self._received, at)
                if version == _TLS_HANDSHAKE and self._state == "hello":
                    raise MalformedError("TLS to an address without TLS: let it connect to tcp:, or listen at ssl:")
                if length < HEADER.size:
                    raise MalformedError(f"a message of {length} bytes")
                if version != VERSION and kind not in (of.OFPT_HELLO, of.OFPT_ERROR):
                    raise MalformedError(f"OpenFlow version {version} after the handshake")
                if len(self._received) - at < length:
                    break
                event = self._handle(version, kind, xid, bytes(self._received[at + HEADER.size : at + length]))
                at += length
                if event is not None:
                    events.append(event)
        except MalformedError as error:
            raise ClosedError(f"it sent {error}") from error
        finally:
            del self._received[:at]
        return events

    def poll(self, now: float) -> float:
        """Handle due timers and return the next deadline. ClosedError if the switch is silent for too long."""
        if not self.is_ready:
            if now >= self._began_s + HANDSHAKE_S:
                raise ClosedError(f"its handshake took longer than {HANDSHAKE_S:g} s")
            return self._began_s + HANDSHAKE_S
        if now >= self._heard_s + DEAD_AFTER_S:
            raise ClosedError(f"it was silent for {DEAD_AFTER_S:g} s")
        if now >= self._heard_s + ECHO_AFTER_S and now >= self._asked_echo_s + ECHO_AFTER_S:
            self._asked_echo_s = now
            self.outgoing += framed(of.OFPT_ECHO_REQUEST, self._next_xid())
        return min(self._heard_s + DEAD_AFTER_S, max(self._heard_s, self._asked_echo_s) + ECHO_AFTER_S)

    def _handle(self, version: int, kind: int, xid: int, body: bytes) -> FromSwitch | None:
        if kind == of.OFPT_ECHO_REQUEST:
            self.outgoing += framed(of.OFPT_ECHO_REPLY, xid, body)
            return None
        if kind == of.OFPT_ERROR:
            return self._refused(xid, body)
        if self._state == "hello":
            self._take_hello(version, kind, xid, body)
            return None
        if self._state == "features":
            if kind != of.OFPT_FEATURES_REPLY:
                return None
            self._state = "ready"
            return decode(kind, body)
        if kind == of.OFPT_MULTIPART_REPLY:
            return self._multipart(xid, body)
        if kind == of.OFPT_BARRIER_REPLY:
            return self._confirmed(xid)
        if kind == of.OFPT_ROLE_REPLY and not isinstance(self._pending.pop(xid, None), RoleRequest):
            return None
        event = decode(kind, body)
        return None if isinstance(event, SwitchUp) else event

    def _take_hello(self, version: int, kind: int, xid: int, body: bytes) -> None:
        if kind != of.OFPT_HELLO:
            raise MalformedError(f"message type {kind} before its hello")
        if not versions_of(version, body):
            text = b"this controller speaks OpenFlow 1.3"
            code = of.OFPHFC_INCOMPATIBLE.to_bytes(2, "big")
            self.outgoing += framed(of.OFPT_ERROR, xid, of.OFPET_HELLO_FAILED.to_bytes(2, "big") + code + text)
            raise ClosedError(f"it speaks OpenFlow up to version {version}, not 1.3 (4): set it to OpenFlow13")
        self._state = "features"
        self.outgoing += framed(of.OFPT_FEATURES_REQUEST, self._next_xid())

    def _refused(self, xid: int, body: bytes) -> SwitchError:
        if len(body) < 4:
            raise MalformedError(f"an error of {len(body)} bytes")
        kind, code = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big")
        if kind == of.OFPET_HELLO_FAILED:
            raise ClosedError(f"it refused our hello: {body[4:].decode(errors='replace')}")
        full = kind == of.OFPET_FLOW_MOD_FAILED and code == of.OFPFMFC_TABLE_FULL
        text = "table full" if full else f"{_ERROR_NAMES.get(kind, f'error type {kind}')}, code {code}"
        request = self._pending.get(xid)
        if isinstance(request, Request | BarrierRequest | RoleRequest):
            del self._pending[xid]
            self._drop_parts(xid)
        return SwitchError(kind, code, text, request, full, (kind, code) in _NOT_MASTER)

    def _multipart(self, xid: int, body: bytes) -> FromSwitch | None:
        request = self._pending.get(xid)
        if not isinstance(request, Request):
            return None
        if len(body) < 8:
            raise MalformedError(f"a multipart answer of {len(body)} bytes")
        parts = self._parts.setdefault(xid, [])
        parts.append(body)
        self._parts_bytes += len(body)
        if self._parts_bytes > MULTIPART_BYTES_MAX:
            raise MalformedError(f"an answer of more than {MULTIPART_BYTES_MAX} bytes")
        if body[3] & of.OFPMPF_REPLY_MORE:
            return None
        whole_body = body[:8] + b"".join(part[8:] for part in parts)
        self._drop_parts(xid)
        del self._pending[xid]
        return decode(of.OFPT_MULTIPART_REPLY, whole_body, request.question)

    def _drop_parts(self, xid: int) -> None:
        self._parts_bytes -= sum(len(part) for part in self._parts.pop(xid, []))

    def _confirmed(self, xid: int) -> BarrierReply | None:
        request = self._pending.pop(xid, None)
        if not isinstance(request, BarrierRequest):
            return None
        # Messages before the barrier are executed or refused; only requests may still be pending.
        before = itertools.takewhile(lambda earlier: not _is_later(earlier, xid), self._pending)
        for earlier in [known for known in before if not isinstance(self._pending[known], _ANSWERED)]:
            del self._pending[earlier]
        return BarrierReply(request.token)

    def _next_xid(self) -> int:
        self._xid = self._xid % 0xFFFF_FFFF + 1
        return self._xid


def _is_later(xid: int, than: int) -> bool:
    """Compare numbers modulo 2³²."""
    return (xid - than) % (1 << 32) < 1 << 31
