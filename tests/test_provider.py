# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The libfabric provider as any program uses it: tests/fi is plain C against libfabric's own headers.

Each case runs in a network namespace of its own: once over the loopback interface, where processes share memory, and
once with its endpoints on the two ends of a veth pair, where all goes by frames.
"""

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_site import ALICE, BOB, Site
from conftest import ROOT, names_taken, stand_up
from mpi_libraries import needs

from barewire import installed
from barewire.lab import Lab

SOURCES = ROOT / "tests" / "fi"
# A case has `{"name", name},` in its group's table; peers.c has those that other processes take part in.
CASES = [
    name
    for source in sorted(SOURCES.glob("*.c"))
    if source.name not in ("node.c", "peers.c")
    for name in re.findall(r'\{"(\w+)", \1\},', source.read_text())
]
# A program of its own, which is not linked to libfabric.
LOADS = "loaded.c"
LOOPBACK = "ip link set lo up"
WIRE = "ip link add va type veth peer name vb; ip link set va up; ip link set vb up"
# Both ends of the wire have an address, so that this host's own datagrams reach them.
UDP = {
    "IPv4": f"{LOOPBACK}; {WIRE}; ip address add 10.7.7.1/24 dev va; ip address add 10.7.7.2/24 dev vb",
    "IPv6": f"{LOOPBACK}; {WIRE}; ip address add fd77::1/64 dev va nodad; ip address add fd77::2/64 dev vb nodad",
}
# Where tools/sanitize.sh has built the provider and the cases with a sanitizer, if it runs them.
SANITIZED = os.environ.get("BAREWIRE_TEST_SANITIZED")
ENVIRONMENT = {
    "FI_PROVIDER_PATH": SANITIZED or str(installed.PROVIDER),
    "FI_PROVIDER": "barewire",
    "FI_LOG_LEVEL": "info",
}
# Longer than a message of 32 bits' length, which takes as much memory on each side.
HUGE_BYTES = (4 << 30) + 100_000_001
HUGE = "BAREWIRE_TEST_HUGE"


def built(directory: Path, sources: list[Path], *libraries: str) -> str:
    """A program, built as users build theirs."""
    needs("barewire")
    if shutil.which("gcc") is None or not Path("/usr/include/rdma/fabric.h").is_file():
        pytest.skip("no libfabric headers or compiler: make setup")
    flags = ["-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    command = ["gcc", *flags, *map(str, sources), "-o", str(directory / "fi"), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(directory / "fi")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The cases."""
    if SANITIZED:
        return str(Path(SANITIZED) / "fi")
    sources = [source for source in sorted(SOURCES.glob("*.c")) if source.name != LOADS]
    return built(tmp_path_factory.mktemp("fi"), sources, "-lfabric", "-lpthread", "-ldl")


def in_a_namespace(links: str, command: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a network namespace that has these links and nothing else."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    alone = ["unshare", "--net", *user]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network namespaces on this machine: see `barewire doctor`")
    return subprocess.run(
        [*alone, "sh", "-ec", f'{links}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | ENVIRONMENT | environment,
        check=False,
    )


def test_every_case_is_run(program: str) -> None:
    """The names that are found in the sources are those that the program has."""
    listed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert listed and sorted(listed) == sorted(CASES)


# Of what is not the matter of a test, a third in `make test`.
SOMETIMES = pytest.mark.matrix


@pytest.mark.parametrize(
    ("name", "links"),
    [
        pytest.param(name, links, marks=SOMETIMES if links == "loopback" and number % 3 else ())
        for number, name in enumerate(CASES)
        for links in ("loopback", "wire")
    ],
)
def test_case(program: str, name: str, links: str) -> None:
    """What a case checks is said in its source; it ends with 0 if all of it was right."""
    if links == "loopback":
        done = in_a_namespace(LOOPBACK, [program, name])
    else:
        # Both ends are in one process: who closes first is not answered any more, and gives up after its patience.
        done = in_a_namespace(WIRE, [program, name], WIRE="va,vb", FI_BAREWIRE_PATIENCE="3")
    assert done.returncode == 0 and f"{name}: passed" in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]
    assert "internal error" not in done.stderr


# Of these groups each, in turns authenticated and encrypted; a third of them, another one by UDP, in `make test`.
SEALED_GROUPS = ("messages.c", "memory.c", "datagrams.c", "atomics.c")
SLOW = ("full_queues_lose_nothing",)
SEALED = [name for source in SEALED_GROUPS for name in re.findall(r'\{"(\w+)", \1\},', (SOURCES / source).read_text())]


