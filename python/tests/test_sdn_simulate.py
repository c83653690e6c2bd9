# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The flow simulator: times computed by hand, workloads as defined, published results, results of strategies."""

import json
import re
import time
from collections import Counter
from dataclasses import replace
from statistics import mean
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.cli.sdn_simulate import counts_of
from barewire.errors import WrongUse
from barewire.sdn.fairness import max_min
from barewire.sdn.flow import DEFAULT_PROFILE, Flow, FlowKey, Pattern, View
from barewire.sdn.published import ring_mbyte_s
from barewire.sdn.simulate import (
    Engine,
    Ring,
    RingPlan,
    Series,
    Setup,
    Shape,
    Shuffle,
    experiment,
    placed_hosts,
    simulations,
)
from barewire.sdn.simulate.control import Control
from barewire.sdn.simulate.permutation import Permutation
from barewire.sdn.simulate.placement import halves
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.simulate.ring import draw_ring
from barewire.sdn.simulate.workload import Connection, Transfer
from barewire.sdn.strategies.memo import paths_of
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Network, Port, fat_tree, parse, star, with_rate
from barewire.topology.failures import failed

RATE = 8_000_000  # bit/s: links of 10^6 bytes a second
TREE = with_rate(fat_tree(4), 10**9)
ONCE = RingPlan(measurements=1, exchanges=1)  # later measurements use the same rings again


class Once:
    """Transfers that all begin at once or after their delays; records when each finishes."""

    def __init__(self, *transfers: Transfer, patterns: tuple[Pattern, ...] = ()) -> None:
        self.transfers = transfers
        self.arrivals_s: dict[object, float] = {}
        self.patterns = patterns

    @property
    def finished(self) -> bool:
        return len(self.arrivals_s) == len(self.transfers)

    def begin(self) -> tuple[Transfer, ...]:
        return self.transfers

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        self.arrivals_s[transfer.tag] = now_s
        return []


def transfer(source: str, destination: str, size: float, tag: str, delay_s: float = 0.0) -> Transfer:
    return Transfer(Connection(source, destination, "mpi", active_port=len(tag)), source, size, tag, delay_s)


def arrivals(network: Network, strategy: str, workload: Once, *, efficiency: float = 1.0) -> dict[object, float]:
    Engine(network, read_policy(strategy), efficiency=efficiency).run(workload)
    return {tag: round(at_s, 9) for tag, at_s in workload.arrivals_s.items()}


def simulate(workload: str, strategies: str, hosts: int, seeds: int, setup: Setup | None = None) -> dict[str, Series]:
    """The first quantity's series, by strategy."""
    found = experiment(
        setup or Setup(TREE, ONCE, Shape(volume_bytes=10**9)),
        workload,
        strategies.split(","),
        [hosts],
        seeds,
        lambda _: None,
    )
    return (
        {series.strategy: series for series in reversed(found)}
        if workload != "both"
        else {series.quantity: series for series in found}
    )


def test_a_transfer_takes_its_size_divided_by_the_payload_rate() -> None:
    network = with_rate(star(2), RATE)
    assert arrivals(network, "stp", Once(transfer("h1", "h2", 1e6, "a")), efficiency=0.5) == {"a": 2.0}


def test_a_finished_transfer_leaves_its_share_to_the_others() -> None:
    """Two into h3: both at half rate until a's 10^6 have arrived after 2 s; b has 10^6 left, alone."""
    workload = Once(transfer("h1", "h3", 1e6, "a"), transfer("h2", "h3", 2e6, "b"))
    assert arrivals(with_rate(star(3), RATE), "stp", workload) == {"a": 2.0, "b": 3.0}


def test_a_delayed_transfer_takes_its_share_from_when_it_begins() -> None:
    """a has sent half when b begins; then both have half rate, a for one more second, b for 0.5 s alone."""
    workload = Once(transfer("h1", "h3", 1e6, "a"), transfer("h2", "h3", 1e6, "b", delay_s=0.5))
    assert arrivals(with_rate(star(3), RATE), "stp", workload) == {"a": 1.5, "b": 2.0}


