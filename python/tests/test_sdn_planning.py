# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Planning: edge colourings are proper and even, permutations get line rate, patterns are followed."""

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations

import pytest
from test_topology import DIAMOND

from barewire.sdn.flow import Flow, FlowKey, Placed, View
from barewire.sdn.simulate.ring import Ring, RingPlan
from barewire.sdn.strategies import named
from barewire.sdn.strategies.clos import NoClosError, clos_paths
from barewire.sdn.strategies.colouring import colour_edges, colour_evenly
from barewire.sdn.strategies.memo import Remembering
from barewire.sdn.strategies.planned import plan
from barewire.topology import Network, Path, Port, fat_tree, parse, shortest_paths, with_rate

TREE = with_rate(fat_tree(4), 10**9)
WORKERS = [host for host in TREE.hosts if host.startswith("h")]


def permutation(hosts: list[str], seed: int) -> dict[tuple[str, str], int]:
    to = random.Random(seed).sample(hosts, len(hosts))
    return {(source, target): 1 for source, target in zip(hosts, to, strict=True) if source != target}


def most(paths: Mapping[tuple[str, str], Path]) -> int:
    """The most flows on any port."""
    return max(Counter(port for path in paths.values() for port in path).values())


@pytest.mark.parametrize("seed", range(30))
def test_colours_differ_wherever_edges_of_a_multigraph_meet(seed: int) -> None:
    rng = random.Random(seed)
    edges = [(rng.randrange(6), rng.randrange(6)) for _ in range(rng.randrange(1, 40))]
    degree = max(Counter(("left", left) for left, _ in edges).values())
    degree = max(degree, *Counter(right for _, right in edges).values())
    colours = colour_edges(edges, degree)
    assert set(colours) <= set(range(degree))
    for side in (0, 1):
        meet = Counter((edge[side], colour) for edge, colour in zip(edges, colours, strict=True))
        assert max(meet.values()) == 1
    with pytest.raises(ValueError, match="more than"):
        colour_edges(edges, degree - 1)