@pytest.mark.parametrize(
    ("name", "auth"),
    [
        pytest.param(name, ("job", "encrypt")[number % 2], marks=SOMETIMES if number % 3 or name in SLOW else ())
        for number, name in enumerate(SEALED)
    ],
)
def test_case_with_authenticated_frames(program: str, name: str, auth: str) -> None:
    """The same on the wire, where frames carry less."""
    settings = {"FI_BAREWIRE_AUTH": auth, "FI_BAREWIRE_SECRET": "5e" * 32}
    done = in_a_namespace(WIRE, [program, name], WIRE="va,vb", FI_BAREWIRE_PATIENCE="3", **settings)
    assert done.returncode == 0 and f"{name}: passed" in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]
    assert f"frames are protected: {auth}, secret from FI_BAREWIRE_SECRET" in done.stderr
    assert "internal error" not in done.stderr and "5e5e5e" not in done.stderr


@pytest.mark.parametrize(
    ("name", "version"),
    [
        pytest.param(name, ("IPv4", "IPv6")[number % 2], marks=SOMETIMES if number % 3 != 1 else ())
        for number, name in enumerate(SEALED)
    ],
)
def test_case_over_udp(program: str, name: str, version: str) -> None:
    """The same between two addresses of this host, without any privilege over its interfaces."""
    settings = {"FI_BAREWIRE_LINK": "udp", "FI_BAREWIRE_PATIENCE": "3"}
    unprivileged = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", program, name]
    done = in_a_namespace(UDP[version], unprivileged, WIRE="va,vb", **settings)
    assert done.returncode == 0 and f"{name}: passed" in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]
    assert "internal error" not in done.stderr


PARAMETERS = """INTERFACE MTU TOKEN WAIT BROKER YIELD PATIENCE PEERS LINK PORTS PROGRESS EAGER COPY RING WINDOW
ACKNOWLEDGE_EVERY ACKNOWLEDGE_DELAY SLOTS PIPE FETCH CHECK AUTH SECRET LABELS"""


# Of 1500 bytes of a frame, 64 are for heads, or 18 of a datagram.
RELIABLE_AND_NOT = (
    ("type: FI_EP_RDM", "max_msg_size: 18446744073709551615", "inject_size: 1436", "cq_data_size: 8", "size: 4096"),
    ("type: FI_EP_DGRAM", "max_msg_size: 1482", "inject_size: 1436", "cq_data_size: 0", "msg_order: [  ]"),
)


def fi_info(*options: str, **environment: str) -> str:
    """What libfabric's own tool says, on a host with two Ethernet interfaces that are up."""
    if shutil.which("fi_info") is None:
        pytest.skip("fi_info(1) is missing: apt install libfabric-bin")
    done = in_a_namespace(WIRE, ["fi_info", *options], FI_LOG_LEVEL="warn", **environment)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    return done.stdout


def test_fi_info_shows_what_there_is() -> None:
    """Both types of endpoints, the reliable one first, on the first or the selected interface; and their limits."""
    needs("barewire")
    pattern = r"provider: (\w+)\n +fabric: (\w+)\n +domain: (\w+)\n +version: .*\n +type: (\w+)"
    for options, name in (((), "vb"), (("-d", "va"), "va"), (("-d", "vb"), "vb")):
        shown = re.findall(pattern, fi_info("-p", "barewire", *options))
        assert shown == [("barewire", "ethernet", name, kind) for kind in ("FI_EP_RDM", "FI_EP_DGRAM")]
    both = fi_info("-p", "barewire", "-d", "va", "-v").split("\n---\n")
    for attributes, expected in zip(both, RELIABLE_AND_NOT, strict=True):
        lines = {line.strip() for line in attributes.splitlines()}
        assert set(expected) <= lines, set(expected) - lines
        assert "addr_format: Provider specific" in lines and "name: va" in lines and "nic: (nil)" in lines


def test_no_secret_is_in_a_log(program: str) -> None:
    """Neither the provider nor libfabric, which logs the values of parameters, shows token or secret."""
    hidden = {"FI_BAREWIRE_TOKEN": "70ce70ce70ce70ce", "FI_BAREWIRE_SECRET": "5ec4e75ec4e7" * 4}
    settings = {"FI_BAREWIRE_AUTH": "job", "FI_LOG_LEVEL": "debug", **hidden}
    done = in_a_namespace(LOOPBACK, [program, "messages_to_self_and_peer"], **settings)
    assert done.returncode == 0 and "barewire" in done.stderr
    shown = (done.stdout + done.stderr).lower()
    assert not any(value in shown for value in hidden.values())


