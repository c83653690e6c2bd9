# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The choices of each strategy for one flow, on the published fat-tree: 4 paths between pods, 1 within a switch."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from math import inf
from pathlib import Path as File
from typing import ClassVar

import numpy as np
import pytest

from barewire.errors import WrongUse
from barewire.sdn.flow import Flow, FlowKey, Placed, View
from barewire.sdn.strategies import Placement, Strategy, named, names
from barewire.sdn.strategies.demands import natural_demands
from barewire.sdn.strategies.detours import _known, detours
from barewire.sdn.strategies.isolated import switches_of
from barewire.sdn.strategies.memo import paths_of
from barewire.sdn.strategies.static import Static
from barewire.topology import (
    Network,
    Path,
    Port,
    dragonfly,
    fat_tree,
    leaf_spine,
    shortest_paths,
    star,
    with_rate,
)
from barewire.topology.paths import PortValues

TREE = with_rate(fat_tree(4, servers=0), 8_000_000)  # links of 10^6 bytes a second
LINE = 1e6
PODS_APART = shortest_paths(TREE, "h1", "h16")
NOTHING_YET = View(TREE, now_s=100.0)
_ports = count(40000)


def flow(source: str = "h1", destination: str = "h16", *, identification: int = 0) -> Flow:
    return Flow(FlowKey(source, destination, "tcp", next(_ports), 80), identification=identification)


def placed(
    view: View, path: Path, *, rate: float = 0.0, reserved_until_s: float = 0.0, placed_flow: Flow | None = None
) -> View:
    placed_flow = placed_flow or flow()
    return replace(
        view,
        placed={
            **view.placed,
            placed_flow.key: Placed(placed_flow, path, view.now_s, reserved_until_s, rate_byte_s=rate),
        },
    )


def place(strategy: str | Strategy, new_flow: Flow, view: View = NOTHING_YET) -> Path:
    chosen = named(strategy) if isinstance(strategy, str) else strategy
    return chosen.place(
        new_flow, shortest_paths(view.network, new_flow.key.source, new_flow.key.destination), view
    ).path


def test_stp_always_takes_the_first_path() -> None:
    assert {place("stp", flow(identification=number)) for number in range(8)} == {PODS_APART[0]}


def test_traffic_sums_both_directions_and_the_last_of_equals_wins() -> None:
    """Received bytes alone make a path expensive; the two paths without load are equal."""
    view = replace(
        NOTHING_YET,
        load_byte_s={PODS_APART[0][0]: 5.0},  # the edge switch's port, so the first two paths
        received_byte_s={PODS_APART[3][1]: 3.0},
    )
    assert place("traffic", flow(), view) == PODS_APART[2]
    assert place("traffic", flow()) == PODS_APART[3]
    assert place("traffic:ties=first", flow()) == PODS_APART[0]


def test_traffic_prefers_one_full_link_to_several_half_full_ones() -> None:
    """The published fault: 0.9 of one link is less than twice 0.5, or 0.4 on each. Least-loaded does the opposite."""
    load = {PODS_APART[0][1]: 0.9 * LINE, PODS_APART[1][1]: 0.5 * LINE, PODS_APART[1][2]: 0.5 * LINE}
    load |= {port: 0.4 * LINE for path in PODS_APART[2:] for port in path[:-1]}
    view = replace(NOTHING_YET, load_byte_s=load)
    assert place("traffic", flow(), view) == PODS_APART[0]
    assert place("least-loaded", flow(), view) != PODS_APART[0]


def test_traffic_sends_a_burst_over_one_path_and_least_loaded_spreads_it() -> None:
    for strategy, routes in (("traffic", 1), ("least-loaded", 4)):
        view = NOTHING_YET
        for _ in range(4):
            burst_flow = flow()
            view = placed(view, place(strategy, burst_flow, view), placed_flow=burst_flow)
        assert len({entry.path for entry in view.placed.values()}) == routes


def test_published_ecmp_is_the_identification_modulo_the_paths_so_replies_take_the_first() -> None:
    assert [place("ecmp-published", flow(identification=number)) for number in (0, 6, 7)] == [
        PODS_APART[0],
        PODS_APART[2],
        PODS_APART[3],
    ]


