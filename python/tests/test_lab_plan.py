# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The pure part of the lab: specifications are parsed, validated and planned as documented."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from barewire.cli.lab import lab_document
from barewire.errors import MeasurementFailed, WrongUse
from barewire.lab import Lab, LinkSpec, format_rate, parse_delay, parse_loss, parse_rate, parse_topology, state
from barewire.lab.kernel import Process
from barewire.lab.layout import is_oversubscribed, make_plan, share_cpus
from barewire.lab.network import cpu_mask
from barewire.lab.plan import (
    barewire_hosts_file,
    hosts_file,
    make_emulation,
    make_shaper,
    make_wire_queue,
    plan_from_json,
)
from barewire.lab.startup import namespace_fix, needs_user_namespace


@pytest.mark.parametrize(
    ("text", "rate_bit_s"),
    [
        ("1gbit", 10**9),
        ("100mbit", 10**8),
        ("25Mbit/s", 25 * 10**6),
        ("2.5Gbit", 25 * 10**8),
        ("1 Gb/s", 10**9),
        ("800 kbit", 800_000),
        ("1Tbit", 10**12),
        ("unshaped", None),
    ],
)
def test_rates_are_parsed_as_bits_per_second(text: str, rate_bit_s: int | None) -> None:
    assert parse_rate(text) == rate_bit_s


@pytest.mark.parametrize(
    "text",
    ["", "fast", "1", "1gbps", "1GB/s", "-1gbit", "1e9bit", "1gbyte", "nanbit", "1gbit;reboot", f"{'9' * 400}gbit"],
)
def test_unknown_rates_are_rejected_with_an_example(text: str) -> None:
    with pytest.raises(WrongUse, match="100mbit"):
        parse_rate(text)


@pytest.mark.parametrize("rate_bit_s", [None, 64_000, 10**9, 2_500_000_000, 123_456_789])
def test_a_formatted_rate_parses_to_the_same_rate(rate_bit_s: int | None) -> None:
    assert parse_rate(format_rate(rate_bit_s)) == rate_bit_s


@pytest.mark.parametrize("text", ["pair", "star:2", "star:250", "routed:2"])
def test_a_formatted_topology_parses_to_the_same_topology(text: str) -> None:
    assert str(parse_topology(text)) == text


@pytest.mark.parametrize(
    "text", ["", "ring", "pair:2", "star", "star:", "star:1", "star:251", "star:-3", "star:²", "routed:1"]
)
def test_unknown_topologies_are_rejected_with_the_known_ones(text: str) -> None:
    with pytest.raises(WrongUse, match="pair, star:N"):
        parse_topology(text)


@pytest.mark.parametrize(
    "bad", [{"mtu": 67}, {"mtu": 65536}, {"rate_bit_s": 0}, {"rate_bit_s": 10**12}, {"loss": -0.1}, {"loss": 1.1}]
)
def test_invalid_links_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(WrongUse, match="outside"):
        LinkSpec(**bad)


def test_receive_on_is_the_sender_or_the_receiver() -> None:
    with pytest.raises(WrongUse, match="there are: sender, receiver"):
        LinkSpec(receive_on="h1")


def test_loss_is_a_percentage_and_excludes_offloads() -> None:
    assert [parse_loss(text) for text in ("0", "0.1%", "1 %", "100%")] == [0, 0.001, 0.01, 1]
    for text in ("0.1", "", "-1%", "1e3%"):
        with pytest.raises(WrongUse, match="write it as"):
            parse_loss(text)
    with pytest.raises(WrongUse, match="without offloads"):
        LinkSpec(offloads=True, loss=0.01)


def test_a_delay_has_a_unit_a_bound_and_a_rate() -> None:
    assert [parse_delay(text) for text in ("0", "50us", "1.5 ms", "20µs", "1s")] == [0, 50, 1500, 20, 1e6]
    for text in ("50", "", "-1ms", "1h"):
        with pytest.raises(WrongUse, match="write it as 50us"):
            parse_delay(text)
    for bad in ({"delay_us": 2e6}, {"delay_us": 5, "jitter_us": 6}, {"jitter_us": 1}):
        with pytest.raises(WrongUse, match="outside"):
            LinkSpec(10**9, **bad)
    with pytest.raises(WrongUse, match="add --rate"):
        LinkSpec(delay_us=5)


