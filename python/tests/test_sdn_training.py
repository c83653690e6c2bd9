# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Training jobs and turns: collectives as defined, times computed by hand, jobs that collide and jobs that do not."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean

import pytest

from barewire.errors import WrongUse
from barewire.sdn.coflow import Coflow, Turns, coflow_of, takes_turns
from barewire.sdn.flow import Flow, FlowKey, Placed, View
from barewire.sdn.simulate import Series, Setup, Shape, Training, TrainingPlan, experiment
from barewire.sdn.simulate.experiment import MEAN_COMPLETION, least_job_s, together, training_job
from barewire.sdn.simulate.placement import quarters
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.simulate.training import Step, pattern_of, steps_of
from barewire.sdn.strategies import named
from barewire.sdn.strategies.planned import plan
from barewire.sdn.strategies.recognised import recognised, shape_of
from barewire.topology import Network, Port, fat_tree, parse, star, with_rate

RATE = 8_000_000  # bit/s: links of 10^6 bytes a second
MESSAGE = 100_000  # 0.1 s
PLAN = TrainingPlan(MESSAGE, iterations=10, compute_share=0.5)
TREE = with_rate(fat_tree(4), 10**9)
# Half of the usual sizes.
HALF, LONG = Shape(64, 4, 2_000_000_000), TrainingPlan(iterations=15, compute_share=0.5)
# Two leaves with one spine: all that crosses it shares one link in each direction.
NARROW = with_rate(parse("leaf-spine:2x1x4"), RATE)


def setup_of(network: Network, **changes: object) -> Setup:
    return Setup(network, training=replace(PLAN, **changes), efficiency=1)  # type: ignore[arg-type]


def sent(steps: Sequence[Step]) -> Counter[int]:
    """Bytes that each rank sends."""
    volumes: Counter[int] = Counter()
    for step in steps:
        for source, _, size in step:
            volumes[source] += size
    return volumes


def test_a_ring_sends_every_part_twice_around_but_one_step_each() -> None:
    steps = steps_of("ring", 5, PLAN, 0)
    assert len(steps) == 8 and all(Counter(step) == Counter(steps[0]) for step in steps)
    assert {(source, destination) for source, destination, _ in steps[0]} == {(r, (r + 1) % 5) for r in range(5)}
    assert set(sent(steps).values()) == {8 * MESSAGE}


