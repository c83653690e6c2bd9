# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Switches that are sockets only: a fat-tree that speaks OpenFlow 1.3 to a controller and creates new flows at a rate.

Usage: synthetic_switches.py SOCKET K FLOWS RATE LIFE_S; prints one JSON document when all flows have been answered.

They answer the handshake, barriers, echoes and statistics, forward LLDP probes to the other end of their links, keep
the first rule of each flow for LIFE_S and report its removal. They cost less than the controller, so that it can be
measured beside them on two cores.
"""

import asyncio
import json
import random
import struct
import sys
import time
from pathlib import Path

from os_ken.ofproto import ofproto_v1_3 as of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from barewire.sdn.controller.rules import Kind, kind_of
from barewire.sdn.openflow.codec import HEADER, framed
from barewire.topology import Network, Port, fat_tree

_TCP_PORTS = (b"\x80\x00\x1a\x02", b"\x80\x00\x1c\x02")
_PORTS_FROM = 1024
_PORTS = 60_000
_ENTRIES_PER_PART = 1000
_LLDP = b"\x88\xcc"


class Switch(asyncio.Protocol):
    """One switch's connection."""

    def __init__(self, world: "World", name: str) -> None:
        """Create a switch of a world."""
        self.world, self.name = world, name
        self.transport: asyncio.Transport
        self._received = bytearray()
        # Cookie to when the rule was set, for flows that enter here.
        self.first_rules: dict[int, float] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send a hello."""
        self.transport = transport  # type: ignore[assignment]
        self.world.switches[self.name] = self
        self.send(of.OFPT_HELLO)

    def send(self, kind: int, body: bytes = b"", xid: int = 0) -> None:
        """Send a message."""
        self.transport.write(framed(kind, xid, body))

    def data_received(self, data: bytes) -> None:
        """Handle the controller's messages."""
        self._received += data
        position = 0
        while len(self._received) - position >= HEADER.size:
            _, kind, length, xid = HEADER.unpack_from(self._received, position)
            if len(self._received) - position < length:
                break
            self._handle(kind, xid, bytes(self._received[position + HEADER.size : position + length]))
            position += length
        del self._received[:position]

    def _handle(self, kind: int, xid: int, body: bytes) -> None:
        if kind == of.OFPT_FLOW_MOD:
            self._rule(body)
        elif kind == of.OFPT_BARRIER_REQUEST:
            self.send(of.OFPT_BARRIER_REPLY, xid=xid)
        elif kind == of.OFPT_PACKET_OUT:
            self._packet_out(body)
        elif kind == of.OFPT_ECHO_REQUEST:
            self.send(of.OFPT_ECHO_REPLY, body, xid)
        elif kind == of.OFPT_FEATURES_REQUEST:
            self.send(of.OFPT_FEATURES_REPLY, struct.pack("!QIBB2xII", int(self.name[1:]), 0, 1, 0, 0, 0), xid)
        elif kind == of.OFPT_MULTIPART_REQUEST:
            self._multipart(xid, int.from_bytes(body[:2], "big"), body)

    def _multipart(self, xid: int, kind: int, body: bytes) -> None:
        parts = [b""]
        if kind == of.OFPMP_PORT_DESC:
            rate = (0, 0, 0, 0, 0, 0, 10**6, 0)
            numbers = [port.number for port in self.world.network.ports[self.name]]
            ports = [struct.pack(of.OFP_PORT_PACK_STR, number, bytes(6), b"port", *rate) for number in numbers]
            parts = [b"".join(ports)]
        elif kind == of.OFPMP_FLOW and kind_of(struct.unpack_from("!Q", body, 24)[0]) is Kind.FLOW:
            now = time.monotonic()
            match = struct.pack("!HH4x", of.OFPMT_OXM, 4)
            entries = [
                struct.pack(of.OFP_FLOW_STATS_0_PACK_STR, 56, 0, int(now - since), 0, 300, 0, 0, 0, cookie, 1, 100)
                + match
                for cookie, since in self.first_rules.items()
            ]
            step = _ENTRIES_PER_PART
            parts = [b"".join(entries[at : at + step]) for at in range(0, len(entries), step)] or parts
        for number, part in enumerate(parts, start=1):
            more = of.OFPMPF_REPLY_MORE if number < len(parts) else 0
            self.send(of.OFPT_MULTIPART_REPLY, struct.pack("!HH4x", kind, more) + part, xid)

    def _rule(self, body: bytes) -> None:
        (cookie,) = struct.unpack_from("!Q", body)
        self.world.rules += 1
        flags = struct.unpack_from("!H", body, 36)[0]
        if body[17] == of.OFPFC_ADD and flags & of.OFPFF_SEND_FLOW_REM:
            self.first_rules[cookie] = time.monotonic()
            source, destination = (body[at + 4 : at + 6] for at in map(body.find, _TCP_PORTS))
            self.world.rule_installed(source + destination)

    def _packet_out(self, body: bytes) -> None:
        actions = struct.unpack_from("!H", body, 8)[0]
        frame = body[16 + actions :]
        if frame[12:14] == _LLDP:
            self.world.forward(Port(self.name, struct.unpack_from("!I", body, 20)[0]), frame)

    def packet_in(self, port: int, frame: bytes) -> None:
        """Send a frame to the controller."""
        match = struct.pack("!HHII4x", of.OFPMT_OXM, 12, 0x8000_0004, port)
        self.send(
            of.OFPT_PACKET_IN, struct.pack("!IHBBQ", of.OFP_NO_BUFFER, len(frame), 0, 0, 0) + match + b"\0\0" + frame
        )

    def expire(self, before: float) -> None:
        """Report expired rules as removed."""
        for cookie in [cookie for cookie, since in self.first_rules.items() if since < before]:
            del self.first_rules[cookie]
            body = struct.pack(of.OFP_FLOW_REMOVED_PACK_STR0, cookie, 300, of.OFPRR_IDLE_TIMEOUT, 0, 1, 0, 0, 0, 1, 100)
            self.send(of.OFPT_FLOW_REMOVED, body + struct.pack("!HH4x", of.OFPMT_OXM, 4))


