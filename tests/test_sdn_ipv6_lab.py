# SPDX-License-Identifier: Apache-2.0 OR MIT
"""IPv6 and tagged frames through a controlled network of real Open vSwitch, with the hosts' own kernels."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from conftest import eventually, stand_up

from barewire.lab import Lab, LinkSpec
from barewire.sdn.bench.controlled import Controller, controlled

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")
RATE_BIT_S = 25_000_000
TAG = 7

# Counts what asks for an address and comes to this host, by its tag; answers such questions of ARP in the VLANs given
# as VLAN=ADDRESS. A line of input "VLAN ADDRESS" asks for one, and prints the tag and the MAC address of the answer, or
# null after 2 s; an empty line prints the counts.
NODE = """
import json, select, socket, sys, time
AUXDATA, PACKET, OUTGOING = 8, 263, 4
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.setsockopt(PACKET, AUXDATA, 1)
link.bind(("eth0", 3))
mac = bytes.fromhex(open("/sys/class/net/eth0/address").read().replace(":", ""))
own = {(int(vlan), socket.inet_aton(address)) for vlan, _, address in (word.partition("=") for word in sys.argv[1:])}
counts, awaited = {}, None

def send(to, vlan, operation, sender, target_mac, target):
    said = b"\\0\\1\\x08\\0\\6\\4\\0" + bytes([operation]) + mac + sender + target_mac + target
    link.send(to + mac + b"\\x81\\0" + vlan.to_bytes(2, "big") + b"\\x08\\x06" + said.ljust(46, b"\\0"))

def received():
    global awaited
    frame, ancillary, _, origin = link.recvmsg(2048, 256)
    if origin[2] == OUTGOING:
        return
    vlan = 0
    for level, kind, data in ancillary:
        if (level, kind) == (PACKET, AUXDATA) and int.from_bytes(data[:4], sys.byteorder) & 16:
            vlan = int.from_bytes(data[16:18], sys.byteorder) & 0xFFF
    if frame[12:14] == b"\\x86\\xdd" and frame[20] == 58 and frame[54] == 135:
        key = f"{vlan} {socket.inet_ntop(socket.AF_INET6, frame[62:78])}"
    elif frame[12:14] == b"\\x08\\x06" and frame[21] == 1:
        key = f"{vlan} {socket.inet_ntoa(frame[38:42])}"
        if (vlan, frame[38:42]) in own:
            send(frame[6:12], vlan, 2, frame[38:42], frame[22:28], frame[28:32])
    else:
        if frame[12:14] == b"\\x08\\x06" and frame[21] == 2 and awaited == frame[28:32]:
            print(json.dumps([vlan, frame[22:28].hex(":")]), flush=True)
            awaited = None
        return
    counts[key] = counts.get(key, 0) + 1

print("ready", flush=True)
while True:
    patience_s = None if awaited is None else max(0, until - time.monotonic())
    ready, _, _ = select.select([link, sys.stdin], [], [], patience_s)
    if awaited is not None and time.monotonic() >= until:
        print("null", flush=True)
        awaited = None
    if link in ready:
        received()
    elif sys.stdin in ready:
        line = sys.stdin.readline()
        if not line:
            break
        if not line.strip():
            print(json.dumps(counts), flush=True)
            continue
        vlan, address = line.split()
        awaited, until = socket.inet_aton(address), time.monotonic() + 2
        send(b"\\xff" * 6, int(vlan), 1, bytes([10, 99, 0, mac[5]]), bytes(6), awaited)
"""

ECHO = """
import socket
server = socket.create_server(("::", 5000), family=socket.AF_INET6)
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
"""
# To each address a connection with a pattern there and back; prints how many came back whole.
CONNECT = """
import socket, sys
whole = 0
for address in sys.argv[1:]:
    with socket.create_connection((address, 5000), timeout=10) as connection:
        connection.sendall(bytes(range(250)) * 200)
        back = b""
        while len(back) < 50000 and (data := connection.recv(65536)):
            back += data
        whole += back == bytes(range(250)) * 200
