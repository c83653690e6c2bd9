# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Who is in a cluster, and who is measured with whom."""

from itertools import pairwise
from pathlib import Path

import pytest
from synthetic_cluster import names
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.cli.host_slots import host_slots_of
from barewire.cluster import ClusterHost, read_cluster_file, write_cluster_file
from barewire.cluster.doctors import unlike_others
from barewire.cluster.nodelist import expand_nodelist
from barewire.cluster.survey import choose, parse
from barewire.cluster.tournament import permutations, tournament
from barewire.errors import WrongUse


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16])
def test_every_pair_meets_once_and_no_host_plays_twice_in_a_round(count: int) -> None:
    rounds = tournament(names(count))
    for pairs in rounds:
        players = [host for pair in pairs for host in pair]
        assert len(set(players)) == len(players) == count - count % 2
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(set(met)) == len(met) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [2, 5, 16])
def test_in_a_permutation_each_host_sends_once_and_receives_once(count: int) -> None:
    found = permutations(names(count), 6)
    assert len(found) == min(6, count - 1)
    for paths in found:
        assert {sender for sender, _ in paths} == {receiver for _, receiver in paths} == {*names(count)}
        assert all(sender != receiver for sender, receiver in paths)
    assert all(first != second for first, second in pairwise(found))


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a,b", "a,b"),
        ("node[01-03]", "node01,node02,node03"),
        ("n[9-10,12],login", "n9,n10,n12,login"),
        ("r[1-2]n[0-1]-ib", "r1n0-ib,r1n1-ib,r2n0-ib,r2n1-ib"),
    ],
)
def test_a_nodelist_is_expanded(text: str, expanded: str) -> None:
    assert expand_nodelist(text) == expanded


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1[", "n[3-1]", "n[a]", "n[1-99999]", "n[1-9999]r[1-9999]", "n[]", f"n[{'9' * 5000}]"]
)
def test_a_wrong_nodelist_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match=r"write it like|must rise|more than"):
        expand_nodelist(text)


def test_a_file_is_read_as_it_was_written_and_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    hosts = [ClusterHost("a", "eth1", 10_000, 9000, ("eth0: up, 1000 Mbit/s", 'odd "name"')), ClusterHost("b", "eth0")]
    write_cluster_file(file, hosts, force=False)
    assert read_cluster_file(file) == hosts
    with pytest.raises(WrongUse, match="--force"):
        write_cluster_file(file, hosts, force=False)
    write_cluster_file(file, hosts[:1], force=True)
    assert read_cluster_file(file) == hosts[:1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hosts = 3",
        "hosts = [1]",
        "[[hosts]]\nname = 'a'",
        "[[hosts]]\nname = 'a'\ninterface = 'e'\nmtu = 'x'",
        *(
            f"[[hosts]]\nname = 'a'\ninterface = 'e'\n{key} = {value}"
            for key in ("speed_mbit_s", "mtu")
            for value in ("0", "-5", "true", "1.5")
        ),
        *(f"[[hosts]]\nname = '{name}'\ninterface = 'e'" for name in ("", "-oProxyCommand=x", "a b", "a,b")),
        "[[hosts]]\nname = 'a'\ninterface = 'e'\ninterfaces = 'x'",
        "[[hosts]]\nname = 'a'\ninterface = 'e'\n" * 2,
        "[[",
    ],
)
def test_a_wrong_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    with pytest.raises(WrongUse, match=r"cluster\.toml"):
        read_cluster_file(file)
    with pytest.raises(WrongUse, match="cluster init"):
        read_cluster_file(tmp_path / "absent.toml")


INTERFACES = """\
Welcome to a!
barewire-interface: eth0 1 up 1500 1000 1 0 0
barewire-interface: eth1 1 up 9000 25000 1 0 0
barewire-interface: gone0 - - - - 0 0 0
barewire-interface: eth2 1 down 1500 -1 1 0 0
barewire-interface: bond0 1 up 1500 50000 0 0 0
barewire-interface: eth3 1 up 1500 25000 1 1 0
barewire-interface: docker0 1 up 1500 - 0 0 0
barewire-interface: wlan0 1 up 1500 - 1 0 1
barewire-interface: lo 772 unknown 65536 - 0 0 0

Bye, and a line of eight words or more
"""


def test_the_fastest_interface_that_is_up_is_chosen() -> None:
    """Of devices, without members of a bond and radio; a name overrides that."""
    found = parse(INTERFACES)
    chosen = choose("a", found, None)
    assert (chosen.interface, chosen.speed_mbit_s, chosen.mtu) == ("eth1", 25_000, 9000)
    assert choose("a", found, "bond0").speed_mbit_s == 50_000
    for absent in ("lo", "eth3", "eth9"):
        with pytest.raises(WrongUse, match=r"a has no .*eth0: up, 1000 Mbit/s"):
            choose("a", found, absent)


def test_only_what_few_doctors_do_not_like_is_a_remark() -> None:
    examined = {name: {"SMT": "on"} for name in names(6)}
    examined["h2"] = {"SMT": "on", "frequency governor": "powersave; fix: performance"}
    remark = "doctor, only on h2: frequency governor: powersave; fix: performance"
    assert unlike_others(examined) == [remark]


@pytest.mark.parametrize("text", ["ssh 'x", "", " "])
def test_a_remote_shell_that_is_no_command_is_refused(text: str) -> None:
    for arguments in (["cluster", "init"], ["bench", "pingpong"]):
        done = CliRunner().invoke(app, [*arguments, "--hosts", "localhost,127.0.0.1", "--remote-shell", text])
        assert isinstance(done.exception, WrongUse) and str(done.exception).startswith("--remote-shell ")


@pytest.mark.parametrize("name", ["a..b", "a" * 64 + ".b"])
def test_what_cannot_be_a_hosts_name_is_refused(name: str) -> None:
    with pytest.raises(WrongUse, match=f"'{name}' is not a host's name"):
        host_slots_of(name, None, None)