class World:
    """All switches, and the results of their flows."""

    def __init__(self, network: Network) -> None:
        """Create a world without connections."""
        self.network = network
        self.switches: dict[str, Switch] = {}
        self.asked_s: dict[bytes, float] = {}
        self.installed_s: dict[bytes, float] = {}
        self.rules = 0

    def forward(self, port: Port, frame: bytes) -> None:
        """Forward a probe that leaves a port."""
        peer = self.network.peers.get(port)
        if peer is not None and peer.node in self.switches:
            self.switches[peer.node].packet_in(peer.number, frame)

    def rule_installed(self, key: bytes) -> None:
        """Record that a flow's first switch has its rule."""
        if key in self.asked_s:
            self.installed_s.setdefault(key, time.monotonic() - self.asked_s[key])

    def start_flow(self, source: str, destination: str, key: bytes) -> None:
        """Send a new connection's first packet to the controller."""
        port = self.network.attachment(source)
        assert port is not None
        self.asked_s[key] = time.monotonic()
        self.switches[port.node].packet_in(port.number, _frame(source, destination, key))


async def run(socket_path: str, k: int, flows: int, rate: float, life_s: float) -> dict[str, object]:
    """Connect, let the controller learn the hosts, then create flows."""
    world = World(fat_tree(k, servers=0))
    loop = asyncio.get_running_loop()
    for name in world.network.switches:
        await loop.create_unix_connection(lambda name=name: Switch(world, name), socket_path)  # type: ignore[misc]
    await asyncio.sleep(2)
    hosts = list(world.network.hosts)
    for number, host in enumerate(hosts):
        world.start_flow(host, hosts[number - 1], struct.pack("!HH", 1, 1 + number))
    await asyncio.sleep(1)
    for record in (world.asked_s, world.installed_s):
        record.clear()
    world.rules = 0
    generator = random.Random(1)
    started = time.monotonic()
    expired = started
    for number in range(flows):
        due = started + number / rate
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        elif number % 32 == 0:
            await asyncio.sleep(0)
        source, destination = generator.sample(hosts, 2)
        world.start_flow(
            source, destination, struct.pack("!HH", _PORTS_FROM + number % _PORTS, _PORTS_FROM + number // _PORTS)
        )
        if time.monotonic() > expired + 0.1:
            expired = time.monotonic()
            for switch in world.switches.values():
                switch.expire(expired - life_s)
    deadline = time.monotonic() + 10
    while len(world.installed_s) < flows and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    elapsed_s = time.monotonic() - started
    return {
        "flows": flows,
        "asked_s": flows / elapsed_s,
        "rules": world.rules,
        "installed": len(world.installed_s),
        "installed_s": sorted(world.installed_s.values()),
    }


def _frame(source: str, destination: str, key: bytes) -> bytes:
    ends = b"".join(bytes((10, 77, 0, int(host[1:]))) for host in (source, destination))
    head = b"\x45\0\0\x28\0\0\0\0\x40\x06\0\0"
    return _mac(destination) + _mac(source) + b"\x08\0" + head + ends + key + bytes(16)


def _mac(host: str) -> bytes:
    return b"\x02\xba\x7e\0\0" + bytes((int(host[1:]),))


if __name__ == "__main__":
    socket_path, k, flows, rate, life_s = sys.argv[1:]
    print(json.dumps(asyncio.run(run(socket_path, int(k), int(flows), float(rate), float(life_s)))))