def test_fast_transfers_end_also_where_the_clocks_last_digit_is_many_bytes() -> None:
    """After 10^6 s the clock's steps are of 10^-10 s, in which 50 GB/s are some bytes."""
    sizes = [1e9 + 12345.678 * number for number in range(20)]
    workload = Once(*(transfer("h1", "h2", size, str(size), delay_s=1e6 / 3 + size / 1e9) for size in sizes))
    engine = Engine(with_rate(star(2), 400 * 10**9), read_policy("stp"), statistics_s=1e9)
    engine.run(workload)
    assert workload.finished and engine.now_s == pytest.approx(1e6 / 3 + 1, abs=1)


class Parting:
    """Places all flows on the first path, and a port's again on the last one."""

    name, period_s = "parting", 0.0

    def __init__(self, port: int) -> None:
        self.port = port
        self.placed: set[FlowKey] = set()

    def place(self, flow: Flow, paths: Any, view: View) -> Placement:
        again = flow.key in self.placed and self.port in (flow.key.source_port, flow.key.destination_port)
        self.placed.add(flow.key)
        return Placement(paths[-1 if again else 0])

    def rearrange(self, view: View) -> dict[FlowKey, Any]:
        return {}


def test_flows_whose_rules_expired_have_the_rates_of_their_new_paths() -> None:
    """a and b share a path for 2 s; 100 s later each has its own."""
    first = [transfer("h1", "h5", 1e6, "a"), transfer("h2", "h7", 1e6, "bb")]
    later = [transfer("h1", "h5", 1e6, "A", 100.0), transfer("h2", "h7", 1e6, "BB", 100.0)]
    workload = Once(*first, *later)
    Engine(with_rate(fat_tree(4), RATE), {DEFAULT_PROFILE: Parting(2)}).run(workload)
    assert workload.arrivals_s == pytest.approx({"a": 2.0, "bb": 2.0, "A": 101.0, "BB": 101.0})


def test_a_transfer_that_pauses_longer_than_its_rules_last_is_placed_again() -> None:
    workload = Once(transfer("h1", "h5", 2e6, "a"), transfer("h2", "h7", 60e6, "bb"))
    engine = Engine(with_rate(fat_tree(4), RATE), read_policy("stp"))
    engine.run(workload, sends=lambda one, _: one.tag == "bb" or workload.arrivals_s.get("bb") is not None)
    assert workload.arrivals_s == pytest.approx({"bb": 60.0, "a": 62.0})


def test_two_flows_on_the_first_path_share_it_and_planned_ones_do_not() -> None:
    tree = with_rate(fat_tree(4), RATE)
    transfers = (transfer("h1", "h5", 1e6, "a"), transfer("h2", "h7", 1e6, "b"))
    assert arrivals(tree, "stp", Once(*transfers)) == {"a": 2.0, "b": 2.0}
    patterns = ({("h1", "h5"): 1, ("h2", "h7"): 1},)
    assert arrivals(tree, "planned", Once(*transfers, patterns=patterns)) == {"a": 1.0, "b": 1.0}


def test_flows_are_counted_for_each_profile_until_they_are_idle_and_moved_ones_on_their_new_path() -> None:
    """Both profiles begin on the first path; after a second of counts lanes move one, then the other is silent."""
    tree = with_rate(fat_tree(4), RATE)
    lanes = read_policy("lanes")[DEFAULT_PROFILE]
    control = Control(tree, {DEFAULT_PROFILE: lanes})
    flows = [
        Flow(FlowKey(source, "h16", "tcp", 1, number), profile)
        for number, (source, profile) in enumerate((("h1", "mpi"), ("h2", "mpi"), ("h1", "hadoop"), ("h2", "hadoop")))
    ]
    nothing = np.zeros(len(control.capacity))

    def check() -> Counter[str]:
        view, busy = control._view(0.0, ()), Counter[str]()
        expected: dict[str, Counter[Port]] = {"mpi": Counter(), "hadoop": Counter()}
        for placed in view.placed.values():
            if not placed.is_idle:
                expected[placed.flow.profile].update(placed.path)
                busy[placed.flow.profile] += 1
        assert view.crossing is not None and view.crossing_of_profiles is not None
        for profile, counted in view.crossing_of_profiles.items():
            assert {port: count for port, count in counted.items() if count} == expected[profile]
        total = expected["mpi"] + expected["hadoop"]
        assert {port: count for port, count in view.crossing.items() if count} == total
        return busy

    for flow in flows:
        control.use(flow, 0.0, ())
    assert check() == {"mpi": 2, "hadoop": 2}
    assert control.rearrange(lanes, 0.5, ()) and check() == {"mpi": 2, "hadoop": 2}
    control.measure(1.0, nothing, {flows[0].key: 5e5, flows[2].key: 5e5, flows[3].key: 5e5})
    assert check() == {"mpi": 1, "hadoop": 2}
    control.measure(2.0, nothing, {flows[1].key: 5e5, flows[2].key: 5e5})
    assert check() == {"mpi": 1, "hadoop": 1}
    control.measure(60.0, nothing, {})
    assert check() == {}


