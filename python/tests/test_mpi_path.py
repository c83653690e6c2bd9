# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Placement of ranks, path settings of every library, and detection of paths that differ."""

import json
import os
import re
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barewire.errors import MachineCannot, WrongUse
from barewire.mpi import FabricOptions, Family, HostSlots, Job, Library, parse_hostfile, parse_hosts, rights, spread
from barewire.mpi import libraries as mpi_libraries
from barewire.mpi.explain import Evidence, Report, read_evidence, read_report, rows
from barewire.mpi.fabrics import (
    LINK,
    YIELD_FILE,
    Setting,
    fabric_settings,
    own_core_settings,
    provider_folder,
    provider_settings,
    yield_settings,
)
from barewire.mpi.libraries import find_library, library_of_program, read_version
from barewire.mpi.pin import share
from barewire.mpi.placement import LOCAL_HOST
from barewire.mpi.prepare import is_crowded, prepare
from barewire.mpi.version_cache import store_version
from barewire.mpi.witness import MARK

OPEN_MPI_4 = Library("openmpi", Family.OPEN_MPI, "4.1.4", Path("/usr/lib/libmpi.so.40"))
OPEN_MPI_5 = replace(OPEN_MPI_4, name="openmpi-5", version="5.0.11")
MPICH = Library("mpich-5", Family.MPICH, "5.0.2", Path("/opt/mpich/lib/libmpi.so.12"), ("ucx", "ofi"))
MPICH_UCX = replace(MPICH, name="mpich", version="4.0.2", netmods=("ucx",))
INTEL = Library("intel", Family.INTEL, "2021.18.1", Path("/opt/intel/lib/libmpi.so.12"), ("ofi",))
TOKEN = "0123456789abcdef"
SECRET = "fedcba9876543210" * 4


def settings(library: Library, fabric: str, **options: Any) -> dict[str, str]:
    requested = FabricOptions(fabric, options.pop("interface", None))
    options = {"one_host": False, "lab": False} | options
    return {setting.name: setting.value for setting in fabric_settings(library, requested, **options)}


@pytest.mark.parametrize(
    ("ranks", "hosts", "shares"),
    [
        (4, "a,b", [("a", 2), ("b", 2)]),
        (5, "a,b", [("a", 3), ("b", 2)]),
        (1, "a,b", [("a", 1)]),
        (5, "a:4,b:4", [("a", 4), ("b", 1)]),
        (2, "a:1,b", [("a", 1), ("b", 1)]),
    ],
)
def test_ranks_are_spread_evenly_or_by_the_hosts_slots(ranks: int, hosts: str, shares: list[tuple[str, int]]) -> None:
    assert spread(ranks, parse_hosts(hosts)) == shares


def test_hostfiles_are_parsed_in_the_formats_of_launchers() -> None:
    text = "# two racks\na\nb:2 # two\n\nc slots=3\n"
    assert parse_hostfile(text, "f") == [HostSlots("a"), HostSlots("b", 2), HostSlots("c", 3)]
    assert parse_hostfile("a\na\nb slots=2 max_slots=4\na\n", "f") == [HostSlots("a", 3), HostSlots("b", 2)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: spread(9, parse_hosts("a:4,b:4")),
        lambda: parse_hosts("a,,b"),
        lambda: parse_hosts("a;rm"),
        lambda: parse_hosts("-x"),
        lambda: parse_hosts("a,a"),
        lambda: parse_hostfile("# nothing\n", "f"),
        lambda: FabricOptions("token-ring"),
        lambda: FabricOptions("ofi-"),
        lambda: FabricOptions("tcp", wait="spin"),
        lambda: FabricOptions("barewire", wait="sleep"),
        lambda: FabricOptions("barewire", link="dpdk"),
        lambda: settings(OPEN_MPI_4, "shm"),
    ],
)
def test_invalid_placements_are_wrong_use(wrong: Any) -> None:
    with pytest.raises(WrongUse):
        wrong()


@pytest.mark.parametrize(
    ("text", "family", "version", "netmods"),
    [
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", Family.OPEN_MPI, "4.1.4", ()),
        ("MPICH Version:\t4.0.2\nMPICH Device:\tch4:ucx\n", Family.MPICH, "4.0.2", ("ucx",)),
        ("MPICH Version:      5.0.2\nMPICH Device:       ch4:ucx ofi\n", Family.MPICH, "5.0.2", ("ucx", "ofi")),
        ("Intel(R) MPI Library 2021.18.1 for Linux* OS\n", Family.INTEL, "2021.18.1", ("ofi",)),
    ],
)
def test_libraries_are_identified_by_their_version_strings(
    text: str, family: Family, version: str, netmods: tuple[str, ...]
) -> None:
    library = read_version(text, Path("libmpi.so"))
    assert library is not None
    assert (library.family, library.version, library.netmods) == (family, version, netmods)
    assert read_version("LAM 7.1", Path("libmpi.so")) is None


