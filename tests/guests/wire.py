# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An interface in a lab's host that ends at a descriptor, which an emulated machine takes for its cable."""

import socket
import subprocess
import sys
from pathlib import Path

from barewire.lab import Lab

_ATTACH = Path(__file__).with_name("attach.py")


class NoWire(Exception):
    """The host's kernel refuses the interface, or the socket."""


def attached(lab: Lab, host: str, kind: str, interface: str) -> int:
    """Have attach.py make a "tap" or a "socket" in the host, and return its descriptor."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = [sys.executable, "-I", "-S", str(_ATTACH), kind, interface]
        done = lab.run(host, command, stdin=theirs, stderr=subprocess.PIPE, text=True, check=False)
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        if done.returncode != 0 or not descriptors:
            raise NoWire(f"no {kind} on {interface} in {host}: {done.stderr.strip()}")
        return descriptors[0]
