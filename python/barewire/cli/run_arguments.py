# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A fast parser for the arguments of `barewire run`; typer parses whatever it does not accept.

Importing typer takes longer than everything else before an MPI launcher. `run.py` remains the declaration: help,
errors and unusual spellings are typer's. A test keeps both consistent.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barewire.models.naming import OWN_PROVIDER

# Names the network's controller unless --sdn does.
SDN_URL = "BAREWIRE_SDN"
_COUNT = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Request:
    """The parsed arguments of `barewire run`, with the command line's defaults."""

    program: tuple[str, ...]
    ranks: int
    fabric: str = OWN_PROVIDER
    library: str | None = None
    interface: str | None = None
    link: str | None = None
    wait: str | None = None
    progress: str | None = None
    auth: str | None = None
    ulfm: bool = False
    lab: str | None = None
    rate: str = "unshaped"
    mtu: int = 1500
    loss: str = "0"
    offloads: bool = False
    receive_on: str = "sender"
    hosts: str | None = None
    hostfile: Path | None = None
    sdn: str | None = None
    sdn_token: Path | None = None
    capture: Path | None = None
    explained: bool = False
    dry: bool = False
    as_json: bool = False


_FLAGS = {"--ulfm": "ulfm", "--explain": "explained", "--dry-run": "dry", "--json": "as_json"}
_TEXTS = {
    f"--{name}": name
    for name in (
        "fabric",
        "library",
        "interface",
        "link",
        "wait",
        "progress",
        "auth",
        "lab",
        "rate",
        "loss",
        "hosts",
        "sdn",
    )
} | {"--receive-on": "receive_on"}
_COUNTS = {"-n": "ranks", "--ranks": "ranks", "--mtu": "mtu"}
_FILES = {"--hostfile": "hostfile", "--sdn-token": "sdn_token", "--capture": "capture"}
_SWITCHES = {"--offloads": "offloads"}
OPTIONS = _FLAGS | _TEXTS | _COUNTS | _FILES | _SWITCHES


def parse(arguments: Sequence[str]) -> Request | None:
    """Parse the arguments after `run`; None leaves them to typer, for parsing or for an error message."""
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        if name == "--":
            break
        if name in _FLAGS:
            values[_FLAGS[name]] = True
            continue
        name, has_value, text = name.partition("=")
        if not has_value:
            if not rest:
                return None
            text = rest.pop(0)
        value = _value(name, text)
        if value is None or (has_value and not name.startswith("--")):
            return None
        values[OPTIONS[name]] = value
    if not rest or "ranks" not in values:
        return None
    return Request(tuple(rest), **values)


def _value(name: str, text: str) -> str | int | bool | Path | None:
    if not text or text.startswith("-"):
        return None
    if name in _TEXTS:
        return text
    if name in _FILES:
        return Path(text)
    if name in _COUNTS and _COUNT.fullmatch(text):
        return int(text)
    return text == "on" if name in _SWITCHES and text in ("on", "off") else None