@pytest.mark.parametrize("seed", range(30))
def test_even_colouring_differs_by_at_most_one(seed: int) -> None:
    """Without groups, a vertex of degree d has at most ⌈d / colours⌉ edges of any colour."""
    rng = random.Random(seed)
    edges = [(rng.randrange(5), rng.randrange(5)) for _ in range(rng.randrange(1, 60))]
    colours = rng.randrange(1, 6)
    chosen = colour_evenly(edges, [0] * len(edges), colours)
    for side in (0, 1):
        degree = Counter(edge[side] for edge in edges)
        for (vertex, _), times in Counter((e[side], c) for e, c in zip(edges, chosen, strict=True)).items():
            assert times <= -(-degree[vertex] // colours)


def test_edges_of_one_group_have_different_colours() -> None:
    edges = [("a", "x"), ("a", "y"), ("a", "x"), ("a", "y")]
    colours = colour_evenly(edges, [1, 2, 2, 1], 2)
    assert colours[0] != colours[3] and colours[1] != colours[2]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("k", [4, 6, 8])
def test_every_random_permutation_gets_separate_links(k: int, seed: int) -> None:
    tree = fat_tree(k)
    pattern = permutation([host for host in tree.hosts if host.startswith("h")], seed)
    paths = plan(tree, pattern)
    assert set(paths) == set(pattern) and most(paths) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("hosts", [WORKERS[:8:2], WORKERS[::2], WORKERS])
def test_a_ring_has_line_rate_in_each_direction_and_in_both_at_once(hosts: list[str], seed: int) -> None:
    """Each half is a permutation with separate links; together at most two flows share a link, as on a host's link."""
    for pattern in Ring(hosts, seed, RingPlan()).ring_patterns():
        paths = plan(TREE, pattern)
        right = list(pattern)[: len(hosts)]
        assert most(paths) <= 2
        assert most({pair: paths[pair] for pair in right}) == 1
        assert most({pair: path for pair, path in paths.items() if pair not in right}) == 1


def test_jobs_on_neighbouring_hosts_share_no_link() -> None:
    """Rings on the odd hosts, all-to-all on the even ones: every path is in its job's planes."""
    rings = Ring(WORKERS[::2], 1, RingPlan()).ring_patterns()[3]
    shuffle = {(host, two): 10**9 for host in WORKERS[1::2] for two in WORKERS[1::2] if host != two}
    paths = plan(TREE, {**rings, **shuffle})
    ports = [{port for pair in job for port in paths[pair]} for job in (rings, shuffle)]
    assert not ports[0] & ports[1]
    assert most({pair: paths[pair] for pair in rings}) == 2


def test_volumes_decide_which_flows_share_a_link() -> None:
    """Two hosts of one switch send 9 and 1 each: both links carry 10, regardless of the announced order."""
    volumes = [("h1", "h3", 9), ("h1", "h5", 1), ("h2", "h7", 1), ("h2", "h9", 9)]
    for order in permutations(volumes):
        paths = plan(TREE, {(source, target): volume for source, target, volume in order})
        loads: Counter[Port] = Counter()
        for source, target, volume in volumes:
            loads[paths[source, target][0]] += volume
        assert sorted(loads.values()) == [10, 10]


def test_colouring_refuses_networks_other_than_folded_clos() -> None:
    broken = without(TREE, Port("s13", 3))
    pattern = permutation(WORKERS, 1)
    groups = dict.fromkeys(pattern, 0)
    for network, pairs in ((broken, groups), (DIAMOND, {("h1", "h9"): 0}), (TREE, {("h1", "server1"): 0})):
        with pytest.raises(NoClosError):
            clos_paths(network, pairs, pairs)


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_avoids_a_broken_link_with_minimal_load(seed: int) -> None:
    """s13 has one uplink left for two hosts, so two flows may share a link, but never three."""
    broken = without(TREE, Port("s13", 3))
    paths = plan(broken, permutation(WORKERS, seed))
    assert all(path in shortest_paths(broken, *pair) for pair, path in paths.items())
    assert most(paths) <= 2


def test_a_pattern_with_the_server_is_planned_too() -> None:
    pattern = {**permutation(WORKERS, 3), ("server1", "h9"): 1, ("h4", "server1"): 1}
    paths = plan(TREE, pattern)
    assert set(paths) == set(pattern)
    assert all(path in shortest_paths(TREE, *pair) for pair, path in paths.items())


def test_unknown_hosts_and_empty_volumes_of_a_pattern_have_no_plan() -> None:
    assert set(plan(TREE, {("h1", "h5"): 1, ("h1", "h99"): 1, ("h2", "h6"): 0})) == {("h1", "h5")}


def test_flows_follow_the_current_pattern_and_move_at_a_step() -> None:
    now, following = permutation(WORKERS, 1), permutation(WORKERS, 2)
    strategy = named("planned")
    placed: dict[FlowKey, Placed] = {}
    view = View(TREE, 0.0, placed, patterns=(now, following))
    assert strategy.rearrange(view) == {}, "which makes the plan"
    for source, target in {**now, **following}:
        flow = Flow(FlowKey(source, target, "tcp", 1, 2))
        path = strategy.place(flow, shortest_paths(TREE, source, target), view).path
        placed[flow.key] = Placed(flow, path, 0.0)
    assert strategy.rearrange(view) == {}
    assert most({pair: placed[FlowKey(*pair, "tcp", 1, 2)].path for pair in now}) == 1
    stepped = replace(view, patterns=(following,))
    moves = strategy.rearrange(stepped)
    paths = {
        pair: moves.get(FlowKey(*pair, "tcp", 1, 2), placed[FlowKey(*pair, "tcp", 1, 2)].path) for pair in following
    }
    assert most(paths) == 1
    some = next(iter(moves))
    assert some not in strategy.rearrange(replace(stepped, fixed=frozenset({some})))


def test_unannounced_flows_are_placed_as_by_least_loaded() -> None:
    flow = Flow(FlowKey("h1", "h16"))
    paths = shortest_paths(TREE, "h1", "h16")
    view = View(TREE, 0.0, crossing=Counter(port for path in paths[:3] for port in path[:-1]))
    assert named("planned").place(flow, paths, view).path == paths[3]


def without(network: Network, port: Port) -> Network:
    gone = {port, network.peers[port]}
    return replace(network, peers={port: peer for port, peer in network.peers.items() if port not in gone})


@pytest.mark.parametrize("k", [4, 8])
def test_jobs_with_a_host_on_each_of_their_switches_share_no_link_whatever_they_send(k: int) -> None:
    """All-to-all within each job. With k = 4, two planes serve four jobs: those that meet get different planes, and
    inside a plane different core switches."""
    network = with_rate(fat_tree(k), 10**9)
    hosts = [host for host in network.hosts if host.startswith("h")]
    users: dict[Port, set[int]] = {}
    jobs = [hosts[number::4] for number in range(4)]
    pattern = {pair: 1 for job in jobs for pair in permutations(job, 2)}
    for (source, _), path in plan(network, pattern).items():
        for port in path:
            users.setdefault(port, set()).add(next(n for n, job in enumerate(jobs) if source in job))
    assert set(map(len, users.values())) == {1}
    assert len({path[len(path) // 2].node for path in plan(network, pattern).values() if len(path) == 5}) >= 4


def test_of_too_many_jobs_few_share_a_plane() -> None:
    """Four jobs on two leaves with two spines: two on each, none on both."""
    network = with_rate(parse("leaf-spine:2x2x4"), 10**9)
    pattern = {pair: 1 for number in range(1, 5) for pair in permutations((f"h{number}", f"h{number + 4}"), 2)}
    spines = {pair: path[0] for pair, path in plan(network, pattern).items() if pair[0] < pair[1]}
    assert sorted(Counter(spines.values()).values()) == [2, 2]
    for (source, destination), path in plan(network, pattern).items():
        assert network.peers[path[0]].node == network.peers[plan(network, pattern)[destination, source][0]].node


def test_a_plan_that_several_jobs_ask_for_at_once_is_made_once() -> None:
    """Each request for a turn is computed in a thread of its own."""
    made: list[object] = []
    begun, may_end = threading.Event(), threading.Event()

    def slow(pattern: object) -> str:
        made.append(pattern)
        begun.set()
        assert may_end.wait(5)
        return "plan"

    remembering, pattern = Remembering(2, slow), {("h1", "h2"): 1}
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(remembering, pattern)
        assert begun.wait(5)
        others = [threads.submit(remembering, pattern) for _ in range(3)]
        time.sleep(0.05)
        may_end.set()
        assert [one.result() for one in (first, *others)] == ["plan"] * 4 and made == [pattern]


def test_results_are_forgotten_by_their_size_and_shared_arguments_count_once() -> None:
    """Thousands of plans and patterns of 100,000 flows would take gigabytes. The latest one is always kept."""
    made: list[int] = []

    def numbers(shared: dict[int, int], count: int) -> list[int]:
        made.append(count)
        return list(range(count))

    remembering = Remembering(100, numbers, entries_max=1000)
    shared, other = dict.fromkeys(range(900)), dict.fromkeys(range(700))
    counts = [200, 201, 202, 203, 204]
    for count in counts * 2:
        remembering(shared, count)
    assert made == counts, "4 results of 200 beside the latest one; the pattern is held anyhow"
    remembering(other, counts[0])
    assert remembering.known(other, counts[0]) is not None and remembering.known(shared, counts[-1]) is None
    huge = dict.fromkeys(range(5000))
    remembering(huge, 7)
    assert remembering.known(huge, 7) == list(range(7)) and remembering.known(other, counts[0]) is not None
    remembering(other, counts[1])
    assert remembering.known(huge, 7) is None and remembering.known(other, counts[1]) is not None
    assert len(remembering._held) == 3, "what is left: a pattern, a number and a result"
