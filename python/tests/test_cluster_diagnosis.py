# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a check says of clusters that were measured with and without faults."""

import io
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console
from synthetic_cluster import FRAMES, RATE_BIT_S, changed, healthy, losing, names, received_by, sent_by, with_host

from barewire.cluster import Blame, Path, diagnose
from barewire.cluster.attribution import attribute
from barewire.cluster.check import Checked
from barewire.cluster.finding import Direction, Finding, Kind
from barewire.cluster.measured import confirmed
from barewire.cluster.tournament import Pair
from barewire.report.cluster import print_check

HOST = "h3"
DEAD = dict(bandwidth_bit_s=None, lost=FRAMES, both_lost=FRAMES, mtu_passed=None, round_trip_ns=None)


def named(findings: list[Finding]) -> list[tuple[Kind, str, Direction | None]]:
    return [(finding.kind, finding.subject, finding.direction) for finding in findings]


def slower(path: Path) -> Path:
    return replace(path, bandwidth_bit_s=RATE_BIT_S / 10)


@pytest.mark.parametrize("hosts", [2, 3, 4, 8, 16])
def test_nothing_is_invented_in_noise(hosts: int) -> None:
    for seed in range(60):
        assert diagnose(healthy(hosts, seed)) == [], f"seed {seed}"


@pytest.mark.parametrize("hosts", [3, 4, 8, 16])
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Kind.SLOW, slower),
        (Kind.LOSS, losing(0.01)),
        (Kind.DEAD, lambda path: replace(path, **DEAD)),
        (Kind.PATH_MTU, lambda path: replace(path, mtu_passed=1500)),
        (Kind.REORDERING, lambda path: replace(path, reordered=FRAMES // 50)),
    ],
)
def test_a_ports_fault_is_named_once_with_its_direction(hosts: int, kind: Kind, change: Callable[[Path], Path]) -> None:
    """Also among few hosts, and under noise of any seed."""
    for seed in range(10):
        measured = healthy(hosts, seed)
        transmit, receive = sent_by(measured, HOST), received_by(measured, HOST)
        for ends, direction in (
            (transmit, Direction.TRANSMIT),
            (receive, Direction.RECEIVE),
            ([*transmit, *receive], Direction.BOTH),
        ):
            faulty = changed(measured, ends, change)
            assert named(diagnose(faulty)) == [(kind, HOST, direction)], f"seed {seed}"


def test_one_bad_path_is_named_as_a_path() -> None:
    measured = changed(healthy(), [("h1", "h2")], slower)
    assert named(diagnose(measured)) == [(Kind.SLOW, "h1 → h2", Direction.TRANSMIT)]
    measured = changed(healthy(), [("h1", "h2"), ("h2", "h1")], losing(0.05))
    assert named(diagnose(measured)) == [(Kind.LOSS, "h1 – h2", Direction.BOTH)]


