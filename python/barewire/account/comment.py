# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The comment that `barewire run --capture` leaves in a capture: hosts by name, and their MTU; one line of JSON.

It is an option of pcapng's section header block (draft-ietf-opsawg-pcapng, section 4.1).
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

_SCHEMA = "barewire-capture/1"
_SECTION_HEADER = b"\x0a\x0d\x0d\x0a"
_MAGIC = 0x1A2B3C4D
# Block type and length, magic, version, length of the section.
_FIXED_BYTES = 24
_BLOCK_BYTES_MAX = 1 << 20
_COMMENT = 1


@dataclass(frozen=True)
class Comment:
    """What a capture says of itself: addresses of hosts by name, and the MTU of their links; nothing by default."""

    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    mtu: int | None = None

    def __str__(self) -> str:
        """Return the comment's text."""
        hosts = {name: list(addresses) for name, addresses in self.hosts.items()}
        return json.dumps({"schema": _SCHEMA, "hosts": hosts, "mtu": self.mtu}, separators=(",", ":"))


def comment_of(capture: Path) -> Comment:
    """Read a capture's comment."""
    with capture.open("rb") as file:
        for text in _comments(file):
            # mergecap appends its own lines.
            try:
                document = json.loads(text.splitlines()[0])
            except (ValueError, IndexError, RecursionError):
                continue
            if isinstance(document, dict) and document.get("schema") == _SCHEMA:
                return _read(document)
    return Comment()


def _read(document: Mapping[str, Any]) -> Comment:
    """Return what our comment says; nothing if it is damaged."""
    try:
        return Comment(
            msgspec.convert(document["hosts"], dict[str, list[str]]), msgspec.convert(document["mtu"], int | None)
        )
    except (KeyError, msgspec.ValidationError):
        return Comment()


def _comments(file: BinaryIO) -> list[str]:
    start = file.read(_FIXED_BYTES)
    if len(start) < _FIXED_BYTES or start[:4] != _SECTION_HEADER:
        return []
    order = "<" if struct.unpack("<I", start[8:12])[0] == _MAGIC else ">"
    length = struct.unpack(f"{order}I", start[4:8])[0]
    if not _FIXED_BYTES < length <= _BLOCK_BYTES_MAX:
        return []
    options = file.read(length - _FIXED_BYTES - 4)
    found, at = [], 0
    while at + 4 <= len(options):
        code, size = struct.unpack(f"{order}HH", options[at : at + 4])
        if code == 0:
            break
        if code == _COMMENT:
            found.append(options[at + 4 : at + 4 + size].decode(errors="replace"))
        at += 4 + (size + 3) // 4 * 4
    return found