print(whole)
"""


class Node:
    """A host's program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def said(self, line: str = "") -> Any:
        """Give it a line, and return what it answers."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def running(lab: Lab, host: str, program: str, *arguments: str) -> Iterator[Node]:
    command = [sys.executable, "-I", "-S", "-c", program, *arguments]
    process = lab.popen(host, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield Node(process)
    finally:
        process.kill()
        process.communicate()


def with_ipv6(lab: Lab, host: str, *addresses: str) -> None:
    """Switch IPv6 on at a host, which a lab switches off, and give it addresses; it finds out whether they are free."""
    commands = ["echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6"]
    commands += [f"ip -6 addr add {address}/64 dev eth0" for address in addresses]
    lab.run(host, ["sh", "-c", " && ".join(commands)], check=True)


def is_ready(lab: Lab, host: str) -> bool:
    shown = lab.run(host, ["ip", "-6", "addr", "show", "tentative"], capture_output=True, text=True, check=True)
    return not shown.stdout.strip()


def addresses_of(controller: Controller, host: str) -> tuple[set[str], set[tuple[int, str]]]:
    """What the controller knows of a host: addresses without a tag, and those with one."""
    (found,) = [one for one in controller.client.get("hosts")["hosts"] if one["name"] == host]
    return set(found["addresses"]), {(one["vlan"], one["address"]) for one in found["tagged"]}


def asks_alone(listeners: Sequence[Node], ask: Callable[[], None], questions: Sequence[str]) -> bool:
    """Whether none of these questions comes to a listener. Rules for a new address may not be installed at first."""
    before = [listener.said() for listener in listeners]
    ask()
    after = [listener.said() for listener in listeners]
    return all(
        then.get(question) == now.get(question)
        for then, now in zip(before, after, strict=True)
        for question in questions
    )


def test_ipv6_is_placed_and_tags_are_kept_and_neighbours_are_found_without_floods() -> None:
    """h1 and h3 are at different switches, each with two addresses of IPv6; h2 and h4 only listen."""
    one, two = ["fd00:77::1", "fd00:78::1"], ["fd00:77::3", "fd00:78::3"]
    with ExitStack() as stack:
        lab = stack.enter_context(stand_up("leaf-spine:2x2x2", LinkSpec(RATE_BIT_S)))
        controller = stack.enter_context(controlled(lab, ["default=ecmp"], RATE_BIT_S))
        asker = stack.enter_context(running(lab, "h1", NODE, f"{TAG}=10.99.0.1"))
        stack.enter_context(running(lab, "h3", NODE, f"{TAG}=10.99.0.3"))
        listeners = [stack.enter_context(running(lab, host, NODE)) for host in ("h2", "h4")]

        # IPv6.
        with_ipv6(lab, "h1", *one)
        with_ipv6(lab, "h3", *two)
        stack.enter_context(running(lab, "h3", ECHO))
        assert eventually(lambda: is_ready(lab, "h1") and is_ready(lab, "h3"), 10)
        for _ in range(2):
            done = lab.run("h1", [sys.executable, "-I", "-S", "-c", CONNECT, *two], capture_output=True, text=True)
            assert done.stdout == "2\n", done.stderr
        assert eventually(
            lambda: set(two) <= addresses_of(controller, "h3")[0] and set(one) <= addresses_of(controller, "h1")[0]
        )
        flows = controller.client.get("flows")["flows"]
        six = [flow for flow in flows if flow["protocol"] == "tcp6" and flow["source"] == "h1"]
        assert len(six) == 4 and all(len(flow["path"]) == 3 and flow["destination_port"] == 5000 for flow in six)
        assert all("ecmp" in flow["why"] or "hash" in flow["why"] for flow in six), six
        before = [listener.said() for listener in listeners]
        assert all(f"0 {address}" in counts for counts in before for address in two), (
            "who is not known yet is asked of all"
        )

        def connect_anew() -> None:
            lab.run("h1", ["ip", "-6", "neigh", "flush", "dev", "eth0"], check=True)
            done = lab.run("h1", [sys.executable, "-I", "-S", "-c", CONNECT, *two], capture_output=True, text=True)
            assert done.stdout == "2\n", done.stderr

        assert eventually(lambda: asks_alone(listeners, connect_anew, [f"0 {address}" for address in two])), "flooded"

        # Tags.
        there = lab.host("h3").mac
        assert asker.said(f"{TAG} 10.99.0.3") == [TAG, there], "flooded once, and answered with the tag"
        assert eventually(lambda: (TAG, "10.99.0.3") in addresses_of(controller, "h3")[1])
        assert [listener.said().get(f"{TAG} 10.99.0.3") for listener in listeners] == [1, 1]

        def ask() -> None:
            assert asker.said(f"{TAG} 10.99.0.3") == [TAG, there]

        assert eventually(lambda: asks_alone(listeners, ask, [f"{TAG} 10.99.0.3"])), "flooded"
        assert asker.said(f"{TAG + 1} 10.99.0.3") is None, "in another VLAN nobody has it"
        assert [listener.said().get(f"{TAG + 1} 10.99.0.3") for listener in listeners] == [1, 1]