def test_each_library_gets_its_own_settings_for_barewire() -> None:
    for library, layers in ((OPEN_MPI_4, "vader,self"), (OPEN_MPI_5, "ofi,sm,self")):
        variables = settings(library, "barewire")
        assert (variables["OMPI_MCA_pml"], variables["OMPI_MCA_mtl"]) == ("cm", "ofi")
        assert variables["OMPI_MCA_mtl_ofi_provider_include"] == variables["FI_PROVIDER"] == "barewire"
        assert variables["OMPI_MCA_btl"] == layers, "with tcp there, one-sided operations would take it"
    alone = {name: settings(OPEN_MPI_5, name, one_host=True)["OMPI_MCA_btl"] for name in ("barewire", "ofi-tcp")}
    assert alone == {"barewire": "sm,self", "ofi-tcp": "ofi,sm,self"}, "btl ofi sleeps a second at its end"
    assert settings(MPICH, "barewire") == {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "barewire"}
    assert settings(INTEL, "barewire")["I_MPI_FABRICS"] == "shm:ofi"


def test_survivors_continue_under_open_mpi_5_with_the_layers_that_handle_failures() -> None:
    def variables(library: Library, fabric: str) -> dict[str, str]:
        made = fabric_settings(library, FabricOptions(fabric, ulfm=True), one_host=False, lab=False)
        return {setting.name: setting.value for setting in made}

    ours = variables(OPEN_MPI_5, "barewire")
    assert (ours["OMPI_MCA_pml"], ours["OMPI_MCA_btl"], ours["OMPI_MCA_btl_ofi_mode"]) == ("ob1", "ofi,sm,self", "2")
    assert ours["OMPI_MCA_btl_ofi_provider_include"] == ours["FI_PROVIDER"] == "barewire"
    assert not [name for name in ours if "_mtl" in name]
    assert variables(OPEN_MPI_5, "tcp")["OMPI_MCA_btl"] == "tcp,sm,self"
    for library, fabric in (
        (OPEN_MPI_4, "barewire"),
        (MPICH, "barewire"),
        (OPEN_MPI_5, "ucx"),
        (OPEN_MPI_5, "ofi-tcp"),
    ):
        with pytest.raises(MachineCannot, match="Open MPI 5"):
            variables(library, fabric)


def test_a_library_without_the_path_is_rejected_with_advice() -> None:
    with pytest.raises(MachineCannot, match="mpich-5"):
        settings(MPICH_UCX, "barewire")
    with pytest.raises(MachineCannot, match="InfiniBand"):
        settings(INTEL, "ucx")


def test_the_interface_applies_to_every_fabric() -> None:
    assert settings(OPEN_MPI_4, "tcp", interface="eth1")["OMPI_MCA_btl_tcp_if_include"] == "eth1"
    assert settings(MPICH, "tcp", interface="eth1")["FI_TCP_IFACE"] == "eth1"
    assert settings(MPICH, "ucx", interface="eth1")["UCX_NET_DEVICES"] == "eth1"
    # Of several libfabric's tcp and udp take one name; any other text would stand for all interfaces.
    assert settings(OPEN_MPI_4, "tcp", interface="eth1,eth2")["OMPI_MCA_btl_tcp_if_include"] == "eth1,eth2"
    assert settings(MPICH, "tcp", interface="eth1,eth2")["FI_TCP_IFACE"] == "eth1"
    assert settings(MPICH, "udp", interface="eth1,eth2")["FI_UDP_IFACE"] == "eth1"


def test_in_a_lab_ucx_does_not_use_shared_memory_between_hosts() -> None:
    assert settings(MPICH_UCX, "tcp")["UCX_TLS"] == "tcp,self,sm"
    assert settings(MPICH_UCX, "tcp", lab=True)["UCX_TLS"] == "tcp,self"