def test_a_port_that_is_slow_and_drops_has_two_faults_of_which_the_loss_is_named() -> None:
    measured = changed(healthy(), sent_by(healthy(), HOST), lambda path: replace(slower(path), lost=FRAMES // 50))
    assert named(diagnose(measured)) == [(Kind.LOSS, HOST, Direction.TRANSMIT)]


def test_two_faulty_ports_are_two_findings() -> None:
    measured = changed(healthy(), sent_by(healthy(), "h2"), losing(0.02))
    measured = changed(measured, received_by(measured, "h5"), slower)
    assert sorted(named(diagnose(measured))) == [
        (Kind.LOSS, "h2", Direction.TRANSMIT),
        (Kind.SLOW, "h5", Direction.RECEIVE),
    ]


def test_loss_under_load_of_both_sides_is_a_duplex_mismatch() -> None:
    measured = healthy()
    ends = [*sent_by(measured, HOST), *received_by(measured, HOST)]
    both_lost = changed(measured, ends, lambda path: replace(path, both_lost=FRAMES // 12))
    assert named(diagnose(both_lost)) == [(Kind.DUPLEX, HOST, Direction.BOTH)]
    # Acknowledgements collide as well.
    some = changed(measured, ends, lambda path: replace(path, lost=FRAMES // 100, both_lost=FRAMES // 12))
    assert named(diagnose(some)) == [(Kind.DUPLEX, HOST, Direction.BOTH)]
    # On some paths a third as many as under load, as a check of sixteen hosts saw it.
    share = {ends: FRAMES // (80 if number % 2 else 400) for number, ends in enumerate(ends)}
    varied = measured
    for each, lost in share.items():
        varied = changed(varied, [each], lambda path, lost=lost: replace(path, lost=lost, both_lost=FRAMES // 25))
    assert named(diagnose(varied)) == [(Kind.DUPLEX, HOST, Direction.BOTH)]
    # Only what the other side sends collides.
    one_way = changed(measured, received_by(measured, HOST), lambda path: replace(path, both_lost=FRAMES // 12))
    assert named(diagnose(one_way)) == [(Kind.DUPLEX, HOST, Direction.BOTH)]


def test_a_switch_without_jumbo_frames_is_one_finding() -> None:
    measured = healthy()
    measured = changed(measured, measured.paths, lambda path: replace(path, mtu_passed=1500))
    assert named(diagnose(measured)) == [(Kind.NO_JUMBO, "network", None)]


def test_a_host_with_another_mtu_is_named_and_its_paths_are_not() -> None:
    measured = healthy()
    ends = [*sent_by(measured, HOST), *received_by(measured, HOST)]
    measured = changed(measured, ends, lambda path: replace(path, mtu_passed=1500, mtu_expected=1500))
    assert named(diagnose(with_host(measured, HOST, mtu=1500))) == [(Kind.MTU, HOST, None)]


@pytest.mark.parametrize("hosts", [3, 4, 16])
def test_a_network_that_passes_nothing_is_one_finding(hosts: int) -> None:
    """Such as hosts of different segments."""
    measured = healthy(hosts)
    measured = changed(measured, measured.paths, lambda path: replace(path, **DEAD))
    assert named(diagnose(measured)) == [(Kind.DEAD, "network", None)]


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (Kind.STARVED, {"core_share": 0.3}),
        (Kind.CLOCKED_DOWN, {"work_ns": 24_000.0}),
    ],
)
def test_a_host_without_its_cores_is_named_and_its_slow_paths_are_not(kind: Kind, state: dict[str, float]) -> None:
    measured = healthy()
    measured = changed(measured, [*sent_by(measured, HOST), *received_by(measured, HOST)], slower)
    assert named(diagnose(with_host(measured, HOST, **state))) == [(kind, HOST, None)]


def test_hosts_of_a_busier_core_are_not_starved_and_one_that_gets_less_of_it_is() -> None:
    measured = healthy(8)
    for name in measured.hosts:
        core = int(name[1:]) % 2
        measured = with_host(measured, name, cores=(core,), core_share=(0.9, 0.3)[core])
    assert diagnose(measured) == []
    assert named(diagnose(with_host(measured, HOST, core_share=0.1))) == [(Kind.STARVED, HOST, None)]


def test_what_the_interface_says_is_the_cause_of_a_slow_port() -> None:
    measured = healthy()
    measured = changed(measured, [*sent_by(measured, HOST), *received_by(measured, HOST)], slower)
    assert named(diagnose(with_host(measured, HOST, speed_mbit_s=100))) == [(Kind.NEGOTIATION, HOST, Direction.BOTH)]


def test_a_slower_host_is_no_fault_where_its_speed_is_expected() -> None:
    measured = healthy()
    measured = changed(measured, [*sent_by(measured, HOST), *received_by(measured, HOST)], slower)
    hosts = {name: replace(host, expected_speed_mbit_s=1000) for name, host in measured.hosts.items()}
    hosts[HOST] = replace(hosts[HOST], speed_mbit_s=100, expected_speed_mbit_s=100)
    assert diagnose(replace(measured, hosts=hosts)) == []


def test_hosts_of_a_lab_that_share_a_core_are_compared_with_such() -> None:
    """Streams within a core are slower by four than those across; half of all paths are."""
    measured = healthy(8)
    hosts = {name: replace(host, cores=(int(name[1:]) % 2,)) for name, host in measured.hosts.items()}
    measured = replace(measured, hosts=hosts)
    within = [ends for ends in measured.paths if measured.share_core(ends)]
    measured = changed(measured, within, lambda path: replace(path, bandwidth_bit_s=RATE_BIT_S / 4))
    assert diagnose(measured) == []
    # Other programs slow down a path, and a fault all paths of a port.
    assert diagnose(changed(measured, [("h1", "h2")], slower)) == []
    slow = changed(measured, sent_by(measured, HOST), lambda path: replace(path, bandwidth_bit_s=RATE_BIT_S / 50))
    assert named(diagnose(slow)) == [(Kind.SLOW, HOST, Direction.TRANSMIT)]


def test_a_switch_that_drops_under_the_load_of_all_is_overloaded() -> None:
    measured = healthy()
    together = {ends: replace(path, lost=path.sent // 10) for ends, path in measured.together.items()}
    assert named(diagnose(replace(measured, together=together))) == [(Kind.OVERLOAD, "network", None)]
    slow = {ends: replace(path, bandwidth_bit_s=RATE_BIT_S / 4) for ends, path in measured.together.items()}
    assert named(diagnose(replace(measured, together=slow))) == [(Kind.OVERLOAD, "network", None)]
    # Where hosts share cores, the machine may be the reason for that.
    hosts = {name: replace(host, cores=(0,)) for name, host in measured.hosts.items()}
    assert diagnose(replace(measured, hosts=hosts, together=slow)) == []


def test_a_host_that_cannot_be_reached_is_named() -> None:
    measured = replace(healthy(), unreachable={"h9": "no route to host"})
    assert named(diagnose(measured)) == [(Kind.UNREACHABLE, "h9", None)]


def test_a_longer_test_takes_back_a_slow_moment_and_keeps_a_fault() -> None:
    measured = healthy()
    path = measured.paths["h1", "h2"]
    assert confirmed(slower(path), path).bandwidth_bit_s == path.bandwidth_bit_s
    assert confirmed(slower(path), slower(path)).bandwidth_bit_s == RATE_BIT_S / 10
    assert confirmed(replace(path, lost=50), path).lost == path.lost


def test_few_faulty_ports_explain_all_their_paths_for_any_cluster() -> None:
    """Whatever ports are faulty, as long as most hosts are healthy: these are blamed, and nothing else."""
    source = random.Random(7)
    for _ in range(300):
        hosts = names(source.randint(6, 16))
        measured = [(a, b) for a in hosts for b in hosts if a != b]
        faulty = {host: source.choice([*Direction]) for host in source.sample(hosts, source.randint(0, 2))}
        bad = [ends for ends in measured if _is_bad(ends, faulty)]
        blames = attribute(bad, measured)
        assert {blame.host: blame.direction for blame in blames} == faulty
        assert {ends for blame in blames for ends in blame.paths} == {*bad}


def _is_bad(ends: Pair, faulty: dict[str, Direction]) -> bool:
    sender, receiver = (faulty.get(end) for end in ends)
    return sender in (Direction.TRANSMIT, Direction.BOTH) or receiver in (Direction.RECEIVE, Direction.BOTH)


def test_two_hosts_cannot_tell_whose_port_it_is() -> None:
    measured = [("a", "b"), ("b", "a")]
    assert attribute([("a", "b")], measured) == [Blame(None, Direction.TRANSMIT, (("a", "b"),))]


def test_half_duplex_is_what_the_interface_says() -> None:
    assert named(diagnose(with_host(healthy(), HOST, duplex="half"))) == [(Kind.DUPLEX, HOST, Direction.BOTH)]


@pytest.mark.parametrize(("hosts", "is_shown"), [(8, True), (12, False)])
def test_the_map_in_the_terminal_is_left_out_where_hosts_names_do_not_fit(hosts: int, is_shown: bool) -> None:
    """They had run together or been broken."""
    small = healthy(hosts)
    called = {name: f"node{int(name[1:]):02}" for name in small.hosts}
    states = {called[name]: state for name, state in small.hosts.items()}
    paths = {(called[a], called[b]): path for (a, b), path in small.paths.items()}
    console = Console(file=io.StringIO(), width=80)
    print_check(console, Checked(replace(small, hosts=states, paths=paths), (), (), ()))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[-1] == f"{hosts} hosts, {hosts * (hosts - 1)} paths: nothing is wrong."
    assert (lines[0].split() == list(states)) is is_shown
