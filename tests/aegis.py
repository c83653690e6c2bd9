# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Frames' seals by the standards alone: AEGIS-128L (draft-irtf-cfrg-aegis-aead) and HKDF (RFC 5869), slow and plain.

Shares no line with what the product uses; docs/protocol.md says what is put together how.
"""

import hashlib
import hmac
from dataclasses import dataclass

_C0 = bytes.fromhex("000101020305080d1522375990e97962")
_C1 = bytes.fromhex("db3d18556dc22ff12011314273b528dd")


def _times_x(value: int) -> int:
    return (value << 1) ^ (0x11B if value & 0x80 else 0)


def _s_box() -> bytes:
    """FIPS 197: the inverse in GF(2^8), and an affine map."""
    box, p, q = [0x63] * 256, 1, 1
    while True:
        p ^= _times_x(p)
        for shift in (1, 2, 4):
            q ^= q << shift & 0xFF
        q ^= 0x09 if q & 0x80 else 0
        turned = q
        for shift in (1, 2, 3, 4):
            turned ^= (q << shift | q >> (8 - shift)) & 0xFF
        box[p] = turned ^ 0x63
        if p == 1:
            return bytes(box)


_S = _s_box()


def _xor(*blocks: bytes) -> bytes:
    value = 0
    for block in blocks:
        value ^= int.from_bytes(block, "big")
    return value.to_bytes(16, "big")


def _and(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") & int.from_bytes(other, "big")).to_bytes(16, "big")


def aes_round(block: bytes, key: bytes) -> bytes:
    """SubBytes, ShiftRows, MixColumns, AddRoundKey."""
    mixed = bytearray()
    for column in range(4):
        a = [_S[block[4 * ((column + row) % 4) + row]] for row in range(4)]
        every = a[0] ^ a[1] ^ a[2] ^ a[3]
        mixed += bytes(a[row] ^ every ^ _times_x(a[row] ^ a[(row + 1) % 4]) for row in range(4))
    return _xor(bytes(mixed), key)


class _State:
    def __init__(self, key: bytes, nonce: bytes) -> None:
        self.s = [_xor(key, nonce), _C1, _C0, _C1, _xor(key, nonce), _xor(key, _C0), _xor(key, _C1), _xor(key, _C0)]
        for _ in range(10):
            self.update(nonce, key)

    def update(self, one: bytes, other: bytes) -> None:
        s = self.s
        keys = [_xor(s[0], one), s[1], s[2], s[3], _xor(s[4], other), s[5], s[6], s[7]]
        self.s = [aes_round(s[number - 1], keys[number]) for number in range(8)]

    def absorb(self, data: bytes) -> None:
        for at in range(0, len(data), 32):
            block = data[at : at + 32].ljust(32, b"\0")
            self.update(block[:16], block[16:])

    def decrypt(self, ciphertext: bytes) -> bytes:
        text = bytearray()
        for at in range(0, len(ciphertext), 32):
            s, block = self.s, ciphertext[at : at + 32]
            stream = _xor(s[6], s[1], _and(s[2], s[3])) + _xor(s[2], s[5], _and(s[6], s[7]))
            plain = bytes(a ^ b for a, b in zip(block, stream, strict=False))
            self.absorb(plain)
            text += plain
        return bytes(text)

    def tag(self, data_bytes: int, message_bytes: int) -> bytes:
        lengths = (8 * data_bytes).to_bytes(8, "little") + (8 * message_bytes).to_bytes(8, "little")
        last = _xor(self.s[2], lengths)
        for _ in range(7):
            self.update(last, last)
        return _xor(*self.s[:7])


def decrypt(key: bytes, nonce: bytes, ciphertext: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Return the message and the tag that it must have."""
    state = _State(key, nonce)
    state.absorb(data)
    return state.decrypt(ciphertext), state.tag(len(data), len(ciphertext))


def hkdf(salt: bytes, secret: bytes, info: bytes) -> bytes:
    """Return 16 bytes of HKDF-SHA256."""
    pseudorandom = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()[:16]


@dataclass(frozen=True)
class Opened:
    """A frame whose seal was looked at."""

    kind: str
    is_right: bool
    information: bytes


def open_frame(frame: bytes, secret: bytes, *, encrypts: bool) -> Opened:
    """Verify and decrypt a frame as docs/protocol.md says."""
    length = int.from_bytes(frame[12:14], "big")
    end = len(frame) if length == 0x8870 else 14 + length
    kind, header, front, has_information = _layout(frame[14:18])
    at = 14 + header if has_information else end
    counter, tag, rest = frame[at : at + 8], frame[at + 8 : at + 24], frame[at + 24 :]
    information = frame[at + 24 + front : end] if has_information else b""
    numbered = frame[16] & 3 != 3
    who = frame[6:12] + bytes([frame[15] & 0xFE, frame[14]])
    mark = rest[:5] + bytes(3) if numbered else rest[:8]
    key = hkdf(b"Barewire", secret, b"frame" + bytes([encrypts, numbered]) + who + mark)
    nonce, data = counter + bytes(8), frame[:12] + frame[14:at] + rest[:front]
    if encrypts and has_information:
        text, expected = decrypt(key, nonce, information, data)
        return Opened(kind, tag == expected, text)
    _, expected = decrypt(key, nonce, b"", data + information)
    return Opened(kind, tag == expected, information)


def _layout(llc: bytes) -> tuple[str, int, int, bool]:
    """What PDU it is, bytes to the end of its control field and of its extension, and whether information follows."""
    control, is_response = llc[2], llc[1] & 1 == 1
    if control & 1 == 0:
        return "I", 4, 10, True
    if control & 3 == 1:
        return "S", 4, 27, False
    names = {0x03: "UI", 0x6F: "SABME", 0x63: "UA", 0x0F: "DM", 0x43: "DISC", 0x87: "FRMR", 0x67: "AC", 0xE7: "AC"}
    kind = names.get(control & ~0x10, "other")
    has_information = kind == "UI" or (kind == "AC" and not is_response)
    return kind, 3, 25 if kind in ("SABME", "UA") else 8, has_information