def test_authenticated_frames_carry_twenty_bytes_less() -> None:
    needs("barewire")
    settings = {"FI_BAREWIRE_AUTH": "job", "FI_BAREWIRE_SECRET": "5e" * 16}
    reliable, datagram = fi_info("-p", "barewire", "-d", "va", "-v", **settings).split("\n---\n")
    assert "inject_size: 1416" in reliable and "max_msg_size: 1462" in datagram


def test_fi_info_shows_each_parameter_with_its_help() -> None:
    needs("barewire")
    shown = dict(re.findall(r"# FI_BAREWIRE_(\w+): String\n# barewire: (.+)\n", fi_info("-g", "barewire")))
    assert sorted(shown) == sorted(PARAMETERS.split())
    assert all(len(text) > 30 and "default" in text for text in shown.values()), shown


@pytest.mark.parametrize(
    ("links", "settings", "said"),
    [
        (LOOPBACK, {"FI_BAREWIRE_INTERFACE": "nope0"}, ["barewire: there is no interface 'nope0'"]),
        (LOOPBACK, {"FI_BAREWIRE_WAIT": "spni"}, ["barewire: FI_BAREWIRE_WAIT=spni: expected spin, adaptive or block"]),
        ("true", {}, ["barewire: no Ethernet interface of this host is up"]),
        (LOOPBACK, {"FI_BAREWIRE_AUTH": "job"}, ["barewire: FI_BAREWIRE_AUTH=job, and this process has no secret"]),
        (LOOPBACK, {"FI_BAREWIRE_WAIT": "spni", "MPI_LOCALRANKID": "0"}, ["barewire: FI_BAREWIRE_WAIT=spni"]),
        (LOOPBACK, {"FI_BAREWIRE_WAIT": "spni", "MPI_LOCALRANKID": "1"}, []),
        (LOOPBACK, {"FI_BAREWIRE_WAIT": "spni", "FI_PROVIDER": ""}, []),
        (LOOPBACK, {}, []),
    ],
    ids=["interface", "parameter", "down", "no secret", "first rank", "other rank", "not asked for", "well"],
)
def test_why_there_is_nothing_to_offer_is_said_once_to_who_asked(
    program: str, links: str, settings: dict[str, str], said: list[str]
) -> None:
    """On standard error, with libfabric's log off; by the first rank of a host."""
    done = in_a_namespace(links, [program, CASES[0]], **({"FI_LOG_LEVEL": ""} | settings))
    lines = [line for line in done.stderr.splitlines() if line.startswith("barewire: ")]
    assert len(lines) == len(said) and all(map(str.startswith, lines, said)), done.stderr


def test_who_has_no_descriptor_for_a_peer_of_its_host_is_told_and_can_go_on(program: str) -> None:
    done = in_a_namespace(LOOPBACK, [program, "first_contact_with_few_descriptors"], FI_BAREWIRE_PATIENCE="1")
    assert done.returncode == 0 and ": passed" in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]


def test_libfabric_is_closed_and_loaded_again(tmp_path: Path) -> None:
    """With automatic progress, and a fork after each time. Both libraries stay: the provider keeps its libfabric."""
    done = in_a_namespace(LOOPBACK, [built(tmp_path, [SOURCES / LOADS], "-ldl")])
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    assert done.stdout.splitlines() == ["libfabric stays: 1", "provider stays: 1"]


@pytest.fixture
def lab(nothing_left: None) -> Iterator[Lab]:
    with stand_up("pair") as lab:
        yield lab


def in_lab(lab: Lab, host: str, command: list[str], **environment: str) -> "subprocess.Popen[str]":
    """Start a program in a lab host, where it finds the link by itself."""
    settings = os.environ | ENVIRONMENT | {"FI_BAREWIRE_INTERFACE": "eth0"} | environment
    return lab.popen(host, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings)


def await_line(process: "subprocess.Popen[str]", pattern: str, seconds: float = 30) -> str:
    """Read what a program says until a line is this, which is returned; one that does not say it in time is ended."""
    assert process.stdout is not None
    lines: list[str] = []
    with contextlib.ExitStack() as after:
        timer = threading.Timer(seconds, process.kill)
        after.callback(timer.cancel)
        timer.start()
        while not lines or not re.fullmatch(pattern, lines[-1].rstrip("\n")):
            lines.append(process.stdout.readline())
            assert lines[-1], f"never said {pattern}: " + "".join(lines)[-2000:]
    return lines[-1].rstrip("\n")