def test_re_placement_by_statistics_frees_flows_after_the_first_interval() -> None:
    """With stp they would end at 4 s. The policy begins as stp and moves one at 1 s: 0.5 each then, 1.5 left."""
    tree = with_rate(fat_tree(4), RATE)
    transfers = (transfer("h1", "h5", 2e6, "a"), transfer("h2", "h7", 2e6, "b"))
    assert arrivals(tree, "stp", Once(*transfers)) == {"a": 4.0, "b": 4.0}
    assert arrivals(tree, "test_sdn_simulate:StpThenAfar", Once(*transfers)) == {"a": 2.5, "b": 2.5}


class StpThenAfar:
    """Everything on the first path, until `afar` moves it."""

    name, period_s = "stp-then-afar", 1.0

    def place(self, flow, paths, view):  # type: ignore[no-untyped-def]
        return read_policy("stp")["default"].place(flow, paths, view)

    def rearrange(self, view):  # type: ignore[no-untyped-def]
        return read_policy("afar:above=0.4")["default"].rearrange(view)


def test_each_profile_gets_its_own_strategy() -> None:
    policy = read_policy("mpi=isolated:seconds=30+bigdata=ecmp-published")
    assert {profile: strategy.name for profile, strategy in policy.items()} == {
        "default": "isolated",
        "mpi": "isolated",
        "bigdata": "ecmp-published",
    }
    for text in ("mpi=stp+mpi=ecmp", "mpi=stp+ecmp", "ecmp+stp"):
        with pytest.raises(WrongUse, match="is no policy"):
            read_policy(text)


def test_hosts_are_placed_as_published() -> None:
    assert placed_hosts(TREE, 4) == ["h1", "h3", "h5", "h7"]
    assert placed_hosts(TREE, 8) == [f"h{number}" for number in range(1, 17, 2)]
    assert placed_hosts(TREE, 16) == [f"h{number}" for number in range(1, 17)]
    assert halves(TREE, 8) == (["h1", "h3", "h5", "h7"], ["h2", "h4", "h6", "h8"])
    for bad in (lambda: placed_hosts(TREE, 17), lambda: placed_hosts(TREE, 1), lambda: halves(TREE, 5)):
        with pytest.raises(WrongUse, match=r"are impossible|cannot be"):
            bad()


def test_rings_equal_those_of_mpi_beff() -> None:
    """The natural ring first, each a permutation of the ranks, none twice."""
    assert draw_ring(7, 0, 5) == [0, 1, 2, 3, 4]
    assert all(sorted(draw_ring(7, ring, 16)) == list(range(16)) for ring in range(11))
    assert len({tuple(draw_ring(7, ring, 16)) for ring in range(11)}) == 11
    # The rings drawn by the C program for seed 1 and 8 ranks.
    assert draw_ring(1, 1, 8) == [7, 4, 0, 1, 3, 2, 5, 6]
    assert draw_ring(1, 2, 8) == [5, 2, 7, 0, 6, 3, 4, 1]


def test_a_ring_on_a_star_takes_two_overheads_and_two_messages_an_exchange() -> None:
    """Both methods: 10 ms and 1 s for each of two messages, so b_eff is 10^6 bytes by 1.01 s."""
    ring = Ring(["h1", "h2", "h3", "h4"], 1, RingPlan(message_bytes=1_000_000, overhead_s=0.01))
    Engine(with_rate(star(4), RATE), read_policy("stp")).run(ring)
    assert ring.bandwidth_byte_s() == pytest.approx(1e6 / 1.01)
    assert ring.bandwidth_byte_s("natural") == pytest.approx(1e6 / 1.01)