def test_options_override_the_environment_which_overrides_defaults() -> None:
    def decide(requested: FabricOptions, environment: dict[str, str]) -> dict[str, tuple[str, str]]:
        found = provider_settings(requested, environment, interface="eth0", crowded=True, token=TOKEN, secret=SECRET)
        return {setting.name.removeprefix("FI_BAREWIRE_"): (setting.value, setting.source) for setting in found}

    given = {"FI_BAREWIRE_INTERFACE": "eth1", "FI_BAREWIRE_WAIT": "block", "FI_BAREWIRE_TOKEN": "ff"}
    assert decide(FabricOptions(), {})["INTERFACE"] == ("eth0", "lab")
    assert decide(FabricOptions(), {})["WAIT"] == ("adaptive", "more ranks than cores")
    assert decide(FabricOptions(), {})["TOKEN"] == (TOKEN, "generated for this run")
    assert decide(FabricOptions(), given)["INTERFACE"] == ("eth1", "environment")
    assert decide(FabricOptions(wait="spin"), given)["WAIT"] == ("spin", "--wait")
    assert decide(FabricOptions(progress="auto"), given)["PROGRESS"] == ("auto", "--progress")
    assert "PROGRESS" not in decide(FabricOptions(), {})
    assert decide(FabricOptions(), given)["TOKEN"] == ("ff", "environment")


def test_only_authenticated_jobs_have_a_secret() -> None:
    def decide(requested: FabricOptions, **environment: str) -> dict[str, tuple[str, str]]:
        given = {f"FI_BAREWIRE_{name}": value for name, value in environment.items()}
        found = provider_settings(requested, given, interface=None, crowded=False, token=TOKEN, secret=SECRET)
        return {setting.name.removeprefix("FI_BAREWIRE_"): (setting.value, setting.source) for setting in found}

    drawn = (SECRET, "generated for this run")
    assert not {"AUTH", "SECRET"} & decide(FabricOptions()).keys()
    assert decide(FabricOptions(auth="job"))["SECRET"] == drawn
    assert decide(FabricOptions(auth="encrypt"))["AUTH"] == ("encrypt", "--auth")
    assert decide(FabricOptions(), AUTH="job") | {"TOKEN": drawn} == {
        "AUTH": ("job", "environment"),
        "SECRET": drawn,
        "TOKEN": drawn,
    }
    assert decide(FabricOptions(), AUTH="job", SECRET="ab" * 16)["SECRET"] == ("ab" * 16, "environment")
    assert "SECRET" not in decide(FabricOptions(auth="none"), AUTH="job", SECRET="ab" * 16)
    assert "SECRET" not in decide(FabricOptions(), AUTH="", SECRET="ab" * 16)
    for wrong in ("ab" * 15, "ab" * 65, "ab" * 16 + "a", "xy" * 16):
        with pytest.raises(WrongUse, match="32 to 128 hexadecimal digits") as refused:
            decide(FabricOptions(auth="job"), SECRET=wrong)
        assert wrong not in str(refused.value)
    with pytest.raises(WrongUse, match="none, job, encrypt"):
        decide(FabricOptions(), AUTH="yes")
    with pytest.raises(WrongUse, match="unknown --auth"):
        FabricOptions(auth="yes")
    with pytest.raises(WrongUse, match="--auth applies to --fabric barewire only"):
        FabricOptions("tcp", auth="job")


def test_ranks_with_a_core_each_keep_it_under_a_library_that_yields_forever(tmp_path: Path) -> None:
    kept = tmp_path / "libbarewire-yield.so"
    assert own_core_settings(MPICH, {}, tmp_path) == [], "not built: nothing to preload"
    kept.touch()
    assert own_core_settings(MPICH, {}, tmp_path) == [Setting("LD_PRELOAD", str(kept), "a core for each rank")]
    assert own_core_settings(MPICH, {"LD_PRELOAD": "/a.so"}, tmp_path)[0].value == f"{kept}:/a.so"
    assert own_core_settings(OPEN_MPI_4, {}, tmp_path) == own_core_settings(INTEL, {}, tmp_path) == []


def test_a_missing_provider_is_reported_with_its_fix(tmp_path: Path) -> None:
    with pytest.raises(MachineCannot, match="make build"):
        provider_folder({}, tmp_path)
    (tmp_path / "libbarewire-fi.so").touch()
    assert provider_folder({}, tmp_path) == Setting("FI_PROVIDER_PATH", str(tmp_path), "this checkout")
    with pytest.raises(MachineCannot, match="FI_PROVIDER_PATH"):
        provider_folder({"FI_PROVIDER_PATH": "/nowhere:/either"}, tmp_path)


def test_a_list_of_provider_folders_is_kept_whole(tmp_path: Path) -> None:
    """As modulefiles make it, and libfabric reads it; an empty one names none."""
    (tmp_path / "libbarewire-fi.so").touch()
    several = f"/theirs:{tmp_path}"
    assert provider_folder({"FI_PROVIDER_PATH": several}, Path("/none")).value == several
    assert provider_folder({"FI_PROVIDER_PATH": ""}, tmp_path).source == "this checkout"


