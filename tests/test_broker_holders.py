# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a descriptor of the broker's is worth to a holder who wants more than was granted."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from broker_site import ALICE, CLIENT, POLICY, Site

pytestmark = pytest.mark.usefixtures("nothing_left")


# What the holder of a descriptor tries without any capability, and what comes of it; the other host sends frames.
WIDEN = (
    CLIENT
    + """
import errno, json
connection, status, held = ask(path, "eth0", 0x20)
link = held[0]
done = {}
def attempt(name, action):
    try:
        action()
        done[name] = "works"
    except OSError as error:
        done[name] = errno.errorcode[error.errno]
SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_LOCK_FILTER, SO_MARK, SOL_PACKET = 26, 27, 44, 36, 263
allow_all = struct.pack("HBBI", 6, 0, 0, 0xFFFFFFFF)
import ctypes
buffer = ctypes.create_string_buffer(allow_all)
program = struct.pack("HxxxxxxP", 1, ctypes.addressof(buffer))
attempt("another filter", lambda: link.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program))
attempt("no filter", lambda: link.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0))
attempt("unlock", lambda: link.setsockopt(socket.SOL_SOCKET, SO_LOCK_FILTER, 0))
attempt("another mark", lambda: link.setsockopt(socket.SOL_SOCKET, SO_MARK, 0))
attempt("another mark by message", lambda: link.sendmsg(
    [bytes(60)], [(socket.SOL_SOCKET, SO_MARK, struct.pack("I", 0))]))
attempt("a socket of its own", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
index = socket.if_nametoindex("eth0")
promiscuous = struct.pack("iHH8s", index, 1, 0, bytes(8))
attempt("promiscuous", lambda: link.setsockopt(SOL_PACKET, 1, promiscuous))
attempt("own outgoing frames", lambda: link.setsockopt(SOL_PACKET, 23, struct.pack("i", 0)))
attempt("bind to lo", lambda: link.bind(("lo", 3)))
attempt("another's group", lambda: link.setsockopt(SOL_PACKET, 18, struct.pack("I", 77)))
attempt("bind to eth0", lambda: link.bind(("eth0", 3)))
attempt("a ring of its own", lambda: link.setsockopt(SOL_PACKET, 5, bytes(16)))
attempt("choosing for the group", lambda: link.setsockopt(SOL_PACKET, 22, program))
print(json.dumps(done), flush=True)
mine = link.getsockname()[4]
time.sleep(2)
print(json.dumps([mine.hex(), sorted({frame[:16].hex() for frame in frames(link)})]), flush=True)
"""
)
NEIGHBOUR = """
import socket, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
ours, to = link.getsockname()[4], bytes.fromhex(sys.argv[1].replace(":", ""))
other = bytes([2, 9, 9, 9, 9, 9])
end = time.monotonic() + 4
while time.monotonic() < end:
    for target, kind, dsap in ((to, 3, 0x20), (to, 3, 0x22), (to, 0x0800, 0x20), (other, 3, 0x20), (to, 0x8870, 0x22)):
        link.send(target + ours + kind.to_bytes(2, "big") + bytes([dsap, 0x20, 3]) + bytes(46))
    time.sleep(0.01)
"""


def test_a_holder_cannot_widen_what_it_receives(site: Site) -> None:
    """What needs no capability is done, and nothing comes of it: the filter tells interface, host and SAP itself."""
    address = site.lab.host("h1").mac
    neighbour = site.lab.popen("h2", [sys.executable, "-c", NEIGHBOUR, address])
    executable = os.path.realpath(sys.executable)
    done = site.run(site.as_user(ALICE, executable, "-c", WIDEN, site.path("h1")))
    assert done.returncode == 0, done.stderr
    assert neighbour.wait(10) == 0
    tried, (mine, got) = map(json.loads, done.stdout.splitlines())
    refused = (
        "another filter",
        "no filter",
        "unlock",
        "another mark",
        "another mark by message",
        "a socket of its own",
    )
    assert {name: tried.pop(name) for name in refused} == dict.fromkeys(refused, "EPERM")
    assert [tried.pop("a ring of its own"), tried.pop("choosing for the group")] == ["EBUSY", "EPERM"]
    in_a_group = {"bind to lo": "EINVAL", "bind to eth0": "EINVAL", "another's group": "EALREADY"}
    assert {name: tried.pop(name) for name in in_a_group} == in_a_group
    assert set(tried.values()) == {"works"}, f"documented in docs/security.md as possible: {tried}"
    assert [frame[:12] for frame in got] == [mine] and got[0][24:30] == "000320", got


