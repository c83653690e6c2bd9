# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Measures one pair of hosts in both directions, and all hosts at once."""

import asyncio
import itertools
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from barewire.cluster.agents import Agent
from barewire.cluster.measured import Path, Together
from barewire.cluster.tournament import Pair

# Preamble, start delimiter, header, FCS and gap of an Ethernet frame (IEEE 802.3 clause 3.1.1, 4.4.2).
_WIRE_OVERHEAD_BYTES = 38
# Streams use what passes everywhere; longer frames would hide a slow port behind a small MTU.
_STREAM_BYTES_MAX = 1500
# Common MTUs, to find the largest that passes: jumbo frames, Ethernet, PPPoE, tunnels, IPv6's and IPv4's minimum.
_MTU_STEPS = (9000, 8000, 4000, 2000, 1500, 1492, 1450, 1400, 1280, 576)
_PING_BYTES = 64
# More than the scheduler delays an answer on a shared core.
_PING_TIMEOUT_MS = 100
# Of three long frames one must arrive, so that a port that drops some does not look as if it had a small MTU.
_MTU_TRIES, _MTU_TIMEOUT_MS = 3, 60
# Frames on the way: few enough for the queue of any switch, enough for 1 Gbit/s with a millisecond's delay.
_WINDOW = 64
# All at once, the kernel of an emulated cluster queues what all hosts send (net.core.netdev_max_backlog: 1000).
_WINDOW_SHARED_KERNEL = 32

_numbers = itertools.count(1 << 20)


@dataclass(frozen=True)
class Effort:
    """How long each part takes."""

    stream_ms: int = 60
    work_ms: int = 150
    together_ms: int = 150
    pings: int = 30
    permutations: int = 6

    def longer(self) -> "Effort":
        """Return the effort that confirms what looks wrong."""
        return replace(self, stream_ms=4 * self.stream_ms, work_ms=2 * self.work_ms, together_ms=3 * self.together_ms)


async def measure_pair(
    first: Agent, second: Agent, facts: tuple[Mapping[str, Any], Mapping[str, Any]], effort: Effort
) -> dict[Pair, Path]:
    """Measure both directions of a pair, one after the other and both at once."""
    ends = {(first.host.name, second.host.name): (first, second), (second.host.name, first.host.name): (second, first)}
    addresses = {first.host.name: facts[0]["address"], second.host.name: facts[1]["address"]}
    mtu = min(fact["payload_bytes_max"] for fact in facts)
    found = await asyncio.gather(*(_mtu_passed(ends[path][0], addresses[path[1]], mtu) for path in ends))
    passed = dict(zip(ends, found, strict=True))
    round_trip_ns = None if None in found else await _round_trip_ns(first, addresses[second.host.name], effort.pings)

    async def stream(path: Pair) -> dict[str, Any]:
        sender, receiver = ends[path]
        payload_bytes = min(_STREAM_BYTES_MAX, passed[path] or mtu)
        return await _stream(sender, receiver, addresses[path[1]], payload_bytes, _WINDOW, effort.stream_ms)

    alone = {path: await stream(path) for path in ends}
    both = dict(zip(ends, await asyncio.gather(*map(stream, ends)), strict=True))
    return {
        path: Path(
            bandwidth_bit_s=alone[path]["bandwidth_bit_s"],
            sent=alone[path]["sent"],
            lost=alone[path]["lost"],
            reordered=alone[path]["reordered"],
            both_sent=both[path]["sent"],
            both_lost=both[path]["lost"],
            both_bandwidth_bit_s=both[path]["bandwidth_bit_s"],
            mtu_passed=passed[path],
            mtu_expected=mtu,
            round_trip_ns=round_trip_ns,
        )
        for path in ends
    }


def streams_together(
    agents: Mapping[str, Agent], facts: Mapping[str, Mapping[str, Any]], paths: Sequence[Pair], milliseconds: int
) -> list[Coroutine[Any, Any, Together]]:
    """Return streams to measure at once, in which each host sends to one and receives from one."""
    payload_bytes = min(_STREAM_BYTES_MAX, *(fact["payload_bytes_max"] for fact in facts.values()))
    is_one_kernel = len({fact["machine"] for fact in facts.values()}) < len(facts)
    window = _WINDOW_SHARED_KERNEL if is_one_kernel else _WINDOW

    async def stream(path: Pair) -> Together:
        sender, receiver = path
        peer = facts[receiver]["address"]
        told = await _stream(agents[sender], agents[receiver], peer, payload_bytes, window, milliseconds)
        return Together(told["bandwidth_bit_s"], told["sent"], told["lost"])

    return [stream(path) for path in paths]


async def _round_trip_ns(sender: Agent, peer: str, count: int) -> float | None:
    order = {"bytes": _PING_BYTES, "reply_bytes": _PING_BYTES, "timeout_ms": _PING_TIMEOUT_MS}
    told = await sender.order("ping", peer=peer, count=count, enough=count, **order)
    return min(told["round_trips_ns"], default=None)


async def _mtu_passed(sender: Agent, peer: str, mtu: int) -> int | None:
    """Return the largest of the common payloads that arrives; the answers are short, so this is one direction's."""

    async def arrives(payload_bytes: int) -> bool:
        order = {"bytes": payload_bytes, "reply_bytes": _PING_BYTES, "timeout_ms": _MTU_TIMEOUT_MS}
        told = await sender.order("ping", peer=peer, count=_MTU_TRIES, enough=1, **order)
        return bool(told["round_trips_ns"])

    # At once, because each that does not pass takes all its tries.
    sizes = [mtu, *(step for step in (*_MTU_STEPS, _PING_BYTES) if step < mtu)]
    passed = await asyncio.gather(*map(arrives, sizes))
    return max((size for size, does_pass in zip(sizes, passed, strict=True) if does_pass), default=None)


async def _stream(
    sender: Agent, receiver: Agent, peer: str, payload_bytes: int, window: int, milliseconds: int
) -> dict[str, Any]:
    number = next(_numbers)
    order = {"bytes": payload_bytes, "window": window, "milliseconds": milliseconds}
    sent = (await sender.order("stream", number=number, peer=peer, **order))["sent"]
    told = await receiver.order("received", stream=number)
    frames = told["received"]
    # What the receiving host itself dropped, because its agent did not get a core in time, is not the network's loss.
    lost = max(0, sent - frames - told["dropped_here"])
    bits = (frames - 1) * (payload_bytes + _WIRE_OVERHEAD_BYTES) * 8
    return {
        "sent": sent,
        "lost": lost,
        "reordered": told["reordered"],
        "bandwidth_bit_s": bits / told["nanoseconds"] * 1e9 if frames > 1 and told["nanoseconds"] > 0 else None,
    }