def test_isolated_skips_reserved_paths_by_the_identification_modulo_the_rest() -> None:
    """Identification 6 selects path 2 of 4; once that is reserved, path 0 of the 3 left, then path 0 of 2 (path 1)."""
    view = NOTHING_YET
    chosen = []
    for _ in range(4):
        placement = named("isolated").place(flow(identification=6), PODS_APART, view)
        assert placement.reserve_s == 60
        view = placed(view, placement.path, reserved_until_s=view.now_s + placement.reserve_s)
        chosen.append(PODS_APART.index(placement.path))
    assert chosen == [2, 0, 1, 3]


def test_isolated_uses_the_last_candidate_when_all_are_reserved_without_a_reservation() -> None:
    taken = replace(NOTHING_YET, reservations=dict.fromkeys(PODS_APART, 130.0))
    for identification, last in ((0, 3), (1, 0), (6, 3)):
        placement = named("isolated").place(flow(identification=identification), PODS_APART, taken)
        assert (PODS_APART.index(placement.path), placement.reserve_s) == (last, 0)


def test_isolated_reserves_a_list_of_switches_until_it_expires() -> None:
    """Hosts of the same edge switches cannot use the path, other edge switches can; after 60 s all can."""
    view = replace(NOTHING_YET, reservations={PODS_APART[0]: 160.0})
    same_switches = flow("h2", "h15")
    assert shortest_paths(TREE, "h2", "h15").index(place("isolated", same_switches, view)) == 1
    other_switch = flow("h1", "h14")
    assert shortest_paths(TREE, "h1", "h14").index(place("isolated", other_switch, view)) == 0
    assert place("isolated", flow(), replace(view, now_s=160.0)) == PODS_APART[0]


def test_isolated_as_published_reserves_for_the_flows_lifetime() -> None:
    assert named("isolated:seconds=inf").place(flow(), PODS_APART, NOTHING_YET).reserve_s == inf


def test_isolated_within_one_switch_has_one_path_and_uses_it_again() -> None:
    path = shortest_paths(TREE, "h1", "h2")[0]
    taken = replace(NOTHING_YET, reservations={path: 130.0})
    assert place("isolated", flow("h1", "h2"), taken) == path


def test_ecmp_choices_are_uncorrelated_between_levels() -> None:
    """All four paths are equally likely: with one basis for all switches only two would be used."""
    used = Counter(PODS_APART.index(place("ecmp", flow())) for _ in range(2000))
    assert sorted(used) == [0, 1, 2, 3]
    assert all(400 < times < 600 for times in used.values())


def test_ecmp_keeps_a_flow_s_path_and_another_basis_changes_it() -> None:
    flows = [flow() for _ in range(50)]
    chosen = [place("ecmp", sample) for sample in flows]
    assert chosen == [place("ecmp", sample) for sample in flows]
    assert chosen != [place("ecmp:basis=1", sample) for sample in flows]


def test_ecmp_hashes_the_addresses_where_there_are_no_ports() -> None:
    pairs = [Flow(FlowKey(f"h{number}", f"h{two}", "llc")) for number in range(1, 5) for two in range(9, 17)]
    routes = {place("ecmp", pair)[0].number for pair in pairs}
    assert len(routes) == 2


def test_dmodk_brings_all_flows_to_a_host_down_one_path() -> None:
    """All sources in other pods reach the destination through one core; hosts of one switch use different cores."""
    cores: dict[str, set[str]] = {}
    for destination in ("h13", "h14", "h15", "h16"):
        cores[destination] = {place("dmodk", flow(f"h{number}", destination))[2].node for number in range(1, 13)}
    assert all(len(core) == 1 for core in cores.values())
    assert len(set.union(*cores.values())) == 4


def test_least_loaded_breaks_ties_of_counts_by_the_measured_load() -> None:
    view = replace(NOTHING_YET, load_byte_s={path[2]: LINE / 2 for path in PODS_APART[:3]})
    assert place("least-loaded", flow(), view) == PODS_APART[3]