# Frames that the holder of SAP 0x20 sends: the first is honest, the others are not.
FORGE = (
    CLIENT
    + """
connection, status, held = ask(path, "eth0", 0x20)
link = held[0]
mine, all = link.getsockname()[4], b"\\xff" * 6
link.setsockopt(263, 20, struct.pack("i", int(sys.argv[2])))
def frame(source, kind, ssap):
    return all + source + kind.to_bytes(2, "big") + bytes([0x20, ssap, 3]) + b"forged".ljust(46, b".")
for source, kind, ssap in ((mine, 9, 0x20), (mine, 9, 0x21), (mine, 0x8870, 0x20), (mine, 9, 0x22),
                           (mine, 0x0806, 0x20), (mine[:5] + bytes([99]), 9, 0x20), (mine, 0x8100, 0x20)):
    try:
        link.send(frame(source, kind, ssap))
    except OSError as error:
        pass
# With the tag of a label, of another service access point with one, and of another VLAN.
for tag, ssap in ((0x0f03, 0x20), (0x0f03, 0x22), (0x0003, 0x20)):
    plain = frame(mine, 0x8870, ssap)
    try:
        link.send(plain[:12] + b"\\x81\\0" + tag.to_bytes(2, "big") + plain[12:])
    except OSError as error:
        pass
try:
    link.sendto(frame(mine, 9, 0x20), ("lo", 0))
except OSError:
    pass
print(0)
"""
)
HEAR = """
import json, socket
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("eth0", 3))
link.settimeout(1.5)
print("ready", flush=True)
got = []
try:
    while True:
        frame, address = link.recvfrom(2000)
        if b"forged" in frame and address[2] != 4:
            got.append((frame[6:12].hex(), frame[12:14].hex(), frame[15]))
except TimeoutError:
    print(json.dumps(got))
"""


@pytest.mark.parametrize("bypass", [pytest.param(0, marks=pytest.mark.matrix), 1])
def test_what_a_holder_forges_is_stopped_by_the_egress_rules_and_by_nothing_else(site: Site, bypass: int) -> None:
    """With and without PACKET_QDISC_BYPASS, which leads past tc's rules and not past these."""
    nft = shutil.which("nft")
    if nft is None:
        pytest.skip("nft(8) is missing: apt install nftables")
    heard = {}
    for rules in (False, True):
        if rules:
            policy = site.directory / "policy.toml"
            policy.write_text(POLICY.replace(', "renamed0"', ""))
            egress = site.run([str(site.directory / "barewire-broker"), "egress", "--policy", str(policy)])
            assert egress.returncode == 0, egress.stderr
            for _ in range(2):  # They replace themselves.
                loaded = site.lab.run("h1", [nft, "-f", "-"], input=egress.stdout, capture_output=True, text=True)
                assert loaded.returncode == 0, loaded.stderr
        listener = site.lab.popen("h2", [sys.executable, "-c", HEAR], stdout=subprocess.PIPE, text=True)
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        assert site.python(ALICE, FORGE, bypass) == 0
        heard[rules] = json.loads(listener.communicate(timeout=20)[0])
    mine = site.lab.host("h1").mac.replace(":", "")
    assert len(heard[False]) >= 6, "a locked filter stops nothing that is sent"
    assert heard[True] == [[mine, "0009", 0x20], [mine, "0009", 0x21], [mine, "8870", 0x20], [mine, "8870", 0x20]]
    listing = site.run([nft, "list", "table", "netdev", "barewire"]).stdout
    assert 'device "lo"' in listing


def test_there_are_no_egress_rules_for_an_interface_above_another(site: Site) -> None:
    """Its frames pass the other one's hook as well, which would drop them."""
    link = ["ip", "link", "add", "link", "eth0", "name", "above0", "type", "macvlan"]
    assert site.lab.run("h1", link, check=False).returncode == 0
    policy = site.directory / "above.toml"
    policy.write_text('[[allow]]\nusers = ["root"]\ninterfaces = ["above0"]\nsaps = ["0x10"]\nat_most = 1\n')
    done = site.run([str(site.directory / "barewire-broker"), "egress", "--policy", str(policy)])
    site.lab.run("h1", ["ip", "link", "delete", "above0"], check=True)
    assert done.returncode == 2 and not done.stdout and "leave through eth0" in done.stderr, done.stderr
