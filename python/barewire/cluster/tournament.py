# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Who is measured with whom, and when; pure."""

from collections.abc import Sequence

Pair = tuple[str, str]


def tournament(hosts: Sequence[str]) -> list[list[Pair]]:
    """Return rounds of disjoint pairs in which each host meets each other one once (the circle method).

    With an odd number of hosts one rests in each round.
    """
    seats: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(first, second) for first, second in facing if first is not None and second is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def permutations(hosts: Sequence[str], count: int) -> list[list[Pair]]:
    """Return up to `count` sets of paths in which each host sends to one and receives from one, at even distances."""
    distances = range(1, len(hosts))
    step = max(1, len(distances) // count)
    return [
        [(host, hosts[(index + distance) % len(hosts)]) for index, host in enumerate(hosts)]
        for distance in distances[::step][:count]
    ]
