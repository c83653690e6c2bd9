# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A lab with switches on real Open vSwitch: as its network says, limited by its rates, mended as it was broken, and
gone without a trace. Flows are installed by ovs-ofctl, so no controller of ours is needed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import barewire, comes_to_the_limit, eventually, openflow_target, stand_up
from mpi_libraries import launched, library
from test_lab_network import (
    CAPTURED,
    COUNT_FRAMES,
    FLOOD,
    SEND_FRAMES,
    SEND_SLOWLY,
    SNIFF,
    ask,
    flood_bit_s,
    popen,
    python,
)

from barewire.errors import WrongUse
from barewire.lab import Lab, LinkSpec
from barewire.lab.openvswitch import database_of
from barewire.topology import load, shortest_paths, star, with_rate

RATE_BIT_S = 25_000_000
# Each frame passes five user-space switches, which must keep up on a busy machine, too.
TREE_RATE_BIT_S = 10_000_000
# TCP over IPv4 with time stamps in full frames: what is left of 1538 bytes of wire.
TCP_SHARE = 1448 / 1538

TCP_SINK = """
import socket, time
server = socket.create_server(("0.0.0.0", 7778))
print("ready", flush=True)
stream, _ = server.accept()
start = end = time.monotonic() + 0.5
while time.monotonic() < start:
    stream.recv(1 << 16)
received = 0
while (chunk := stream.recv(1 << 16)) and end < start + 1.5:
    received, end = received + len(chunk), time.monotonic()
print(8 * received / (end - start))
"""

TCP_SOURCE = """
import contextlib, socket, sys
with contextlib.suppress(OSError), socket.create_connection((sys.argv[1], 7778), 5) as stream:
    while True:
        stream.sendall(bytes(1 << 16))
"""

UP_AND_WAIT = """
import sys, time
from barewire.lab import Lab
with Lab.up("fat-tree:2") as lab:
    print(lab.id, *(server.pid for server in lab.servers.values()), flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep these tests' labs apart from the user's."""
    directory = tmp_path_factory.mktemp("runtime")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(directory))
        yield directory


@pytest.fixture(scope="module")
def tree(own_state: Path) -> Iterator[Lab]:
    """A fat-tree of 4-port switches in which h1 and h16, of different pods, reach each other over s5, s1 and s11."""
    with stand_up("fat-tree:4", LinkSpec(TREE_RATE_BIT_S), static_neighbours=True) as lab:
        lay_flows(lab, "h1", "h16")
        yield lab


def test_a_fat_tree_stands_with_the_ports_and_numbers_of_its_network(tree: Lab) -> None:
    assert tree.network is not None and len(tree.network.switches) == 20
    assert [host.name for host in tree.hosts] == [*(f"h{number}" for number in range(1, 17)), "server1"]
    bridges = {row[0]: row[1:] for row in table(tree, "name,datapath_id,datapath_type,fail_mode,protocols", "bridge")}
    assert bridges.pop("s20") == [f"{20:016x}", "dummy", "secure", "OpenFlow13"] and len(bridges) == 19
    numbers = {name: number for name, number in table(tree, "name,ofport", "interface")}
    for switch in tree.network.switches:
        for port in tree.network.ports[switch]:
            assert numbers[f"{port.node}-{port.number}"] == port.number


def test_hosts_reach_each_other_only_where_flows_lead(tree: Lab) -> None:
    """A fail mode of secure: without flows nothing is forwarded."""
    assert ask(tree, "h1", "h16", 1472)[-1] == "1472 10.77.0.16"
    asked = tree.run("h1", python("import socket; socket.create_connection(('h2', 9), 0.3)"), **CAPTURED)
    assert "timed out" in asked.stderr


def test_frames_pass_at_the_rate_of_the_links_and_not_faster(tree: Lab) -> None:
    """Raw frames past the sender's queueing discipline, over five switches."""
    comes_to_the_limit(TREE_RATE_BIT_S, lambda: flood_bit_s(tree, 1514, ["h16"]))


