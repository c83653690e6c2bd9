# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes a tap interface, or a socket on one, inside a lab's host and hands the descriptor out over standard input.

Usage: attach.py tap|socket INTERFACE, standard input being a Unix socket. Started as a script, so that it stays small.
The interface lasts as long as the descriptor does, which only qemu keeps.
"""

import fcntl
import os
import socket
import struct
import sys

TUNSETIFF = 0x4004_54CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFMTU = 0x8913, 0x8914, 0x8922
IFF_UP = 1
ETH_P_802_2 = 4  # frames with a length instead of an EtherType, and none of our own
MTU = 1500
_REQUEST = struct.Struct("16sh22x")  # struct ifreq with its flags
_REQUEST_MTU = struct.Struct("16si20x")


def make_tap(interface: str) -> int:
    """Make the interface, bring it up, and return the descriptor it lives by."""
    name = interface.encode()
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(tap, TUNSETIFF, _REQUEST.pack(name, IFF_TAP | IFF_NO_PI))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFMTU, _REQUEST_MTU.pack(name, MTU))
        flags = _REQUEST.unpack(fcntl.ioctl(control, SIOCGIFFLAGS, _REQUEST.pack(name, 0)))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, _REQUEST.pack(name, flags | IFF_UP))
    return tap


def open_socket(interface: str) -> int:
    """Return a socket that sends any frame on the interface and receives its LLC frames."""
    packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packet.bind((interface, ETH_P_802_2))
    return packet.detach()


if __name__ == "__main__":
    _, kind, interface_name = sys.argv
    descriptor = {"tap": make_tap, "socket": open_socket}[kind](interface_name)
    with socket.socket(fileno=0) as out:
        socket.send_fds(out, [b"."], [descriptor])