def ended_well(process: "subprocess.Popen[str]", seconds: float = 60) -> str:
    output, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0 and ": passed" in output, output[-2000:]
    return output


@pytest.mark.parametrize("victim", ["h1", "h2"])
def test_a_killed_peer_is_noticed_in_time_and_others_are_undisturbed(program: str, lab: Lab, victim: str) -> None:
    """A peer is killed while it gets long messages: on the same host, and at the other end of the wire."""
    control_paths = [str(lab.directory / "victim"), str(lab.directory / "other")]
    peers = [
        in_lab(lab, victim, [program, "serve", control_path], FI_BAREWIRE_PATIENCE="2")
        for control_path in control_paths
    ]
    ended_well(in_lab(lab, "h1", [program, "a_killed_peer", *control_paths], FI_BAREWIRE_PATIENCE="2"))
    assert peers[0].wait(timeout=10) == -9
    peers[0].communicate()
    ended_well(peers[1])


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_a_server_that_is_started_again_is_heard_again(program: str, lab: Lab, host: str) -> None:
    """At the same address, since its process has the same number again: on the same host, and over the wire."""
    control_paths = [str(lab.directory / "first"), str(lab.directory / "second")]

    def serving(control_path: str) -> "subprocess.Popen[str]":
        alone = ["unshare", "--pid", "--fork", "--kill-child"]
        return in_lab(lab, host, [*alone, program, "serve", control_path], FI_BAREWIRE_PATIENCE="2")

    first = serving(control_paths[0])
    client = in_lab(lab, "h1", [program, "a_restarted_peer", *control_paths], FI_BAREWIRE_PATIENCE="2")
    await_line(client, "over")
    first.communicate(timeout=10)
    second = serving(control_paths[1])
    ended_well(client)
    ended_well(second)


def under_way(
    program: str, lab: Lab, waiting: str, link: str, patience_s: int
) -> "tuple[subprocess.Popen[str], subprocess.Popen[str]]":
    """Two processes that send each other long messages."""
    control_path, settings = (
        str(lab.directory / "control"),
        {"FI_BAREWIRE_PATIENCE": str(patience_s), "FI_BAREWIRE_WAIT": waiting},
    )
    case = [program, "a_link_that_goes_down", control_path]
    far = in_lab(lab, "h2", [*case, "answer", link], **settings)
    near = in_lab(lab, "h1", [*case, "call", link], **settings)
    await_line(near, "under way")
    await_line(far, "under way")
    return near, far


@pytest.mark.parametrize("waiting", [pytest.param("spin", marks=pytest.mark.matrix), "block"])
def test_an_interface_that_stays_down_is_told_at_both_ends(program: str, lab: Lab, waiting: str) -> None:
    """By operations that fail, within the patience."""
    near, far = under_way(program, lab, waiting, "stays", 2)
    lab.set_link("h1", up=False)
    ended_well(near, seconds=20)
    ended_well(far, seconds=20)


@pytest.mark.matrix
@pytest.mark.parametrize("waiting", ["spin", "block"])
def test_an_interface_that_is_down_for_a_while_costs_nothing_but_time(program: str, lab: Lab, waiting: str) -> None:
    """First one end's, then the other's, each for less than the patience."""
    near, far = under_way(program, lab, waiting, "returns", 6)
    for host in ("h1", "h2"):
        lab.set_link(host, up=False)
        time.sleep(0.7)
        lab.set_link(host, up=True)
        time.sleep(0.3)
    for process in (near, far):
        assert "went on" in ended_well(process, seconds=60)


TWO_SAPS = f"""
[[allow]]
users = [{ALICE}, {BOB}]
interfaces = ["eth0"]
saps = ["0x10", "0x14"]
at_most = 4
"""


def test_an_ordinary_user_exchanges_messages_through_the_broker(program: str, nothing_left: None, site: Site) -> None:
    """Two processes without any capability, at the two ends of a wire.

    A service access point that is taken leads to the next, until all that the policy has are taken.
    """
    (site.directory / "policy.toml").write_text(TWO_SAPS)
    site.end("h1")
    for host in ("h1", "h2"):
        site.serve(host)
    provider, control = site.directory / "libfabric", site.directory / "control"
    provider.mkdir()
    control.mkdir()
    control.chmod(0o777)
    shutil.copy(installed.PROVIDER / "libbarewire-fi.so", provider)
    case = shutil.copy(program, site.directory)

    def started(host: str, user: int, role: str) -> "subprocess.Popen[str]":
        command = site.as_user(user, case, "messages_both_ways", str(control / "control"), role)
        places = {"FI_PROVIDER_PATH": str(provider), "FI_BAREWIRE_BROKER": site.path(host)}
        return in_lab(site.lab, host, command, **places)

    with site.holding(BOB, 0x10):
        answering = started("h1", ALICE, "answer")
        await_line(answering, r"at fi_barewire://[0-9a-f:]{17}/0x14")
        refused = started("h1", BOB, "call")
        output, _ = refused.communicate(timeout=20)
        assert refused.returncode != 0 and "2 service access points of eth0 are taken" in output, output[-2000:]
        assert f"no rule allows user {BOB}" in output, output[-2000:]
        calling = started("h2", ALICE, "call")
        ended_well(calling)
        ended_well(answering)


