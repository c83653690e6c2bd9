# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The order of a flow's rules: for any old and new path a packet is delivered after every single rule."""

import random
from itertools import pairwise

import pytest

from barewire.errors import WrongUse
from barewire.sdn.controller.hosts import (
    HOSTS_PER_PORT_MAX,
    Address,
    Hosts,
    parse_addresses_file,
    parse_hosts_file,
)
from barewire.sdn.controller.installation import can_loop, stages
from barewire.topology import Path, Port

SWITCHES = [f"s{number}" for number in range(1, 9)]


def path_of(*names: str) -> Path:
    """A path through switches: the port to a switch has that switch's number, the host's port is 99."""
    return (*(Port(node, int(following[1:])) for node, following in pairwise(names)), Port(names[-1], 99))


def ends(rules: dict[str, int], start: str) -> str:
    """The fate of a packet: host, loop, or no rule."""
    node = start
    for _ in range(20):
        if node not in rules:
            return f"no rule at {node}"
        if rules[node] == 99:
            return "host"
        node = f"s{rules[node]}"
    return "loop"


def simple_path(chance: random.Random) -> Path:
    """Any loop-free path from s1 to s8, mostly not a shortest one."""
    between = chance.sample(SWITCHES[1:-1], chance.randrange(0, 6))
    return path_of("s1", *between, "s8")


@pytest.mark.parametrize("seed", range(300))
def test_any_path_can_be_replaced_by_any_other_without_a_lost_or_looped_packet(seed: int) -> None:
    """Every order that stages allow, for three successive moves; rules of earlier moves stay in the tables."""
    chance = random.Random(seed)
    rules = {port.node: port.number for port in simple_path(chance)}
    for _ in range(3):
        new = simple_path(chance)
        for stage in stages(new, rules):
            before = dict(rules)
            chance.shuffle(stage)
            for hop in stage:
                rules[hop.node] = hop.number
                assert ends(rules, "s1") == "host", f"{hop} in {stage} after {before}"
        assert {hop.node: hop.number for hop in new}.items() <= rules.items()
        if chance.random() < 0.5:
            rules = {hop.node: hop.number for hop in new}


@pytest.mark.parametrize("seed", range(300))
def test_any_order_is_safe_exactly_if_rules_cannot_loop(seed: int) -> None:
    """Partly installed rules of two paths, in every combination: never a loop, or at least one reachable loop."""
    chance = random.Random(seed)
    old, new = simple_path(chance), simple_path(chance)
    peers = {
        Port(switch, int(other[1:])): Port(other, 1) for switch in SWITCHES for other in SWITCHES if switch != other
    }
    installed = {hop.node: hop.number for hop in old}
    loops = False
    for chosen in range(1 << len(new)):
        rules = installed | {hop.node: hop.number for at, hop in enumerate(new) if chosen >> at & 1}
        loops |= any(ends(rules, start) == "loop" for start in SWITCHES)
    assert loops == can_loop(new, installed, peers)


def test_the_checker_sees_loops_and_holes() -> None:
    assert ends({"s1": 2, "s2": 1}, "s1") == "loop" and ends({"s1": 2}, "s1") == "no rule at s2"
    laid_first_to_last = {"s1": 3, "s2": 99}
    assert ends(laid_first_to_last, "s1") == "no rule at s3", "what the order is there to prevent"


def test_a_new_flow_takes_two_stages_and_its_first_switch_is_the_last() -> None:
    path = path_of("s1", "s2", "s3", "s4")
    assert stages(path, {}) == [[path[3], path[2], path[1]], [path[0]]]
    assert stages(path_of("s1"), {}) == [[Port("s1", 99)]]
    assert stages(path, {port.node: port.number for port in path}) == [], "nothing to do"


def test_mistakes_in_a_hosts_file_are_reported_with_their_line() -> None:
    text = "# the cluster\nh1 02:BA:7e:00:00:01 eth0\n\nh2 02:ba:7e:00:00:02 eth0 # second\n"
    assert parse_hosts_file(text, "hosts") == {"h1": "02:ba:7e:00:00:01", "h2": "02:ba:7e:00:00:02"}
    for wrong, message in (
        ("h1 02:ba:7e:00:00:01", "hosts:1: a line is 'name MAC interface'"),
        ("\nh1 03:ba:7e:00:00:01 eth0", "hosts:2: '03:ba:7e:00:00:01' is not a host's MAC address"),
        ("s1 02:ba:7e:00:00:01 eth0", "hosts:1: switches are named like 's1'; give this host another name"),
        ("h1 02:ba:7e:00:00 eth0", "is not a host's MAC address"),
        ("h1 02:ba:7e:00:00:01 eth0\nh1 02:ba:7e:00:00:02 eth0", "hosts:2: h1 or 02:ba:7e:00:00:02 is there twice"),
    ):
        with pytest.raises(WrongUse) as refused:
            parse_hosts_file(wrong, "hosts")
        assert message in str(refused.value)


def test_addresses_are_read_from_a_file_like_etc_hosts() -> None:
    text = "127.0.0.1 localhost h1\n10.0.0.1 a.example h1\n10.0.0.2 h2\nfe80::1 h1\n10.0.0.3 stranger\n"
    assert parse_addresses_file(text, "hosts", ["h1", "h2"]) == {"10.0.0.1": "h1", "10.0.0.2": "h2", "fe80::1": "h1"}
    with pytest.raises(WrongUse, match="hosts:1: 'h1' is no IP address"):
        parse_addresses_file("h1 10.0.0.1", "hosts", ["h1"])
    with pytest.raises(WrongUse, match=r"hosts:2: 10.0.0.1 is h1's already"):
        parse_addresses_file("10.0.0.1 h1\n10.0.0.1 h2", "hosts", ["h1", "h2"])


def test_unnamed_hosts_expire_and_are_bounded() -> None:
    hosts = Hosts({"h1": "02:ba:7e:00:00:01"})
    port = Port("s1", 1)
    assert hosts.learn("02:ba:7e:00:00:01", port, 0.0) is not None
    learnt = [
        hosts.learn(f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}", port, 1.0)
        for number in range(HOSTS_PER_PORT_MAX + 5)
    ]
    assert sum(host is not None for host in learnt) == HOSTS_PER_PORT_MAX
    stays = learnt[3]
    assert stays is not None and hosts.learn_address(stays, Address(0, "10.0.0.9"), 0.0)
    hosts.age(2.0, in_use=lambda: {stays.name})
    assert set(hosts.by_name) == {"h1", stays.name} and hosts.with_address("10.0.0.9") is stays


def test_a_host_does_not_jump_between_ports() -> None:
    hosts = Hosts()
    first_port, second_port = Port("s1", 1), Port("s2", 1)
    assert hosts.learn("02:00:00:00:00:01", first_port, 0.0) is not None
    assert hosts.learn("02:00:00:00:00:01", second_port, 0.5) is None, "it was at the other port a moment ago"
    moved = hosts.learn("02:00:00:00:00:01", second_port, 2.0)
    assert moved is not None and moved.port == second_port