def test_libraries_in_a_path_that_the_loader_would_split_are_not_preloaded(tmp_path: Path) -> None:
    for name in ("with space", "with:colon"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / YIELD_FILE).touch()
        assert own_core_settings(MPICH, {}, folder) == []


@pytest.mark.parametrize(
    ("cpus", "count", "shares"), [([2, 3], 2, [[2], [3]]), ([1, 2, 3], 2, [[1], [2]]), ([5], 3, [[5]] * 3)]
)
def test_ranks_of_a_host_share_its_cores(cpus: list[int], count: int, shares: list[list[int]]) -> None:
    assert [share(cpus, rank, count) for rank in range(count)] == shares


def job(library: Library = OPEN_MPI_4, fabric: str = "barewire", **options: Any) -> Job:
    requested = FabricOptions(fabric)
    chosen = fabric_settings(library, requested, one_host=False, lab=False)
    if fabric == "barewire":
        chosen += provider_settings(requested, {}, interface=None, crowded=False, token=TOKEN, secret=SECRET)
    return Job(library, (("a", 1), ("b", 1)), tuple(chosen), ("prog",), **options)


def witnessed(library: Library, **differing: Any) -> list[dict[str, Any]]:
    files = [str(library.file.resolve()), "/x/libbarewire-fi.so", "/x/libfabric.so.1"]
    facts = {"files": files, "packet": {"eth0": 1500}, "udp": {}, "xdp": False, "tcp_peers": [], "libfabric": "1.17"}
    facts["auth"] = "none"
    ends = [{"own": ["1"], "reached": {"2": "frames"}}, {"own": ["2"], "reached": {"1": "frames"}}]
    return [{"rank": 0, "host": "a", **facts, **ends[0]}, {"rank": 1, "host": "b", **facts, **ends[1], **differing}]


GOOD = Report(frozenset({"pml cm", "mtl ofi"}), frozenset({"barewire"}))


def wrong_rows(evidence: Evidence) -> list[str]:
    return [row.what for row in rows(job(), FabricOptions(), "", evidence) if row.wrong]


def test_the_requested_path_is_confirmed() -> None:
    assert wrong_rows(Evidence(witnessed(OPEN_MPI_4), GOOD)) == []


@pytest.mark.parametrize(
    ("differing", "report", "what"),
    [
        ({"files": [str(OPEN_MPI_4.file.resolve())]}, GOOD, ["provider"]),
        ({"files": ["/x/libmpi.so.40", "/x/libbarewire-fi.so"]}, GOOD, ["library"]),
        ({"packet": {}}, GOOD, ["interface"]),
        ({}, replace(GOOD, providers=frozenset({"tcp;ofi_rxm"})), ["provider"]),
        ({}, replace(GOOD, layers=frozenset({"pml ob1", "btl tcp"})), ["layer"]),
    ],
)
def test_a_silently_different_path_is_detected(differing: dict[str, Any], report: Report, what: list[str]) -> None:
    assert wrong_rows(Evidence(witnessed(OPEN_MPI_4, **differing), report)) == what


def test_who_is_reached_by_udp_and_why_is_shown() -> None:
    def rows_of(**second: Any) -> dict[str, Any]:
        facts = witnessed(OPEN_MPI_4, reached={"1": "udp"}, udp={"eth0": 1500}, **second)
        facts[0] |= {"reached": {"2": "udp"}}
        return {row.what: row for row in rows(job(), FabricOptions(), "", Evidence(facts, GOOD))}

    table = rows_of()
    assert (table["link"].taken, table["by UDP"].taken) == ("udp", "a–b")
    assert "do not get through" in table["by UDP"].source and not any(row.wrong for row in table.values())
    table = rows_of(packet={})
    assert "no right to frames on b" in table["by UDP"].source and "get through" not in table["by UDP"].source
    assert "by UDP" not in {row.what for row in rows(job(), FabricOptions(), "", Evidence(witnessed(OPEN_MPI_4), GOOD))}


def carriers(reached: dict[str, dict[str, str]], link: str = "auto") -> dict[str, tuple[str, str]]:
    """The rows of carriers; a rank's address begins with the number of its host."""
    facts = witnessed(OPEN_MPI_4)[0]
    ranks = [
        {**facts, "rank": number, "host": f"h{name.partition('.')[0]}", "own": [name], "reached": peers}
        for number, (name, peers) in enumerate(reached.items())
    ]
    settings = (*job().settings, Setting(LINK, link, "--link"))
    table = rows(replace(job(), settings=settings), FabricOptions(link=link), "", Evidence(ranks, GOOD))
    return {row.what: (row.taken, row.source) for row in table if row.what.startswith("by ")}


