# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Patterns of unannounced jobs, recognised by who sends to whom: rings, pipelines, trees and all-to-all exchanges.

Iterations of a training job repeat one pattern, so what was measured in one interval holds for the next ones. Rates say
who sends at all; volumes are taken as equal, so that noise does not change a plan.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from barewire.sdn.flow import DEFAULT_PROFILE, Pattern, View
from barewire.sdn.strategies.clos import Pair

# Flows below this share of the job's fastest one are acknowledgements or control messages.
_SENDS = 0.1
# Neighbours of a rank in two binary trees: a parent and two children in one, a parent in the other, and one to spare.
_TREE_NEIGHBOURS = 5


def recognised(view: View) -> Pattern:
    """Return the pattern of all recognised jobs among the flows that the strategy may move; the same object again."""
    rates: defaultdict[str, defaultdict[Pair, float]] = defaultdict(lambda: defaultdict(float))
    for key, placed in view.placed.items():
        if key not in view.fixed and not placed.is_idle and placed.flow.profile != DEFAULT_PROFILE:
            rates[placed.flow.profile][key.source, key.destination] += placed.rate_byte_s
    found = (pairs for of_profile in rates.values() for pairs in _jobs(of_profile) if shape_of(pairs) is not None)
    return _pattern(frozenset().union(*found))


def shape_of(pairs: Collection[Pair]) -> str | None:
    """Return ring, pipeline, all-to-all or tree for the pairs of a job's hosts that send; None for anything else."""
    sent, received = Counter(source for source, _ in pairs), Counter(destination for _, destination in pairs)
    hosts = sent.keys() | received.keys()
    if len(hosts) < 3:
        return None
    if len(pairs) == len(hosts) and set(sent.values()) == set(received.values()) == {1}:
        return "ring"
    if len(pairs) == len(hosts) * (len(hosts) - 1):
        return "all-to-all"
    known = set(pairs)
    if any((destination, source) not in known for source, destination in pairs):
        return None
    edges, most = len(pairs) // 2, max(sent.values())
    if edges == len(hosts) and set(sent.values()) == {2}:
        return "ring"
    if edges == len(hosts) - 1 and most <= 2:
        return "pipeline"
    return "tree" if edges <= 2 * (len(hosts) - 1) and most <= _TREE_NEIGHBOURS else None


def _jobs(rates: Mapping[Pair, float]) -> Iterator[frozenset[Pair]]:
    """The pairs that send, by connected hosts."""
    import networkx as nx  # imported late: most commands do not need it

    sending = {pair: rate for pair, rate in rates.items() if rate > 0}
    graph = nx.Graph(list(sending))
    number_of = {host: number for number, hosts in enumerate(nx.connected_components(graph)) for host in hosts}
    jobs: defaultdict[int, dict[Pair, float]] = defaultdict(dict)
    for pair, rate in sending.items():
        jobs[number_of[pair[0]]][pair] = rate
    for own in jobs.values():
        fastest = max(own.values())
        yield frozenset(pair for pair, rate in own.items() if rate >= _SENDS * fastest)


@lru_cache(maxsize=8)
def _pattern(pairs: frozenset[Pair]) -> Pattern:
    return dict.fromkeys(sorted(pairs), 1)
