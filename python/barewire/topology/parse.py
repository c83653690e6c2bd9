# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Switched networks by their names on the command line."""

import re
from collections.abc import Callable
from dataclasses import replace

from barewire.errors import unknown
from barewire.topology.custom import load
from barewire.topology.fat_tree import fat_tree
from barewire.topology.network import Network
from barewire.topology.star import star

KINDS = ("fat-tree:K", "star:N", "FILE.toml")
_SHAPES: dict[str, Callable[[int], Network]] = {"fat-tree": fat_tree, "star": star}


def parse(text: str) -> Network:
    """Parse `fat-tree:K`, `star:N` (one switch) or the name of a TOML file, which ends in .toml."""
    if text.endswith(".toml"):
        return load(text)
    kind, _, size = text.partition(":")
    if kind not in _SHAPES or re.fullmatch(r"[0-9]{1,4}", size) is None:
        raise unknown("topology", text, KINDS, "; K even")
    return _SHAPES[kind](int(size))


def with_rate(network: Network, rate_bit_s: int | None) -> Network:
    """Return the network with this rate in every direction without one."""
    if rate_bit_s is None:
        return network
    return replace(network, rates_bit_s=dict.fromkeys(network.peers, rate_bit_s) | dict(network.rates_bit_s))
