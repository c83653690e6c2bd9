# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Classification of flows: announced, by signature, by behaviour; and invalid files and announcements."""

from collections.abc import Callable, Mapping
from itertools import pairwise, permutations
from typing import Any

import pytest
from fake_switches import acquainted, tcp
from hypothesis import given
from hypothesis import strategies as st

from barewire.errors import WrongUse
from barewire.sdn.classify.announcement import PatternDocument, read
from barewire.sdn.classify.classifier import Classification, FlowCounters, classify
from barewire.sdn.classify.features import FEATURES, Features
from barewire.sdn.classify.jobs import FLOWS_MAX, JOBS_MAX, Job, Jobs, Merged, UnknownJobError, parse_job
from barewire.sdn.classify.policy import Behaviour, Policy, Traffic, parse_policy
from barewire.sdn.flow import FlowKey
from barewire.sdn.strategies.planned import plan

HOSTS = [f"h{number}" for number in range(1, 17)]
RING: Mapping[str, Any] = {
    "name": "ring",
    "profile": "mpi",
    "hosts": ["h1", "h3", "h5"],
    "ranks": ["h1", "h1", "h3", "h5"],
    "patterns": [
        [{"from": 0, "to": 2, "bytes": 10}, {"from": 1, "to": 2, "bytes": 5}, {"from": 0, "to": 1, "bytes": 99}],
        [{"from": "h5", "to": "h1", "bytes": 7}],
    ],
}


def tcp_key(source: str, destination: str, port: int) -> FlowKey:
    return FlowKey(source, destination, "tcp", 40000, port)


def test_the_published_signatures_hold_unless_a_file_has_others() -> None:
    policy, jobs = parse_policy("", "empty"), Jobs()
    assert classify(tcp_key("h1", "h2", 1030), policy, jobs) == Classification("mpi", "signature")
    assert classify(FlowKey("h1", "h2", "tcp", 22, 50000), policy, jobs).profile == "mpi", "either end's port counts"
    assert classify(tcp_key("h1", "h2", 13562), policy, jobs).profile == "hadoop"
    assert classify(FlowKey("h1", "h2", "llc"), policy, jobs).profile == "mpi"
    assert classify(tcp_key("h1", "h2", 1045), policy, jobs) == Classification()
    assert classify(FlowKey("h1", "h2", "udp", 1, 1030), policy, jobs) == Classification()
    custom = parse_policy('[[signature]]\nprofile = "web"\nports = [80]\n', "file")
    assert classify(tcp_key("h1", "h2", 80), custom, jobs).profile == "web"
    assert classify(tcp_key("h1", "h2", 1030), custom, jobs) == Classification()


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), max_size=9), st.integers(1, 60), st.integers(1, 60))
def test_ranges_of_ports_in_any_order_fit_what_each_of_them_fits(
    given_ranges: list[tuple[int, int]], source_port: int, destination_port: int
) -> None:
    ranges = tuple((low, low + more) for low, more in given_ranges)
    traffic = Traffic("tcp", ranges)
    ends = {source_port, destination_port}
    expected = not ranges or any(low <= port <= high for low, high in ranges for port in ends)
    assert traffic.fits(FlowKey("h1", "h2", "tcp", source_port, destination_port)) is expected
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(traffic.ports))


def test_behaviour_applies_only_to_flows_not_classified_otherwise() -> None:
    text = '[[behaviour]]\nprofile = "elephant"\nbytes_min = 1000\npacket_bytes_min = 500\n'
    policy, jobs = parse_policy(text, "file"), Jobs()
    big, small = FlowCounters(2, 2000, 1.0), FlowCounters(200, 2000, 1.0)
    assert classify(tcp_key("h1", "h2", 7), policy, jobs, big) == Classification("elephant", "behaviour")
    assert classify(tcp_key("h1", "h2", 7), policy, jobs, small) == Classification()
    assert classify(tcp_key("h1", "h2", 22), policy, jobs, big).profile == "mpi"


