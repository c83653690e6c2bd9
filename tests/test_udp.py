# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MPI over UDP between hosts of different subnets, joined by a router; and the choice between frames and UDP."""

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import starts
from conftest import BAREWIRE, barewire, stand_up
from mpi_libraries import library, needs, program
from second_network import add_second_network

from barewire.errors import MachineCannot
from barewire.lab import Lab, LinkSpec

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

BY_UDP = ("--link", "udp")
LIBRARIES = ["mpich-5", *(pytest.param(name, marks=pytest.mark.matrix) for name in ("openmpi", "openmpi-5"))]

# Random datagrams with any source address, which only a raw socket can send; or fragments whose rest never comes.
FORGE = """
import os, socket, struct, sys, time
source, target, port, seconds, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
fragment = 0x2000 if kind == "fragments" else 0
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
addresses = socket.inet_aton(source) + socket.inet_aton(target)
sent, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    # Half of them start like an I PDU between the first two service access points.
    random = os.urandom(sent % 1200 // 8 * 8 + 4 if fragment else sent % 1200 + 1)
    content = bytes.fromhex("88700808") + random if sent % 2 or fragment else random
    udp = struct.pack("!HHHH", port, port, 8 + len(content), 0) + content
    raw.sendto(struct.pack("!BBHHHBBH", 69, 0, 20 + len(udp), 0, fragment, 64, 17, 0) + addresses + udp, (target, 0))
    sent += 1
print(sent)
"""


# On the router: each datagram of the job again, whose marks and checks are right; as it was, in the name of a host that
# does not take part, and with a bit changed. A time to live of 77 tells the forger's own.
REPLAY = """
import collections, random, socket, struct, sys, time
third, seconds = socket.inet_aton(sys.argv[1]), float(sys.argv[2])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("to-h1", 0))
link.settimeout(0.1)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
seen = collections.deque(maxlen=5000)
sent, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    try:
        packet = bytearray(link.recv(65536)[14:])
    except TimeoutError:
        continue
    # UDP from and to the job's port, not in fragments.
    is_whole = struct.unpack_from("!H", packet, 6)[0] & 0x3FFF == 0
    if packet[0] != 69 or packet[8] == 77 or packet[9] != 17 or not is_whole:
        continue
    if packet[20:24] != struct.pack("!HH", 49152, 49152):
        continue
    packet[8], packet[26:28] = 77, bytes(2)
    seen.append(packet)
    other, changed = bytearray(packet), bytearray(random.choice(seen))
    other[12:16] = third
    changed[random.randrange(28, len(changed))] ^= 1 << random.randrange(8)
    for forged in (packet, random.choice(seen), other, changed):
        raw.sendto(forged, (socket.inet_ntoa(forged[16:20]), 0))
        sent += 1
print(sent)
"""


def run(lab: Lab | str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    where = lab if isinstance(lab, str) else lab.id
    link = () if "--link" in arguments else BY_UDP
    return barewire("run", "--lab", where, *link, *arguments, env=os.environ | environment)


def is_right(done: "subprocess.CompletedProcess[str]", source: str) -> None:
    assert done.returncode == 0 and f'"test": "{source}"' in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    "source", ["messages", *(pytest.param(source, marks=pytest.mark.matrix) for source in ("collectives", "onesided"))]
)
@pytest.mark.parametrize("name", LIBRARIES)
def test_programs_run_between_subnets(name: str, source: str) -> None:
    """Three ranks, of which two share a host and its memory; each byte is checked."""
    needs("barewire")
    is_right(run("routed:2", "-n", "3", "--", program(name, source), "1"), source)


@pytest.mark.parametrize("name", LIBRARIES)
def test_no_rank_needs_a_right(name: str) -> None:
    """Without any capability, and with authenticated frames, the ports chosen from a range."""
    needs("barewire")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv(1) is missing: apt install util-linux")
    bare = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    checked = ("sh", "-c", 'grep -q "^CapEff:.0*$" /proc/self/status && exec "$@"', "sh")
    command = ("--library", name, "--auth", "job", "--", *bare, *checked, program(name, "messages"), "1")
    is_right(run("routed:2", "-n", "2", *command, FI_BAREWIRE_PORTS="49152-49160"), "messages")


