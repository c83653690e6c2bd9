# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Profiles kept apart where they meet: each gets its share of the parallel paths, and all of them where it is alone.

Two profiles on the hosts of one edge switch would otherwise share all of its uplinks, and long transfers take what
short messages wait for. Needs no announcement: only that flows are recognised. MPI's connections are placed before they
send, so that neighbours of a pattern may share a link while another is free: large flows leave links that are full.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from barewire.errors import WrongUse
from barewire.sdn.flow import DEFAULT_PROFILE, Flow, FlowKey, View
from barewire.sdn.strategies.balance import FlowDemand, Loads
from barewire.sdn.strategies.demands import is_large, natural_demands
from barewire.sdn.strategies.least_loaded import LeastLoaded
from barewire.sdn.strategies.load import crossing_of_profiles
from barewire.sdn.strategies.memo import paths_of
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path, Port

# A link that sends this share of its rate is full.
_FULL = 0.9


@dataclass(frozen=True)
class Lanes:
    """New flows are placed as by `least-loaded` within their lane; flows that meet another profile move into theirs.

    Large flows move within their lane, off links that their natural demands overload.
    """

    period_s: float = 1.0
    name: ClassVar[str] = "lanes"

    def __post_init__(self) -> None:
        """Validate the parameter."""
        if not self.period_s > 0:
            raise WrongUse(f"lanes' period_s is above 0, not {self.period_s}")

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take the least loaded path of the profile's lane."""
        lane = _lane(flow.profile, paths, view)
        placement = LeastLoaded().place(flow, lane, view)
        if len(lane) == len(paths):
            return placement
        return Placement(placement.path, reason=f"apart from other profiles; {placement.reason}")

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Move busy flows out of other profiles' lanes, and large ones off full links."""
        moves = _apart(view)
        return {**moves, **_relieved(view, moves)}


def _apart(view: View) -> dict[FlowKey, Path]:
    """Move busy flows out of other profiles' lanes."""
    busy = {profile for profile, ports in crossing_of_profiles(view).items() if ports}
    if len(busy - {DEFAULT_PROFILE}) < 2:
        return {}  # no two meet, and looking at 10,000 flows would keep the event loop from its work for 30 ms
    routes = paths_of(view.network)
    moves: dict[FlowKey, Path] = {}
    for key, placed in view.placed.items():
        if key in view.fixed or placed.is_idle or placed.flow.profile == DEFAULT_PROFILE:
            continue
        paths = routes.between(key.source, key.destination)
        lane = _lane(placed.flow.profile, paths, view)
        if len(lane) < len(paths) and placed.path in paths and placed.path not in lane:
            moves[key] = LeastLoaded().place(placed.flow, lane, view).path
    return moves


def _relieved(view: View, moves: Mapping[FlowKey, Path]) -> dict[FlowKey, Path]:
    """Move large flows within their lane, off links that they overload; `moves` are made before."""
    network = view.network
    between = (
        port for port, peer in network.peers.items() if port.node in network.switches and peer.node in network.switches
    )
    if not any(view.load_byte_s.get(port, 0.0) >= _FULL * network.rate_byte_s(port) for port in between):
        return {}
    routes = paths_of(network)
    others: defaultdict[Port, float] = defaultdict(float)
    large: list[FlowKey] = []
    lanes: list[Sequence[Path]] = []
    for key, placed in view.placed.items():
        path = moves.get(key, placed.path)
        if key not in view.fixed and placed.flow.profile != DEFAULT_PROFILE and is_large(key, placed, network):
            lane = _lane(placed.flow.profile, routes.between(key.source, key.destination), view)
            if path in lane:
                large.append(key)
                lanes.append(lane)
                continue
        for port in path:
            others[port] += placed.rate_byte_s
    if not large:
        return {}
    demands = natural_demands(network, [(key.source, key.destination) for key in large])
    loads = Loads(network, [FlowDemand(*flow) for flow in zip(lanes, demands, strict=True)], others)
    before = [moves.get(key, view.placed[key].path) for key in large]
    for number, path in enumerate(before):
        loads.put(number, path)
    loads.relieve(above=1.0)
    chosen = zip(large, loads.chosen, before, strict=True)
    return {key: path for key, path, present in chosen if path is not None and path != present}


def _lane(profile: str, paths: Sequence[Path], view: View) -> Sequence[Path]:
    """The paths that a profile may use: all, unless another one has busy flows on a link that can be avoided."""
    if len(paths) < 2 or profile == DEFAULT_PROFILE:
        return paths
    others = {
        other: ports for other, ports in crossing_of_profiles(view).items() if other not in (DEFAULT_PROFILE, profile)
    }
    if not others:
        return paths
    avoidable = set().union(*paths).difference(set(paths[0]).intersection(*paths[1:]))
    profiles = {profile}
    profiles.update(other for other, ports in others.items() if any(ports.get(port) for port in avoidable))
    if len(profiles) == 1:
        return paths
    groups: dict[object, list[Path]] = {}
    split = next(hop for hop in range(len(paths[0])) if len({path[hop] for path in paths}) > 1)
    for path in paths:
        groups.setdefault(path[split], []).append(path)
    lanes, rank = list(groups.values()), sorted(profiles).index(profile)
    if len(profiles) >= len(lanes):
        return lanes[rank % len(lanes)]
    return [path for number, lane in enumerate(lanes) if number * len(profiles) // len(lanes) == rank for path in lane]