def test_announcements_win_and_those_with_traffic_win_over_others() -> None:
    policy, jobs = Policy(), Jobs()
    first = jobs.add(parse_job(RING, HOSTS), 0.0)
    assert classify(tcp_key("h1", "h3", 9000), policy, jobs) == Classification("mpi", "announced", 15), (
        "ranks of one host together"
    )
    shuffle = {"profile": "hadoop", "hosts": HOSTS, "traffic": [{"protocol": "tcp", "ports": ["13000-14000"]}]}
    jobs.add(parse_job(shuffle, HOSTS), 1.0)
    assert classify(tcp_key("h1", "h3", 13562), policy, jobs).profile == "hadoop"
    assert classify(tcp_key("h1", "h3", 9000), policy, jobs).profile == "mpi"
    jobs.withdraw(first.id)
    assert classify(tcp_key("h1", "h3", 9000), policy, jobs) == Classification("hadoop", "signature")
    assert classify(tcp_key("h1", "h3", 9999), policy, jobs) == Classification()


def test_current_patterns_of_all_jobs_are_merged_by_what_has_changed() -> None:
    jobs, merged = Jobs(), Merged()
    ring = jobs.add(parse_job(RING, HOSTS), 0.0)
    second_job = jobs.add(parse_job({**RING, "patterns": RING["patterns"][:1]}, HOSTS), 0.0)
    assert merged.update(jobs.patterns) == ({("h1", "h3"): 30},)
    jobs.step(ring.id, None, 2.0)
    assert merged.update(jobs.patterns) == ({("h5", "h1"): 7, ("h1", "h3"): 15},)
    with pytest.raises(WrongUse, match="has 2 patterns, numbered from 0, none is 2: append more"):
        jobs.step(ring.id, None, 2.0)
    more = read([{"from": 3, "to": 0, "bytes": 4}], PatternDocument)
    jobs.append(ring.id, jobs.parse_patterns(ring.id, [more]), 3.0)
    jobs.step(ring.id, 2, 3.0)
    jobs.withdraw(second_job.id)
    assert merged.update(jobs.patterns) == ({("h5", "h1"): 4},)
    jobs.withdraw(ring.id)
    assert merged.update(jobs.patterns) == ()


class Counting(dict[tuple[str, str], int]):
    """A pattern that counts how often its flows are read."""

    reads = 0

    def items(self):  # type: ignore[no-untyped-def]
        self.reads += len(self)
        return super().items()


def test_a_change_of_one_job_does_not_read_the_patterns_of_the_others() -> None:
    """A count, not a time: 1000 jobs of 2000 flows, each flow read once, and again only if its job steps."""
    jobs, merged = Jobs(), Merged()
    hosts = [f"h{number}" for number in range(100)]
    pairs = [(source, destination) for source in hosts for destination in hosts if source != destination][:2000]
    patterns = [(Counting(dict.fromkeys(pairs, 5)), Counting(dict.fromkeys(pairs, 7))) for _ in range(JOBS_MAX)]
    made = [jobs.add(Job("", "", "mpi", frozenset(hosts), patterns=two), 0.0) for two in patterns]
    assert merged.update(jobs.patterns)[0][pairs[0]] == 5 * JOBS_MAX
    assert sum(pattern.reads for two in patterns for pattern in two) == 2000 * JOBS_MAX
    jobs.step(made[3].id, None, 1.0)
    assert merged.update(jobs.patterns)[0][pairs[0]] == 5 * JOBS_MAX + 2
    jobs.withdraw(made[4].id)
    assert merged.update(jobs.patterns)[0][pairs[0]] == 5 * (JOBS_MAX - 1) + 2
    assert sum(pattern.reads for two in patterns for pattern in two) == 2000 * (JOBS_MAX + 3)