@pytest.mark.parametrize("transport", ["tcp", "llc"])
def test_two_ranks_use_one_connection_in_all_rings(transport: str) -> None:
    ring = Ring(placed_hosts(TREE, 16), 3, RingPlan(measurements=1, transport=transport))
    engine = Engine(TREE, read_policy("stp"))
    engine.run(ring)
    pairs = {frozenset((key.source, key.destination)) for key in engine.control._placed}
    directions = 2 * len(pairs)
    assert len(engine.control._placed) == directions <= 240
    assert {key.protocol for key in engine.control._placed} == {transport}


def test_a_shuffle_moves_every_byte_that_is_not_local() -> None:
    """2 mappers for 2 reducers on 2 hosts: half of the volume crosses, and a star is as fast as the larger part."""
    shape = Shape(mappers=2, reducers=2, volume_bytes=4_000_000, copies=1, skew=0.5)
    job = Shuffle(["h1", "h2"], 1, shape)
    pattern = dict(job.patterns[0])
    assert set(pattern) == {("h1", "h2"), ("h2", "h1")} and 1e6 < sum(pattern.values()) < 3e6
    Engine(with_rate(star(2), RATE), read_policy("stp")).run(job)
    assert job.finished_s == pytest.approx(max(pattern.values()) / 1e6)


def test_a_reducer_fetches_a_bounded_number_of_parts_at_a_time() -> None:
    job = Shuffle(["h1", "h2", "h3"], 1, Shape(mappers=12, reducers=2, volume_bytes=24_000, copies=3))
    begun = list(job.begin())
    assert sorted(transfer.tag for transfer in begun) == [0, 0, 0, 1, 1, 1]
    assert len(job.arrived(begun[0], 1.0)) == 1


@pytest.mark.matrix
def test_the_model_reproduces_the_published_stp_and_the_order_of_the_four() -> None:
    """The only fitted parameter is the overhead. Published isolated at 8 and 16 hosts is within 20 %, see docs."""
    for hosts, tolerance in ((4, 0.08), (8, 0.03), (16, 0.03)):
        found = simulate("ring", "stp,ecmp-published,isolated", hosts, 8)
        published = ring_mbyte_s("stp", hosts)
        assert published and found["stp"].value == pytest.approx(published, rel=tolerance)
        assert found["stp"].value <= found["ecmp-published"].value <= found["isolated"].value
        assert found["isolated"].value == pytest.approx(ring_mbyte_s("isolated", hosts), rel=0.2)


@pytest.mark.parametrize("transport", ["tcp", "llc"])
def test_planned_rings_reach_the_bound(transport: str) -> None:
    for hosts in (4, 8, 16):
        setup = Setup(TREE, replace(ONCE, transport=transport))
        planned = simulate("ring", "planned", hosts, 3, setup)["planned"]
        assert planned.fraction_of(planned.reference) == pytest.approx(1, abs=0.01)
        assert planned.fraction_of(planned.bound) == pytest.approx(1, abs=0.01)


@pytest.mark.matrix
def test_better_strategies_beat_published_isolated_at_16_hosts() -> None:
    found = simulate("ring", "isolated,least-loaded,planned", 16, 5)
    assert found["planned"].value > 1.2 * found["isolated"].value
    assert found["least-loaded"].value > found["isolated"].value


def test_permutations_get_the_known_shares_of_line_rate() -> None:
    """Known from literature and other models for k = 4: stp .44, ecmp .60, D-mod-k .79; planned is at line rate."""
    found = simulate("permutation", "stp,ecmp,dmodk,planned", 16, 30)
    for name, known in (("stp", 0.44), ("ecmp", 0.60), ("dmodk", 0.79), ("planned", 1.0)):
        assert found[name].value == pytest.approx(known, abs=0.05), name


@pytest.mark.matrix
def test_a_permutation_of_1024_hosts_takes_seconds() -> None:
    setup = Setup(with_rate(fat_tree(16), 10**9))
    begin = time.process_time()
    found = simulate("permutation", "stp,ecmp,dmodk,planned", 1024, 1, setup)
    assert time.process_time() - begin < 20
    for name, known in (("stp", 0.06), ("ecmp", 0.43), ("dmodk", 0.54), ("planned", 1.0)):
        assert found[name].value == pytest.approx(known, abs=0.03), name