@pytest.mark.parametrize(
    ("topology", "rate_bit_s", "is_cable"),
    [("pair", 10**9, True), ("pair", None, False), ("star:2", 10**9, False), ("routed:2", 10**9, False)],
)
def test_only_a_pair_with_a_rate_is_a_cable(topology: str, rate_bit_s: int | None, is_cable: bool) -> None:
    assert make_plan("id", parse_topology(topology), LinkSpec(rate_bit_s), {0, 1}).is_cable == is_cable


@pytest.mark.parametrize("rate_bit_s", [None, 10**9])
@pytest.mark.parametrize("topology", ["pair", "star:3"])
def test_frames_are_lost_outside_the_hosts_once_per_direction(topology: str, rate_bit_s: int | None) -> None:
    plan = make_plan("id", parse_topology(topology), LinkSpec(rate_bit_s, loss=0.01), {0, 1})
    inside = {end.interface for wire in plan.wires for end in wire if end.node is None}
    assert set(plan.lossy) <= inside and len(plan.lossy) == len(plan.hosts)
    assert make_plan("id", parse_topology(topology), LinkSpec(rate_bit_s), {0, 1}).lossy == ()


def test_cores_are_split_evenly_and_shared_only_when_too_few() -> None:
    assert share_cpus(2, [0, 1]) == [(0,), (1,)]
    assert share_cpus(2, [0, 1, 2, 3, 4]) == [(0, 1), (2, 3)]
    assert share_cpus(3, [4, 6]) == [(4,), (6,), (4,)]
    assert not is_oversubscribed(share_cpus(2, [0, 1]))
    assert is_oversubscribed(share_cpus(3, [4, 6]))


def test_an_unshaped_pair_is_one_wire_and_nothing_else() -> None:
    plan = make_plan("id", parse_topology("pair"), LinkSpec(), {0, 1})
    assert [[(end.node, end.interface) for end in wire] for wire in plan.wires] == [[("h1", "eth0"), ("h2", "eth0")]]
    assert plan.bridges == () and plan.shaped == {}


@pytest.mark.parametrize(("topology", "shaped_per_host"), [("pair", 1), ("star:5", 2)])
def test_links_are_shaped_outside_the_hosts_where_needed(topology: str, shaped_per_host: int) -> None:
    plan = make_plan("id", parse_topology(topology), LinkSpec(rate_bit_s=10**9), {0, 1})
    inside = {end.interface for wire in plan.wires for end in wire if end.node is None}
    assert set(plan.shaped) <= inside
    assert len(plan.shaped) == shaped_per_host * len(plan.hosts)


@pytest.mark.parametrize("topology", ["pair", "star:2", "star:250"])
@pytest.mark.parametrize("rate_bit_s", [None, 10**9])
def test_names_and_addresses_are_unique_and_valid(topology: str, rate_bit_s: int | None) -> None:
    plan = make_plan("id", parse_topology(topology), LinkSpec(rate_bit_s), {0})
    ends = [end for wire in plan.wires for end in wire]
    macs = [end.mac for end in ends] + [bridge.mac for bridge in plan.bridges]
    switch_names = [end.interface for end in ends if end.node is None] + [bridge.name for bridge in plan.bridges]
    assert len(set(macs)) == len(macs)
    assert all(int(mac[:2], 16) & 0b11 == 0b10 for mac in macs), "locally administered, unicast"
    assert len(set(switch_names)) == len(switch_names)
    assert all(len(name) <= 15 for name in switch_names), "IFNAMSIZ"
    assert len({host.address for host in plan.hosts}) == len(plan.hosts)
    ports = [port for bridge in plan.bridges for port in bridge.ports]
    assert sorted(ports) == sorted(end.interface for end in ends if end.node is None), "each port is on one bridge"
    for bridge in plan.bridges:
        assert {port for port, _ in bridge.stations} <= set(bridge.ports)
    switches = [bridge for bridge in plan.bridges if bridge.name == "switch"]
    assert all({mac for _, mac in switch.stations} == {host.mac for host in plan.hosts} for switch in switches)


@pytest.mark.parametrize("topology", ["star:3", "routed:3"])
def test_a_plan_survives_json(topology: str) -> None:
    plan = make_plan("id", parse_topology(topology), LinkSpec(10**8, 9000, True), {0, 1})
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_bucket_holds_a_full_frame_and_the_queue_a_full_send_buffer() -> None:
    for rate_bit_s in (64_000, 10**9, 400 * 10**9):
        for mtu in (68, 1500, 65535):
            shaper = make_shaper(rate_bit_s, mtu)
            assert shaper.burst_bytes >= 2 * (mtu + 14)
            assert shaper.queue_bytes >= 256 * 1024
    assert make_shaper(10**9, 1500).burst_bytes == 62_500


