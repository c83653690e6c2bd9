# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire cluster` in labs with seeded faults and without, over frames, UDP and ssh. `make cluster` has more."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cluster_site import ADDRESSES, standing_cluster
from conftest import PROBE, ROOT, barewire, stand_up

from barewire.lab import LinkSpec

pytestmark = pytest.mark.usefixtures("lab_allowed")

TOOL = str(ROOT / "tools" / "cluster.py")
CHECK = ("cluster", "check", "--no-doctor", "--json")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--hosts", "3", "--clean", "0", "mtu_of_port"),
        pytest.param(("--hosts", "4", "--clean", "1", "drops_transmit", "duplex"), marks=pytest.mark.matrix),
    ],
    ids=lambda arguments: "-".join(arguments[4:]),
)
def test_seeded_faults_are_named_once_and_a_clean_cluster_is_not_blamed(arguments: tuple[str, ...]) -> None:
    """Loss, loss under load from both sides, a short MTU on the way; the tool compares kind, host and direction."""
    command = [sys.executable, TOOL, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    if "not possible" in done.stdout:
        pytest.skip("no packet filters on this kernel's interfaces (CONFIG_NF_TABLES_NETDEV)")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_check_leaves_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    with stand_up("star:3", LinkSpec(mtu=1400)) as lab:
        done = barewire(*CHECK, "--lab", lab.id, "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["findings"] == [] and len(document["paths"]) == 6
    assert {path["mtu_passed"] for path in document["paths"]} == {1400}
    assert all(path["bandwidth_bit_s"] > 0 and path["lost"] == 0 for path in document["paths"])
    assert json.loads((tmp_path / "check.json").read_text())["paths"] == document["paths"]
    page = (tmp_path / "check.html").read_text()
    assert (
        "Nothing is wrong" in page
        and "h1 to h2: " in page
        and not re.search(r"(src|href|url)[=(]\"?(https?:|//)", page)
    )


def test_without_the_right_to_frames_udp_measures_the_same() -> None:
    with stand_up("star:3") as lab:
        done = barewire(*CHECK, "--lab", lab.id, "--link", "udp", "-o", str(lab.directory / "check"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {host["carrier"] for host in document["hosts"].values()} == {"udp"}
    assert all(path["bandwidth_bit_s"] > 0 for path in document["paths"])


def test_hosts_are_asked_and_measured_through_ssh() -> None:
    """A real sshd on each of two hosts: init writes what it finds, check reads it."""
    with standing_cluster() as cluster:
        cluster.allow_ssh()
        # A login that is not interactive has a short PATH.
        cluster.put_program("shell", f'host=$1; shift; exec ssh "$host" "PATH={Path(PROBE).parent}:$PATH; $*"')
        file = cluster.folder / "cluster.toml"
        shell = ("--remote-shell", str(cluster.programs / "shell"))
        init = ("cluster", "init", *shell, "--hosts", ADDRESSES, "-o", str(file))
        done = cluster.barewire(*init)
        assert done.returncode == 0, done.stderr
        hosts = tomllib.loads(file.read_text())["hosts"]
        assert [(host["name"], host["interface"], host["mtu"]) for host in hosts] == [
            (address, "eth0", 1500) for address in ADDRESSES.split(",")
        ]
        refused = cluster.barewire(*init)
        assert refused.returncode == 2 and "--force" in refused.stderr
        done = cluster.barewire(*CHECK, str(file), *shell, "-o", str(cluster.folder / "check"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(json.loads(done.stdout)["paths"]) == 2
        # A datagram's payload is shorter than the MTU that the file expects.
        done = cluster.barewire(*CHECK, str(file), *shell, "--link", "udp", "-o", str(cluster.folder / "udp"))
        assert done.returncode == 0, done.stdout + done.stderr
        # Nobody answers there.
        absent = cluster.barewire("cluster", "init", *shell, "--hosts", "10.77.0.9", "-o", str(cluster.folder / "no"))
        assert absent.returncode == 1 and "10.77.0.9 cannot be asked" in absent.stderr
        done = cluster.barewire(
            *CHECK, "--hosts", f"{ADDRESSES},10.77.0.9", *shell, "-o", str(cluster.folder / "three")
        )
        document = json.loads(done.stdout)
        assert done.returncode == 1 and [*document["unreachable"]] == ["10.77.0.9"] and len(document["paths"]) == 2