def test_a_tcp_stream_gets_the_rate_of_the_links(tree: Lab) -> None:
    def measured() -> float:
        with tree.popen("h16", python(TCP_SINK), stdout=subprocess.PIPE, text=True) as sink:
            assert sink.stdout is not None and sink.stdout.readline() == "ready\n"
            with tree.popen("h1", python(TCP_SOURCE, "h16")) as source:
                received_bit_s = float(sink.stdout.readline())
                source.kill()
        return received_bit_s

    comes_to_the_limit(TREE_RATE_BIT_S * TCP_SHARE, measured)


def test_a_port_that_is_congested_costs_other_ports_no_frame() -> None:
    """Open vSwitch sends for all ports through one socket: frames that wait must not lie in its send buffer.

    h1 and h2 flood h3, whose link is full at once; what h3 sends to h4 meanwhile arrives. A busy machine loses frames
    of its own accord, so one attempt must succeed.
    """
    with stand_up(star(4), LinkSpec(RATE_BIT_S), standalone=True) as lab:
        for source, destination in (("h4", "h3"), ("h3", "h4")):  # s1 learns where they are, and floods nothing more
            lab.run(source, python(SEND_FRAMES, header_of(lab, source, destination).ljust(120, "0")), check=True)
        arrived: list[int] = []
        while len(arrived) < 4 and max(arrived, default=0) < 390:
            arrived.append(arrived_beside_floods(lab, 400))
        print(arrived)
        assert 390 <= max(arrived) <= 400


def test_cables_pass_what_bridges_keep_to_themselves(tree: Lab) -> None:
    """LLDP, by which controllers find links: from s5 over a link between switches and one to a host."""
    frame = "0180c200000e" + "02ba7e0a0005" + "88cc" + "00" * 46
    control(tree, "add-flow", "s13", "priority=200,in_port=3,dl_type=0x88cc,actions=output:1")
    with popen(tree, "h1", SNIFF, "1") as sniffer:
        assert sniffer.stdout is not None and sniffer.stdout.readline() == "ready\n"
        control(tree, "packet-out", "s5", f"in_port=controller,packet={frame},actions=output:1")
        assert sniffer.communicate(timeout=10)[0].split() == [frame]


def test_the_management_network_joins_hosts_without_switches(tree: Lab) -> None:
    assert [host.management for host in tree.hosts[:2]] == ["10.78.0.1", "10.78.0.2"]
    assert tree.management_interface == "mgmt0"
    listening = "import socket; s = socket.create_server(('', 7779)); print('ready', flush=True); s.accept()"
    for command, name in (
        (tree.command("h2", python(listening)), "h2-mgmt"),
        (tree.switch_command(python(listening)), "mgmt"),
    ):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
            tree.run("h3", python(f"import socket; socket.create_connection(('{name}', 7779), 2)"), check=True)


@pytest.mark.parametrize("name", ["openmpi", "openmpi-5", "mpich-5"])
def test_launchers_reach_hosts_between_which_nothing_is_forwarded(tree: Lab, name: str) -> None:
    library(name)
    told = launched("-n", "3", "--lab", tree.id, "--library", name, "--fabric", "tcp", "--", "hostname")
    assert sorted(line for line in told.stdout.split() if line.startswith("h")) == ["h1", "h2", "h3"], told.stderr


def test_switches_look_for_their_controller_and_find_it_again_within_seconds() -> None:
    """OpenFlow 1.3's hello begins with version 4, type 0."""
    with stand_up("fat-tree:2") as lab, socket.socket(socket.AF_UNIX) as server:
        server.bind(str(lab.controller_socket))
        server.listen(32)
        server.settimeout(5)
        for _ in range(2):
            connections = [server.accept()[0] for _ in range(5)]
            for connection in connections:
                assert connection.recv(2) == b"\x04\x00"
                connection.close()