def test_every_pair_of_hosts_is_listed_with_its_carrier_and_why_none_is_quicker() -> None:
    found = carriers(
        {
            "1.1": {"1.2": "memory", "2": "frames", "3": "frames*2", "4": "frames+udp", "5": "udp", "6": "none"},
            "1.2": {"1.1": "memory"},
            **{host: {} for host in "23456"},
        }
    )
    assert {what: pair for what, (pair, _) in found.items()} == {
        "by memory": "h1",
        "by frames": "h1–h2",
        "by several interfaces": "h1–h3",
        "by frames and UDP": "h1–h4",
        "by UDP": "h1–h5",
        "by nothing": "h1–h6",
    }
    assert "offloads" in found["by frames"][1] and "get through" in found["by UDP"][1]


def test_a_pair_counts_for_the_slower_of_its_carriers() -> None:
    assert list(carriers({"1": {"2": "frames"}, "2": {"1": "udp"}})) == ["by UDP"]


def test_a_requested_link_is_why_there_is_no_other_carrier() -> None:
    (by_udp,) = carriers({"1": {"2": "udp"}, "2": {}}, link="udp").values()
    assert by_udp[1].startswith("--link udp: frames")
    (by_frames,) = carriers({"1": {"2": "frames"}, "2": {}}, link="packet").values()
    assert by_frames[1].startswith("--link packet: ")


@pytest.mark.parametrize(("by_udp", "rest"), [(8, "all pairs not listed"), (9, "h11–h12, ")])
def test_pairs_of_the_commonest_carrier_are_the_others_if_these_are_all_listed(by_udp: int, rest: str) -> None:
    hosts = [str(number) for number in range(10, 20)]
    reached = {
        host: {peer: "udp" if host == "10" and int(peer) <= 10 + by_udp else "frames" for peer in hosts if peer > host}
        for host in hosts
    }
    found = carriers(reached)
    assert found["by frames"][0].startswith(rest)
    assert found["by UDP"][0].startswith("h10–h11, ")
    assert found["by UDP"][0].endswith("h10–h18" if by_udp == 8 else "h10–h18 and 1 more")


def test_another_link_than_the_requested_one_is_detected() -> None:
    facts = witnessed(OPEN_MPI_4, reached={"1": "udp"})
    settings = (*job().settings, Setting(LINK, "packet", "--link"))
    table = rows(replace(job(), settings=settings), FabricOptions(link="packet"), "", Evidence(facts, GOOD))
    assert [row.wrong for row in table if row.wrong] == ["ranks use the link udp"]


def test_a_rank_that_does_not_answer_is_detected() -> None:
    assert wrong_rows(Evidence(witnessed(OPEN_MPI_4)[:1], GOOD)) == ["ranks"]


@pytest.mark.parametrize(
    ("shares", "hosts", "wrong"),
    [
        ((("a", 1), ("b", 1)), ("b.cluster", "a.cluster"), []),
        ((("a", 1), ("b", 1)), ("a", "a"), ["ranks"]),
        ((("a", 2),), ("a", "b"), ["ranks"]),
        (((LOCAL_HOST, 2),), ("a", "b"), []),
    ],
)
def test_ranks_that_srun_places_elsewhere_are_detected(
    shares: tuple[tuple[str, int], ...], hosts: tuple[str, str], wrong: list[str]
) -> None:
    """If no host is named, the job uses the whole allocation."""
    facts = [facts | {"host": host} for facts, host in zip(witnessed(OPEN_MPI_4), hosts, strict=True)]
    table = rows(replace(job(), in_slurm=True, shares=shares), FabricOptions(), "", Evidence(facts, GOOD))
    assert [row.what for row in table if row.wrong] == wrong


def test_witnesses_are_parsed_from_lines_that_launchers_have_changed() -> None:
    lines = [f"{MARK}{json.dumps(facts)}" for facts in reversed(witnessed(OPEN_MPI_4))]
    evidence = read_evidence(f"[1] {lines[0]}some warning\n{lines[1]}")
    assert [facts["rank"] for facts in evidence.ranks] == [0, 1]
    assert [facts["rank"] for facts in read_evidence(f"{lines[0][:60]}{lines[1]}{lines[0][60:]}").ranks] == [0]


