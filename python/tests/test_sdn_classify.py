# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Classification of flows: announced, by signature, by behaviour; and invalid files and announcements."""

from collections.abc import Mapping
from typing import Any

import pytest
from fake_switches import acquainted, tcp

from barewire.errors import WrongUse
from barewire.sdn.classify.classifier import Classification, FlowCounters, classify
from barewire.sdn.classify.jobs import JOBS_MAX, Jobs, UnknownJobError
from barewire.sdn.classify.policy import Policy, parse_policy
from barewire.sdn.flow import FlowKey

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


def test_behaviour_applies_only_to_flows_not_classified_otherwise() -> None:
    text = '[[behaviour]]\nprofile = "elephant"\nbytes_min = 1000\npacket_bytes_min = 500\n'
    policy, jobs = parse_policy(text, "file"), Jobs()
    big, small = FlowCounters(2, 2000, 1.0), FlowCounters(200, 2000, 1.0)
    assert classify(tcp_key("h1", "h2", 7), policy, jobs, big) == Classification("elephant", "behaviour")
    assert classify(tcp_key("h1", "h2", 7), policy, jobs, small) == Classification()
    assert classify(tcp_key("h1", "h2", 22), policy, jobs, big).profile == "mpi"


def test_announcements_win_and_those_with_traffic_win_over_others() -> None:
    policy, jobs = Policy(), Jobs()
    first = jobs.announce(RING, HOSTS, 0.0)
    assert classify(tcp_key("h1", "h3", 9000), policy, jobs) == Classification("mpi", "announced", 15), (
        "ranks of one host together"
    )
    shuffle = {"profile": "hadoop", "hosts": HOSTS, "traffic": [{"protocol": "tcp", "ports": ["13000-14000"]}]}
    jobs.announce(shuffle, HOSTS, 1.0)
    assert classify(tcp_key("h1", "h3", 13562), policy, jobs).profile == "hadoop"
    assert classify(tcp_key("h1", "h3", 9000), policy, jobs).profile == "mpi"
    jobs.withdraw(first.id)
    assert classify(tcp_key("h1", "h3", 9000), policy, jobs) == Classification("hadoop", "signature")
    assert classify(tcp_key("h1", "h3", 9999), policy, jobs) == Classification()


def test_patterns_of_all_jobs_are_merged_step_by_step_and_stay_the_same_object_until_they_change() -> None:
    jobs = Jobs()
    ring = jobs.announce(RING, HOSTS, 0.0)
    second_job = jobs.announce({**RING, "patterns": RING["patterns"][:1]}, HOSTS, 0.0)
    assert jobs.patterns == ({("h1", "h3"): 30}, {("h5", "h1"): 7})
    assert jobs.patterns is jobs.patterns
    before = jobs.patterns
    jobs.renew(ring.id, 1.0)
    assert jobs.patterns is before
    jobs.step(ring.id, None, 2.0)
    assert jobs.patterns == ({("h5", "h1"): 7, ("h1", "h3"): 15},)
    with pytest.raises(WrongUse, match="has 2 patterns, numbered from 0, none is 2: append more"):
        jobs.step(ring.id, None, 2.0)
    jobs.append(ring.id, [[{"from": 3, "to": 0, "bytes": 4}]], 3.0)
    jobs.step(ring.id, 2, 3.0)
    jobs.withdraw(second_job.id)
    assert jobs.patterns == ({("h5", "h1"): 4},)


def test_jobs_without_renewal_expire() -> None:
    jobs = Jobs()
    job = jobs.announce({**RING, "lease_s": 10}, HOSTS, 0.0)
    jobs.renew(job.id, 9.0)
    assert jobs.expire(18.9) == [] and jobs.next_s() == 19.0
    assert [gone.id for gone in jobs.expire(19.0)] == [job.id] and jobs.patterns == ()
    with pytest.raises(UnknownJobError, match="announce it again"):
        jobs.renew(job.id, 20.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hosts": ["h1", "h99", "h98"]}, "unknown hosts: h98, h99; known are h1, h10"),
        ({"hosts": []}, "needs hosts"),
        ({"hosts": "h1"}, "hosts are a list"),
        ({"ranks": ["h1", "h2"]}, "unknown ranks: h2; known are h1, h3, h5"),
        ({"profile": "a b"}, "needs a profile"),
        ({"profile": None}, "needs a profile"),
        ({"volume": 3}, "an announcement has no 'volume'; it has name, profile"),
        ({"lease_s": 0}, "lease_s is 1 to 3600 seconds"),
        ({"lease_s": True}, "lease_s is 1 to 3600 seconds"),
        ({"traffic": [{"protocol": "sctp"}]}, "there is no protocol 'sctp'; there are tcp, udp, ip, llc"),
        ({"traffic": [{"protocol": "llc", "ports": [1]}]}, "llc has no ports"),
        ({"traffic": [{"ports": ["9-3"]}]}, "'9-3' is no port"),
        ({"traffic": [{"ports": [65536]}]}, "65536 is no port"),
        ({"patterns": [[{"from": 0, "to": 9, "bytes": 1}]]}, "pattern 0: '9' is neither a rank of the 4"),
        ({"patterns": [[], [{"from": 0, "to": "h2", "bytes": 1}]]}, "pattern 1: 'h2' is neither a rank"),
        ({"patterns": [[{"from": 0, "to": 1}]]}, "a flow is"),
        ({"patterns": [[{"from": 0, "to": 2, "bytes": -1}]]}, "bytes are a whole number above 0"),
        ({"patterns": [3]}, "is a list of flows"),
        ({"name": "x\n"}, "printable"),
    ],
)
def test_an_invalid_announcement_is_refused_with_the_reason_and_has_no_effect(
    changes: dict[str, Any], message: str
) -> None:
    jobs = Jobs()
    with pytest.raises(WrongUse) as refused:
        jobs.announce({**RING, **changes}, HOSTS, 0.0)
    assert message in str(refused.value)
    assert not jobs.all and jobs.patterns == ()


def test_the_number_of_announcements_is_bounded() -> None:
    jobs = Jobs()
    for _ in range(JOBS_MAX):
        jobs.announce({"profile": "mpi", "hosts": ["h1"]}, HOSTS, 0.0)
    with pytest.raises(WrongUse, match="withdraw some"):
        jobs.announce({"profile": "mpi", "hosts": ["h1"]}, HOSTS, 0.0)


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
    job = world.controller.jobs.announce({"profile": "mpi", "hosts": ["h1", "h16"]}, HOSTS, world.now)
    world.controller.jobs_changed(world.now)
    for _ in world.steps():
        assert world.where("h1", frame) == "h16"
    assert route.path != first and route.placed.flow.profile == "mpi" and route.known_by == "announced"
    world.controller.jobs.withdraw(job.id)
    world.controller.jobs_changed(world.now)
    for _ in world.steps():
        assert world.where("h1", frame) == "h16"
    assert route.path == first


def test_flows_change_back_when_a_lease_expires() -> None:
    world = acquainted()
    world.controller.policy = Policy({"default": "stp", "mpi": "ecmp"}, ())
    world.controller.jobs.announce({"profile": "mpi", "hosts": ["h1", "h16"], "lease_s": 2}, HOSTS, world.now)
    world.controller.jobs_changed(world.now)
    world.send("h1", tcp("h1", "h16"))
    world.settle()
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 1000, 2000))
    assert route is not None and route.placed.flow.profile == "mpi"
    world.pass_time(2.2)
    assert route.placed.flow.profile == "default"
    assert any("has expired" in event.text for event in world.events)


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
    job = world.controller.jobs.announce(document, HOSTS, world.now)
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
