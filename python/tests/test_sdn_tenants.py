# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tenants: their file, the sharing of a link's rate, their meters on switches in memory, their rights at the API."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_switches import World, acquainted, ethernet, quiet, tcp
from hypothesis import given
from hypothesis import strategies as st

from barewire.errors import WrongUse
from barewire.sdn.api.access import Access, Caller, QuotaError
from barewire.sdn.api.server import Api
from barewire.sdn.classify.jobs import Jobs, parse_job
from barewire.sdn.classify.policy import Policy
from barewire.sdn.classify.tenants import Tenants, parse_tenants
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.rules import Kind, kind_of
from barewire.sdn.controller.shares import ACTIVE, FLOODED, HOLD_S, SLACK, Use, share_out
from barewire.sdn.controller.slices import PERIOD_S
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import AddRule
from barewire.topology import Port

HOSTS = [f"h{number}" for number in range(1, 17)]
RATE_BIT_S = 10_000_000
TWO = """
[[tenant]]
name = "quiet"
hosts = ["h1", "h2"]
share = 0.5
token_file = "quiet.token"
jobs_max = 2
ranks_max = 5
pattern_flows_max = 10

[[tenant]]
name = "noisy"
hosts = ["h3", "h4"]
share = 0.25
ceiling = 0.8
token_file = "noisy.token"

[[tenant]]
name = "guests"
token_file = "guests.token"
requests_per_s = 3
"""
OPERATOR = "the-token-of-the-operator"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("quiet", "noisy", "guests"):
        (tmp_path / f"{name}.token").write_text(f"the-token-of-{name}-hosts")
        (tmp_path / f"{name}.token").chmod(0o600)
    return tmp_path


def parsed(text: str, folder: Path) -> Tenants:
    return parse_tenants(text, "tenants.toml", HOSTS, folder)


# The file


def test_a_tenants_file_is_read(folder: Path) -> None:
    tenants = parsed(TWO, folder)
    assert [(one.name, one.share, one.ceiling, one.jobs_max) for one in tenants.all] == [
        *(("quiet", 0.5, 1.0, 2), ("noisy", 0.25, 0.8, 100), ("guests", 0.0, 1.0, 100)),
    ]
    assert tenants.of_host("h3") is tenants.all[1] and tenants.of_host("h5") is None
    assert tenants.all[2].token == "the-token-of-guests-hosts"


