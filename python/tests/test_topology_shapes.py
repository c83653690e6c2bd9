# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Networks by name and from files: their shape, rejections, and their form as JSON."""

import importlib
import json
import time
from pathlib import Path

import networkx as nx
import pytest

from barewire.errors import WrongUse
from barewire.topology import Port, fat_tree, from_json, load, parse, shortest_paths, star, to_json, with_rate

SMALL = """
switches = ["s1", "s2", "s10"]
hosts = ["h1", "h2"]
[[links]]
ends = ["h1", "s1"]
[[links]]
ends = ["s1:1", "s2"]
rate = "10mbit"
[[links]]
ends = ["s2", "s10:7"]
[[links]]
ends = ["s10", "s1"]
[[links]]
ends = ["h2", "s10"]
"""


def file_of(folder: Path, text: str) -> Path:
    file = folder / "network.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_a_fat_tree_has_the_numbers_of_nodes_and_links_of_the_formulas(k: int) -> None:
    """5k²/4 switches, k³/4 hosts and one link each, k³/2 links between switches; every switch has k ports, s1 one more
    for the server."""
    network = fat_tree(k)
    assert len(network.switches) == 5 * k * k // 4
    assert network.hosts == (*(f"h{number}" for number in range(1, k**3 // 4 + 1)), "server1")
    assert len(network.peers) == 2 * (k**3 // 4 + k**3 // 2 + 1)
    for switch in network.switches:
        assert [port.number for port in network.ports[switch]] == list(range(1, k + 1 + (switch == "s1")))
    assert nx.is_strongly_connected(nx.DiGraph(network.graph))


def test_the_fat_tree_of_4_is_numbered_as_published() -> None:
    """s1 to s4 core, s5 to s12 aggregation, s13 to s20 edge; the odd hosts are one on each edge switch."""
    network = fat_tree(4)
    attached = [network.attachment(f"h{number}") for number in range(1, 17)]
    assert [port.node for port in attached if port] == [f"s{13 + number // 2}" for number in range(16)]
    assert {port.number for port in attached[::2] if port} == {1}
    up = {switch: {network.peers[port].node for port in network.ports[switch][2:]} for switch in network.switches}
    assert up["s13"] == up["s14"] == {"s5", "s6"} and up["s20"] == {"s11", "s12"}
    assert all(up[f"s{number}"] == {"s1", "s2"} for number in (5, 7, 9, 11))
    assert all(up[f"s{number}"] == {"s3", "s4"} for number in (6, 8, 10, 12))
    assert network.attachment("server1") == Port("s1", 5)


@pytest.mark.parametrize(("other", "paths", "switches"), [("h2", 1, 1), ("h3", 2, 3), ("h5", 4, 5), ("server1", 1, 3)])
def test_a_fat_tree_has_equal_paths_by_distance(other: str, paths: int, switches: int) -> None:
    """Hosts on the same edge switch, in the same pod, in another pod; a factor k/2 for every level."""
    found = shortest_paths(fat_tree(4), "h1", other)
    assert len(found) == paths and {len(path) for path in found} == {switches}


def test_servers_are_attached_to_the_cores_in_a_cycle() -> None:
    network = fat_tree(4, servers=5)
    assert [str(network.attachment(f"server{number}")) for number in range(1, 6)] == [
        "s1:5",
        "s2:5",
        "s3:5",
        "s4:5",
        "s1:6",
    ]
    assert fat_tree(4, servers=0).hosts[-1] == "h16"


@pytest.mark.parametrize("k", [-2, 0, 1, 3, 7])
def test_a_fat_tree_of_an_odd_number_is_rejected(k: int) -> None:
    with pytest.raises(WrongUse, match="even number"):
        fat_tree(k)


def test_networks_have_names() -> None:
    assert parse("fat-tree:6") == fat_tree(6) and parse("star:3") == star(3)
    assert [str(port) for port in shortest_paths(star(3), "h1", "h3")[0]] == ["s1:3"]
    for text in ("ring", "fat-tree", "fat-tree:", "fat-tree:x", "star:-1", "pair", "star:1"):
        with pytest.raises(WrongUse):
            parse(text)


@pytest.mark.parametrize("text", ["fat-tree:108", "leaf-spine:9999x9999x1", "dragonfly:1x9999x1"])
def test_a_network_that_would_fill_the_memory_is_refused_before_it_is_built(text: str) -> None:
    """Also one of few nodes and many links."""
    with pytest.raises(WrongUse, match="take smaller sizes"):
        parse(text)


@pytest.mark.parametrize("text", ["fat-tree:6", "leaf-spine:4x2x3", "dragonfly:4x2x2", "star:5"])
def test_the_links_of_a_network_are_counted_before_it_is_built(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    links = len(parse(text).peers) // 2 - text.startswith("fat-tree")  # without the server's
    monkeypatch.setattr(importlib.import_module("barewire.topology.parse"), "_LINKS_MAX", links - 1)
    with pytest.raises(WrongUse, match=f" and {links} links"):
        parse(text)


def test_a_file_of_many_links_is_numbered_in_time(tmp_path: Path) -> None:
    """Searching each free port from 1 on would take many times as long."""
    hosts = [f"h{number}" for number in range(5000)]
    links = "".join(f'[[links]]\nends = ["{host}", "s1"]\n' for host in hosts)
    began = time.process_time()
    network = load(file_of(tmp_path, f'switches = ["s1"]\nhosts = {json.dumps(hosts)}\n{links}'))
    assert network.attachment("h4999") == Port("s1", 5000) and time.process_time() - began < 2


def test_a_file_yields_a_network_with_loops_rates_and_explicit_port_numbers(tmp_path: Path) -> None:
    """Ends without a number get the lowest number that is not in the file, in its order."""
    network = load(file_of(tmp_path, SMALL))
    joined = {str(port): str(peer) for port, peer in network.peers.items() if port < peer}
    assert joined == {"h1:1": "s1:2", "s1:1": "s2:1", "s10:7": "s2:2", "s1:3": "s10:1", "h2:1": "s10:2"}
    assert network.rates_bit_s == {Port("s1", 1): 10**7, Port("s2", 1): 10**7}
    assert parse(str(tmp_path / "network.toml")) == network


def test_a_default_rate_applies_to_links_without_one(tmp_path: Path) -> None:
    network = with_rate(load(file_of(tmp_path, SMALL)), 10**8)
    assert network.rates_bit_s[Port("s1", 1)] == 10**7 and network.rates_bit_s[Port("h1", 1)] == 10**8
    assert set(network.rates_bit_s) == set(network.peers)
    assert with_rate(network, None) == network


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("switches = [", "cannot be read"),
        ("switches = []", "no switch"),
        ('switches = ["s1"]\nswitch = 1', "unknown key 'switch'"),
        ('switches = "s1"', "list of names"),
        ('switches = ["s1", "s1"]', "names s1 twice"),
        ('switches = ["core"]', "'core' is not a switch"),
        ('switches = ["s0"]', "'s0' is not a switch"),
        ('switches = ["s65536"]', "'s65536' is not a switch"),
        ('switches = ["s1"]\nhosts = ["s2"]', "'s2' is not a host"),
        ('switches = ["s1"]\nhosts = ["a-name-too-long"]', "is not a host"),
        ('switches = ["s1"]\nlinks = [1]', "links must be tables"),
        ('switches = ["s1"]\n[[links]]\nends = ["s1"]', "two ends"),
        ('switches = ["s1"]\n[[links]]\nends = ["s1", "s2"]', "ends at 's2'"),
        ('switches = ["s1", "s2"]\n[[links]]\nends = ["s1:0", "s2"]', "'s1:0' is not an end"),
        ('switches = ["s1", "s2"]\n[[links]]\nends = ["s1:65280", "s2"]', "is not an end"),
        ('switches = ["s1", "s2"]\n[[links]]\nends = ["s1:1", "s1:1"]', "a node to itself"),
        ('switches = ["s1"]\n[[links]]\nends = ["s1:1", "s1:2"]', "a node to itself"),
        ('switches = ["s1", "s2"]\n[[links]]\nends = ["s1:1", "s2"]\n[[links]]\nends = ["s1:1", "s2"]', "two links"),
        ('switches = ["s1", "s2"]', "no links join s2 to s1"),
        ('switches = ["s1"]\nhosts = ["h1"]', "no links join h1 to s1"),
        ('switches = ["s1"]\nhosts = ["h1"]\n[[links]]\nends = ["h1:2", "s1"]', "a host's port has number 1"),
        ('switches = ["s1"]\nhosts = ["h1", "h2"]\n[[links]]\nends = ["h1", "h2"]', "leads to a switch"),
        (
            'switches = ["s1"]\nhosts = ["h1"]\n[[links]]\nends = ["h1", "s1"]\n[[links]]\nends = ["h1", "s1"]',
            "2 links; a host has one",
        ),
        ('switches = ["s1", "s2"]\n[[links]]\nends = ["s1", "s2"]\nrate = 5', "has the rate 5"),
        ('switches = ["s1", "s2"]\n[[links]]\nends = ["s1", "s2"]\nrate = "1gbps"', "unknown rate"),
        ('switches = ["s1", "s2"]\n[[links]]\nends = ["s1", "s2"]\nrate = "1bit"', "outside"),
        ('switches = ["s1", "s2"]\n[[links]]\nends = ["s1", "s2"]\nspeed = "1gbit"', "unknown key 'speed'"),
    ],
)
def test_invalid_network_files_are_rejected_with_their_name_and_the_reason(
    text: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(WrongUse, match=complaint) as refused:
        load(file_of(tmp_path, text))
    assert "network.toml" in str(refused.value)


def test_a_missing_file_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="cannot be read"):
        parse(str(tmp_path / "none.toml"))


@pytest.mark.parametrize("text", ["fat-tree:4", "star:3"])
def test_a_network_survives_json(text: str) -> None:
    for network in (parse(text), with_rate(parse(text), 10**9)):
        assert from_json(json.loads(json.dumps(to_json(network)))) == network


@pytest.mark.parametrize(
    "document",
    [
        *(None, [], {}, {"switches": [], "hosts": [], "links": [{"ends": [1, 2], "rates_bit_s": [None, None]}]}),
        {"switches": [], "hosts": [], "links": [{"ends": ["s1", "s2"], "rates_bit_s": [None, None]}]},
    ],
)
def test_other_json_is_rejected(document: object) -> None:
    with pytest.raises(WrongUse, match="not a topology"):
        from_json(document)