def test_explain_shows_the_carrier() -> None:
    needs("barewire")
    done = run("routed:2", "-n", "2", "--explain", "--", program("openmpi", "messages"), "1")
    is_right(done, "messages")
    assert "udp" in done.stderr and "eth0, MTU 1500" in done.stderr


# Of tools/starts.py.
OBSTACLES = (
    *(
        "duplicates",
        "duplicates_no_frames",
        "no_frames",
        "one_way",
        "no_udp",
        "six_interfaces",
        "mixed",
        "mixed_routed",
    ),
    *("routed", "unprivileged"),
)


ONLY_IP = "ether type ip accept; drop;"
NO_UDP = "ip protocol udp drop;"


def filter_frames(lab: Lab, *ports: str, rule: str = ONLY_IP) -> None:
    """Filter what the switch receives at these ports."""
    chain = f"type filter hook ingress devices = {{ {', '.join(ports)} }} priority 0; {rule}"
    done = subprocess.run(lab.switch_command(["nft", f"table netdev t {{ chain c {{ {chain} }}; }}"]), check=False)
    if done.returncode != 0:
        pytest.skip("no packet filters on this kernel's interfaces (CONFIG_NF_TABLES_NETDEV)")


AUTO = ("--link", "auto", "--explain", "-n")


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_pair_of_hosts_uses_what_gets_through(name: str) -> None:
    """Frames on one segment; UDP through a router, and where a filter drops frames in one direction."""
    needs("barewire")
    command = ("--", program(name, "messages"), "1")
    done = run("pair", *AUTO, "2", *command)
    is_right(done, "messages")
    assert "by UDP" not in done.stderr and re.search(r"│ link +│ packet", done.stderr), done.stderr
    done = run("routed:2", *AUTO, "3", *command)
    is_right(done, "messages")
    assert re.search(r"│ by UDP +│ h1–h2", done.stderr), done.stderr
    with stand_up("star:3") as lab:
        # What h3 sends to others is IP only; what they send to it is not filtered.
        filter_frames(lab, "to-h3")
        done = run(lab, *AUTO, "3", *command)
        is_right(done, "messages")
        assert re.search(r"│ by UDP +│ h1–h3, h2–h3", done.stderr), done.stderr
        assert re.search(r"│ link +│ packet and udp", done.stderr), done.stderr


@pytest.fixture(scope="module")
def started_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each library's program is built, once."""
    return tmp_path_factory.mktemp("starts")


@pytest.mark.parametrize(
    ("name", "obstacle"),
    [
        pytest.param(name, obstacle, marks=() if number % 3 == turn else pytest.mark.matrix)
        for turn, name in enumerate(("openmpi", "mpich-5", "openmpi-5"))
        for number, obstacle in enumerate(OBSTACLES)
    ],
)
def test_a_job_starts_whatever_is_in_the_way(name: str, obstacle: str, started_programs: Path) -> None:
    """Once, under one library in turn; `make starts` does it 200 times, `make matrix` under each library."""
    needs("barewire")
    library(name)
    arguments = ["--runs", "1", "--library", name, "--folder", str(started_programs), obstacle]
    try:
        assert starts.main(arguments) == 0, "what is printed says why"
    except MachineCannot as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", LIBRARIES)
def test_long_messages_go_by_udp_where_interfaces_take_batches_in_one_piece(name: str) -> None:
    needs("barewire")
    for offloads in ("on", "off"):
        command = ("--offloads", offloads, *AUTO, "2", "--", program(name, "messages"), "1")
        # Wide enough for a cell in one line.
        done = run("pair", *command, COLUMNS="200")
        is_right(done, "messages")
        assert ("packet, long messages by UDP" in done.stderr) == (offloads == "on"), done.stderr


@pytest.mark.parametrize(
    ("offloads", "rule"),
    [(False, ONLY_IP), *(pytest.param(True, rule, marks=pytest.mark.matrix) for rule in (NO_UDP, ONLY_IP))],
)
def test_what_is_filtered_in_mid_job_is_replaced_and_used_again(rule: str, offloads: bool) -> None:
    """Dropped at the switch for a second in one direction, in the other, and in both."""
    needs("barewire")
    with (
        stand_up("star:2", LinkSpec(offloads=offloads)) as lab,
        job_under_way(lab, "openmpi", "auto"),
    ):
        for ports in (["to-h1"], ["to-h2"], ["to-h1", "to-h2"]):
            filter_frames(lab, *ports, rule=rule)
            time.sleep(1)
            subprocess.run(lab.switch_command(["nft", "delete table netdev t"]), check=True)
            time.sleep(0.5)