@pytest.mark.parametrize("ranks", range(2, 18))
def test_a_double_tree_spans_all_ranks_twice_and_shares_the_inner_ranks(ranks: int) -> None:
    """Each tree has one root; who has children in one has none in the other, but one rank if their number is odd."""
    reduction, broadcast = steps_of("tree", ranks, PLAN, 0)
    assert {(b, a, size) for a, b, size in reduction} == {tuple(message) for message in broadcast}
    trees = reduction[: ranks - 1], reduction[ranks - 1 :]
    inner = []
    for tree in trees:
        parents = {child: parent for child, parent, _ in tree}
        assert len(parents) == ranks - 1, "one parent each, but for the root"
        [root] = set(range(ranks)) - parents.keys()
        for rank in range(ranks):
            hops = 0
            while rank != root:
                rank, hops = parents[rank], hops + 1
                assert hops <= ranks.bit_length() + 1, "a tree of logarithmic depth"
        assert max(Counter(parents.values()).values()) <= 2
        inner.append(set(parents.values()))
    assert len(inner[0] & inner[1]) <= ranks % 2
    assert {size for _, _, size in reduction} == {MESSAGE * ranks // 2}


def test_experts_get_tokens_by_popularity_and_return_them() -> None:
    dispatch, combine = steps_of("moe", 6, PLAN, 3)
    assert Counter((b, a, size) for a, b, size in dispatch) == Counter(tuple(message) for message in combine)
    received = Counter[int]()
    for source, expert, size in dispatch:
        assert source != expert
        received[expert] += size
    assert len(dispatch) == 30 and sum(received.values()) == pytest.approx(30 * MESSAGE, rel=0.2)
    assert max(received.values()) / min(received.values()) > 1.1, "not equally popular"
    assert steps_of("moe", 6, PLAN, 3) == [dispatch, combine] != steps_of("moe", 6, PLAN, 4)


def test_a_micro_batch_passes_a_stage_only_after_it_has_come() -> None:
    steps = steps_of("pipeline", 4, PLAN, 0)
    had: Counter[tuple[int, int]] = Counter({(0, 1): 4, (3, -1): 4})  # of each stage, to be sent on in a direction
    for step in steps:
        arriving: Counter[tuple[int, int]] = Counter()
        for source, destination, _ in step:
            assert abs(source - destination) == 1 and had[source, destination - source] > 0
            had[source, destination - source] -= 1
            arriving[destination, destination - source] += 1
        had.update(arriving)
    assert had[3, 1] == had[0, -1] == 4 and len(steps) == 12


@pytest.mark.parametrize(("collective", "sends_s"), [("ring", 0.6), ("pipeline", 1.2)])
def test_on_a_star_an_iteration_is_its_steps_and_its_computing(collective: str, sends_s: float) -> None:
    """Four ranks, messages of 0.1 s: a ring has 6 steps; 4 micro-batches pass 3 boundaries in 6, twice."""
    network = with_rate(star(4), RATE)
    setup = setup_of(network, compute_share=0.25)
    job = training_job(setup, network.hosts, 1, collective)
    setup.run(network, read_policy("stp"), job)
    assert job.compute_s == pytest.approx(sends_s / 3)
    assert job.finished_s == pytest.approx(10 * sends_s * 4 / 3)
    assert least_job_s(setup, job) == pytest.approx(job.finished_s), "nothing blocks"


@pytest.mark.parametrize("collective", ["tree", "moe"])
def test_on_a_star_no_collective_beats_its_bound_and_none_is_far_from_it(collective: str) -> None:
    network = with_rate(star(6), RATE)
    setup = setup_of(network)
    job = training_job(setup, network.hosts, 1, collective)
    setup.run(network, read_policy("stp"), job)
    assert 1 - 1e-9 <= job.finished_s / least_job_s(setup, job) < 1.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"message_bytes": 0}, "at least 1 byte"),
        ({"iterations": 0}, "at least 1 iteration"),
        ({"compute_share": 1.0}, "from 0 up to 1"),
        ({"skew": -0.1}, "from 0 up to 1"),
    ],
)
def test_impossible_jobs_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(WrongUse, match=message):
        TrainingPlan(**changes)  # type: ignore[arg-type]
    with pytest.raises(WrongUse, match=r"'star'.*ring, tree, moe, pipeline"):
        steps_of("star", 4, PLAN, 0)
    with pytest.raises(WrongUse, match="two hosts"):
        steps_of("ring", 1, PLAN, 0)
    with pytest.raises(WrongUse, match="each host once"):
        Training(["h1", "h1"], 0, "ring", PLAN, 0.0)
    with pytest.raises(WrongUse, match="a multiple of 4"):
        quarters(TREE, 10)


def coflow(duration_s: float, **shares: float) -> Coflow:
    return Coflow(duration_s, {Port(name, 1): share for name, share in shares.items()})


def test_jobs_on_other_links_or_with_room_beside_each_other_go_at_once() -> None:
    turns = Turns()
    turns.want("a", coflow(1, x=1.0, y=0.5), 0.0)
    turns.want("b", coflow(2, z=1.0, y=0.6), 0.0)
    turns.want("c", coflow(3, y=0.1), 0.0)
    assert turns.going(0.0) == {"a", "b"}, "y has 1.1 of what it carries, with c 1.2"


def test_the_shortest_remaining_goes_first_and_who_ends_lets_the_next_go() -> None:
    turns = Turns()
    turns.want("long", coflow(10, x=1.0), 0.0)
    assert turns.going(0.0) == {"long"}
    turns.want("short", coflow(4, x=1.0), 1.0)
    assert turns.going(1.0) == {"short"}, "9 s remain of the long one"
    turns.want("medium", coflow(5, x=1.0), 4.0)
    assert turns.going(4.0) == {"short"}
    turns.end("short")
    assert turns.going(5.0) == {"medium"}
    turns.retain({"long"})
    assert turns.going(6.0) == {"long"}


def test_nearly_done_is_not_interrupted() -> None:
    turns = Turns()
    turns.want("long", coflow(10, x=1.0), 0.0)
    turns.going(0.0)
    turns.want("short", coflow(4, x=1.0), 7.0)
    assert turns.going(7.0) == {"long"}, "3 s remain"


