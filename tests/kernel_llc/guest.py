# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A Linux kernel with AF_LLC sockets as a peer: a guest in qemu, on a tap interface inside a host of a lab.

    host of the lab ── tap0 ══ descriptor ══ qemu ── eth0 of the guest ── llc2 ── init.c

The test's side of the wire is tap0: a packet socket of this process (`Guest.socket`), or any program run in that host
(`lab.popen`). The guest ends with the block, and with the lab; tap0 ends with the guest.
"""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

from guests.wire import attached

from barewire.lab import Lab
from kernel_llc.image import Image

QEMU = "qemu-system-x86_64"
GUEST_MAC = "02:00:00:77:00:01"
MEMORY_MIB = 192
# It takes 3 s on an idle core; a machine that does much else besides must still get there.
READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0
# No IPv6, so that LLC is all that the guest ever sends; a panic ends qemu (-no-reboot).
KERNEL_ARGUMENTS = "console=ttyS0 loglevel=4 panic=-1 ipv6.disable=1 mitigations=off random.trust_cpu=on tsc=reliable"
# What a socket may have received and not yet read, in bytes: more than any test sends, for beyond it I PDUs are dropped
# (README.md, 14). And what it may have sent that is not acknowledged: 52 I PDUs of full size, fewer than any receive
# window here, for nothing else bounds that after a REJ (25).
KERNEL_ARGUMENTS += " sysctl.net.core.rmem_default=8000000 sysctl.net.core.wmem_default=120000"

Record = dict[str, Any]


class GuestFailed(Exception):
    """The guest ended, kept silent, or could not do what it was told."""


@dataclass(frozen=True)
class Order:
    """Something the guest shall do; roles.c, netem.c and init.c say which fields each has."""

    name: str
    fields: dict[str, object] = field(default_factory=dict)

    def text(self, number: int) -> str:
        """Return the order as the guest reads it."""
        return f"{self.name}:" + ",".join(f"{key}={value}" for key, value in {"id": number, **self.fields}.items())


def order(name: str, **fields: object) -> Order:
    """Return an order: `order("echo", sap=0x20, retry=20)`."""
    return Order(name, fields)


class Guest:
    """A running guest. Orders are numbered from 1; the guest's records carry the number of the order they answer."""

    def __init__(self, image: Image, lab: Lab, *orders: Order, host: str = "h1", cores_of: str = "h2") -> None:
        """Describe a guest on a tap interface in `host`, run on the cores of `cores_of`, that begins with `orders`."""
        self.interface = "tap0"
        self.mac = bytes.fromhex(GUEST_MAC.replace(":", ""))
        self._image, self._lab, self._host, self._cores_of = image, lab, host, cores_of
        self._orders = orders
        self._orders_given = len(orders)
        self._process: subprocess.Popen[bytes] | None = None
        self._console: IO[bytes]
        self._unread = b""
        self._records: list[Record] = []  # heard, not yet asked for
        self._log = lab.directory / f"guest-{host}.log"
        self._complaints = lab.directory / f"qemu-{host}.log"

    @staticmethod
    def check() -> None:
        """Raise GuestFailed, saying what to install, if this machine has no qemu."""
        if shutil.which(QEMU) is None:
            raise GuestFailed(f"no {QEMU}. Fix: apt-get install qemu-system-x86")

    def __enter__(self) -> "Guest":
        """Boot, and return when the guest's interface is up and its first orders are obeyed."""
        tap = attached(self._lab, self._host, "tap", self.interface)
        try:
            self._process = self._start(tap)
        finally:
            os.close(tap)
        assert self._process.stdout is not None
        self._console = self._process.stdout
        try:
            self.wait("ready", timeout_s=READY_TIMEOUT_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the guest, and with it the interface."""
        self._end()

    def socket(self) -> socket.socket:
        """Return a packet socket on the test's side of the wire that receives frames with a length field."""
        return socket.socket(fileno=attached(self._lab, self._host, "socket", self.interface))

    def order(self, name: str, **fields: object) -> int:
        """Give an order and return its number."""
        assert self._process is not None and self._process.stdin is not None
        self._orders_given += 1
        self._process.stdin.write(order(name, **fields).text(self._orders_given).encode() + b"\n")
        self._process.stdin.flush()
        return self._orders_given

    def wait(self, event: str, number: int | None = None, *, timeout_s: float = 10.0, **members: object) -> Record:
        """Return the first record of that event, order and content that no earlier call returned.

        GuestFailed if the guest reports that the order failed, dies, or says nothing of the kind in time.
        """
        deadline = time.monotonic() + timeout_s
        wanted = {"event": event, **members} | ({} if number is None else {"id": number})
        while True:
            for index, record in enumerate(self._records):
                if wanted.items() <= record.items():
                    return self._records.pop(index)
                if record["event"] in ("failed", "dead") and event != "failed" and number in (None, record.get("id")):
                    raise GuestFailed(f"the guest reports {record}\n{self.kernel_log()}")
            if not self._hear(deadline):
                raise GuestFailed(f"no record {wanted} in {timeout_s} s, only {self._records}\n{self.kernel_log()}")

    def kill(self) -> None:
        """End the guest at once, as if it had crashed."""
        assert self._process is not None
        self._process.kill()

    def kernel_log(self) -> str:
        """Return what the guest's kernel and qemu have complained about."""
        paths = [path for path in (self._log, self._complaints) if path.exists()]
        return "".join(path.read_text(errors="replace") for path in paths)

    def _start(self, tap: int) -> "subprocess.Popen[bytes]":
        self.check()
        words = " ".join(given.text(number) for number, given in enumerate(self._orders, 1))
        command = [QEMU, "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MIB)]
        command += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
        command += ["-kernel", str(self._image.kernel), "-initrd", str(self._image.initramfs)]
        command += ["-append", f"{KERNEL_ARGUMENTS} -- {words}"]
        command += ["-netdev", f"tap,id=wire,fd={tap}"]
        command += ["-device", f"virtio-net-pci,netdev=wire,mac={GUEST_MAC},romfile="]
        command += ["-chardev", f"file,id=log,path={self._log}", "-serial", "chardev:log"]
        command += ["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]
        with self._complaints.open("wb") as complaints:
            return self._lab.popen(
                self._cores_of,
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                pass_fds=[tap],
                bufsize=0,
            )

    def _hear(self, deadline: float) -> bool:
        """Take in what the guest says next; False when the time is over. GuestFailed if it has ended."""
        readable, _, _ = select.select([self._console], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            return False
        chunk = os.read(self._console.fileno(), 65536)
        if not chunk:
            raise GuestFailed(f"the guest has ended\n{self.kernel_log()}")
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        self._records += [json.loads(line) for line in lines if line.startswith(b"{")]
        return True

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                assert stream is not None
                stream.close()
        self._process = None


def pattern(seed: int, length: int) -> bytes:
    """Return the bytes that the guest's `connect` sends and expects back."""
    state, data = seed, bytearray()
    for _ in range(length):
        state = (state * 1664525 + 1013904223) & 0xFFFF_FFFF
        data.append(state >> 24)
    return bytes(data)