def test_jobs_without_renewal_expire() -> None:
    jobs = Jobs()
    job = jobs.add(parse_job({**RING, "lease_s": 10}, HOSTS), 0.0)
    jobs.renew(job.id, 9.0)
    assert jobs.expire(18.9) == [] and jobs.next_s() == 19.0, "it was looked at when its first lease ended"
    assert [gone.id for gone in jobs.expire(19.0)] == [job.id] and not jobs.patterns and jobs.next_s() is None
    with pytest.raises(UnknownJobError, match="announce it again"):
        jobs.renew(job.id, 20.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hosts": ["h1", "h99", "h98"]}, "unknown hosts: h98, h99; known are h1, h10"),
        ({"hosts": []}, "Expected `array` of length >= 1 - at `$.hosts`"),
        ({"hosts": "h1"}, "Expected `array`, got `str` - at `$.hosts`"),
        ({"ranks": ["h1", "h2"]}, "unknown ranks: h2; known are h1, h3, h5"),
        ({"profile": "a b"}, "at `$.profile`"),
        ({"profile": "mpi\n"}, "at `$.profile`"),
        ({"profile": None}, "Expected `str`, got `null` - at `$.profile`"),
        ({"volume": 3}, "Object contains unknown field `volume`; GET /openapi.json describes"),
        ({"lease_s": 0}, "Expected `float` >= 1.0 - at `$.lease_s`"),
        ({"lease_s": True}, "Expected `float`, got `bool` - at `$.lease_s`"),
        ({"traffic": [{"protocol": "sctp"}]}, "Invalid enum value 'sctp' - at `$.traffic[0].protocol`"),
        ({"traffic": [{"protocol": "llc", "ports": [1]}]}, "llc has no ports"),
        ({"traffic": [{"ports": ["9-3"]}]}, "'9-3' is no port"),
        ({"traffic": [{"ports": [65536]}]}, "65536 is no port"),
        ({"traffic": [{"ports": [9] * 1001}]}, "length <= 1000"),
        ({"traffic": [{"ports": [9] * 501}] * 2}, "at most 1000 ports or ranges of ports in all, not 1002"),
        ({"traffic": [{"protocol": "tcp"}] * 101}, "length <= 100"),
        ({"patterns": [[{"from": 0, "to": 9, "bytes": 1}]]}, "pattern 0: '9' is neither a rank of the 4"),
        ({"patterns": [[], [{"from": 0, "to": "h2", "bytes": 1}]]}, "pattern 1: 'h2' is neither a rank"),
        ({"patterns": [[{"from": 0, "to": 1}]]}, "missing required field `bytes` - at `$.patterns[0][0]`"),
        ({"patterns": [[{"from": 0, "to": 2, "bytes": -1}]]}, "Expected `int` >= 1 - at `$.patterns[0][0].bytes`"),
        ({"patterns": [3]}, "Expected `array`, got `int` - at `$.patterns[0]`"),
        ({"name": "x\n"}, "printable"),
    ],
)
def test_an_invalid_announcement_is_refused_with_the_reason_and_has_no_effect(
    changes: dict[str, Any], message: str
) -> None:
    jobs = Jobs()
    with pytest.raises(WrongUse) as refused:
        jobs.add(parse_job({**RING, **changes}, HOSTS), 0.0)
    assert message in str(refused.value)
    assert not jobs.all and not jobs.patterns


def test_the_number_of_announcements_is_bounded() -> None:
    jobs = Jobs()
    for _ in range(JOBS_MAX):
        jobs.add(parse_job({"profile": "mpi", "hosts": ["h1"]}, HOSTS), 0.0)
    with pytest.raises(WrongUse, match="withdraw some"):
        jobs.add(parse_job({"profile": "mpi", "hosts": ["h1"]}, HOSTS), 0.0)