def test_nobody_waits_longer_than_it_takes_alone() -> None:
    """Short ones come again and again; after 10 s of waiting the long one sends beside them."""
    turns = Turns()
    turns.want("long", coflow(10, x=1.0), 0.0)
    for second in range(19):
        turns.end(f"short {second - 1}")
        turns.want(f"short {second}", coflow(1, x=1.0), second)
        assert turns.going(second) == {f"short {second}"} | ({"long"} if second >= 10 else set())


def test_a_coflow_takes_the_time_of_its_fullest_link_and_fills_the_others_in_part() -> None:
    pattern = {("h1", "h5"): 125_000_000, ("h2", "h5"): 125_000_000}
    found = coflow_of(TREE, pattern, {})
    assert found is not None and found.duration_s == pytest.approx(2.0)
    ends = {str(port): round(share, 9) for port, share in found.shares.items()}
    assert ends["h1:1"] == ends["h2:1"] == 0.5
    assert ends[str(TREE.attachment("h5"))] == 1.0
    uplinks = [port for port in found.shares if TREE.peers[port].node.startswith("s") and port.node == "s13"]
    assert [found.shares[port] for port in uplinks] == pytest.approx([0.5, 0.5]), "spread over all shortest paths"
    planned = coflow_of(TREE, pattern, pattern)
    assert planned is not None and planned.duration_s == pytest.approx(2.0)
    assert {port for port in planned.shares if port.node == "s13"} == {
        path[0] for path in plan(TREE, pattern).values()
    }, "on its planned paths"
    assert coflow_of(TREE, {}, {}) is None and coflow_of(TREE, {("h1", "nobody"): 5}, {}) is None


def times_of(policy: str, network: Network, collectives: Sequence[str]) -> list[float]:
    """Jobs of one rank on each leaf, all at once."""
    setup = setup_of(network)
    chosen = read_policy(policy)
    jobs = {
        str(number): training_job(setup, (f"h{number + 1}", f"h{number + 5}"), 1, collective, number)
        for number, collective in enumerate(collectives)
    }
    setup.run(network, chosen, together(setup, jobs, chosen))
    return [job.finished_s for job in jobs.values()]


def test_two_jobs_that_share_a_link_are_staggered_after_one_wait() -> None:
    """Each sends for 0.2 s and computes for 0.2 s. At once each would take 0.6 s for an iteration; in turns 0.4 s."""
    assert times_of("planned:turns=yes", NARROW, ["ring"]) == pytest.approx([4.0])
    assert times_of("planned", NARROW, ["ring", "ring"]) == pytest.approx([6.0, 6.0])
    assert times_of("planned:turns=yes", NARROW, ["ring", "ring"]) == pytest.approx([4.0, 4.2])


def test_three_jobs_for_one_link_are_no_slower_in_turns() -> None:
    """They want 1.5 times the link: turns cannot help all, and must not harm any."""
    shared = times_of("planned", NARROW, ["ring"] * 3)
    assert all(
        mine <= theirs + 1e-9
        for mine, theirs in zip(times_of("planned:turns=yes", NARROW, ["ring"] * 3), shared, strict=True)
    )


def by_name(found: Sequence[Series], strategy: str) -> dict[str, Series]:
    return {series.quantity: series for series in found if series.strategy == strategy}


def test_two_all_reduces_a_mixture_of_experts_and_a_shuffle_at_once_on_a_fat_tree() -> None:
    """The bound that the project has set itself: each at least 0.9 of alone, mean completion 0.75 of ecmp's."""
    setup = Setup(TREE, shape=HALF, training=TrainingPlan(iterations=15))
    found = experiment(setup, "mixed", ["ecmp", "planned"], [16], 2, lambda _: None)
    planned, ecmp = by_name(found, "planned"), by_name(found, "ecmp")
    assert len(planned) == 5
    for name, series in planned.items():
        assert (series.fraction_of(series.reference) or 0) >= 0.9, name
    ratios = zip(planned[MEAN_COMPLETION].values, ecmp[MEAN_COMPLETION].values, strict=True)
    assert geometric_mean(mine / theirs for mine, theirs in ratios) <= 0.75


