# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The doctor parses the kernel's files correctly, reports problems only with a fix, and covers this machine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from barewire.cli.doctor import doctor, render
from barewire.doctor import Finding, Status, exit_code, to_document, verdict
from barewire.doctor.carriers import judge_frames, judge_udp, wired
from barewire.doctor.features import judge_attempts
from barewire.doctor.interfaces import Interface, judge, summarise_offloads
from barewire.doctor.machine import decode_capabilities, decode_cpu_list, decode_release, machine_findings
from barewire.doctor.mpi import judge as judge_path
from barewire.doctor.software import describe_version, libfabric_version
from barewire.doctor.xdp import judge_modes
from barewire.mpi.explain import Row

GOOD = Finding("kernel", "veth", Status.OK, "tried: works", essential=True)
POOR = Finding("cores", "SMT", Status.WARNING, "on", "echo off > control")
BAD = Finding("lab", "lab: pair", Status.MISSING, "no [veth]", "modprobe veth", essential=True)


def test_capabilities_are_named_by_their_bits() -> None:
    assert decode_capabilities(0) == []
    assert decode_capabilities(1 << 13 | 1 << 12 | 1 << 21) == ["NET_ADMIN", "NET_RAW", "SYS_ADMIN"]
    assert decode_capabilities((1 << 41) - 1)[-1] == "CHECKPOINT_RESTORE"
    assert decode_capabilities(1 << 60) == ["60"]


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-1", [0, 1]), ("0,2-4,9\n", [0, 2, 3, 4, 9]), ("", []), ("7", [7]), ("\n", [])]
)
def test_lists_of_cores_are_parsed(text: str, cpus: list[int]) -> None:
    assert decode_cpu_list(text) == cpus


@pytest.mark.parametrize(
    ("release", "version"), [("6.1.0-13-amd64", (6, 1)), ("6.18.44-fc", (6, 18)), ("5.8-rc1", (5, 8)), ("7.0+", (7, 0))]
)
def test_kernel_releases_are_parsed(release: str, version: tuple[int, int]) -> None:
    assert decode_release(release) == version


def test_a_problem_without_a_fix_cannot_be_created() -> None:
    with pytest.raises(ValueError, match="without a fix"):
        Finding("cores", "SMT", Status.WARNING, "on")


def test_carriers_of_mpi_are_reported_with_what_opens_them() -> None:
    assert judge_frames(None, ["eth0", "eth1"]).detail.endswith("eth0, eth1")
    refused = judge_frames("no right to raw Ethernet frames", ["eth0"])
    assert refused.status is Status.WARNING and "UDP instead" in refused.detail and "setcap" in refused.fix
    assert judge_frames(None, []).status is Status.WARNING
    assert "192.0.2.2" in judge_udp(["192.0.2.2"]).detail and judge_udp([]).fix