@pytest.mark.parametrize("options", [("--loss", "1%"), ("--mtu", "9000", "--offloads", "on"), ("--rate", "100mbit")])
def test_results_are_right_on_any_wire(options: tuple[str, ...]) -> None:
    needs("barewire")
    is_right(run("routed:2", *options, "-n", "2", "--", program("openmpi", "collectives"), "1"), "collectives")


@pytest.mark.parametrize("offloads", [False, True])
def test_a_smaller_mtu_on_the_way_costs_time_only(offloads: bool) -> None:
    """Behind the router a packet has at most 1000 bytes: it says so, and the sending kernel fragments from then on."""
    needs("barewire")
    narrow = ["ip", "route", "replace", "10.77.2.0/24", "dev", "to-h2", "mtu", "lock", "1000"]
    # With offloads, sends are cut into datagrams by the kernel, which refuses if these are too long for the path.
    with stand_up("routed:2", LinkSpec(offloads=offloads)) as lab:
        subprocess.run(lab.switch_command(narrow), check=True)
        is_right(run(lab, "-n", "2", "--", program("openmpi", "messages"), "1"), "messages")
        counters = lab.run("h1", ["cat", "/proc/net/snmp"], capture_output=True, text=True, check=True).stdout
        names, values = (line.split() for line in counters.splitlines() if line.startswith("Ip:"))
        assert int(dict(zip(names, values, strict=True))["FragCreates"]) > 0


@contextmanager
def job_under_way(lab: Lab, name: str, link: str = "udp", **more: str) -> "Iterator[subprocess.Popen[str]]":
    """Two ranks on two hosts that exchange messages, some more after the block than in it; each is checked, and the
    end, unless it has ended by then."""
    over = lab.directory / "over"
    command = [BAREWIRE, "run", "-n", "2", "--lab", lab.id, "--link", link, "--", program(name, "goes_on")]
    command += ["0", "0", "1", str(over)]
    environment = os.environ | {"FI_BAREWIRE_PORTS": "49152-49152"} | more
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        timer = threading.Timer(100, process.terminate)
        timer.start()
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert "under way" in line, line + process.stderr.read()
            yield process
            over.touch()
            if process.returncode is None:
                output, error = process.communicate()
                assert process.returncode == 0 and '"right": true' in output, output[-1000:] + error[-2000:]
        finally:
            timer.cancel()


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_job_goes_on_when_an_interface_was_down(name: str) -> None:
    needs("barewire")
    with stand_up("routed:2") as lab, job_under_way(lab, name):
        for host in ("h2", "h1"):
            lab.set_link(host, up=False)
            time.sleep(1)
            lab.set_link(host, up=True)
            time.sleep(0.5)


def test_a_job_goes_on_when_the_mtu_on_the_way_shrinks() -> None:
    """In mid-job, when each rank has a socket connected to the other, which then reports that frames were too long."""
    needs("barewire")
    with stand_up("routed:2") as lab, job_under_way(lab, "openmpi"):
        time.sleep(1)
        for number in (1, 2):
            narrow = f"ip route replace 10.77.{number}.0/24 dev to-h{number} mtu lock 1000"
            subprocess.run(lab.switch_command(narrow.split()), check=True)


# A router drops datagrams longer than this and sends no report, as behind a filter of ICMP; with offloads also whole
# batches of shorter ones, which are one packet there.
LONG = "type filter hook forward priority 0; meta l4proto udp meta length > 1000"


def drop_long_datagrams(lab: Lab, towards: str = "") -> None:
    """At the router; only what leaves it there, if a port is given."""
    rule = f"{LONG} oifname {towards} drop;" if towards else f"{LONG} drop;"
    done = subprocess.run(lab.switch_command(["nft", f"table inet t {{ chain c {{ {rule} }}; }}"]), check=False)
    if done.returncode != 0:
        pytest.skip("no packet filters on this kernel (CONFIG_NF_TABLES_INET)")