def test_on_an_oversubscribed_network_turns_keep_training_jobs_near_alone_and_the_mean_earlier() -> None:
    """Links between switches have half of what their hosts want: the shuffle, the longest job, waits for the others."""
    setup = Setup(with_rate(parse("leaf-spine:4x2x4"), 10**9), shape=HALF, training=LONG)
    found = experiment(setup, "mixed", ["ecmp", "planned", "planned:turns=yes"], [16], 1, lambda _: None)
    in_turns, at_once, ecmp = (by_name(found, name) for name in ("planned:turns=yes", "planned", "ecmp"))
    for name in ("ring all-reduce", "tree all-reduce", "mixture of experts"):
        assert in_turns[name].fraction_of(in_turns[name].reference) > 0.8, name  # type: ignore[operator]
        assert in_turns[name].value < at_once[name].value, name
    assert in_turns["shuffle"].value < 2.1 * in_turns["shuffle"].reference[0]  # type: ignore[index]
    assert in_turns[MEAN_COMPLETION].value < 0.95 * at_once[MEAN_COMPLETION].value
    assert in_turns[MEAN_COMPLETION].value < 0.8 * ecmp[MEAN_COMPLETION].value


def test_shuffles_in_turns_finish_earlier_on_average_and_the_longest_hardly_later() -> None:
    setup = Setup(TREE, shape=Shape(32, 8, 1_000_000_000))
    found = experiment(setup, "shuffles", ["planned", "planned:turns=yes"], [8], 1, lambda _: None)
    at_once, in_turns = by_name(found, "planned"), by_name(found, "planned:turns=yes")
    assert in_turns[MEAN_COMPLETION].value < 0.88 * at_once[MEAN_COMPLETION].value
    assert in_turns["shortest shuffle"].value < 0.4 * at_once["shortest shuffle"].value
    assert in_turns["longest shuffle"].value < 1.15 * at_once["longest shuffle"].value


@pytest.mark.parametrize(
    ("collective", "shape"), [("ring", "ring"), ("tree", "tree"), ("moe", "all-to-all"), ("pipeline", "pipeline")]
)
def test_the_pattern_of_a_collective_is_recognised_by_who_sends(collective: str, shape: str) -> None:
    hosts = [f"h{number}" for number in range(8)]
    pairs = set(pattern_of(steps_of(collective, 8, PLAN, 1), hosts))
    assert shape_of(pairs) == shape
    assert shape_of({*pairs, ("h0", "h9"), ("h8", "h5"), ("h7", "h9")}) is None


def test_a_pair_a_gather_and_two_crossing_rings_are_no_known_pattern() -> None:
    assert shape_of({("h1", "h2"), ("h2", "h1")}) is None
    assert shape_of({(f"h{number}", "h9") for number in range(8)}) is None
    assert shape_of({("h1", "h2"), ("h2", "h3"), ("h3", "h1"), ("h1", "h3")}) is None


def test_many_jobs_and_many_pairs_are_recognised_in_time() -> None:
    """The controller hardly runs beside this thread: 300 rings, and 200 hosts of which each exchanges with 50."""
    placed: dict[FlowKey, Placed] = {}
    rings = [(f"r{ring}-{host}", f"r{ring}-{(host + 1) % 4}") for ring in range(300) for host in range(4)]
    others = [(f"h{host}", f"h{(host + far) % 200}") for host in range(200) for far in range(-25, 26) if far]
    for pair in (*rings, *others):
        key = FlowKey(*pair)
        placed[key] = Placed(Flow(key, "mpi"), (), 0.0, rate_byte_s=1e6)
    began = time.process_time()
    assert recognised(View(TREE, 1.0, placed)).keys() == set(rings)
    assert time.process_time() - began < 1


def test_unannounced_rings_are_planned_once_they_were_measured() -> None:
    """Four rings cross the core. Recognised after a second, they are then as fast as announced ones."""
    setup = Setup(TREE, training=TrainingPlan(iterations=100), announce=False)
    jobs = {
        str(number): training_job(setup, hosts, 1, "ring", number) for number, hosts in enumerate(quarters(TREE, 16))
    }
    policy = read_policy("planned:recognise=yes")
    setup.run(TREE, policy, together(setup, jobs, policy))
    alone_s = least_job_s(setup, jobs["0"])
    assert sum(job.finished_s / alone_s for job in jobs.values()) / 4 < 1.15


def test_turns_are_a_property_of_a_strategy() -> None:
    assert takes_turns(named("planned:turns=yes")) and not takes_turns(named("planned"))
    assert not takes_turns(named("ecmp"))
    with pytest.raises(WrongUse, match="yes or no, not 'maybe'"):
        named("planned:turns=maybe")