def test_the_number_of_announced_flows_is_bounded_and_withdrawn_ones_do_not_count() -> None:
    jobs = Jobs()
    large = {(f"h{number}", "h0"): 1 for number in range(FLOWS_MAX // 1000)}
    job = jobs.add(Job("", "", "mpi", frozenset(), patterns=(large,) * 1000), 0.0)
    with pytest.raises(
        WrongUse, match=rf"would have {FLOWS_MAX + 1} flows, at most {FLOWS_MAX} are possible: withdraw"
    ):
        jobs.add(parse_job({**RING, "patterns": RING["patterns"][1:]}, HOSTS), 0.0)
    small = jobs.add(parse_job({**RING, "patterns": []}, HOSTS), 0.0)
    with pytest.raises(WrongUse, match="withdraw jobs"):
        jobs.append(small.id, ({("h1", "h2"): 1},), 0.0)
    jobs.withdraw(job.id)
    jobs.append(small.id, ({("h1", "h2"): 1},), 0.0)


def test_a_flows_job_is_found_among_many_without_looking_at_all() -> None:
    jobs = Jobs()
    made = [
        jobs.add(Job("", "", "mpi", frozenset({f"a{number}", f"b{number}"})), 0.0) for number in range(JOBS_MAX - 2)
    ]
    assert jobs.of(tcp_key("a7", "b7", 1)) is made[7] and jobs.of(tcp_key("a7", "b8", 1)) is None
    all_hosts = frozenset(HOSTS)
    for_port = jobs.add(parse_job({**RING, "traffic": [{"ports": [9]}]}, HOSTS), 0.0)
    general = jobs.add(Job("", "", "mpi", all_hosts), 0.0)
    assert jobs.of(tcp_key("h1", "h3", 9)) is for_port and jobs.of(tcp_key("h1", "h3", 8)) is general
    jobs.withdraw(general.id)
    assert jobs.of(tcp_key("h1", "h3", 8)) is None, "no remembered job outlives it"


def test_a_flow_is_compared_with_later_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count, not a time: of 100 jobs between the same hosts, each is looked at once for a flow that fits none."""
    has, compared = Job.has, []
    monkeypatch.setattr(Job, "has", lambda job, key: bool(compared.append(job.id)) or has(job, key))
    jobs, key = Jobs(), tcp_key("h1", "h3", 8)
    made = []
    for _ in range(100):
        made.append(jobs.add(parse_job({**RING, "traffic": [{"ports": [9]}]}, HOSTS), 0.0).id)
        assert jobs.of(key) is None
    jobs.withdraw(made.pop())
    assert jobs.of(key) is None and len(compared) == 100


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=40))
def test_a_flows_job_is_the_latest_with_its_traffic_or_else_the_latest_whatever_came_and_went(
    history: list[tuple[int, int]],
) -> None:
    jobs, keys = Jobs(), [tcp_key("h1", "h3", port) for port in (8, 9)] + [tcp_key("h1", "h5", 9)]
    hosts = (["h1", "h3"], ["h1", "h5"], ["h1", "h3", "h5"])
    for act, number in history:
        if act < 3:
            traffic = [{"ports": [9]}] if number % 2 else []
            jobs.add(parse_job({"profile": "mpi", "hosts": hosts[act], "traffic": traffic}, HOSTS), 0.0)
        elif jobs.all and act == 3:
            jobs.withdraw(jobs.all[number % len(jobs.all)].id)
        for key in keys[number % 3 :]:
            fitting = [job for job in jobs.all if job.has(key)]
            expected = [job for job in fitting if job.traffic] or fitting or [None]
            assert jobs.of(key) is expected[-1]


def test_a_jobs_traffic_is_merged_to_one_entry_for_each_protocol() -> None:
    many = [{"protocol": "tcp", "ports": [port]} for port in range(1, 99)] + [{"protocol": "udp"}, {"protocol": "udp"}]
    job = parse_job({**RING, "traffic": many}, HOSTS)
    assert job.traffic == (Traffic("tcp", ((1, 98),)), Traffic("udp"))
    job = parse_job({**RING, "traffic": [{"protocol": "udp", "ports": [7]}, {"protocol": "udp"}]}, HOSTS)
    assert job.traffic == (Traffic("udp"),), "any port"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[strategies]\nmpi = ", "policy p.toml: "),
        (
            '[strategies]\nmpi = "isolated"\nhadoop = "best"\n',
            "policy p.toml, line 3: unknown strategy 'best'; there are: stp",
        ),
        ('[strategies]\nmpi = "isolated:seconds=-1"\n', "line 2: isolated's seconds"),
        ('\n[stratagems]\nmpi = "stp"\n', "line 2: there is no 'stratagems'"),
        (
            '[[signature]]\nprofile = "a"\nports = [1]\n\n[[signature]]\nprofile = "b"\nport = [1]\n',
            "line 5: there is no 'port'",
        ),
        ("[[signature]]\nports = [1]\n", "line 1: needs a profile"),
        ('[[signature]]\nprofile = "a"\n', "line 1: a signature needs a protocol or ports"),
        ('[signature]\nprofile = "a"\n', "write each signature as [[signature]]"),
        ('[[behaviour]]\nprofile = "a"\n', "line 1: a behaviour needs a bound: bytes_min"),
        ('[[behaviour]]\nprofile = "a"\nbytes_min = "many"\n', "bytes_min is a number from 0, not 'many'"),
        ('[[behaviour]]\nprofile = "a"\nbytes_min = nan\n', "bytes_min is a number from 0, not nan"),
        ('[[behaviour]]\nprofile = "a"\nbytes_min = inf\n', "bytes_min is a number from 0, not inf"),
    ],
)
def test_a_mistake_in_the_policy_file_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(WrongUse) as refused:
        parse_policy(text, "p.toml")
    assert message in str(refused.value)


def test_a_reclassified_flow_is_placed_by_its_new_strategy() -> None:
    """A running flow moves without packet loss when its job is announced, and back when it is withdrawn."""
    world = acquainted()
    world.controller.policy = Policy({"default": "stp", "mpi": "ecmp-published"}, ())
    frame = tcp("h1", "h16", identification=3)
    world.send("h1", frame)
    world.settle()
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 1000, 2000))
    assert route is not None
    first = route.path
    job = world.controller.jobs.add(parse_job({"profile": "mpi", "hosts": ["h1", "h16"]}, HOSTS), world.now)
    world.controller.jobs_changed(world.now)
    for _ in world.steps():
        assert world.where("h1", frame) == "h16"
    assert route.path != first and route.placed.flow.profile == "mpi" and route.known_by == "announced"
    world.controller.jobs.withdraw(job.id)
    world.controller.jobs_changed(world.now)
    for _ in world.steps():
        assert world.where("h1", frame) == "h16"
    assert route.path == first


def test_what_a_flow_carries_is_asked_only_where_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of an announced flow, nor of one with a signature; of an announced one again when its job is gone."""
    world = acquainted(flow_statistics_s=1.0)
    controller, asked = world.controller, list[FlowKey]()
    signature = '[[signature]]\nprofile = "mpi"\nprotocol = "tcp"\nports = [22]\n'
    controller.policy = parse_policy(signature + '[[behaviour]]\nprofile = "old"\nage_s_min = 4\n', "policy")
    job = controller.jobs.add(parse_job({"profile": "default", "hosts": ["h1", "h16"]}, HOSTS), world.now)
    for source, port in (("h1", 7), ("h2", 22), ("h2", 7)):
        world.send(source, tcp(source, "h16", port, port))
        world.settle()
    classification_of = controller.classification_of

    def asking(key: FlowKey, *carried: FlowCounters) -> Classification:
        asked.append(key)
        return classification_of(key, *carried)

    def known(source: str, port: int) -> tuple[str, str]:
        route = controller.router.routes.get(FlowKey(source, "h16", "tcp", port, port))
        assert route is not None
        return route.placed.flow.profile, route.known_by

    monkeypatch.setattr(controller, "classification_of", asking)
    world.pass_time(2)
    assert {(key.source, key.source_port) for key in asked if key.source_port > 1} == {("h2", 7)}
    assert [known("h1", 7), known("h2", 22)] == [("default", "announced"), ("mpi", "signature")]
    assert known("h2", 7) == ("default", "nothing")
    controller.jobs.withdraw(job.id)
    controller.jobs_changed(world.now)
    world.settle()
    assert known("h1", 7) == ("default", "nothing")
    world.pass_time(4)
    assert known("h1", 7) == known("h2", 7) == ("old", "behaviour")


def test_flows_change_back_when_a_lease_expires() -> None:
    world = acquainted()
    world.controller.policy = Policy({"default": "stp", "mpi": "ecmp"}, ())
    world.controller.jobs.add(parse_job({"profile": "mpi", "hosts": ["h1", "h16"], "lease_s": 2}, HOSTS), world.now)
    world.controller.jobs_changed(world.now)
    world.send("h1", tcp("h1", "h16"))
    world.settle()
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 1000, 2000))
    assert route is not None and route.placed.flow.profile == "mpi"
    world.pass_time(2.2)
    assert route.placed.flow.profile == "default"
    assert any("has expired" in event.text for event in world.events)