@pytest.mark.parametrize("offloads", [False, True])
def test_a_path_that_drops_long_datagrams_in_mid_job_gets_shorter_ones(offloads: bool) -> None:
    """In both directions and in one, for some time, in which no exchange takes nearly as long."""
    needs("barewire")
    with (
        stand_up("routed:2", LinkSpec(offloads=offloads)) as lab,
        job_under_way(lab, "openmpi") as process,
    ):
        for towards in ("", "to-h2"):
            drop_long_datagrams(lab, towards)
            time.sleep(6)
            subprocess.run(lab.switch_command(["nft", "delete table inet t"]), check=True)
            time.sleep(0.5)
        (lab.directory / "over").touch()
        output, error = process.communicate()
        assert process.returncode == 0, error[-2000:]
        (line,) = [json.loads(line) for line in output.splitlines() if '"right"' in line]
        assert line["right"] and line["longest_turn_us"] < 4e6, line


@pytest.mark.parametrize("name", LIBRARIES)
def test_programs_run_where_long_datagrams_are_dropped(name: str) -> None:
    """From the start, and with authenticated frames; each byte is checked."""
    needs("barewire")
    with stand_up("routed:2") as lab:
        drop_long_datagrams(lab)
        command = ("-n", "2", "--library", name, "--auth", "job", "--", program(name, "messages"), "1")
        is_right(run(lab, *command, FI_BAREWIRE_PATIENCE="3"), "messages")