def test_a_user_who_holds_all_names_keeps_no_other_from_its_peers(program: str, lab: Lab) -> None:
    """Without any right: neither from a service access point, nor from a process of the same host."""
    control_path = str(lab.directory / "control")
    with names_taken(lab, "h1"):
        answering = in_lab(lab, "h1", [program, "messages_both_ways", control_path, "answer"])
        await_line(answering, r"at fi_barewire://.*")
        ended_well(in_lab(lab, "h1", [program, "messages_both_ways", control_path, "call"]))
        ended_well(answering)


# They may send frames by themselves, are helped by the broker, or are root.
@pytest.mark.parametrize("order", [("root", "right", "broker"), ("broker", "right", "root")], ids=" ".join)
def test_users_of_one_host_never_have_the_same_service_access_point(
    program: str, nothing_left: None, site: Site, order: tuple[str, ...]
) -> None:
    """In process namespaces of their own all have the same number, so each tries the same ones in the same order."""
    (site.directory / "policy.toml").write_text(TWO_SAPS.replace('"0x10", "0x14"', '"0x02-0xfe"'))
    site.end("h1")
    site.serve("h1")
    provider, control = site.directory / "libfabric", site.directory / "control"
    provider.mkdir()
    control.mkdir()
    control.chmod(0o777)
    shutil.copy(installed.PROVIDER / "libbarewire-fi.so", provider)
    case = shutil.copy(program, site.directory)
    has_right = ["setpriv", f"--reuid={BOB}", f"--regid={BOB}", "--clear-groups"]
    has_right += ["--inh-caps=+net_raw", "--ambient-caps=+net_raw"]
    # Another user number takes away that it ends with its parent.
    ends = ["setpriv", "--pdeathsig=KILL"]
    users = {"root": [], "right": [*has_right, *ends], "broker": [*site.as_user(ALICE), *ends]}
    found = []
    with contextlib.ExitStack() as until_then:
        for user in order:
            command = ["unshare", "--pid", "--fork", "--kill-child", *users[user]]
            command += [case, "messages_both_ways", str(control / user), "answer"]
            places = {"FI_PROVIDER_PATH": str(provider)}
            places |= {"FI_BAREWIRE_BROKER": site.path("h1")} if user == "broker" else {}
            process = in_lab(site.lab, "h1", command, **places)
            until_then.callback(process.communicate)
            until_then.callback(process.kill)
            found.append(await_line(process, r"at fi_barewire://[0-9a-f:]{17}/0x[0-9a-f]+").rpartition("/")[2])
    assert len(set(found)) == len(order), found


def available_bytes() -> int:
    text = Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable:\s+(\d+) kB", text)[1]) * 1024  # type: ignore[index]


@pytest.mark.parametrize("sender", ["h1", "h2"])
def test_a_message_beyond_four_gibibytes(program: str, lab: Lab, sender: str) -> None:
    """Its length needs more than 32 bits; every byte is checked, on one host and over the wire."""
    if HUGE not in os.environ:
        pytest.skip(f"takes a minute and 9 GB of memory: make huge, or {HUGE}=1")
    if available_bytes() < 2 * HUGE_BYTES + (1 << 30):
        pytest.skip(f"needs {2 * HUGE_BYTES + (1 << 30)} bytes of memory, {available_bytes()} are available")
    control_path = str(lab.directory / "control")
    # Both of one host share its only core, and neither would give it away before its time slice is over.
    settings = {"FI_BAREWIRE_YIELD": str(int(sender == "h1"))}
    receiver = in_lab(lab, "h1", [program, "one_message", control_path, str(HUGE_BYTES), "receive"], **settings)
    ended_well(
        in_lab(lab, sender, [program, "one_message", control_path, str(HUGE_BYTES), "send"], **settings), seconds=240
    )
    ended_well(receiver, seconds=60)