def test_libraries_reports_of_their_path_are_parsed() -> None:
    four = "mtl:ofi:prov: tcp;ofi_rxm\nmtl:ofi:provider: eth0\nselect: component cm selected\n"
    assert read_report(four).providers == {"tcp;ofi_rxm"}, "version 4 calls the interface a provider"
    five = "(  mtl) Selected component [ofi]\nmtl:ofi:provider: barewire\nmtl:ofi:provider:domain: eth0\n"
    assert read_report(five) == Report(frozenset({"mtl ofi"}), frozenset({"barewire"}))
    assert read_report("Using tcp btl for send to x\nUsing self btl for send to y").layers == {"btl tcp"}
    assert read_report("[0] MPI startup(): libfabric provider: tcp").providers == {"tcp"}


def test_the_providers_messages_explain_why_ranks_do_not_answer() -> None:
    output = "[0] barewire: no right to raw Ethernet frames on eth0: give …\nmtl:ofi:provider: barewire\n"
    table = rows(job(), FabricOptions(), "", read_evidence(output + output))
    ranks = next(row for row in table if row.what == "ranks")
    assert ranks.wrong == "2 of 2 did not answer: no right to raw Ethernet frames on eth0: give …"


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"in_lab": True},
        {"in_slurm": True},
        {"shares": (("no-such-host", 2),)},
        {"settings": (Setting("FI_PROVIDER", "tcp", ""),)},
        {"settings": (Setting("FI_PROVIDER", "barewire", ""),)},
    ],
    ids=str,
)
def test_rights_are_checked_where_they_are_known(elsewhere: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "why_no_frames", lambda _environment: "no right")
    by_frames = (Setting("FI_PROVIDER", "barewire", ""), Setting(LINK, "packet", ""))
    here = replace(job(), shares=((LOCAL_HOST, 2),), settings=by_frames)
    with pytest.raises(MachineCannot, match="no right: give the program CAP_NET_RAW"):
        rights.check_rights(here)
    rights.check_rights(replace(here, **elsewhere))


def test_a_program_that_may_gain_rights_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "why_no_frames", lambda _environment: "no right")
    by_frames = (Setting("FI_PROVIDER", "barewire", ""), Setting(LINK, "packet", ""))
    here = replace(job(), shares=((LOCAL_HOST, 2),), settings=by_frames)
    script, setuid_program = tmp_path / "script", tmp_path / "setuid"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    setuid_program.write_bytes(b"\x7fELF")
    setuid_program.chmod(0o4755)
    for words in ([str(script)], ["taskset", "1", str(setuid_program), "x"], ["sh", "-c", f"{setuid_program} x"]):
        rights.check_rights(replace(here, program=tuple(words)))
    setuid_program.chmod(0o755)
    with pytest.raises(MachineCannot):
        rights.check_rights(replace(here, program=(str(setuid_program), "x")))


def test_a_broker_exists_if_it_listens(tmp_path: Path) -> None:
    path = str(tmp_path / "broker.sock")
    assert "No such file" in str(rights.why_no_frames({rights.BROKER: path}))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(0)
        # The second connection finds a full backlog.
        assert [rights.why_no_frames({rights.BROKER: path}) for _ in range(3)] == [None] * 3
    # A stale socket of a broker that has ended.
    reason = str(rights.why_no_frames({rights.BROKER: path}))
    assert reason == f"FI_BAREWIRE_BROKER: no barewire-broker answers at {path} (Connection refused)"


def test_a_launchers_file_does_not_override_the_jobs_own_path(tmp_path: Path) -> None:
    def words(library: Library, fabric: str) -> str:
        return job(replace(library, file=tmp_path / "lib" / "libmpi.so.12"), fabric).shell_line({})

    (tmp_path / "bin").mkdir()
    for name in ("mpirun", "mpiexec.hydra"):
        (tmp_path / "bin" / name).touch(mode=0o755)
    assert "-env FI_PROVIDER tcp -env MPIR_CVAR_CH4_NETMOD ofi" in words(MPICH, "tcp")
    assert "-env FI_PROVIDER barewire -env I_MPI_FABRICS shm:ofi" in words(INTEL, "barewire")


def test_the_token_is_in_no_command_line() -> None:
    for library in (OPEN_MPI_4, OPEN_MPI_5, MPICH, INTEL):
        made = replace(job(library), in_slurm=True)
        assert TOKEN in made.environment().values()
        assert TOKEN not in made.shell_line({})


