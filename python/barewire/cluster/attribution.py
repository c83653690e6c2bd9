# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which port explains bad paths? Pure.

A fault of a port shows on all paths through it in that direction, and shall be named once. So the port with the most
bad paths is blamed first, if most of its paths are bad; its paths are then explained, and the next port is looked for.
"""

from collections.abc import Collection, Iterable

from barewire.cluster.finding import Blame, Direction
from barewire.cluster.tournament import Pair

# Of a port's paths that must be bad. One bad partner of three others shall not make all of them suspects.
PORT_SHARE = 0.6
# Of all paths without the worst host's: then it is the network.
EVERYWHERE_SHARE = 0.8
# With fewer, the ports of one host could explain most paths: then all must be bad.
EVERYWHERE_HOSTS = 4

Port = tuple[str, Direction]


def attribute(bad: Collection[Pair], measured: Collection[Pair]) -> list[Blame]:
    """Explain the bad ones of the measured paths by as few ports as possible, the worst first."""
    if _is_everywhere(bad, measured):
        return [Blame(None, None, tuple(sorted(bad)))]
    left, ports = set(bad), dict[Port, tuple[Pair, ...]]()
    while True:
        candidates = [
            (len(left & paths), len(bad_here) / len(paths), port)
            for port, paths in _ports(measured).items()
            if len(paths) > 1 and len(bad_here := paths & set(bad)) >= PORT_SHARE * len(paths)
        ]
        gain, _, port = max(candidates, default=(0, 0.0, None))
        # Otherwise the few that are left are explained better as paths.
        if port is None or gain < 2 or gain < PORT_SHARE * len(_ports(measured)[port]) / 2:
            break
        ports[port] = tuple(sorted(_ports(measured)[port] & set(bad)))
        left -= _ports(measured)[port]
    return [*_merged(ports), *_pairs(left)]


def both_ways(bad: Iterable[Pair]) -> set[Pair]:
    """Return bad paths with their opposites, for a fault that has no direction."""
    return {path for first, second in bad for path in ((first, second), (second, first))}


def _is_everywhere(bad: Collection[Pair], measured: Collection[Pair]) -> bool:
    hosts = {host for path in measured for host in path}
    if len(hosts) < EVERYWHERE_HOSTS:
        return len(hosts) > 2 and len(bad) == len(measured)
    worst = max(sorted(hosts), key=lambda host: sum(host in path for path in bad))
    others = [path for path in measured if worst not in path]
    return sum(path in bad for path in others) >= EVERYWHERE_SHARE * len(others) > 0


def _ports(measured: Iterable[Pair]) -> dict[Port, set[Pair]]:
    ports: dict[Port, set[Pair]] = {}
    for path in measured:
        ports.setdefault((path[0], Direction.TRANSMIT), set()).add(path)
        ports.setdefault((path[1], Direction.RECEIVE), set()).add(path)
    return ports


def _merged(ports: dict[Port, tuple[Pair, ...]]) -> list[Blame]:
    """Both directions of a host's port are one fault."""
    blames: dict[str, Blame] = {}
    for (host, direction), paths in ports.items():
        before = blames.get(host)
        blames[host] = (
            Blame(host, direction, paths)
            if before is None
            else Blame(host, Direction.BOTH, tuple(sorted({*before.paths, *paths})))
        )
    return list(blames.values())


def _pairs(left: set[Pair]) -> list[Blame]:
    blames = []
    for first, second in sorted(left):
        if (second, first) not in left:
            blames.append(Blame(None, Direction.TRANSMIT, ((first, second),)))
        elif first < second:
            blames.append(Blame(None, Direction.BOTH, ((first, second), (second, first))))
    return blames
