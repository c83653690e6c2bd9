# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Networks from a TOML file:

    switches = ["s1", "s2", "s3"]
    hosts = ["h1", "h2"]

    [[links]]
    ends = ["h1", "s1"]             # ports get the lowest free numbers, in the file's order

    [[links]]
    ends = ["s1:3", "s2:1"]         # or explicit ports
    rate = "10mbit"                 # in both directions; default: the lab's

Switches are named s1, s2 …: the number is the datapath id. Loops are allowed. All nodes must be connected, and a host
has only one link. Hosts named server1 and so on are servers, which get no ranks by default.
"""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from barewire.errors import WrongUse
from barewire.topology.checks import check
from barewire.topology.links import Links
from barewire.topology.network import Network, Port
from barewire.topology.rate import check_rate, parse_rate

# OpenFlow 1.3 reserves what is above OFPP_MAX; Open vSwitch numbers ports with 16 bits, up to 0xff00.
PORT_NUMBER_MAX = 0xFEFF
_END = re.compile(r"([^:]*)(?::([0-9]{1,9}))?")
_KEYS = {"switches", "hosts", "links"}
_LINK_KEYS = {"ends", "rate"}


def load(path: str | Path) -> Network:
    """Read a TOML file; WrongUse describes what is wrong in it."""
    try:
        document = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError, RecursionError) as error:  # ValueError also of a number of thousands of digits
        raise WrongUse(f"topology file {path} cannot be read: {error}") from error
    try:
        return _read(document)
    except WrongUse as error:
        raise WrongUse(f"topology file {path}: {error}") from error


def _read(document: Mapping[str, Any]) -> Network:
    _check_keys(document, _KEYS, "the file")
    switches, hosts = _names(document, "switches"), _names(document, "hosts")
    tables = document.get("links", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise WrongUse('links must be tables; write [[links]] and below it ends = ["h1", "s1"]')
    ends = [_ends(table) for table in tables]
    known = {*switches, *hosts}
    for name in (name for pair in ends for name, _ in pair):
        if name not in known:
            raise WrongUse(f"a link ends at '{name}', which is neither among the switches nor the hosts")
    links = Links()
    rates: dict[Port, int] = {}
    for table, (first, second) in zip(tables, _numbered(ends), strict=True):
        links.add(first, second)
        if "rate" in table:
            rates |= dict.fromkeys((first, second), _rate(table["rate"], f"the link {first} to {second}"))
    network = Network(switches, hosts, links.peers, rates)
    check(network)
    return network


def _names(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = document.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WrongUse(f'{key} must be a list of names, such as {key} = ["{key[0]}1", "{key[0]}2"]')
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise WrongUse(f"{key} names {', '.join(repeated)} twice")
    return tuple(names)


def _ends(table: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    _check_keys(table, _LINK_KEYS, "a link")
    texts = table.get("ends")
    if not isinstance(texts, list) or len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        raise WrongUse(f'a link must have two ends, such as ends = ["s1", "s2:3"], not {texts!r}')
    ends: list[tuple[str, int | None]] = []
    for text in texts:
        match = _END.fullmatch(text)
        if match is None or (match[2] and not 1 <= int(match[2]) <= PORT_NUMBER_MAX):
            raise WrongUse(
                f"'{text}' is not an end of a link; write s1, or s1:3 with a port from 1 to {PORT_NUMBER_MAX}"
            )
        ends.append((match[1], int(match[2]) if match[2] else None))
    return ends


def _numbered(ends: Sequence[Sequence[tuple[str, int | None]]]) -> list[tuple[Port, Port]]:
    """Assign the lowest free number of the file to each end without one."""
    taken = {Port(name, number) for pair in ends for name, number in pair if number is not None}
    free: defaultdict[str, Iterator[int]] = defaultdict(lambda: iter(range(1, PORT_NUMBER_MAX + 1)))
    numbered = []
    for pair in ends:
        ports = []
        for name, number in pair:
            port = Port(name, number) if number is not None else _free_port(name, free[name], taken)
            ports.append(port)
        numbered.append((ports[0], ports[1]))
    return numbered


def _free_port(name: str, numbers: Iterator[int], taken: set[Port]) -> Port:
    for number in numbers:
        if (port := Port(name, number)) not in taken:
            return port
    raise WrongUse(f"{name} has more than {PORT_NUMBER_MAX} links, and a switch no more ports")


def _rate(text: object, context: str) -> int:
    rate_bit_s = parse_rate(text) if isinstance(text, str) else None
    if rate_bit_s is None:
        raise WrongUse(f'{context} has the rate {text!r}; write it as "100mbit", or omit it')
    check_rate(rate_bit_s)
    return rate_bit_s


def _check_keys(table: Mapping[str, Any], allowed: set[str], context: str) -> None:
    unknown = sorted(set(table) - allowed)
    if unknown:
        raise WrongUse(f"{context} has the unknown key '{unknown[0]}'; there are: {', '.join(sorted(allowed))}")