def test_planned_concurrent_jobs_lose_nothing_and_stp_s_do() -> None:
    """Rings may lose 10 %, the shuffle 15 %."""
    for name, ring_keeps, job_keeps in (("planned", 0.9, 0.85), ("stp", 0.0, 0.0)):
        kept = simulate("both", name, 16, 1)
        ring = kept["random rings"].fraction_of(kept["random rings"].reference)
        job = kept["job"].fraction_of(kept["job"].reference)
        assert ring is not None and job is not None and ring >= ring_keeps and job >= job_keeps
        assert name == "planned" or ring < 0.9


def test_equal_seeds_have_equal_results() -> None:
    once, again = (simulate("ring", "hedera,afar,planned", 8, 2) for _ in range(2))
    assert {name: series.values for name, series in once.items()} == {
        name: series.values for name, series in again.items()
    }


def test_fractions_are_paired_and_respect_the_better_direction() -> None:
    series = Series("shuffle", "job", "s", "stp", 4, (2.0, 8.0), (1.0, 2.0), lower_is_better=True)
    assert series.fraction_of(series.reference) == pytest.approx((1 / 2 * 1 / 4) ** 0.5)
    assert replace(series, lower_is_better=False).fraction_of(series.reference) == pytest.approx(8**0.5)
    assert series.fraction_of(series.bound) is None and series.value == mean((2, 8))


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["sdn", "simulate", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout  # without the lines of progress, which a busy machine has time for


def test_values_of_slow_links_are_printed_with_three_digits() -> None:
    words = [
        "--strategy",
        "stp",
        "--topology",
        "star:4",
        "--host-counts",
        "4",
        "--rate",
        "64kbit",
        "--message-bytes",
        "99",
    ]
    found = re.search(r"stp +4 +(0\.00\d{3}) +(0\.00\d{3}) ", run(*words))
    assert found is not None and float(found[1]) > 0.001


def test_the_command_prints_values_fractions_and_what_was_published() -> None:
    table = run("--strategy", "stp,planned", "--host-counts", "8", "--seeds", "2", "--format", "markdown")
    assert "| stp" in table and "45.65" in table and "of bound" in table
    assert "the bound is an upper limit" in table and "Published values are of 2 MB" in table
    at_once = run("--workload", "both", "--strategy", "stp", "--host-counts", "4", "--seeds", "1", "--shape", "8x2")
    assert "Means over seeds" in at_once and "bound" not in at_once and "Published" not in at_once
    document = json.loads(run("--strategy", "stp", "--host-counts", "4", "--seeds", "1", "--json"))
    assert document["schema"] == "barewire-simulate/1" and document["rate_bit_s"] == 10**9
    first = document["series"][0]
    assert (first["strategy"], first["hosts"], first["published"]) == ("stp", 4, 63.17)
    assert 0 < first["of_reference"] <= first["of_bound"] + 1e-9 <= 1.01


def document(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--strategy", "stp,planned", "--seeds", "1", "--json"))
    return found


def test_published_values_stand_only_beside_the_published_network() -> None:
    """Not beside k = 8, nor beside k = 4 with a failure, at a published number of hosts."""
    once = RingPlan(rings=1, measurements=1, exchanges=1)
    large = with_rate(fat_tree(8), 10**9)
    for network, is_published in ((TREE, True), (large, False), (failed(TREE, ["s5"]), False)):
        random_rings, natural_ring = experiment(Setup(network, once), "ring", ["stp"], [8], 1, lambda _: None)
        assert random_rings.published == (45.65 if is_published else None) and natural_ring.published is None


def test_without_numbers_of_hosts_the_published_or_all_hosts_are_used_and_said() -> None:
    assert document("--workload", "permutation")["host_counts"] == [4, 8, 16]
    wide = ("--topology", "leaf-spine:5x2x5", "--workload")
    assert document(*wide, "permutation")["host_counts"] == [25]
    assert counts_of(None, parse("leaf-spine:5x2x5"), jobs=2) == [24]
    said = run(*wide, "permutation", "--strategy", "stp", "--seeds", "1")
    assert "Numbers of hosts, of 25: 25" in said


def test_failures_slow_flows_down_and_cut_off_hosts_are_left_out() -> None:
    """Half of the cores: planned has half of line rate between pods at best. s13 has two hosts."""
    words = ("--workload", "permutation", "--host-counts", "16")
    whole = {series["strategy"]: series["mean"] for series in document(*words)["series"]}
    broken = {series["strategy"]: series["mean"] for series in document(*words, "--fail", "s1,s2,s3:1")["series"]}
    assert whole["planned"] == pytest.approx(1) and broken["planned"] < 0.9
    assert document("--workload", "permutation", "--fail", "s13", "--host-counts", "14")["failed"] == ["s13"]
    with pytest.raises(WrongUse, match="the topology has 14"):
        run("--workload", "permutation", "--fail", "s13", "--host-counts", "16")


def test_strategies_that_cannot_place_on_a_large_network_are_left_out_of_all_and_refused_by_name() -> None:
    words = ("--topology", "leaf-spine:1000x2x1", "--workload", "permutation", "--host-counts", "4", "--seeds", "1")
    said = run(*words)
    assert "Left out, because the network is too large for them: valiant, ugal." in said and "planned" in said
    with pytest.raises(WrongUse, match="valiant needs the distances between all switches"):
        run(*words, "--strategy", "valiant")


def test_what_is_simulated_is_shown_before_each_simulation() -> None:
    shown: list[str] = []
    experiment(Setup(TREE, ONCE), "permutation", ["stp", "planned"], [4, 8], 2, shown.append)
    assert len(shown) == simulations("permutation", 2, 2, 2) and shown[0] == "permutation of 4 hosts, stp"


@pytest.mark.matrix
def test_an_allocation_of_27648_flows_takes_less_than_a_second_also_with_failures() -> None:
    """k = 48, every host sends: placed by a hash at each switch, whole and with 2 % of the links failed."""
    for network in (with_rate(fat_tree(48), 10**9), failed(with_rate(fat_tree(48), 10**9), ["2%", "s1"])):
        hosts = placed_hosts(network, 27_648)
        paths_of(network).expect(hosts)
        engine = Engine(network, read_policy("ecmp"))
        engine.run(Permutation(hosts, 1), until_s=0.5)
        links = [engine.control.links(key) for key in engine.rates()]
        begin = time.process_time()
        rates = max_min(links, engine.control.capacity)
        assert time.process_time() - begin < 1
        on_links = np.bincount(np.concatenate(links), np.repeat(rates, [len(row) for row in links]))
        assert (on_links <= engine.control.capacity[: len(on_links)] * (1 + 1e-6)).all()
        assert rates.mean() / 125e6 == pytest.approx(0.40, abs=0.02)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--fail", "s99"), "no switch of this network"),
        (("--strategy", "best"), "unknown strategy 'best'; there are"),
        (("--strategy", ","), "--strategy is empty"),
        (("--host-counts", "4,x"), "comma-separated numbers"),
        (("--host-counts", "17"), "the topology has 16"),
        (("--topology", "torus:3"), "unknown topology"),
        (("--rate", "unshaped"), "needs a rate"),
        (("--seeds", "0"), "at least 1"),
        (("--workload", "shuffle", "--shape", "many"), "mappers x reducers"),
        (("--overhead-ms", "-1"), "0 or more"),
        (("--overhead-ms", "nan"), "0 or more"),
        (("--overhead-ms", "1e300"), r"at most 60000, not 1e\+300"),
        (("--message-bytes", "99999999999999999999"), "1gbit takes more than 3600 s"),
        (("--volume-bytes", "99999999999999999999"), "1gbit takes more than 1000000 s"),
        (("--workload", "allreduce", "--compute-share", "0.9999999999999999"), "at most 0.999"),
        (("--workload", "shuffle", "--shape", "100000x101"), "more than 10000000 parts"),
        *(
            (("--workload", name, "--shape", "1x1", "--strategy", "stp"), "1x1 on . hosts sends nothing")
            for name in ("shuffle", "both", "mixed", "shuffles")
        ),
    ],
)
def test_impossible_simulations_are_refused_with_the_remedy(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        run(*words)


@pytest.mark.parametrize("option", ["--message-bytes", "--copies", "--volume-bytes"])
def test_sizes_and_numbers_of_nothing_are_wrong_use(option: str) -> None:
    assert CliRunner().invoke(app, ["sdn", "simulate", option, "0"]).exit_code == 2


@pytest.mark.parametrize("option", ["--copies", "--iterations", "--seeds"])
def test_numbers_that_would_never_end_are_wrong_use(option: str) -> None:
    assert CliRunner().invoke(app, ["sdn", "simulate", option, "9" * 20]).exit_code == 2
