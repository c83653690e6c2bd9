# SPDX-License-Identifier: Apache-2.0 OR MIT
# mypy: disable-error-code="no-untyped-call"
"""Tries kernel features one by one. Runs in a network namespace of its own, which ends with it; prints JSON.

Configuration files and versions are ignored: only the attempts count.
"""

import ctypes
import json
import mmap
import os
import socket
import struct
import sys
from collections.abc import Callable

from pyroute2.iproute.linux import IPRoute

from barewire.lab.plan import make_emulation, make_shaper
from barewire.lab.qdiscs import add_emulator, add_token_bucket
from barewire.lab.shaping import try_clock
from barewire.lab.spec import LinkSpec

# linux/if_packet.h, linux/if_xdp.h, linux/if_ether.h
SOL_PACKET, PACKET_RX_RING, PACKET_VERSION, PACKET_QDISC_BYPASS, TPACKET_V2 = 263, 5, 10, 20, 1
AF_XDP, SOL_XDP, XDP_RX_RING, XDP_TX_RING, XDP_UMEM_REG, XDP_FILL_RING, XDP_COMPLETION_RING = 44, 283, 2, 3, 4, 5, 6
XDP_COPY = 2
ETH_P_ALL = 3
_ONE, _OTHER, _BRIDGE = "try0", "try1", "trybr"
_CHUNK_BYTES, _CHUNKS = 4096, 16


def main() -> None:
    """Try all features; later attempts need the interfaces of earlier ones and fail without them."""
    attempts: list[tuple[str, Callable[[], None]]] = [
        ("veth", _veth),
        ("bridge", _bridge),
        ("tbf", _tbf),
        ("clock", try_clock),
        ("netem", _netem),
        ("htb", _htb),
        ("packet_ring", _packet_ring),
        ("qdisc_bypass", _qdisc_bypass),
        ("xdp_socket", _xdp_socket),
    ]
    results = {}
    for name, attempt in attempts:
        try:
            attempt()
            results[name] = ""
        except Exception as error:  # any exception means that the feature is missing
            results[name] = str(error) or repr(error)
    json.dump(results, sys.stdout)


def _veth() -> None:
    with IPRoute() as netlink:
        netlink.link("add", ifname=_ONE, kind="veth", peer={"ifname": _OTHER})
        for name in (_ONE, _OTHER):
            netlink.link("set", index=socket.if_nametoindex(name), state="up")


def _bridge() -> None:
    with IPRoute() as netlink:
        netlink.link("add", ifname=_BRIDGE, kind="bridge")
        netlink.link("set", index=socket.if_nametoindex(_ONE), master=socket.if_nametoindex(_BRIDGE))
        netlink.link("set", index=socket.if_nametoindex(_ONE), master=0)


def _tbf() -> None:
    with IPRoute() as netlink:
        add_token_bucket(netlink, socket.if_nametoindex(_ONE), make_shaper(10**9, 1500))


def _netem() -> None:
    with IPRoute() as netlink:
        add_emulator(netlink, socket.if_nametoindex(_OTHER), make_emulation(10**9, LinkSpec(10**9)))
        netlink.tc("del", "netem", socket.if_nametoindex(_OTHER))


def _htb() -> None:
    with IPRoute() as netlink:
        netlink.tc("add", "htb", index=socket.if_nametoindex(_OTHER), handle="1:", default="10")


def _packet_ring() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as ring:
        ring.bind((_OTHER, ETH_P_ALL))
        ring.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        blocks, block_bytes, frame_bytes = 4, 1 << 16, 1 << 11
        frames = blocks * block_bytes // frame_bytes
        ring.setsockopt(SOL_PACKET, PACKET_RX_RING, struct.pack("IIII", block_bytes, blocks, frame_bytes, frames))
        with mmap.mmap(ring.fileno(), blocks * block_bytes) as memory:
            memory[0] = memory[0]


def _qdisc_bypass() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((_OTHER, 0))
        sender.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
        sender.send(bytes.fromhex("ffffffffffff" + "02ba7e000001" + "88b5").ljust(60, b"\0"))


def _xdp_socket() -> None:
    """Bind an AF_XDP socket in copy mode, which every interface supports."""
    with socket.socket(AF_XDP, socket.SOCK_RAW) as xdp, mmap.mmap(-1, _CHUNKS * _CHUNK_BYTES) as memory:
        chunks = ctypes.c_char.from_buffer(memory)
        try:
            area = struct.pack("QQIII4x", ctypes.addressof(chunks), _CHUNKS * _CHUNK_BYTES, _CHUNK_BYTES, 0, 0)
            xdp.setsockopt(SOL_XDP, XDP_UMEM_REG, area)
            for ring in (XDP_FILL_RING, XDP_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING):
                xdp.setsockopt(SOL_XDP, ring, _CHUNKS)
            # sockaddr_xdp: family, flags, interface, queue, shared descriptor; Python knows no such address
            address = struct.pack("HHIII", AF_XDP, XDP_COPY, socket.if_nametoindex(_OTHER), 0, 0)
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.bind(xdp.fileno(), address, len(address)) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"bind: {os.strerror(number)}")
        finally:
            del chunks


if __name__ == "__main__":
    main()