@pytest.mark.parametrize("name", LIBRARIES)
def test_long_messages_leave_a_path_by_udp_that_drops_them(name: str) -> None:
    """They go by frames then, as fast as where all datagrams are dropped."""
    needs("barewire")
    goodput = []
    for rule in ("ip protocol udp drop;", "ip protocol udp meta length > 1000 drop;"):
        with stand_up("star:2", LinkSpec(offloads=True)) as lab:
            filter_frames(lab, "to-h1", "to-h2", rule=rule)
            done = run(lab, "--link", "auto", "-n", "2", "--", program(name, "stream"), "6", "262144")
            is_right(done, "stream")
            (line,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            goodput.append(line["goodput_bit_s"])
    assert goodput[1] > 0.5 * goodput[0], goodput


def change_address(lab: Lab, *commands: str) -> None:
    """What a DHCP client does to h2's address, where the launcher uses another network."""
    for command in commands:
        lab.run("h2", ["ip", "address", *command.split(), "dev", "eth0"], check=True)


@pytest.mark.parametrize("change", ["ip link set eth0 down", "ip address flush dev eth0"])
def test_datagrams_leave_from_another_address_when_the_first_is_lost(change: str) -> None:
    """h1 has a second interface to the router, which leads to h2 as well; nothing leads to the first any more."""
    needs("barewire")
    with stand_up("routed:2") as lab:
        wire = f"ip link add also-h1 type veth peer name eth1 netns {lab.host('h1').inner_pid}"
        gateway = "ip link set also-h1 up; ip address add 10.77.3.254/24 dev also-h1"
        subprocess.run(lab.switch_command(["sh", "-ec", f"{wire}; {gateway}"]), check=True)
        own = "ip link set eth1 up; ip address add 10.77.3.1/24 dev eth1"
        way = "ip route add default via 10.77.3.254 metric 10000"
        lab.run("h1", ["sh", "-ec", f"{own}; {way}"], check=True)
        # No interface is selected, as the lab would. The launcher uses h1's second one.
        launcher = {"OMPI_MCA_oob_tcp_if_include": "10.77.2.0/23"}
        more = {"FI_BAREWIRE_INTERFACE": "", "FI_BAREWIRE_PATIENCE": "4"} | launcher
        with job_under_way(lab, "openmpi", **more):
            lab.run("h1", change.split(), check=True)


def test_frames_go_on_when_the_ip_address_changes() -> None:
    needs("barewire")
    with stand_up("star:2") as lab:
        add_second_network(lab)
        with job_under_way(lab, "openmpi", "auto", OMPI_MCA_oob_tcp_if_include="eth1"):
            time.sleep(0.5)
            change_address(lab, "del 10.77.0.2/24", "add 10.77.0.99/24")
            time.sleep(1.5)


def test_datagrams_go_on_when_the_address_returns_and_end_with_a_reason_when_it_is_another() -> None:
    needs("barewire")
    with stand_up("star:2") as lab:
        add_second_network(lab)
        more = {"OMPI_MCA_oob_tcp_if_include": "eth1", "FI_BAREWIRE_PATIENCE": "2"}
        with job_under_way(lab, "openmpi", **more) as process:
            change_address(lab, "del 10.77.0.2/24")
            time.sleep(0.5)
            change_address(lab, "add 10.77.0.2/24")
            time.sleep(2.5)
            assert process.poll() is None
            change_address(lab, "del 10.77.0.2/24", "add 10.77.0.99/24")
            _, error = process.communicate(timeout=20)
            said = "10.77.0.2 is no longer an address of this host|no longer answers .*UDP to port 49152 of 10.77.0.2"
            assert process.returncode != 0 and re.search(f"barewire: .*({said})", error), error[-2000:]


# Who sends, in whose name, to whom, what. The third host has nothing to do with the job.
FLOODS = {
    "by a third host": [("h3", "h2", "h1", "datagrams"), ("h3", "h1", "h2", "datagrams")],
    "by all": [("h3", "h3", "h1", "datagrams"), ("h2", "h2", "h1", "datagrams"), ("h3", "h2", "h1", "fragments")],
}


@pytest.mark.parametrize(
    "floods",
    [
        pytest.param(floods, id=name, marks=pytest.mark.matrix if name == "by a third host" else ())
        for name, floods in FLOODS.items()
    ],
)
def test_floods_of_datagrams_change_nothing(floods: list[tuple[str, ...]]) -> None:
    """From the port of the peer's process, also on the peer's own host."""
    needs("barewire")
    with stand_up("routed:3") as lab, job_under_way(lab, "openmpi"):
        flooders = [
            lab.popen(
                sender,
                ["python3", "-c", FORGE, lab.host(source).address, lab.host(target).address, "49152", "1.5", kind],
                stdout=subprocess.PIPE,
                text=True,
            )
            for sender, source, target, kind in floods
        ]
        assert min(int(flooder.communicate(timeout=60)[0]) for flooder in flooders) > 1000


@pytest.mark.parametrize("token", ["5ec4e75ec4e75ec4", ""], ids=["with a token", "without one"])
def test_what_a_router_repeats_and_forges_changes_nothing(token: str) -> None:
    """It has seen everything that the ranks have sent. Without a token, their marks follow from their cookies."""
    needs("barewire")
    with stand_up("routed:3") as lab, job_under_way(lab, "mpich-5", FI_BAREWIRE_TOKEN=token):
        forge = lab.switch_command(["python3", "-c", REPLAY, lab.host("h3").address, "1.5"])
        done = subprocess.run(forge, capture_output=True, text=True, check=True, timeout=60)
        assert int(done.stdout) > 1000


def test_a_network_with_ipv6_only_suffices() -> None:
    """The launcher has another network."""
    needs("barewire")
    with stand_up("star:2") as lab:
        add_second_network(lab)
        for number, host in enumerate(lab.hosts, start=1):
            replace = (
                "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6",
                "ip address flush dev eth0",
                f"ip address add fd77::{number}/64 dev eth0 nodad",
            )
            lab.run(host.name, ["sh", "-ec", "; ".join(replace)], check=True)
        filter_frames(lab, "to-h1", "to-h2", rule="ether type ip6 accept; drop;")
        command = ("-n", "2", "--link", "auto", "--explain", "--", program("openmpi", "messages"), "1")
        done = run(lab, *command, OMPI_MCA_oob_tcp_if_include="eth1")
        is_right(done, "messages")
        assert re.search(r"│ by UDP +│ h1–h2", done.stderr), done.stderr


def test_translated_addresses_end_the_job_in_time() -> None:
    """The router puts its own address into what leaves it: nothing of that is believed."""
    needs("barewire")
    rules = "table ip t { chain c { type nat hook postrouting priority 100; ip protocol udp masquerade; }; }"
    with stand_up("routed:2") as lab:
        done = subprocess.run(lab.switch_command(["nft", rules]), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no address translation on this kernel: {done.stderr.strip()[:100]}")
        started = time.monotonic()
        done = run(lab, "-n", "2", "--", program("openmpi", "messages"), "1", FI_BAREWIRE_PATIENCE="2")
        assert done.returncode != 0 and time.monotonic() - started < 60
        lines = [line for line in done.stderr.splitlines() if line.startswith("barewire: ")]
        assert lines and all(
            re.search(r" does not answer \(UDP to port \d+ of 10\..* address translation", line) for line in lines
        )
        assert len(lines) <= 2, done.stderr


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_job_whose_ranks_differ_ends_and_says_why(name: str) -> None:
    needs("barewire")
    library(name)
    differ = 'case $(hostname) in h2) export FI_BAREWIRE_LINK=packet;; esac; exec "$@"'
    done = run("pair", "-n", "2", "--library", name, "--", "sh", "-c", differ, "sh", program(name, "messages"), "1")
    assert done.returncode != 0
    assert "set the same FI_BAREWIRE_LINK for all processes" in done.stderr, done.stderr[-2000:]


# Two paths from the router to h2, of which it chooses one by addresses and ports, as routers with equal-cost paths do.
EQUAL_COST = """
ip link add second mtu 1500 type veth peer name eth1 mtu 1500 netns {pid}
ip address add 10.79.0.1/24 dev second
ip link set second up
sysctl -qw net.ipv4.fib_multipath_hash_policy=1
ip route replace {address}/32 nexthop dev to-h2 nexthop via 10.79.0.2 dev second
tc qdisc replace dev to-h2 root tbf rate {rate}bit burst 32kb limit 200kb
tc qdisc replace dev second root tbf rate {rate}bit burst 32kb limit 200kb
"""
ENDS = """
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.eth1.rp_filter=0
ip address add 10.79.0.2/24 dev eth1
ip link set eth1 up
"""
PATHS = ("to-h2", "second")
PATH_RATE = 100_000_000


@contextmanager
def equal_cost_paths() -> Iterator[Lab]:
    """Two hosts in subnets of their own, and a router with two paths to the second."""
    with stand_up("routed:2") as lab:
        host = lab.host("h2")
        commands = EQUAL_COST.format(pid=host.inner_pid, address=host.address, rate=PATH_RATE)
        for command in (
            lab.switch_command(["sh", "-ec", commands]),
            lab.command("h2", ["sh", "-ec", ENDS]),
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"no equal-cost paths on this kernel: {done.stderr.strip()}")
        yield lab


def forwarded(lab: Lab) -> list[int]:
    """The bytes that have left by each path."""
    command = lab.switch_command(["ip", "-s", "-j", "link"])
    links = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    sent = {link["ifname"]: int(link["stats64"]["tx"]["bytes"]) for link in links}
    return [sent[name] for name in PATHS]


def stream(lab: Lab, name: str, labels: str) -> tuple[float, list[int]]:
    """The bit/s of long messages, and the bytes by each path."""
    before = forwarded(lab)
    command = ("-n", "2", "--", program(name, "stream"), "6", "65536")
    done = run(lab, *command, FI_BAREWIRE_LABELS=labels)
    is_right(done, "stream")
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return line["goodput_bit_s"], [now - then for now, then in zip(forwarded(lab), before, strict=True)]


@pytest.mark.parametrize("name", LIBRARIES)
def test_datagrams_from_several_ports_take_all_equal_cost_paths(name: str) -> None:
    """Each byte is checked. One path that is cut is left, as its ports are."""
    needs("barewire")
    with equal_cost_paths() as lab:
        alone, by_path = stream(lab, name, "")
        assert alone < 1.02 * PATH_RATE and min(by_path) < 0.1 * max(by_path), (alone, by_path)
        together, by_path = stream(lab, name, "ports:32")
        assert together > 1.4 * alone and min(by_path) > 0.25 * max(by_path), (together, alone, by_path)
        # The router does not leave it: what it sends there is lost.
        subprocess.run(lab.command("h2", ["ip", "link", "set", "eth1", "down"]), check=True)
        left, by_path = stream(lab, name, "ports:32")
        assert left > 0.7 * alone, (left, alone, by_path)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_rank_without_ports_as_labels_reaches_one_with_them(name: str) -> None:
    """What left from other ports than the first is repeated; each byte is checked, and frames are authenticated."""
    needs("barewire")
    differ = 'case $(hostname) in h1) export FI_BAREWIRE_LABELS=ports:8;; esac; exec "$@"'
    command = ("-n", "2", "--library", name, "--auth", "job")
    is_right(run("routed:2", *command, "--", "sh", "-c", differ, "sh", program(name, "messages"), "3"), "messages")