def test_least_loaded_looks_up_each_port_of_all_paths_once() -> None:
    """It places every new flow of the policy as delivered, in the controller's event loop."""
    asked: list[Port] = []

    class Loads(dict[Port, float]):
        def get(self, port, default=None):  # type: ignore[no-untyped-def,override]
            asked.append(port)
            return super().get(port, default)

    paths = paths_of(TREE).between("h1", "h16")
    for load in ({}, {paths[0][1]: 5e5}):
        asked.clear()
        named("least-loaded").place(flow(), paths, View(TREE, 0.0, load_byte_s=Loads(load), crossing={}))
        assert sorted(asked) == sorted({port for path in paths for port in path}) and len(paths) == 4


def test_least_loaded_uses_the_given_counts() -> None:
    view = replace(NOTHING_YET, crossing=Counter(port for path in PODS_APART[:3] for port in path[:-1]))
    assert place("least-loaded", flow(), view) == PODS_APART[3]


def test_hedera_estimates_natural_demands() -> None:
    """The example of two senders to one receiver: h1 halves its link, h2 sends what h3 has left."""
    assert natural_demands(TREE, [("h1", "h3"), ("h1", "h4"), ("h2", "h3")]) == [
        pytest.approx(LINE / 2),
        pytest.approx(LINE / 2),
        pytest.approx(LINE / 2),
    ]
    assert natural_demands(TREE, [("h1", "h3"), ("h1", "h4"), ("h1", "h5"), ("h2", "h3")])[3] == pytest.approx(2e6 / 3)


def collision(rate: float) -> tuple[View, Flow, Flow]:
    """Two flows of different hosts on one path, at half rate each."""
    first, second = flow("h1", "h16"), flow("h2", "h14")
    view = placed(NOTHING_YET, PODS_APART[0], rate=rate, placed_flow=first)
    return placed(view, shortest_paths(TREE, "h2", "h14")[0], rate=rate, placed_flow=second), first, second


@pytest.mark.parametrize("strategy", ["hedera", "hedera:scheduler=first-fit", "afar:above=0.4"])
def test_re_placement_separates_two_large_flows_that_collide(strategy: str) -> None:
    view, first, second = collision(LINE / 2)
    moves = named(strategy).rearrange(view)
    paths = {key: moves.get(key, view.placed[key].path) for key in (first.key, second.key)}
    assert not set(paths[first.key][:-1]) & set(paths[second.key][:-1])
    assert named(strategy).rearrange(view) == moves


@pytest.mark.parametrize("strategy", ["hedera", "hedera:scheduler=first-fit", "afar:above=0.4"])
def test_flows_of_other_strategies_are_loads_and_do_not_move(strategy: str) -> None:
    view, first, second = collision(LINE / 2)
    moves = named(strategy).rearrange(replace(view, fixed=frozenset({first.key})))
    assert set(moves) == {second.key}
    assert named(strategy).rearrange(replace(view, fixed=frozenset({first.key, second.key}))) == {}


def test_hedera_leaves_small_flows_to_ecmp() -> None:
    view, _, _ = collision(LINE / 20)
    assert named("hedera").rearrange(view) == {}
    first = flow()
    assert place("hedera", first) == place("ecmp", first)


def test_afar_moves_nothing_off_links_below_its_threshold() -> None:
    view, _, _ = collision(LINE / 5)
    assert named("afar").rearrange(view) == {}
    assert named("afar:above=0.3").rearrange(view) != {}


def test_a_static_strategy_has_no_period_and_moves_nothing() -> None:
    for name in ("stp", "traffic", "ecmp-published", "isolated", "ecmp", "dmodk", "least-loaded"):
        assert (named(name).period_s, named(name).rearrange(collision(LINE)[0])) == (0, {})


def test_every_strategy_places_on_a_star_which_has_one_path() -> None:
    first = flow("h1", "h2")
    small = star(3)
    assert all(place(name, first, View(small, 0.0)) == (Port("s1", 2),) for name in names())


@dataclass(frozen=True)
class Own(Static):
    """A custom strategy."""

    offset: int = 0
    name: ClassVar[str] = "own"

    def place(self, flow: Flow, paths: list[Path], view: View) -> Placement:
        return Placement(paths[self.offset % len(paths)])