def test_an_empty_token_is_none() -> None:
    """As the provider takes it; the table of the path had no row for it, and ended with a KeyError."""
    chosen = provider_settings(
        FabricOptions(), {"FI_BAREWIRE_TOKEN": ""}, interface=None, crowded=False, token=TOKEN, secret=SECRET
    )
    made = replace(job(), settings=(*fabric_settings(OPEN_MPI_4, FabricOptions(), one_host=True, lab=False), *chosen))
    (row,) = (row for row in rows(made, FabricOptions(), "", None) if row.what == "job token")
    assert row.taken == "none, or of Open MPI 4's transport key" and row.source == "environment"
    (row,) = (row for row in rows(job(), FabricOptions(), "", None) if row.what == "job token")
    assert row.taken == "16 hexadecimal digits, not shown" and row.source == "generated for this run"


def authenticated(auth: str) -> Job:
    """Return a job like `job`'s with this kind of authentication."""
    chosen = provider_settings(FabricOptions(auth=auth), {}, interface=None, crowded=False, token=TOKEN, secret=SECRET)
    return replace(job(), settings=tuple(chosen) + job().settings)


def test_a_secret_is_in_no_command_line_and_in_no_report() -> None:
    made = authenticated("encrypt")
    assert SECRET in made.environment().values()
    line = made.shell_line({})
    assert SECRET not in line and "FI_BAREWIRE_SECRET=$(od -An -N32 " in line and "-x FI_BAREWIRE_SECRET" in line
    assert not any(SECRET in word for word in made.command({}))
    shown = [row for row in rows(made, FabricOptions(auth="encrypt"), "", None) if row.what == "authentication"]
    assert [(row.taken, row.source) for row in shown] == [
        ("encrypt, secret generated for this run, not shown", "--auth")
    ]
    # The secret that the shell line generates is different each time.
    drawing = re.search(r"FI_BAREWIRE_SECRET=(\$\(.+?\)) ", line)
    assert drawing is not None
    printing = ["sh", "-c", f"printf %s {drawing[1]}"]
    drawn = {subprocess.run(printing, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(drawn) == 2 and all(re.fullmatch("[0-9a-f]{64}", secret) for secret in drawn)


def test_a_rank_with_different_authentication_is_detected() -> None:
    made = authenticated("job")
    ranks = [facts | {"auth": "job"} for facts in witnessed(OPEN_MPI_4)]
    assert not [row.what for row in rows(made, FabricOptions(auth="job"), "", Evidence(ranks, GOOD)) if row.wrong]
    ranks[1]["auth"] = "none"
    wrong = [row for row in rows(made, FabricOptions(auth="job"), "", Evidence(ranks, GOOD)) if row.wrong]
    assert [(row.what, row.wrong) for row in wrong] == [("authentication", "ranks 1 differ")]


def test_in_slurm_the_launcher_is_srun_with_each_librarys_pmi() -> None:
    line = replace(job(), in_slurm=True).command({})
    assert line == ["srun", "-n", "2", "--export=ALL", "--mpi=pmix", "-N", "2", "-w", "a,b", "prog"]
    assert "--mpi=pmi2" in replace(job(MPICH), in_slurm=True).command({})
    assert not any(word.startswith("--mpi") for word in replace(job(), in_slurm=True).command({"SLURM_MPI_TYPE": "x"}))
    assert "--overlap" not in line
    inside = replace(job(), in_slurm=True).command({"SLURM_STEP_ID": "0"})
    assert inside[-2:] == ["--overlap", "prog"], (
        "in an interactive step a step of its own would wait for that one's end"
    )


@pytest.mark.parametrize(("nodes", "layers"), [("1", "sm,self"), ("4", "ofi,sm,self")])
def test_an_allocation_of_several_nodes_is_not_one_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nodes: str, layers: str
) -> None:
    (tmp_path / "libbarewire-fi.so").touch()
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": nodes, "FI_PROVIDER_PATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("barewire.mpi.prepare.shutil.which", lambda _: "/usr/bin/srun")
    made = prepare(OPEN_MPI_5, FabricOptions(), [("localhost", 8)], ["prog"], None)
    assert made.environment()["OMPI_MCA_btl"] == layers
    if nodes != "1":
        with pytest.raises(WrongUse, match="within one host"):
            prepare(OPEN_MPI_5, FabricOptions("shm"), [("localhost", 8)], ["prog"], None)


def test_a_librarys_name_comes_before_a_folder_of_that_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Many a directory has a folder that is called mpich or openmpi, such as one where that library is built."""
    installed = Library("openmpi", Family.OPEN_MPI, "4.1.4", tmp_path / "libmpi.so")
    monkeypatch.setattr(mpi_libraries, "installed_libraries", lambda: [installed])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "openmpi").mkdir()
    assert find_library("openmpi") is installed
    with pytest.raises(WrongUse, match="no MPI library in openmpi/lib"):
        find_library("./openmpi")


@pytest.mark.parametrize(
    ("library", "environment", "expected"),
    [
        (OPEN_MPI_4, {}, [("OMPI_MCA_mpi_yield_when_idle", "1", "more ranks than cores")]),
        (
            OPEN_MPI_4,
            {"OMPI_MCA_mpi_yield_when_idle": "0"},
            [("OMPI_MCA_mpi_yield_when_idle", "0", "environment")],
        ),
        (MPICH, {}, []),
    ],
)
def test_ranks_that_share_cores_yield_unless_the_user_says_otherwise(
    library: Library, environment: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    found = yield_settings(library, environment)
    assert [(setting.name, setting.value, setting.source) for setting in found] == expected


def test_a_program_that_may_be_executed_but_not_read_needs_the_library_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As setuid programs often are."""
    program = tmp_path / "program"
    program.touch(mode=0o711)
    opened = Path.open

    def refused(path: Path, *arguments: Any, **options: Any) -> Any:
        if path == program:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refused)
    assert library_of_program(str(program), OPEN_MPI_4, {}) == (OPEN_MPI_4, "--library")
    monkeypatch.setattr(mpi_libraries, "installed_libraries", lambda: [OPEN_MPI_4])
    with pytest.raises(WrongUse, match="may be executed but not read; choose with --library one of: openmpi"):
        library_of_program(str(program), None, {})