A, B = '[[tenant]]\nname = "a"\nhosts = ["h1"]\n', '[[tenant]]\nname = "b"\nhosts = ["h2"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (A + "share = 0.6\n" + B + "share = 0.5\n", r"0.6 \(a\) \+ 0.5 \(b\) = 1.1, more than a link has"),
        (A + B.replace("h2", "h1"), "h1 cannot belong to 'a' and to 'b'"),
        (A.replace("h1", "h99"), "unknown hosts h99; known are h1, "),
        (A + "share = 1.5", "share is a fraction of each link from 0 to 1, such as 0.5, not 1.5"),
        (A + "share = true", "share is a fraction"),
        (A + "share = 0.5\nceiling = 0.4", "its ceiling 0.4 must be above 0, and at least its share 0.5"),
        (A + "ceiling = 0", "its ceiling 0 must be above 0"),
        (A + B.replace('"b"', '"a"'), "two tenants are named 'a'"),
        (A + 'colour = "red"', "there is no 'colour'; there are name, hosts, share"),
        ('[[tenant]]\nname = "a"\n', "neither hosts nor a token_file"),
        ('[[tenant]]\nhosts = ["h1"]\n', "needs a name"),
        (A + 'token_file = "absent"', "no token in .*absent"),
        (A + 'token_file = "quiet.token"\n' + B + 'token_file = "quiet.token"', "have the same token"),
        (A + "jobs_max = 0", "jobs_max is a whole number from 1, not 0"),
        ('[[tenant]]\nname = "a"\nhosts = "h1"', "hosts are a list of names"),
        ("", "it has 0 tenants"),
        ("tenant = 3", r"write each tenant as \[\[tenant\]\]"),
        ("[other]", r"write each tenant as \[\[tenant\]\]"),
        ("[[tenant", "the file is TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_remedy(folder: Path, text: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        parsed(text, folder)


# Sharing


class Link:
    """One direction of a link: what tenants send in a step, and what their meters let through, in % of its rate."""

    def __init__(self, *tenants: tuple[float, float], rate_bit_s: float = RATE_BIT_S) -> None:
        self.uses = [Use(share, ceiling) for share, ceiling in tenants]
        self.now, self.rate_bit_s = 0.0, rate_bit_s

    def step(self, *demands: float) -> list[float | None]:
        self.now += PERIOD_S
        for use, demand in zip(self.uses, demands, strict=True):
            use.counted(self.now, demand / 100 * self.rate_bit_s, self.rate_bit_s)
        share_out(self.uses, self.rate_bit_s)
        limits = [use.limit_bit_s for use in self.uses]
        return [None if limit is None else 100 * limit / self.rate_bit_s for limit in limits]

    def steps(self, count: int, *demands: float) -> list[float | None]:
        for _ in range(count):
            limits = self.step(*demands)
        return limits

    def passed(self, *demands: float) -> list[float]:
        """What gets through, with a queue that shares overload in proportion, after the limits have settled."""
        limits = self.steps(20, *demands)
        metered = [
            demand if limit is None else min(demand, limit) for demand, limit in zip(demands, limits, strict=True)
        ]
        return [rate * min(1.0, 100.0 / max(sum(metered), 1.0)) for rate in metered]


def test_without_contention_or_a_second_tenant_nobody_is_limited() -> None:
    link = Link((0.5, 1.0), (0.25, 1.0), (0.0, 1.0))
    assert link.steps(9, 40.0, 20.0, 0.0) == [None] * 3
    assert link.steps(9, 0.0, 100.0 * FLOODED - 1, 0.0) == [None] * 3, "TCP alone, with what it sends again"


def test_a_tenant_whose_messages_come_from_several_hosts_at_once_is_not_limited() -> None:
    """Alone, and beside another one while its mean is within its share."""
    for bursts, other, count in (((200.0, 0.0), 0.0, 60), ((300.0, 300.0, 0.0, 0.0, 0.0, 0.0), 0.0, 10)):
        link = Link((0.5, 1.0), (0.25, 1.0), rate_bit_s=1_250_000)
        assert [link.step(burst, other) for burst in bursts * count] == [[None, None]] * (len(bursts) * count)
    link = Link((0.5, 1.0), (0.25, 1.0))
    link.steps(20, 0.0, 300.0)
    assert [link.step(burst, 300.0)[0] for burst in (140.0, 0.0, 0.0) * 20] == [None] * 60


@pytest.mark.parametrize("rate_bit_s", [1_250_000, 10_000_000, 10_000_000_000])
def test_a_flood_is_noticed_within_seconds_and_forgotten_soon_after_its_end(rate_bit_s: int) -> None:
    """Twice the link's rate for a minute; then what TCP sends. Slow links have a queue for longer."""
    link = Link((0.5, 1.0), (0.25, 1.0), rate_bit_s=rate_bit_s)
    limits = [link.step(0.0, 200.0)[1] for _ in range(120)]
    noticed_s = limits.index(pytest.approx(100 * (1 - SLACK))) * PERIOD_S
    assert 1.0 <= noticed_s <= (4.5 if rate_bit_s < 4_000_000 else 1.5)
    assert None not in limits[round(noticed_s / PERIOD_S) :]
    link.steps(4 if rate_bit_s > 4_000_000 else 8, 0.0, 0.0)
    assert link.steps(20, 0.0, 105.0) == [None, None]


def test_a_flood_that_ended_while_nobody_counted_limits_its_tenant_no_more() -> None:
    """Its switch was disconnected, or no flow crossed it."""
    link = Link((0.5, 1.0), (0.25, 1.0))
    assert link.steps(120, 0.0, 200.0)[1] is not None
    link.now += 60.0
    assert [link.step(0.0, 105.0) for _ in range(10)] == [[None, None]] * 10


@pytest.mark.parametrize("flood", [150.0, 1000.0])
def test_a_tenant_keeps_its_half_beside_a_flood_and_what_is_idle_is_lent(flood: float) -> None:
    link = Link((0.5, 1.0), (0.25, 1.0), (0.0, 1.0))
    quiet, noisy, _ = link.passed(50.0, flood, 0.0)
    assert quiet >= 0.95 * 50 and noisy >= 0.9 * 50
    _, noisy, _ = link.passed(0.0, flood, 0.0)
    assert 95 <= noisy <= 100 * (1 - SLACK) + 1e-9, "room for a tenant that wakes up"
    quiet, noisy, _ = link.passed(10.0, flood, 0.0)
    assert quiet >= 0.95 * 10 and quiet + noisy >= 95
    *_, rest = link.passed(0.0, 0.0, flood)
    assert rest >= 95, "flows of no tenant may use what nobody else wants"


def test_a_tenant_that_wakes_up_has_its_whole_share_with_the_next_count() -> None:
    link = Link((0.5, 1.0), (0.0, 1.0))
    assert link.steps(20, 0.0, 300.0)[1] == pytest.approx(97)
    assert link.step(2.0, 300.0)[1] == pytest.approx(47)
    assert link.steps(3, 0.0, 300.0)[1] == pytest.approx(47)
    assert link.steps(round(HOLD_S / PERIOD_S) + 2, 0.0, 300.0)[1] == pytest.approx(97)


def test_two_floods_are_held_to_their_shares_and_a_ceiling_always_holds() -> None:
    first, second = Link((0.6, 1.0), (0.2, 1.0)).passed(500.0, 500.0)
    assert first >= 60 and second >= 20 and first == pytest.approx(3 * second, rel=0.01)
    assert Link((0.0, 0.3), (0.5, 1.0)).passed(200.0, 0.0)[0] == pytest.approx(30)
    assert Link((0.0, 0.3), (0.5, 1.0)).steps(3, 0.0, 0.0) == [30.0, None], "before it sends anything"


SHARES = st.lists(st.integers(0, 40), min_size=2, max_size=5)
DEMANDS = st.lists(st.floats(0, 1000), min_size=5, max_size=5)


@given(SHARES, DEMANDS)
def test_no_tenant_gets_less_than_its_share_if_it_wants_it(shares: list[int], demands: list[float]) -> None:
    total = max(sum(shares), 100)
    link = Link(*((share / total, 1.0) for share in shares))
    passed = link.passed(*demands[: len(shares)])
    for share, demand, through in zip(shares, demands, passed, strict=False):
        # Another one's rate that is not a flood, or not yet, may hide what is too little to be noticed.
        least = 0.949 if demand > 100 * ACTIVE else 0.75
        assert through >= least * min(demand, 100 * share / total)
    # Limits leave a part free, and reserves have a margin of a fifth.
    assert sum(passed) >= (1 - SLACK) / 1.2 * min(sum(demands[: len(shares)]), 100.0) - 1e-9


# Meters


def world_of(folder: Path, rate_bit_s: int = RATE_BIT_S) -> World:
    return acquainted(tenants=parsed(TWO, folder), link_rate_bit_s=rate_bit_s)


def test_with_tenants_there_are_no_labels_whose_frames_no_meter_would_count(folder: Path) -> None:
    spray = Policy({"default": "stp", "mpi": "spray"}, ())
    for tenants, labels in ((parsed(TWO, folder), None), (None, "3840-3843")):
        world = World(acquainted().network, quiet(link_rate_bit_s=RATE_BIT_S), spray, tenants=tenants)
        world.stand_up()
        for host in world.network.hosts:
            world.send(host, tcp(host, "h1" if host != "h1" else "h2", 1, 1))
        world.pass_time(1.0)
        assert world.controller.labels_of("mpi") == labels
        kinds = {kind_of(entry.rule.cookie) for switch in world.switches.values() for entry in switch.table.values()}
        assert (Kind.LABEL in kinds) is (labels is not None)


def meters_on_path(world: World, key: FlowKey) -> list[int | None]:
    """The meters of a flow's rules, in order."""
    route = world.controller.router.routes.get(key)
    assert route is not None
    tables = [world.switches[hop.node].table.values() for hop in route.path]
    return [
        next(entry.rule.meter for entry in table if entry.rule.cookie & 0xFFFF_FFFF == route.number) for table in tables
    ]


def test_rules_refer_to_the_meter_of_their_port_and_tenant_and_never_to_a_missing_one(folder: Path) -> None:
    for seed in range(3):
        world = World(acquainted().network, quiet(link_rate_bit_s=RATE_BIT_S), seed=seed, tenants=parsed(TWO, folder))
        world.stand_up()
        for source, tenant in (("h1", 0), ("h3", 1), ("h5", 3)):
            world.send(source, tcp(source, "h16", 2000, 5000))
            world.send("h16", tcp("h16", source, 5000, 2000))
            world.send(source, tcp(source, "h16", 2000, 5000))
            world.settle()
            key = FlowKey(source, "h16", "tcp", 2000, 5000)
            route = world.controller.router.routes.get(key)
            assert route is not None
            assert meters_on_path(world, key) == [(hop.number << 6 | tenant) + 1 for hop in route.path]
        assert world.unknown_meters == 0


def both_send(folder: Path, rate_bit_s: int = RATE_BIT_S) -> tuple[World, Port, int, int]:
    """Return a network with a flow of each tenant to h16, that host's port, and the tenants' meters there."""
    world = world_of(folder, rate_bit_s)
    for source in ("h1", "h3"):
        world.send(source, tcp(source, "h16", 2000, 5000))
    world.settle()
    last = world.network.attachment("h16")
    assert last is not None
    quiet_meter, noisy_meter = ((last.number << 6 | index) + 1 for index in (0, 1))
    return world, last, quiet_meter, noisy_meter


def test_a_flood_lowers_the_meters_of_its_tenant_where_another_needs_its_share(folder: Path) -> None:
    world, last, quiet_meter, noisy_meter = both_send(folder)
    meters = world.switches[last.node].meters
    for _ in range(10):
        for meter, rate_bit_s in ((quiet_meter, 4e6), (noisy_meter, 30e6)):
            meters[meter][1] += rate_bit_s / 8 * PERIOD_S
        world.pass_time(PERIOD_S)
    assert meters[quiet_meter][0] > RATE_BIT_S / 1000, "no limit"
    assert meters[noisy_meter][0] == pytest.approx(0.47 * RATE_BIT_S / 1000, rel=0.05)
    limited = {name: [str(port) for port in ports] for name, ports in world.controller.slices.limited().items()}
    assert limited == {"quiet": [], "noisy": [str(last)], "guests": []}
    world.pass_time(HOLD_S + 2)
    assert meters[noisy_meter][0] == 0.8 * RATE_BIT_S / 1000, "its ceiling"


@pytest.mark.parametrize(
    ("rate_bit_s", "wanted", "burst_kbit"),
    [
        (RATE_BIT_S, (0.9, 0.8, 0.85), 0.5 * 8000),
        (RATE_BIT_S, (3.0, 2.0, 4.0), 0.1 * 8000),
        (500_000, (0.9, 0.8, 0.85), 525),
        (100_000_000_000, (0.9, 0.8, 0.85), 4_000_000),
    ],
)
def test_a_limit_lets_bursts_of_all_but_floods_pass_and_is_changed_rarely(
    folder: Path, rate_bit_s: int, wanted: tuple[float, ...], burst_kbit: float
) -> None:
    """One tenant wants less and less, and the other may have that. Each change would let a burst through again."""
    world, last, quiet_meter, noisy_meter = both_send(folder, rate_bit_s)
    switch = world.switches[last.node]
    counts = 60
    for count in range(counts):
        for meter, demand in ((quiet_meter, 0.4 * 0.97**count), (noisy_meter, wanted[count % 3])):
            switch.meters[meter][1] += demand * rate_bit_s / 8 * PERIOD_S
        world.pass_time(PERIOD_S)
    changes = [mod for mod in switch.meter_mods if mod.number == noisy_meter and not mod.is_new]
    assert changes[-1].rate_kbit_s == pytest.approx(0.8 * rate_bit_s / 1000, rel=0.05)
    assert changes[-1].burst_kbit == pytest.approx(burst_kbit, rel=0.05)
    assert len(changes) < counts / 4


def test_limits_stay_when_a_switch_connects_again_beside_a_flood(folder: Path) -> None:
    world, last, quiet_meter, noisy_meter = both_send(folder)
    switch = world.switches[last.node]
    seen = []

    def flood(seconds: float) -> None:
        seen.clear()
        for _ in range(round(seconds / 0.05)):
            for meter, rate_bit_s in ((quiet_meter, 4e6), (noisy_meter, 30e6)):
                switch.meters[meter][1] += rate_bit_s / 8 * 0.05
            world.pass_time(0.05)
            seen.append(switch.meters[noisy_meter][0])

    flood(5.0)
    limited = seen[-1]
    assert limited == pytest.approx(0.47 * RATE_BIT_S / 1000, rel=0.05)
    world.disconnect(last.node)
    world.pass_time(0.5)
    world.connect(last.node)
    world.settle()
    flood(3.0)
    assert max(seen) == pytest.approx(limited, rel=0.05)


def test_a_burst_after_a_switch_has_connected_again_is_no_flood(folder: Path) -> None:
    """The time without counts is no time at the burst's rate."""
    world, last, meter, _ = both_send(folder)
    switch = world.switches[last.node]

    def send(rate_bit_s: float) -> None:
        switch.meters[meter][1] += rate_bit_s / 8 * PERIOD_S
        world.pass_time(PERIOD_S)
        assert switch.meters[meter][0] > RATE_BIT_S / 1000, "no limit"

    for _ in range(4):
        send(0.7 * RATE_BIT_S)
    world.disconnect(last.node)
    world.pass_time(1.5)
    world.connect(last.node)
    world.settle()
    for part in (0.0, 2.5, 0.0):
        send(part * RATE_BIT_S)


def test_counts_whose_answers_are_handled_late_tell_the_same_demands(folder: Path) -> None:
    """The switch counts from 0 when a rate is set, and answers were asked for before and after that."""
    world, last, quiet_meter, noisy_meter = both_send(folder)
    switch, seen = world.switches[last.node], []
    for late_s in (0.0, 1.7):
        world.late_s = late_s
        for step in range(240):
            # The noisy tenant's part, and so its limit, changes all the time.
            quiet_bit_s = 2e6 if step // 80 % 2 else 4e6
            for meter, rate_bit_s in ((quiet_meter, quiet_bit_s), (noisy_meter, 30e6)):
                switch.meters[meter][1] += rate_bit_s / 8 * 0.05
            world.pass_time(0.05)
            seen += [demand for _, demand in world.controller.slices._meters[last].uses[1].recent]
    assert len([mod for mod in switch.meter_mods if mod.number == noisy_meter]) > 8
    assert min(seen[200:]) == pytest.approx(30e6, rel=0.15) and max(seen) == pytest.approx(30e6, rel=0.15)


def test_a_switch_that_restarts_gets_its_meters_before_the_rules_refer_to_them(folder: Path) -> None:
    world = world_of(folder)
    key = FlowKey("h1", "h16", "tcp", 2000, 5000)
    world.send("h1", tcp("h1", "h16", 2000, 5000))
    world.settle()
    before = meters_on_path(world, key)
    assert None not in before
    route = world.controller.router.routes.get(key)
    assert route is not None
    world.restart_switch(route.path[0].node)
    world.settle()
    world.pass_time(1.0)
    assert meters_on_path(world, key) == before and world.unknown_meters == 0
    world.disconnect()
    world.start_controller()
    world.connect()
    world.settle()
    world.pass_time(2.0)
    assert meters_on_path(world, key) == before, "a new controller, the same meters"


@pytest.mark.parametrize("order", [(), (2, 1, 0)])
def test_flows_that_a_restarted_controller_finds_pass_the_meters_of_its_own_tenants(
    folder: Path, order: tuple[int, ...]
) -> None:
    """It was started with the tenants in another order, or without; then again with those of before."""
    world = world_of(folder)
    key = FlowKey("h1", "h16", "tcp", 2000, 5000)
    world.send("h1", tcp("h1", "h16", 2000, 5000))
    world.settle()
    before, tenants = meters_on_path(world, key), world.tenants
    entries = TWO.split("[[tenant]]")[1:]
    changed = "".join(f"[[tenant]]{entries[number]}\n" for number in order)
    for world.tenants in (parsed(changed, folder) if order else None, tenants):
        world.disconnect()
        world.start_controller()
        world.connect()
        world.settle()
        world.pass_time(2.0)
        route = world.controller.router.routes.get(key)
        assert route is not None and route.why == "found in the switches"
        wanted = [(hop.number << 6 | 2) + 1 if order else None for hop in route.path]
        assert meters_on_path(world, key) == (before if world.tenants is tenants else wanted)
    assert world.unknown_meters == 0


def test_frames_that_pass_by_all_meters_are_few(folder: Path) -> None:
    """Those of other EtherTypes: a protocol with a few a second works, a flood of them does not."""
    world = world_of(folder)
    for number in range(60):
        world.send("h3", ethernet("h3", "h16", 0x88F7, number.to_bytes(46, "big")))
        world.pass_time(0.05)
    assert len(world.delivered) == 60
    world.delivered.clear()
    for number in range(1000):
        world.send("h3", ethernet("h3", "h16", 0x0842, number.to_bytes(46, "big")))
        world.settle()
    assert 50 < len(world.delivered) < 150
    flow = tcp("h3", "h16", 2000, 5000)
    world.send("h3", flow)
    world.settle()
    assert world.received("h16", flow) == 1 and world.is_placed("h3", flow), "other frames are not dropped"


def test_a_switch_without_meters_and_a_link_without_a_rate_are_named(folder: Path) -> None:
    world = World(acquainted().network, quiet(link_rate_bit_s=RATE_BIT_S), tenants=parsed(TWO, folder))
    world.switches["s13"].has_meters = False
    world.stand_up()
    for source, destination in (("h1", "h16"), ("h16", "h1"), ("h1", "h16")):
        world.send(source, tcp(source, destination, 2000, 5000))
        world.settle()
    told = [event.text for event in world.events if event.kind == "tenants not limited"]
    assert len(told) == 1 and told[0].startswith("s13 has no meters")
    meters = meters_on_path(world, FlowKey("h1", "h16", "tcp", 2000, 5000))
    assert meters[0] is None and None not in meters[1:]
    unknown = acquainted(tenants=parsed(TWO, folder))
    told = [event.text for event in unknown.events if event.kind == "tenants not limited"]
    assert len(told) == 20 and "their rate is unknown (give --rate)" in told[0]


def test_a_switch_that_refused_meters_is_asked_again_when_it_connects_again(folder: Path) -> None:
    """It may have been upgraded, or have had no room for them."""
    world = World(acquainted().network, quiet(link_rate_bit_s=RATE_BIT_S), tenants=parsed(TWO, folder))
    world.switches["s13"].has_meters = False
    world.stand_up()
    key = FlowKey("h1", "h16", "tcp", 2000, 5000)
    for source, destination in (("h1", "h16"), ("h16", "h1"), ("h1", "h16")):
        world.send(source, tcp(source, destination, 2000, 5000))
        world.settle()
    assert meters_on_path(world, key)[0] is None
    world.switches["s13"].has_meters = True
    world.restart_switch("s13")
    world.settle()
    world.pass_time(1.0)
    assert None not in meters_on_path(world, key) and world.unknown_meters == 0


def with_flows(folder: Path, count: int) -> World:
    """Return a network with flows to port 5000 between hosts of nobody, beside others."""
    world = world_of(folder)
    for number in range(count):
        world.send("h5", tcp("h5", "h16", number + 1, 5000))
        world.settle()
    return world


def announce_as(world: World, tenant: int, *hosts: str) -> str:
    """Announce a job of a tenant; return its id."""
    controller = world.controller
    made = controller.jobs.add(parse_job(job(*hosts), controller.hosts.by_name), world.now)
    controller.slices.owners[made.id] = controller.slices.tenants.all[tenant]
    controller.jobs_changed(world.now)
    return made.id


def flows_of(world: World) -> list[Route]:
    """Return the flows to port 5000."""
    return [route for route in world.controller.router.routes if route.key.destination_port == 5000]


def tenants_met(world: World) -> list[set[int | None]]:
    """Return, for each of these flows, the numbers of the tenants whose meters its rules in the switches refer to."""
    met = []
    for route in flows_of(world):
        meters = meters_on_path(world, route.key)
        met.append({None if meter is None else (meter - 1) & 63 for meter in meters})
    return met


def test_an_announcement_costs_a_few_flows_in_each_turn_and_reaches_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barewire.sdn.controller.core.FLOWS_MAX", 3)
    world = with_flows(folder, 20)
    controller = world.controller
    assert tenants_met(world) == [{3}] * 20
    sent: list[int] = []

    def turn() -> None:
        for switch, messages in controller.poll(world.now, lambda _: False).items():
            world.switches[switch].inbox += messages
            sent.append(sum(isinstance(message, AddRule) for message in messages))

    announce_as(world, 2, "h5", "h16")
    for _ in range(4):
        turn()
    second = announce_as(world, 2, "h5", "h16")  # while the flows are still looked at because of the first
    while (due_s := controller.outbox.next_s()) is not None and due_s <= world.now:
        turn()
    assert 0 < max(sent) <= 3
    world.settle()
    assert tenants_met(world) == [{2}] * 20 and world.unknown_meters == 0
    for job_id in (second, next(iter(controller.jobs.all)).id):
        controller.jobs.withdraw(job_id)
    classification_of, seen = controller.classification_of, Counter[FlowKey]()
    monkeypatch.setattr(
        controller, "classification_of", lambda key, carried: seen.update([key]) or classification_of(key, carried)
    )
    controller.jobs_changed(world.now)
    world.settle()
    assert tenants_met(world) == [{3}] * 20
    assert seen == {route.key: 1 for route in controller.router.routes}, "once each"


def test_a_flow_that_cannot_be_classified_again_does_not_keep_others_from_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_flows(folder, 3)
    controller = world.controller
    classification_of, failing = controller.classification_of, flows_of(world)[0].key

    def fails(key: FlowKey, carried: Any = None) -> Any:
        if key == failing:
            raise ZeroDivisionError
        return classification_of(key, carried)

    announce_as(world, 2, "h5", "h16")
    with monkeypatch.context() as patched:
        patched.setattr(controller, "classification_of", fails)
        with pytest.raises(ZeroDivisionError):
            world.settle()
        world.settle()
    assert tenants_met(world) == [{2}] * 3
    controller.jobs.withdraw(next(iter(controller.jobs.all)).id)
    controller.jobs_changed(world.now)
    world.settle()
    assert tenants_met(world) == [{3}] * 3


def test_a_flow_that_moves_before_its_turn_has_rules_for_one_tenants_meters(folder: Path) -> None:
    world = with_flows(folder, 1)
    controller = world.controller
    (route,) = flows_of(world)
    paths = controller.router.network_state.paths.between("h5", "h16")
    announce_as(world, 2, "h5", "h16")
    path = next(path for path in paths if path != route.path)
    controller.router.move(route, replace(route.placed, path=path))
    world.settle()
    world.pass_time(2.0)
    assert route.path == path and tenants_met(world) == [{2}]


def test_a_switch_that_connects_again_gets_its_flows_meters_a_few_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barewire.sdn.controller.core.FLOWS_MAX", 3)
    world = with_flows(folder, 20)
    controller, switch = world.controller, flows_of(world)[0].path[0].node
    poll, sent = controller.poll, []

    def counting(now: float) -> Any:
        messages = poll(now, lambda _: False)
        rules = [message.rule for message in messages.get(switch, ()) if isinstance(message, AddRule)]
        sent.append(sum(rule.meter is not None for rule in rules))
        return messages

    monkeypatch.setattr(controller, "poll", counting)
    world.disconnect(switch)
    world.connect(switch)
    world.pass_time(0.5)
    assert sum(sent) == len(controller.router.routes.at(switch)) >= 20 and max(sent) <= 3
    assert tenants_met(world) == [{3}] * 20 and world.unknown_meters == 0


def test_a_flow_that_finds_no_room_in_a_switch_before_its_turn_gets_no_rule_for_the_switchs_meters(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barewire.sdn.controller.core.FLOWS_MAX", 3)
    world = with_flows(folder, 20)
    controller, switch = world.controller, flows_of(world)[0].path[0].node
    poll, refused = controller.poll, []

    def refusing(now: float) -> Any:
        messages = poll(now, lambda _: False)
        rules = [message.rule for message in messages.get(switch, ()) if isinstance(message, AddRule)]
        if not refused and any(rule.meter is not None for rule in rules):
            for route in flows_of(world):
                refused.append(route)
                controller.full.refused(route, switch, now)
        return messages

    monkeypatch.setattr(controller, "poll", refusing)
    world.disconnect(switch)
    world.connect(switch)
    world.pass_time(0.5)
    assert len(refused) == 20
    assert all(switch in route.aggregated and switch not in route.installed for route in flows_of(world))


# The API


def served(folder: Path, scenario: Callable[[TestClient[Any, Any], Any], Awaitable[None]]) -> None:
    class Observed:
        core = world_of(folder).controller
        now = 100.0
        is_leader = True

        def turn_soon(self) -> None:
            self.core.poll(self.now)

    async def run() -> None:
        shell: Any = Observed()
        async with TestClient(TestServer(Api(shell, "127.0.0.1:8181", OPERATOR).application())) as client:
            await scenario(client, shell)

    asyncio.run(run())


def as_(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer the-token-of-{name}-hosts"}


OPERATORS = {"Authorization": f"Bearer {OPERATOR}"}


def job(*hosts: str, flows: int = 0) -> dict[str, Any]:
    pattern = [{"from": hosts[0], "to": hosts[-1], "bytes": 5}] * flows
    return {"profile": "mpi", "hosts": list(hosts), "patterns": [pattern] if flows else []}


def test_a_tenant_neither_sees_nor_withdraws_anothers_jobs(folder: Path) -> None:
    async def scenario(client: TestClient[Any, Any], shell: Any) -> None:
        made = await client.post("/v1/jobs", json=job("h1", "h2"), headers=as_("quiet"))
        assert made.status == 201
        mine = (await made.json())["id"]
        assert (await client.post("/v1/jobs", json=job("h3"), headers=as_("noisy"))).status == 201
        for name, seen in (("quiet", 1), ("noisy", 1), ("guests", 0)):
            answer = await client.get("/v1/jobs", headers=as_(name))
            assert len((await answer.json())["jobs"]) == seen
        refusals = set()
        for method, path in (
            *(("GET", ""), ("DELETE", ""), ("PUT", "/lease"), ("POST", "/step"), ("POST", "/patterns")),
        ):
            answer = await client.request(method, f"/v1/jobs/{mine}{path}", json={}, headers=as_("noisy"))
            assert answer.status == 404
            refusals.add((await answer.json())["error"].replace(mine, "ID"))
            absent = await client.request(method, f"/v1/jobs/absent{path}", json={}, headers=as_("noisy"))
            assert (await absent.json())["error"].replace("absent", "ID") in refusals, "as if there were none"
        assert len(refusals) == 1
        own = await (await client.get("/v1/tenants", headers=as_("noisy"))).json()
        assert [one["name"] for one in own["tenants"]] == ["noisy"]
        everybody = await (await client.get("/v1/jobs", headers=OPERATORS)).json()
        assert len(everybody["jobs"]) == 2
        shown = await (await client.get("/v1/tenants", headers=OPERATORS)).json()
        assert [(one["name"], one["jobs"]) for one in shown["tenants"]] == [("quiet", 1), ("noisy", 1), ("guests", 0)]
        assert (await client.delete(f"/v1/jobs/{mine}", headers=as_("quiet"))).status == 204
        assert len(shell.core.jobs.all) == 1

    served(folder, scenario)


def test_a_tenant_may_do_nothing_else(folder: Path) -> None:
    async def scenario(client: TestClient[Any, Any], _: Any) -> None:
        for method, path in (
            *(("GET", "/v1/flows"), ("GET", "/v1/status"), ("GET", "/v1/loads")),
            *(("PUT", "/v1/policy/mpi"), ("GET", "/v1/links"), ("GET", "/v1/switches"), ("GET", "/v1/jobsx")),
        ):
            answer = await client.request(method, path, json={"strategy": "stp"}, headers=as_("quiet"))
            assert answer.status == 403 and "needs the operator's token" in (await answer.json())["error"], path
        for path in ("/v1/strategies", "/v1/policy", "/v1/tenants", "/v1/jobs", "/v1/hosts"):
            assert (await client.get(path, headers=as_("quiet"))).status == 200
        assert (await client.get("/v1/jobs", headers={"Authorization": "Bearer the-token-of-nobody"})).status == 401

    served(folder, scenario)


def test_a_tenants_jobs_are_on_its_hosts_or_on_those_of_nobody(folder: Path) -> None:
    async def scenario(client: TestClient[Any, Any], shell: Any) -> None:
        for name, hosts, said in (
            ("quiet", ("h1", "h3"), "h3 cannot be in a job of tenant 'quiet'; its hosts are h1, h2"),
            ("guests", ("h1", "h5"), "h1 cannot be in a job of tenant 'guests'"),
        ):
            answer = await client.post("/v1/jobs", json=job(*hosts), headers=as_(name))
            assert answer.status == 403 and said in (await answer.json())["error"]
        unknown = await client.post("/v1/jobs", json=job("h99"), headers=as_("quiet"))
        text = (await unknown.json())["error"]
        assert unknown.status == 422 and "h3" not in text, text
        assert not shell.core.jobs.all
        assert (await client.post("/v1/jobs", json=job("h5", "h6"), headers=as_("guests"))).status == 201

    served(folder, scenario)


def test_a_tenant_sees_the_hosts_that_its_jobs_may_have(folder: Path) -> None:
    async def scenario(client: TestClient[Any, Any], _: Any) -> None:
        everyone = (await (await client.get("/v1/hosts", headers=OPERATORS)).json())["hosts"]
        assert [host["name"] for host in everyone] == HOSTS
        for name, seen in (("quiet", everyone[:2]), ("noisy", everyone[2:4])):
            assert (await (await client.get("/v1/hosts", headers=as_(name))).json()) == {"hosts": seen}
        of_nobody = (await (await client.get("/v1/hosts", headers=as_("guests"))).json())["hosts"]
        assert of_nobody == everyone[4:]

    served(folder, scenario)


def test_quotas_of_jobs_of_flows_and_of_requests(folder: Path) -> None:
    async def scenario(client: TestClient[Any, Any], shell: Any) -> None:
        assert (await client.post("/v1/jobs", json=job("h1", "h2", flows=10), headers=as_("quiet"))).status == 201
        answer = await client.post("/v1/jobs", json=job("h1", "h2", flows=10), headers=as_("quiet"))
        assert answer.status == 429 and "may have 10 flows in patterns; it has 1" in (await answer.json())["error"]
        assert (await client.post("/v1/jobs", json=job("h1"), headers=as_("quiet"))).status == 201
        answer = await client.post("/v1/jobs", json=job("h1"), headers=as_("quiet"))
        assert answer.status == 429 and "has 2 jobs, which is its quota" in (await answer.json())["error"]
        assert len(shell.core.jobs.all) == 2
        statuses = [(await client.get("/v1/jobs", headers=as_("guests"))).status for _ in range(8)]
        assert statuses == [200] * 6 + [429] * 2
        answer = await client.get("/v1/jobs", headers=as_("guests"))
        assert "may send 3 requests a second" in (await answer.json())["error"] and answer.headers["Retry-After"]
        assert (await client.get("/v1/jobs", headers=as_("noisy"))).status == 200, "a quota is a tenant's own"
        type(shell).now = 101.0
        assert (await client.get("/v1/jobs", headers=as_("guests"))).status == 200

    served(folder, scenario)


def test_a_tenant_slightly_above_its_quota_is_served_as_much_as_its_quota(folder: Path) -> None:
    tenants = parsed(TWO, folder)
    access, guests = Access(OPERATOR, tenants, lambda: (Jobs(), {})), Caller(tenants.all[2])
    served = 0
    for number in range(400):
        with suppress(QuotaError):
            access.check(guests, "GET", "/v1/jobs", number / 4)
            served += 1
    assert served == pytest.approx(2 * 3 + 3 * 100, abs=2), "4 requests a second for 100 s, of which 3 are allowed"


def test_ranks_are_in_a_quota_and_answers_have_their_number(folder: Path) -> None:
    async def scenario(client: TestClient[Any, Any], shell: Any) -> None:
        made = await client.post("/v1/jobs", json={**job("h1"), "ranks": ["h1"] * 4}, headers=as_("quiet"))
        assert made.status == 201 and (await made.json())["ranks"] == 4
        for headers in (as_("quiet"), OPERATORS):
            shown = await (await client.get("/v1/jobs", headers=headers)).json()
            assert [one["ranks"] for one in shown["jobs"]] == [4]
        answer = await client.post("/v1/jobs", json={**job("h1"), "ranks": ["h1"] * 2}, headers=as_("quiet"))
        assert answer.status == 429 and "may have 5 ranks in its jobs; it has 4" in (await answer.json())["error"]
        assert len(shell.core.jobs.all) == 1
        assert (await client.post("/v1/jobs", json={**job("h1"), "ranks": ["h1"]}, headers=as_("quiet"))).status == 201

    served(folder, scenario)


def test_above_the_quota_of_jobs_nothing_is_parsed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(client: TestClient[Any, Any], _: Any) -> None:
        for _ in range(2):
            assert (await client.post("/v1/jobs", json=job("h1"), headers=as_("quiet"))).status == 201
        monkeypatch.setattr("barewire.sdn.api.server.parse_job", None)
        answer = await client.post("/v1/jobs", json=job("h1"), headers=as_("quiet"))
        assert answer.status == 429 and "has 2 jobs, which is its quota" in (await answer.json())["error"]

    served(folder, scenario)


def test_of_a_tenants_long_bodies_one_is_read_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = [0, 0]

    def counting(*given: Any) -> Any:
        at_once[0] += 1
        at_once[1] = max(at_once)
        time.sleep(0.1)
        at_once[0] -= 1
        return parse_job(*given)

    async def scenario(client: TestClient[Any, Any], _: Any) -> None:
        monkeypatch.setattr("barewire.sdn.api.server.parse_job", counting)
        long = {**job("h3", "h4", flows=2000), "name": "long"}
        answers = [client.post("/v1/jobs", json=long, headers=as_("noisy")) for _ in range(3)]
        assert {answer.status for answer in await asyncio.gather(*answers)} == {201}
        assert at_once[1] == 1

    served(folder, scenario)


def test_a_tenants_requests_at_once_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.sdn.api.access.REQUESTS_MAX", 2)
    come = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await come.wait()
        yield b"}"

    async def scenario(client: TestClient[Any, Any], _: Any) -> None:
        waiting = [asyncio.create_task(client.post("/v1/jobs", data=body(), headers=as_("noisy"))) for _ in range(2)]
        await asyncio.sleep(0.1)
        answer = await client.get("/v1/jobs", headers=as_("noisy"))
        assert answer.status == 429 and "2 requests at once" in (await answer.json())["error"]
        for headers in (as_("quiet"), OPERATORS):
            assert (await client.get("/v1/jobs", headers=headers)).status == 200
        come.set()
        assert {one.status for one in await asyncio.gather(*waiting)} == {422}
        assert (await client.get("/v1/jobs", headers=as_("noisy"))).status == 200

    served(folder, scenario)


def test_flows_of_a_job_announced_by_token_pass_the_tenants_meters(folder: Path) -> None:
    async def scenario(client: TestClient[Any, Any], shell: Any) -> None:
        core, key = shell.core, FlowKey("h5", "h6", "tcp", 1, 1)
        core.router.place(key, core.classification_of(key), 0, shell.now)
        route = core.router.routes.get(key)
        shell.turn_soon()
        assert route.tenant == 3, "nobody's"
        made = await (await client.post("/v1/jobs", json=job("h5", "h6"), headers=as_("guests"))).json()
        assert route.tenant == 2 and core.slices.tenant_of(route).name == "guests"
        await client.delete(f"/v1/jobs/{made['id']}", headers=as_("guests"))
        assert route.tenant == 3

    served(folder, scenario)


def test_the_flows_of_tenants_are_added_up_in_turns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.sdn.api.documents.FLOWS_PER_TURN", 2)
    turns, added = [0], []

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def scenario(client: TestClient[Any, Any], shell: Any) -> None:
        core, sent_bit_s = shell.core, shell.core.slices.sent_bit_s
        for number in range(5):
            key = FlowKey("h1", "h6", "tcp", number, 1)
            route = core.router.place(key, core.classification_of(key), 0, shell.now)
            core.router.routes.put(route, replace(route.placed, rate_byte_s=1000.0))

        def counting(routes: Any) -> Any:
            some = list(routes)
            added.append((len(some), turns[0]))
            return sent_bit_s(some)

        monkeypatch.setattr(core.slices, "sent_bit_s", counting)
        task = asyncio.create_task(others())
        for headers, names in ((OPERATORS, ["quiet", "noisy", "guests"]), (as_("quiet"), ["quiet"])):
            added.clear()
            shown = (await (await client.get("/v1/tenants", headers=headers)).json())["tenants"]
            assert [one["name"] for one in shown] == names and shown[0]["sent_bit_s"] == 40_000
            assert sum(count for count, _ in added) == len(core.router.routes) and max(added)[0] == 2
            assert len({turn for _, turn in added}) == len(added)
        task.cancel()

    served(folder, scenario)


def test_a_tenant_with_the_operators_token_is_refused(folder: Path) -> None:
    (folder / "quiet.token").write_text(OPERATOR)
    with pytest.raises(WrongUse, match="tenant 'quiet' has the operator's token"):
        served(folder, lambda _client, _shell: asyncio.sleep(0))