def test_a_link_that_is_pulled_loses_its_carrier_at_both_ends_and_carries_frames_again(tree: Lab) -> None:
    tree.set_cable("s13", "s5", up=False)
    assert eventually(lambda: states(tree, "s13-3", "s5-1") == ["down", "down"])
    assert states(tree, "s13-4") == ["up"]
    tree.set_cable("s13", "s5", up=True)
    assert eventually(lambda: states(tree, "s13-3", "s5-1") == ["up", "up"])
    assert ask(tree, "h1", "h16", 1472)[-1] == "1472 10.77.0.16"
    with pytest.raises(WrongUse, match="no link from s13 to s1;"):
        tree.set_cable("s13", "s1", up=False)


def test_a_switch_that_is_off_is_seen_by_its_neighbours_and_begins_anew(tree: Lab) -> None:
    tree.set_switch("s1", up=False)
    assert eventually(lambda: states(tree, "s5-3", "s11-3") == ["down", "down"])
    assert not [row for row in table(tree, "name", "bridge") if row == ["s1"]]
    tree.set_switch("s1", up=True)
    assert eventually(lambda: states(tree, "s5-3", "s11-3", "s1-1") == ["up", "up", "up"])
    assert flows(tree, "s1") == [] and flows(tree, "s5") != []
    lay_flows(tree, "h1", "h16")
    assert ask(tree, "h1", "h16", 1472)[-1] == "1472 10.77.0.16"
    with pytest.raises(WrongUse, match="unknown switch 's99'"):
        tree.set_switch("s99", up=True)


def test_switches_without_a_controller_learn_in_a_network_without_loops(tmp_path: Path) -> None:
    """Two switches with a link slower than the others', from a file; hosts find each other by ARP."""
    file = tmp_path / "two.toml"
    links = [["h1", "s1"], ["h2", "s2"], ["s1:7", "s2:9"]]
    file.write_text('switches = ["s1", "s2"]\nhosts = ["h1", "h2"]\n')
    file.write_text(file.read_text() + "".join(f"[[links]]\nends = {json.dumps(ends)}\n" for ends in links))
    file.write_text(file.read_text() + 'rate = "10mbit"\n')
    with stand_up(str(file), LinkSpec(RATE_BIT_S), standalone=True) as lab:
        assert lab.network == with_rate(load(file), RATE_BIT_S) and Lab.open(lab.id).network == lab.network
        assert ask(lab, "h1", "h2", 1472)[-1] == "1472 10.77.0.2"
        comes_to_the_limit(10_000_000, lambda: flood_bit_s(lab, 1514, ["h2"]))
        lab.set_cable("s1:7", "s2:9", up=False)
        assert eventually(lambda: states(lab, "s1-7", "s2-9") == ["down", "down"])


def test_a_loop_without_a_controller_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="has a loop"):
        Lab.up("fat-tree:4", standalone=True)
    assert list((tmp_path / "barewire" / "labs").glob("*")) == [] if (tmp_path / "barewire").exists() else True


@pytest.mark.parametrize(("rate_bit_s", "mtu"), [(None, 9000), (10**9, 65500)])
def test_large_frames_pass_switches(rate_bit_s: int | None, mtu: int) -> None:
    with stand_up(star(2), LinkSpec(rate_bit_s, mtu), standalone=True) as lab:
        refused, answered = ask(lab, "h1", "h2", mtu - 28)
        assert (refused, answered) == ("90", f"{mtu - 28} 10.77.0.2")


def test_nothing_is_left_of_switches_after_the_end_nor_a_crash() -> None:
    """Servers end with the lab and with a creator that was killed; a system's Open vSwitch has seen nothing."""
    with stand_up("fat-tree:2") as lab:
        servers = list(lab.servers.values())
        assert len(servers) == 2 * 5 and all(server.alive for server in servers)
    assert eventually(lambda: not any(server.alive for server in servers))
    assert not lab.directory.exists()
    with subprocess.Popen(
        [sys.executable, "-c", UP_AND_WAIT],
        env=dict(os.environ) | {"PYTHONPATH": str(Path(__file__).parents[1] / "python")},
        stdout=subprocess.PIPE,
        text=True,
    ) as creator:
        assert creator.stdout is not None
        lab_id, *pids = creator.stdout.readline().split()
        assert len(pids) == 2 * 5 and all(Path(f"/proc/{pid}").exists() for pid in pids)
        creator.send_signal(signal.SIGKILL)
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    Lab.open(lab_id).down()