def test_flows_do_not_wait_for_the_plan_of_a_network_that_has_changed() -> None:
    """Those over a failed link, and new ones, get a path before the new plan is made, and follow the plan later."""
    world = acquainted()
    controller = world.controller
    controller.policy = Policy({"default": "stp", "mpi": "planned"}, ())
    hosts = ["h1", "h5", "h2", "h6"]
    pairs = list(permutations(hosts, 2))
    patterns = [[{"from": source, "to": destination, "bytes": 10**6} for source, destination in pairs]]
    controller.jobs.add(parse_job({"profile": "mpi", "hosts": hosts, "patterns": patterns}, HOSTS), world.now)
    controller.jobs_changed(world.now)
    for source, destination in pairs[1:]:
        world.send(source, tcp(source, destination))
        world.settle()
    jobs: list[tuple[Callable[[], Any], Callable[[Any, float], None]]] = []
    controller.run = lambda work, then, _now: jobs.append((work, then))
    planned = [route.path for route in controller.router.routes if route.why.startswith("planned")]
    failed = next(path[1] for path in planned if len(path) == 5)
    world.set_link(failed, is_up=False)
    world.settle()
    world.send(pairs[0][0], tcp(*pairs[0]))
    world.settle()
    assert plan.known(controller.network(), controller.pattern()) is None, "none was made meanwhile"
    routes = {pair: controller.router.routes.get(FlowKey(*pair, "tcp", 1000, 2000)) for pair in pairs}
    assert not controller.router.routes.over(failed)
    assert any(route is not None and route.why.startswith("its plan is being made") for route in routes.values())
    for pair in pairs:
        assert world.where(pair[0], tcp(*pair)) == pair[1] and world.is_placed(pair[0], tcp(*pair))
    while jobs:
        work, then = jobs.pop(0)
        then(work(), world.now)
        world.settle()
    made = plan.known(controller.network(), controller.pattern())
    assert made is not None and made == {pair: route.path for pair, route in routes.items() if route is not None}
    assert not world.lost