def test_a_file_that_is_not_executable_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "solve.py").touch(mode=0o644)
    with pytest.raises(WrongUse, match=r"solve\.py may not be executed: chmod \+x "):
        library_of_program(f"{tmp_path}/solve.py", OPEN_MPI_4, {})
    with pytest.raises(WrongUse, match="no program"):
        library_of_program("solve.py", OPEN_MPI_4, {"PATH": str(tmp_path)})


def linked_by(folder: Path, found: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a program, and let ldd say where the linker finds its library."""
    (folder / "ldd").write_bytes(b"#!/bin/sh\necho 'libmpi.so.40 => " + found + b" (0x00007f0000000000)'\n")
    (folder / "program").write_bytes(b"\x7fELF")
    for name in ("ldd", "program"):
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return str(folder / "program")


def test_a_library_in_a_folder_whose_name_is_no_text_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = linked_by(tmp_path, b"/opt/caf\xe9/lib/libmpi.so.40", monkeypatch)
    found: list[Path] = []
    monkeypatch.setattr(mpi_libraries, "identify", lambda file: found.append(file) or OPEN_MPI_4)
    assert library_of_program(program, None, {})[0] is OPEN_MPI_4
    assert found == [Path(os.fsdecode(b"/opt/caf\xe9/lib/libmpi.so.40"))]


def test_a_program_that_names_its_librarys_folder_itself_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The linker then finds that library whatever the search path is: the other one has the right name, too."""
    program = linked_by(tmp_path, b"/opt/spack/lib/libmpi.so.40", monkeypatch)
    with pytest.raises(WrongUse, match=r"takes /opt/spack/lib/libmpi\.so\.40 whatever library is chosen, .*RPATH"):
        library_of_program(program, OPEN_MPI_4, {})


def test_a_full_disk_leaves_no_part_of_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "libmpi.so.40").touch()

    def full(path: Path, _text: str) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    store_version(tmp_path / "libmpi.so.40", "Open MPI v5.0.11")
    assert list((tmp_path / "barewire").iterdir()) == []


def test_this_host_is_known_by_its_name_too() -> None:
    """Else MPICH's ranks that share cores would be kept from yielding them."""
    assert is_crowded([(LOCAL_HOST, 10_000)], None) and is_crowded([(os.uname().nodename, 10_000)], None)
    assert not is_crowded([(LOCAL_HOST, 1)], None) and not is_crowded([("another-host", 10_000)], None)


def test_a_colon_begins_no_other_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """To every launcher a word `:` does; its ranks would be neither counted nor have the job's settings."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for words in (["cut", "-d", ":", "-f", "1"], ["./a", ":", "-n", "2", "./b"]):
        with pytest.raises(WrongUse, match="would begin another program"):
            prepare(OPEN_MPI_4, FabricOptions("tcp"), [(LOCAL_HOST, 2)], words, None)
    assert prepare(OPEN_MPI_4, FabricOptions("tcp"), [(LOCAL_HOST, 2)], ["cut", "-d:", "a : b"], None).ranks == 2