def test_a_switch_that_has_ended_is_a_failure_of_the_lab_as_text_and_as_json() -> None:
    with stand_up(star(2), standalone=True) as lab:
        name, server = next((name, each) for name, each in lab.servers.items() if name.startswith("ovs-vswitchd"))
        assert barewire("lab", "show", lab.id, "--json").returncode == 0
        os.kill(server.pid, signal.SIGKILL)
        assert eventually(lambda: not server.alive)
        for options in ([], ["--json"]):
            done = barewire("lab", "show", lab.id, *options)
            assert done.returncode == 1 and f"{name} of lab {lab.id} ended" in done.stderr
            assert ('"barewire-topology/1"' if options else "s1") in done.stdout and done.stdout.count("\n") >= 1


def arrived_beside_floods(lab: Lab, frames: int) -> int:
    """How many of h3's frames to h4 arrive while h1 and h2 fill h3's link."""
    floods = [
        lab.popen(name, python(FLOOD, header_of(lab, name, "h3").ljust(3028, "0"), "1.5")) for name in ("h1", "h2")
    ]
    with popen(lab, "h4", COUNT_FRAMES) as counter:
        assert counter.stdout is not None and counter.stdout.readline() == "ready\n"
        time.sleep(0.5)
        sent = python(SEND_SLOWLY, header_of(lab, "h3", "h4").ljust(120, "0"), str(frames))
        lab.run("h3", sent, check=True)
        arrived = int(counter.communicate(timeout=10)[0])
    assert [flood.wait(timeout=10) for flood in floods] == [0, 0]
    return arrived


def lay_flows(lab: Lab, one: str, other: str) -> None:
    """Lead two hosts' frames to each other over the first of their shortest paths, whose nodes are the same."""
    assert lab.network is not None
    for source, destination in ((one, other), (other, one)):
        for port in shortest_paths(lab.network, source, destination)[0]:
            match = f"dl_dst={lab.host(destination).mac}"
            control(lab, "add-flow", port.node, f"priority=100,{match},actions=output:{port.number}")


def header_of(lab: Lab, source: str, destination: str) -> str:
    """An Ethernet header with an experimental EtherType, in hexadecimal."""
    return lab.host(destination).mac.replace(":", "") + lab.host(source).mac.replace(":", "") + "88b5"


def flows(lab: Lab, switch: str) -> list[str]:
    return [line for line in control(lab, "dump-flows", switch).splitlines() if "actions=" in line]


def control(lab: Lab, command: str, switch: str, *arguments: str) -> str:
    words = ["ovs-ofctl", "-O", "OpenFlow13", command, openflow_target(lab, switch), *arguments]
    return subprocess.run(words, check=True, **CAPTURED).stdout


def states(lab: Lab, *interfaces: str) -> list[str]:
    """What Open vSwitch says of links, by interface."""
    seen = {name: state for name, state in table(lab, "name,link_state", "interface")}
    return [seen[interface] for interface in interfaces]


def table(lab: Lab, columns: str, name: str) -> list[list[object]]:
    """The rows of a table of all switches' databases."""
    assert lab.network is not None
    rows = []
    for switch in lab.network.switches:
        database = f"--db=unix:{database_of(lab.directory, switch)}"
        command = ["ovs-vsctl", database, "--format=json", f"--columns={columns}", "list", name]
        rows += json.loads(subprocess.run(command, check=True, **CAPTURED).stdout)["data"]
    return [list(row) for row in rows]
