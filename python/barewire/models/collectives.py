# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Costs of the common algorithms of collectives on P ranks, from the costs of single messages.

Sources: Thakur, Rabenseifner, Gropp 2005 (recursive doubling and halving, rings, Rabenseifner's allreduce, binomial
trees, scatter and allgather for broadcasts); Bruck et al. 1997. m is the size as `mpi/collective` defines it: a rank's
contribution to broadcasts and reductions, one block otherwise. The arithmetic of reductions is left out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from barewire.models.times import Floats


class MessageCosts(Protocol):
    """Times in µs of single messages among P ranks, one value for each draw."""

    def one_way(self, message_bytes: float) -> Floats:
        """A message from one rank to another, while nothing else happens."""

    def exchange(self, message_bytes: float) -> Floats:
        """Two ranks send each other a message at once."""

    def all_at_once(self, messages: int, message_bytes: float) -> Floats:
        """Each rank sends and receives this many messages at once, of and to different ranks."""

    def all_to_all(self, ranks: int, message_bytes: float) -> Floats:
        """Each rank sends a message to every other at once."""


@dataclass(frozen=True)
class Algorithm:
    """One way to perform a collective; `sizes` are the messages that it sends, for the check of measured sizes."""

    name: str
    time: Callable[[MessageCosts, int, float], Floats]
    sizes: Callable[[int, float], tuple[float, ...]]


def rounds(ranks: int) -> int:
    """Number of rounds in which a message reaches all ranks: ⌈log2 P⌉."""
    return (ranks - 1).bit_length()


def _sum(parts: Iterable[Floats]) -> Floats:
    first, *others = parts
    total = first
    for part in others:
        total = total + part
    return total


def _halves(ranks: int, size: float) -> tuple[float, ...]:
    """m/2, m/4 … m/P, rounded up to whole rounds."""
    return tuple(size / 2 ** (step + 1) for step in range(rounds(ranks)))


def _doubles(ranks: int, size: float) -> tuple[float, ...]:
    """Blocks sent in each round of a doubling: 1, 2, 4 …, in all P − 1."""
    return tuple(size * min(2**step, ranks - 2**step) for step in range(rounds(ranks)))


def _bruck(ranks: int, size: float) -> tuple[float, ...]:
    """Bytes of an all-to-all's round: of all blocks whose distance has this bit."""
    return tuple(size * sum(distance >> bit & 1 for distance in range(ranks)) for bit in range(rounds(ranks)))


def _of_all(size: Callable[[int, float], float]) -> Callable[[int, float], tuple[float, ...]]:
    return lambda ranks, m: (size(ranks, m),)


def _exchanges(sizes: Callable[[int, float], tuple[float, ...]]) -> Callable[[MessageCosts, int, float], Floats]:
    return lambda costs, ranks, m: _sum(costs.exchange(size) for size in sizes(ranks, m))


def _one_ways(sizes: Callable[[int, float], tuple[float, ...]]) -> Callable[[MessageCosts, int, float], Floats]:
    return lambda costs, ranks, m: _sum(costs.one_way(size) for size in sizes(ranks, m))


def _is_power(ranks: int) -> bool:
    return ranks & (ranks - 1) == 0


def _folded(ranks: int) -> int:
    """Largest power of two within P; the other ranks hand in their part before, and get the result after."""
    return 1 << (ranks.bit_length() - 1)


def _recursive_doubling(costs: MessageCosts, ranks: int, m: float) -> Floats:
    inner = rounds(_folded(ranks)) * costs.exchange(m)
    return inner if _is_power(ranks) else inner + 2 * costs.one_way(m)


def _rabenseifner(costs: MessageCosts, ranks: int, m: float) -> Floats:
    inner = 2 * _sum(costs.exchange(size) for size in _halves(_folded(ranks), m))
    return inner if _is_power(ranks) else inner + 2 * costs.one_way(m)


def _tree(size: Callable[[int, float], tuple[float, ...]]) -> Algorithm:
    return Algorithm("binomial tree", _one_ways(size), size)


def _whole(ranks: int, m: float) -> tuple[float, ...]:
    return (m,) * rounds(ranks)


def _ring(steps_per_rank: int, share: bool) -> Algorithm:
    def size(ranks: int, m: float) -> float:
        return m / ranks if share else m

    return Algorithm(
        "ring",
        lambda costs, ranks, m: steps_per_rank * (ranks - 1) * costs.exchange(size(ranks, m)),
        _of_all(size),
    )


_LINEAR = Algorithm("linear", lambda costs, ranks, m: costs.all_at_once(ranks - 1, m), _of_all(lambda _, m: m))
_PAIRWISE = Algorithm(
    "pairwise exchange", lambda costs, ranks, m: (ranks - 1) * costs.exchange(m), _of_all(lambda _, m: m)
)
_SCATTER_RING = Algorithm(
    "scatter and ring allgather",
    lambda costs, ranks, m: _one_ways(_halves)(costs, ranks, m) + (ranks - 1) * costs.exchange(m / ranks),
    lambda ranks, m: (*_halves(ranks, m), m / ranks),
)
_DISSEMINATION = Algorithm(
    "dissemination", lambda costs, ranks, _: rounds(ranks) * costs.exchange(0), lambda ranks, m: (0.0,)
)
_REDUCE_SCATTER_GATHER = Algorithm(
    "Rabenseifner",
    lambda costs, ranks, m: _exchanges(_halves)(costs, ranks, m) + _one_ways(_halves)(costs, ranks, m),
    _halves,
)

# By the collective's name in mpi/collective.
ALGORITHMS: Mapping[str, tuple[Algorithm, ...]] = {
    "barrier": (_DISSEMINATION,),
    "bcast": (_tree(_whole), _SCATTER_RING),
    "reduce": (_tree(_whole), _REDUCE_SCATTER_GATHER),
    "allreduce": (
        Algorithm("recursive doubling", _recursive_doubling, _whole),
        _ring(2, share=True),
        Algorithm("Rabenseifner", _rabenseifner, _halves),
    ),
    "reduce-scatter": (Algorithm("recursive halving", _exchanges(_halves), _halves), _ring(1, share=True)),
    "gather": (_tree(_doubles), _LINEAR),
    "scatter": (_tree(_doubles), _LINEAR),
    "allgather": (
        # Recursive doubling sends the same messages where P is a power of two.
        Algorithm("Bruck", _exchanges(_doubles), _doubles),
        _ring(1, share=False),
    ),
    "alltoall": (
        _PAIRWISE,
        Algorithm("Bruck", _exchanges(_bruck), _bruck),
        Algorithm("all at once", lambda costs, ranks, m: costs.all_to_all(ranks, m), _of_all(lambda _, m: m)),
    ),
    "scan": (Algorithm("recursive doubling", _exchanges(_whole), _whole),),
}