def test_a_bucket_behind_a_clock_passes_the_longest_frame_and_is_not_larger_than_needed() -> None:
    for rate_bit_s in (64_000, 10**9, 400 * 10**9):
        for link in (LinkSpec(rate_bit_s), LinkSpec(rate_bit_s, 65535)):
            assert link.mtu + 18 + 24 <= make_wire_queue(rate_bit_s, link).burst_bytes <= 66_000


def test_an_emulators_queue_also_holds_what_is_under_way() -> None:
    near, far = (make_emulation(10**9, LinkSpec(10**9, delay_us=delay_us)) for delay_us in (0, 10**6))
    assert far.queue_frames - near.queue_frames >= 125_000_000 / 1538
    assert (far.delay_ns, far.rate_byte_s) == (10**9, 125_000_000)


def test_hosts_file_has_all_names() -> None:
    plan = make_plan("id", parse_topology("pair"), LinkSpec(), {0, 1})
    lines = hosts_file(plan.hosts).splitlines()
    assert "127.0.0.1 localhost" in lines and "10.77.0.1 h1" in lines and "10.77.0.2 h2" in lines
    assert barewire_hosts_file(plan.hosts).splitlines() == ["h1 02:ba:7e:00:00:01 eth0", "h2 02:ba:7e:00:00:02 eth0"]


def test_the_fix_names_the_setting_that_forbids_namespaces() -> None:
    assert "unprivileged_userns_clone=1" in namespace_fix(True, {"kernel.unprivileged_userns_clone": 0})
    assert "apparmor_restrict" in namespace_fix(True, {"kernel.apparmor_restrict_unprivileged_userns": 1})
    assert "max_net_namespaces" in namespace_fix(False, {"user.max_net_namespaces": 0})
    assert "unprivileged" not in namespace_fix(False, {"kernel.unprivileged_userns_clone": 0})
    assert "root" in namespace_fix(True, {})


def test_a_user_namespace_is_used_only_without_the_capabilities() -> None:
    assert needs_user_namespace(0)
    assert needs_user_namespace(1 << 12)
    assert not needs_user_namespace(1 << 12 | 1 << 21)


def test_records_of_labs_outlive_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, own = tmp_path / "user", tmp_path / "own"
    monkeypatch.setattr(state, "_SESSIONS", sessions)
    monkeypatch.setattr(state, "_OF_ROOT", tmp_path / "missing" / "labs")
    monkeypatch.setattr(state, "_SHARED", tmp_path)
    session = sessions / str(os.geteuid())
    session.mkdir(parents=True)
    own.mkdir()
    shared = tmp_path / f"barewire-{os.geteuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    assert state.labs_directory() == shared / "labs"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert state.labs_directory() == shared / "labs"
    # A directory that the user chose goes first, and a session's is better than none.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own))
    assert state.labs_directory() == own / "barewire" / "labs"
    shared.chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    assert state.labs_directory() == session / "barewire" / "labs"


def _recorded(creator: Process) -> state.LabState:
    return state.LabState(
        "0123abcd", "pair", LinkSpec(), "2026-11-26T12:00:00+00:00", False, False, creator, None, (), ()
    )


def test_a_lab_that_was_removed_since_it_was_listed_has_its_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `lab list --json` prints them while a measurement ends its lab."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = lab_document(Lab(_recorded(Process(os.getpid(), 0))))
    assert (found["id"], found["status"], found["link"]["mtu"]) == ("0123abcd", "gone", 1500)


def test_a_command_for_a_lab_that_is_being_created_is_told_so() -> None:
    """Not that the lab has no such host."""
    with pytest.raises(MeasurementFailed, match="still being created"):
        Lab(_recorded(Process.of(os.getpid()))).command("h1", ["true"])


@pytest.mark.parametrize(
    ("cpus", "mask"),
    [((0, 1), "00000003"), ((31,), "80000000"), ((0, 32), "00000001,00000001"), ((63,), "80000000,00000000")],
)
def test_a_mask_of_cores_has_no_word_more_than_they_need(cpus: tuple[int, ...], mask: str) -> None:
    """A kernel for 32 cores refuses a second word, even of zeros."""
    assert cpu_mask(cpus) == mask