def test_interfaces_with_a_carrier_are_found_but_no_bridges(tmp_path: Path) -> None:
    for name, kind, carrier in (("eth0", 1, 1), ("eth1", 1, 0), ("tun0", 65534, 1), ("br0", 1, 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(f"{kind}\n")
        (tmp_path / name / "carrier").write_text(f"{carrier}\n")
    (tmp_path / "br0" / "bridge").mkdir()
    assert wired(tmp_path) == ["eth0"]
    assert wired(tmp_path / "none") == []


def test_modes_of_af_xdp_are_reported_with_why_the_others_fail() -> None:
    some = judge_modes("eth0", {"generic": "", "native": "", "zero-copy": "Operation not supported"})
    assert some.status is Status.OK
    assert some.detail == "tried: generic, native works; no zero-copy (Operation not supported)"
    none = judge_modes("eth0", {"generic": "no such thing"})
    assert none.status is Status.MISSING and "nothing works" in none.detail and none.fix


def test_a_path_that_ranks_did_not_take_is_missing_with_the_last_output() -> None:
    rows = [Row("layer", "pml ob1", ""), Row("provider", "tcp", "", wrong="ranks 0, 1 did not load it")]
    found = judge_path("openmpi over barewire", rows, "first\nno pml\n")
    assert found.status is Status.MISSING and found.fix
    assert found.detail == "provider: ranks 0, 1 did not load it; last output: no pml"
    assert judge_path("openmpi over barewire", [replace(row, wrong="") for row in rows], "").status is Status.OK


def test_only_what_is_essential_and_missing_ends_with_code_3() -> None:
    optional = Finding("kernel", "AF_XDP socket", Status.MISSING, "no", "another kernel")
    assert exit_code([GOOD, POOR, optional]) == 0
    assert exit_code([GOOD, BAD]) == 3
    assert verdict([GOOD, POOR, optional]).endswith("(1 warning, 1 missing).")
    assert "cannot" in verdict([GOOD, BAD]) and "lab: pair" in verdict([GOOD, BAD])


def test_the_table_shows_every_finding_and_fix_and_escapes_markup() -> None:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(render([GOOD, POOR, BAD]))
    text = console.export_text()
    for part in ("tried: works", "echo off > control", "no [veth]", "modprobe veth", "missing"):
        assert part in text


def test_a_badly_configured_machine_gets_warnings(tmp_path: Path) -> None:
    """With a synthetic /sys each setting that slows small messages is a warning with the command that fixes it."""
    files = {
        "sys/devices/system/cpu/online": "0-3",
        "sys/devices/system/cpu/isolated": "",
        "sys/devices/system/cpu/smt/active": "1",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "800000",
        "sys/devices/system/cpu/cpu0/cpuidle/state1/name": "C6",
        "sys/devices/system/cpu/cpu0/cpuidle/state1/latency": "133",
        "sys/devices/system/cpu/cpu0/cpuidle/state1/disable": "0",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
        "proc/sys/net/core/rmem_max": "212992",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    findings = {finding.what: finding for finding in machine_findings(tmp_path)}
    for what, fix in {
        "isolation": "isolcpus",
        "SMT": "smt/control",
        "frequency governor": "performance",
        "C-states": "idle-set",
        "clock source": "clocksource=tsc",
        "net.core.rmem_max": "sysctl -w net.core.rmem_max=",
    }.items():
        assert findings[what].status is Status.WARNING and fix in findings[what].fix


def test_a_machine_that_exposes_nothing_gets_no_warnings(tmp_path: Path) -> None:
    findings = {finding.what: finding for finding in machine_findings(tmp_path)}
    for what in ("SMT", "frequency governor", "C-states"):
        assert findings[what].status is Status.OK and "not exposed" in findings[what].detail


def test_attempts_that_failed_or_did_not_run_are_missing() -> None:
    names = ("veth", "bridge", "tbf", "clock", "netem", "htb", "packet_ring", "qdisc_bypass", "xdp_socket")
    worked = {name: "" for name in names}
    assert {finding.status for finding in judge_attempts(worked)} == {Status.OK}
    without = {finding.what: finding for finding in judge_attempts(worked | {"tbf": "No such file or directory"})}
    assert without["tbf"].status is Status.MISSING and "sch_tbf" in without["tbf"].fix
    never = judge_attempts({}, "unshare(1) is missing")
    assert {finding.status for finding in never} == {Status.MISSING} and exit_code(never) == 3


def test_a_card_that_delays_interrupts_gets_a_warning_and_a_virtual_one_is_marked() -> None:
    card = Interface("eth1", "ixgbe", True, "up", 1500, 10_000, ("tx-tcp-segmentation",), 50, True, (512, 4096))
    assert judge(card).status is Status.WARNING and "ethtool -C eth1" in judge(card).fix
    assert "512 of 4096" in judge(card).detail and "10000 Mbit/s" in judge(card).detail
    veth = Interface("eth0", "", False, "up", 1500, None, (), None, None, None)
    assert judge(veth).status is Status.OK and judge(veth).detail.startswith("virtual")


def test_offloads_are_summarised() -> None:
    assert summarise_offloads([]) == []
    assert summarise_offloads(["tx-tcp6-segmentation", "rx-gro", "rx-checksum"]) == [
        "segmentation",
        "checksum",
        "receive merging",
    ]


def test_versions_are_found_in_the_output_of_programs() -> None:
    assert describe_version("mpirun (Open MPI) 4.1.4\n\nReport bugs to …") == "mpirun (Open MPI) 4.1.4"
    assert describe_version("HYDRA build details:\n    Version:    4.0.2\n") == "Version:    4.0.2"
    assert describe_version("") == "version unknown"
    assert libfabric_version("libfabric.so.1.18.1") == "ABI 1.18.1"


def test_the_json_document_is_complete_on_this_machine() -> None:
    app = typer.Typer()
    app.command()(doctor)
    result = CliRunner().invoke(app, ["--json"])
    document = json.loads(result.stdout)
    assert document == to_document(
        [Finding(**item | {"status": Status(item["status"])}) for item in document["findings"]]
    )
    assert result.exit_code == (0 if document["ready"] else 3)
    assert {item["area"] for item in document["findings"]} >= {
        "cores",
        "kernel",
        "privilege",
        "lab",
        "network",
        "software",
        "MPI",
    }
    found = {item["what"] for item in document["findings"]}
    expected = (
        "cores, isolation, SMT, frequency governor, C-states, clock source, Linux, capabilities, net.core.rmem_max, "
    )
    expected += "net.core.busy_poll, user namespaces, veth, bridge, tbf, htb, AF_PACKET with a mapped TPACKET_V2 ring, "
    expected += "AF_XDP socket, libfabric, cargo, cc"
    assert found >= set(expected.split(", "))
    assert all(item["fix"] or item["status"] == "ok" for item in document["findings"])
