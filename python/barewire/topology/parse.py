# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Switched networks by their names on the command line."""

import re
from collections.abc import Callable
from dataclasses import replace

from barewire.errors import WrongUse, unknown
from barewire.topology.custom import load
from barewire.topology.dragonfly import dragonfly
from barewire.topology.fat_tree import fat_tree
from barewire.topology.leaf_spine import leaf_spine
from barewire.topology.network import Network
from barewire.topology.star import star

KINDS = ("fat-tree:K", "leaf-spine:LxSxH", "dragonfly:AxHxP", "star:N", "FILE.toml")
# The sizes of each kind, and what they are.
_SHAPES: dict[str, tuple[Callable[..., Network], tuple[str, ...]]] = {
    "fat-tree": (fat_tree, ("ports of a switch, even",)),
    "leaf-spine": (leaf_spine, ("leaves", "spines", "hosts at a leaf")),
    "dragonfly": (dragonfly, ("switches in a group", "global links of a switch", "hosts at a switch")),
    "star": (star, ("hosts",)),
}
# The largest fat-tree below has k = 106; more would fill the memory before anything could be said.
_SWITCHES_MAX, _HOSTS_MAX, _LINKS_MAX = 20_000, 300_000, 1_000_000


def parse(text: str) -> Network:
    """Parse one of `KINDS`: sizes are joined by x, as in leaf-spine:4x2x4; a TOML file's name ends in .toml."""
    if text.endswith(".toml"):
        return load(text)
    kind, _, sizes = text.partition(":")
    if kind not in _SHAPES or re.fullmatch(r"[0-9]{1,4}(?:[x×][0-9]{1,4})*", sizes) is None:
        raise unknown("topology", text, KINDS, "; K even")
    create, meanings = _SHAPES[kind]
    numbers = [int(size) for size in re.split("[x×]", sizes)]
    if len(numbers) != len(meanings):
        raise WrongUse(f"{kind} takes {' x '.join(meanings)}, not '{sizes}'")
    _check_size(text, kind, numbers)
    return create(*numbers)


def _check_size(text: str, kind: str, sizes: list[int]) -> None:
    """Reject a network that would not fit into memory."""
    switches, hosts, between = 1, sizes[0], 0
    if kind == "fat-tree":
        switches, hosts, between = 5 * sizes[0] ** 2 // 4, sizes[0] ** 3 // 4, sizes[0] ** 3 // 2
    elif kind == "leaf-spine":
        switches, hosts, between = sizes[0] + sizes[1], sizes[0] * sizes[2], sizes[0] * sizes[1]
    elif kind == "dragonfly":
        groups = sizes[0] * sizes[1] + 1
        switches = sizes[0] * groups
        hosts = switches * sizes[2]
        between = groups * (sizes[0] * (sizes[0] - 1) + groups - 1) // 2
    links = hosts + between
    if switches > _SWITCHES_MAX or hosts > _HOSTS_MAX or links > _LINKS_MAX:
        raise WrongUse(
            f"{text} has {switches} switches, {hosts} hosts and {links} links, above {_SWITCHES_MAX}, {_HOSTS_MAX} and "
            f"{_LINKS_MAX}; take smaller sizes"
        )


def with_rate(network: Network, rate_bit_s: int | None) -> Network:
    """Return the network with this rate in every direction without one."""
    if rate_bit_s is None:
        return network
    return replace(network, rates_bit_s=dict.fromkeys(network.peers, rate_bit_s) | dict(network.rates_bit_s))