@dataclass(frozen=True)
class Needy(Own):
    """One with a parameter that must be given, and one that no text can be converted to."""

    limit: int | None = None
    must: int = field(kw_only=True)


def test_a_custom_strategy_that_cannot_be_imported_or_made_is_refused_with_the_reason(
    tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the API, too, where anything else is a defect of the controller's."""
    (tmp_path / "half_written.py").write_text("class Own:\n    def place(")
    (tmp_path / "needs_hardware.py").write_text("raise RuntimeError('no accelerator')")
    monkeypatch.syspath_prepend(tmp_path)
    for text, reason in (
        ("half_written:Own", "cannot be loaded: '\\(' was never closed"),
        ("needs_hardware:Own", "cannot be loaded: no accelerator"),
        (".relative:Own", "cannot be loaded: the 'package' argument"),
        ("test_sdn_strategies:Needy", "cannot be made: .* 'must'"),
        ("test_sdn_strategies:Needy:must=1:limit=2", "cannot be made: .*Union"),
    ):
        with pytest.raises(WrongUse, match=reason):
            named(text)
    assert named("test_sdn_strategies:Needy:must=1").name == "own"


def test_a_custom_strategy_is_named_by_module_and_class_with_parameters() -> None:
    assert place("test_sdn_strategies:Own", flow()) == PODS_APART[0]
    assert place("test_sdn_strategies:Own:offset=2", flow()) == PODS_APART[2]


def test_unknown_strategies_and_parameters_are_refused_with_the_valid_ones() -> None:
    with pytest.raises(WrongUse, match=r"unknown strategy 'best'; there are: stp, traffic, ecmp-published"):
        named("best")
    with pytest.raises(WrongUse, match="does not take 'hours=1'; it takes: seconds"):
        named("isolated:hours=1")
    with pytest.raises(WrongUse, match="seconds is of type float, not 'long'"):
        named("isolated:seconds=long")
    for text in (
        "isolated:seconds=0",
        "isolated:seconds=nan",
        "isolated:seconds=-inf",
        "isolated:seconds=4095",
        "isolated:seconds=1e300",
        "traffic:ties=none",
        "hedera:scheduler=luck",
        "afar:period_s=0",
    ):
        with pytest.raises(WrongUse):
            named(text)
    for text in ("hedera:period_s=1e-9", "lanes:period_s=0.009"):
        with pytest.raises(WrongUse, match=r"'s period_s is at least 0.01, or 0 for a strategy that never moves flows"):
            named(text)
    assert named("lanes:period_s=0.01").period_s == 0.01
    for text in ("isolated:60", "no_such_module:Own", "test_sdn_strategies:TREE", "test_sdn_strategies:Nothing"):
        with pytest.raises(WrongUse, match=r"cannot be loaded|is no strategy"):
            named(text)


def profiled(profile: str, source: str = "h1", destination: str = "h16") -> Flow:
    return replace(flow(source, destination), profile=profile)


def busy(view: View, path: Path, profile: str, *, is_idle: bool = False) -> View:
    one = profiled(profile)
    return replace(view, placed={**view.placed, one.key: Placed(one, path, view.now_s, is_idle=is_idle)})


def test_lanes_use_all_paths_until_another_profile_is_met_on_a_link_that_can_be_avoided() -> None:
    """Paths 0 and 1 leave by one uplink of the edge switch, 2 and 3 by the other."""
    view = NOTHING_YET
    taken = set()
    for _ in range(4):
        one = profiled("mpi")
        taken.add(place("lanes", one, view))
        view = placed(view, place("lanes", one, view), placed_flow=one)
    assert taken == set(PODS_APART)
    for profile, lane in (("hadoop", PODS_APART[:2]), ("mpi", PODS_APART[2:])):
        met = busy(NOTHING_YET, PODS_APART[1], "mpi" if profile == "hadoop" else "hadoop")
        assert place("lanes", profiled(profile), met) in lane
    for harmless in (
        busy(NOTHING_YET, PODS_APART[1], "default"),
        busy(NOTHING_YET, PODS_APART[1], "mpi", is_idle=True),
    ):
        full = placed(harmless, PODS_APART[0], placed_flow=profiled("hadoop"))
        assert place("lanes", profiled("hadoop"), full) in PODS_APART[2:], "it may avoid its own flow on both uplinks"
    unavoidable = busy(NOTHING_YET, shortest_paths(TREE, "h15", "h16")[0], "mpi")
    assert place("lanes", profiled("hadoop"), placed(unavoidable, PODS_APART[0])) in PODS_APART[2:]


def test_lanes_move_busy_flows_out_of_another_profiles_lane_and_only_these() -> None:
    view = NOTHING_YET
    flows = {name: profiled(name.split()[0]) for name in ("hadoop in", "hadoop out", "mpi in", "hadoop idle")}
    where = (PODS_APART[0], PODS_APART[2], PODS_APART[3], PODS_APART[2])
    for (name, one), path in zip(flows.items(), where, strict=True):
        idle = name.endswith("idle")
        view = replace(view, placed={**view.placed, one.key: Placed(one, path, 0.0, is_idle=idle)})
    moves = named("lanes").rearrange(view)
    assert moves.keys() == {flows["hadoop out"].key} and moves[flows["hadoop out"].key] in PODS_APART[:2]
    assert not named("lanes").rearrange(replace(view, fixed=frozenset(one.key for one in flows.values())))
    assert named("planned").rearrange(view) == moves, "what was not announced has lanes, too"


def test_lanes_move_large_flows_off_a_full_link_and_nothing_else() -> None:
    """Both flows send half of what they could: their natural demands fill two links."""
    one, other = profiled("mpi", "h1", "h16"), profiled("mpi", "h2", "h14")
    path, full = PODS_APART[0], {PODS_APART[0][0]: LINE}
    assert shortest_paths(TREE, "h2", "h14")[0][0] == path[0]
    view = placed(NOTHING_YET, path, rate=LINE / 2, placed_flow=one)
    view = placed(view, shortest_paths(TREE, "h2", "h14")[0], rate=LINE / 2, placed_flow=other)
    assert named("lanes").rearrange(view) == {}, "no link is full"
    view = replace(view, load_byte_s=full)
    moves = named("lanes").rearrange(view)
    paths = {key: moves.get(key, view.placed[key].path) for key in (one.key, other.key)}
    assert len(moves) == 1 and not set(paths[one.key][:-1]) & set(paths[other.key][:-1])
    assert named("planned").rearrange(view) == moves, "they were not announced"
    assert named("lanes").rearrange(replace(view, fixed=frozenset({one.key}))).keys() == {other.key}
    small = {key: replace(flow_placed, rate_byte_s=LINE / 20) for key, flow_placed in view.placed.items()}
    assert named("lanes").rearrange(replace(view, placed=small)) == {}
    unknown = {key: replace(item, flow=replace(item.flow, profile="default")) for key, item in view.placed.items()}
    assert named("lanes").rearrange(replace(view, placed=unknown)) == {}
    moves = named("lanes").rearrange(busy(view, PODS_APART[1], "hadoop"))
    assert moves.keys() == {one.key, other.key}
    assert {moved[0] for moved in moves.values()} == {PODS_APART[2][0]}, "full or not, it is their lane"


def test_lanes_look_at_no_flow_while_only_one_named_profile_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    view = busy(busy(NOTHING_YET, PODS_APART[0], "mpi"), PODS_APART[1], "default")
    view = busy(view, PODS_APART[2], "hadoop", is_idle=True)
    monkeypatch.setattr("barewire.sdn.strategies.lanes.paths_of", None)
    assert named("lanes").rearrange(view) == {}
    with pytest.raises(TypeError):
        named("lanes").rearrange(busy(view, PODS_APART[2], "hadoop"))


def test_idle_flows_are_no_load() -> None:
    first = place("least-loaded", flow())
    assert place("least-loaded", flow(), busy(NOTHING_YET, first, "mpi", is_idle=True)) == first
    assert place("least-loaded", flow(), busy(NOTHING_YET, first, "mpi")) != first


@pytest.mark.parametrize("name", [*names(), "traffic:ties=first", "isolated:seconds=inf"])
@pytest.mark.parametrize("network", [TREE, with_rate(dragonfly(4, 2, 1), 8_000_000)], ids=["fat-tree", "dragonfly"])
def test_a_strategy_chooses_the_same_from_arrays_as_from_lists_and_mappings(name: str, network: Network) -> None:
    """A hundred flows of two profiles, with random loads: the controller has mappings, the simulator arrays."""
    rng, paths = random.Random(name), paths_of(network)
    strategy = named(name)
    load = np.array([rng.choice((0.0, 0.1, 0.5, 1.0)) * LINE for _ in paths.ports])
    by_port = dict(zip(paths.ports, load.tolist(), strict=True))
    received = {port: by_port[peer] for port, peer in network.peers.items()}
    in_arrays = [PortValues(paths, np.array([values[port] for port in paths.ports])) for values in (by_port, received)]
    lists = View(network, 100.0, load_byte_s=by_port, received_byte_s=received)
    counted, reserved = PortValues(paths, np.zeros(len(paths.ports))), {}
    of_profiles = {profile: PortValues(paths, np.zeros(len(paths.ports))) for profile in ("mpi", "hadoop")}
    for _ in range(100):
        ends = rng.sample(network.hosts, 2)
        new_flow = replace(flow(*ends, identification=rng.getrandbits(16)), profile=rng.choice(("mpi", "hadoop")))
        arrays = replace(
            lists,
            load_byte_s=in_arrays[0],
            received_byte_s=in_arrays[1],
            crossing=counted,
            crossing_of_profiles=of_profiles,
            reserved=reserved,
        )
        one = strategy.place(new_flow, shortest_paths(network, *ends), lists)
        other = strategy.place(new_flow, paths.between(*ends), arrays)
        assert one == other
        until_s = lists.now_s + one.reserve_s if one.reserve_s else 0.0
        lists = placed(lists, one.path, reserved_until_s=until_s, placed_flow=new_flow)
        for values in (counted, of_profiles[new_flow.profile]):
            values.array[[paths.numbers[port] for port in one.path]] += 1
        if until_s:
            reserved[switches_of(one.path)] = until_s


DRAGONFLY = with_rate(dragonfly(2, 1, 2), 8_000_000)  # s1 s2, s3 s4, s5 s6; hosts h1 h2 on s1, h5 h6 on s3 …


def test_valiant_takes_a_loop_free_detour_and_where_there_is_none_a_shortest_path() -> None:
    """The six switches form a ring: from h1 to h3 there is one way around; halfway around, both ways are shortest."""
    view = View(DRAGONFLY, now_s=0.0)
    around = {place("valiant", flow("h1", "h3"), view) for _ in range(20)}
    assert {len(path) for path in around} == {6}
    assert all(paths_of(DRAGONFLY).leads("h1", "h3", path) for path in around)
    halfway = {place("valiant", flow("h3", "h6"), view) for _ in range(20)}
    assert halfway == set(shortest_paths(DRAGONFLY, "h3", "h6")) and len(halfway) == 2
    assert place("valiant", flow("h1", "h2"), view) == shortest_paths(DRAGONFLY, "h1", "h2")[0]
    balanced = with_rate(dragonfly(4, 2, 2), 8_000_000)
    many = {place("valiant", flow("h1", "h72"), View(balanced, now_s=0.0)) for _ in range(60)}
    assert len(many) > 10 and all(paths_of(balanced).leads("h1", "h72", path) for path in many)


def test_ugal_takes_a_detour_only_when_the_shortest_path_is_fuller_in_proportion() -> None:
    """h1 to h3 is 2 hops, s1 s2; around the ring of six switches it is 6 hops: worth it against three more flows.

    The fourth flow goes around; with one there, it is worth it again against six.
    """
    view, chosen = View(DRAGONFLY, now_s=0.0), []
    for _ in range(6):
        new_flow = flow("h1", "h3")
        path = place("ugal", new_flow, view)
        chosen.append(len(path))
        view = placed(view, path, placed_flow=new_flow)
    assert chosen == [2, 2, 2, 6, 2, 2]
    busy = replace(view, placed={}, load_byte_s={}, crossing={Port("s1", 3): 3})
    assert len(place("ugal", flow("h1", "h3"), busy)) == 6
    assert len(place("ugal", flow("h1", "h3"), replace(busy, crossing={Port("s1", 3): 2}))) == 2


@pytest.mark.parametrize("network", [DRAGONFLY, dragonfly(4, 2, 2), TREE, leaf_spine(4, 2, 1)])
def test_detours_are_the_first_loop_free_paths_over_each_other_switch(network: Network) -> None:
    routes = paths_of(network)

    def between(first: str, last: str) -> list[Path]:
        return [routes.path_of(row) for row in routes.across(routes._switches[first], routes._switches[last])]

    for source, destination in pairwise(network.hosts[:9]):
        paths = routes.between(source, destination)
        first, end = paths[0][0].node, paths[0][-1]
        wanted: dict[Path, None] = {}
        for middle in network.switches if first != end.node else ():
            if middle in (first, end.node):
                continue
            joined = ((*there, *back, end) for there in between(first, middle) for back in between(middle, end.node))
            path = next((path for path in joined if len({port.node for port in path}) == len(path)), ())
            if len(path) > len(paths[0]):
                wanted[path] = None
        assert list(detours("", View(network, 0.0), paths)) == list(wanted)


def test_of_a_large_network_some_switches_are_tried_others_for_each_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """120 switches of which all others would do; nothing is remembered of more pairs than may be."""
    monkeypatch.setattr("barewire.sdn.strategies.detours._REMEMBERED", 3)
    large = with_rate(leaf_spine(118, 2, 1), 8_000_000)
    routes, view = paths_of(large), View(large, now_s=0.0)
    over = []
    for number in range(2, 10):
        ends = "h1", f"h{number}"
        found = detours("", view, routes.between(*ends))
        assert found and all(len(path) == 5 and routes.leads(*ends, path) for path in found)
        over.append({large.peers[path[1]].node for path in found})
    assert {len(switches) for switches in over} <= {57, 58, 59} and len(set.union(*over)) == 117
    assert len(_known[routes]) == 3


def joined(links: Iterable[tuple[str, str]]) -> Network:
    """A network of these links, whose ports are numbered in this order; hosts are named h…, switches s…."""
    ports: Counter[str] = Counter()
    peers: dict[Port, Port] = {}
    for ends in links:
        ports.update(ends)
        first, last = (Port(end, ports[end]) for end in ends)
        peers |= {first: last, last: first}
    switches, hosts = (tuple(name for name in ports if name[0] == kind) for kind in "sh")
    return Network(switches, hosts, peers)


def test_detours_are_found_soon_where_millions_of_paths_lead_to_a_switch_and_none_on() -> None:
    """Through a switch that was entered, or in a grid, all of them would be tried while the controller waits."""
    hosts = [("h1", "s1"), ("h2", "s2")]
    line = joined([*hosts, *((f"s{number}", f"s{number + 1}") for number in range(1, 20) for _ in range(8))])
    assert not detours("", View(line, 0.0), paths_of(line).between("h2", "h1")), "8^18 paths from s2 to s20"
    side = 14
    right = [(f"s{n}", f"s{n + 1}") for n in range(1, side**2) if n % side]
    down = [(f"s{n}", f"s{n + side}") for n in range(1, side**2 - side + 1)]
    grid = joined([*hosts, *right, *down])
    found = detours("", View(grid, 0.0), paths_of(grid).between("h1", "h2"))
    assert len(found) > 80 and all(paths_of(grid).leads("h1", "h2", path) for path in found)


@pytest.mark.parametrize("name", ["valiant", "ugal"])
def test_detours_are_refused_on_networks_that_are_too_large_for_them(name: str) -> None:
    large = with_rate(leaf_spine(1000, 2, 1), 8_000_000)
    with pytest.raises(WrongUse, match="use least-loaded"):
        place(name, flow("h1", "h2"), View(large, now_s=0.0))