def test_announced_patterns_move_planned_flows_when_the_job_steps() -> None:
    """Four flows between two switch pairs: separate paths, also for the next pattern, without a lost packet."""
    world = acquainted()
    world.controller.policy = Policy({"default": "stp", "mpi": "planned"}, ())
    rings = [["h1", "h5", "h2", "h6"], ["h1", "h6", "h2", "h5"]]
    patterns = [
        [
            {"from": host, "to": next_host, "bytes": 10**6}
            for host, next_host in zip(ring, ring[1:] + ring[:1], strict=True)
        ]
        for ring in rings
    ]
    document = {"profile": "mpi", "hosts": rings[0], "patterns": patterns}
    job = world.controller.jobs.add(parse_job(document, HOSTS), world.now)
    world.controller.jobs_changed(world.now)
    for step, ring in enumerate(rings):
        if step:
            world.controller.jobs.step(job.id, None, world.now)
            world.controller.jobs_changed(world.now)
        pairs = list(zip(ring, ring[1:] + ring[:1], strict=True))
        for source, destination in pairs:
            world.send(source, tcp(source, destination))
        world.settle()
        routes = [world.controller.router.routes.get(FlowKey(*pair, "tcp", 1000, 2000)) for pair in pairs]
        between = [port for route in routes if route is not None for port in route.path[:-1]]
        assert len(between) == len(set(between)), "no link between switches carries two of them"
    assert not world.lost


def test_a_flow_that_is_placed_again_keeps_its_age_beside_its_counters() -> None:
    """Else it would be old, then young again, in turns, and the classifier would count all that it knows once more."""
    world = acquainted(flow_statistics_s=1.0)
    controller, key, frame = world.controller, FlowKey("h1", "h16", "tcp", 7, 7), tcp("h1", "h16", 7, 7)
    controller.policy = Policy({"default": "stp", "old": "dmodk"}, behaviours=(Behaviour("old", age_s_min=4),))
    seen: list[Features] = []
    controller.recognition.observed = seen.append
    profiles = []
    for _ in range(40):
        world.send("h1", frame)
        world.pass_time(0.25)
        route = controller.router.routes.get(key)
        assert route is not None
        profiles.append(route.placed.flow.profile)
    assert profiles == ["default"] * profiles.count("default") + ["old"] * profiles.count("old")
    assert 12 < profiles.count("default") < 24, "it was placed again between 3 s and 6 s after its start"
    world.pass_time(2.1)
    assert route.bytes == 39 * len(frame), "the first packet took the default path"
    row = seen[-1].rows[seen[-1].keys.index(key)]
    counted = [2 ** float(row[FEATURES.index(name)]) - 1 for name in ("up_bytes", "down_bytes")]
    assert sum(counted) == pytest.approx(route.bytes, rel=0.001)
