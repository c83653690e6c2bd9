# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An arm64 board on a cable to a host of a lab: a guest in qemu, which launchers reach by ssh like any machine.

    host of the lab ── eth1 10.78.0.1 ══ descriptor ══ qemu-system-aarch64 ── eth1 10.78.0.2 of the board ── sshd

The board ends with the block, and with the lab; the host's interface ends with the board.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from guests.wire import attached

from barewire.guests.initramfs import Archive
from barewire.lab import Lab
from boards.image import Image

QEMU = "qemu-system-aarch64"
MACHINE = ("-machine", "virt", "-accel", "tcg", "-smp", "1", "-m", "3072")
# By the size of a page in KiB. A Cortex-A72 is what a Raspberry Pi 4 has, but with instructions for AES, which that one
# lacks; it has no pages of 16 KiB. Signing of pointers takes much time to emulate.
PROCESSORS = {4: "cortex-a72", 16: "max,pauth=off"}
INTERFACE = "eth1"
HOST_ADDRESS, BOARD_ADDRESS = "10.78.0.1", "10.78.0.2"
MAC = "02:00:00:77:00:02"
# It takes 4 s on an idle core; a machine that does much else besides must still get there.
READY_TIMEOUT_S = 120.0
END_TIMEOUT_S = 10.0
KERNEL_ARGUMENTS = "console=ttyAMA0 loglevel=4 panic=-1 ipv6.disable=1 mitigations=off random.trust_cpu=on rdinit=/init"
_USERS = "root:x:0:0::/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n"
_SSHD = """HostKey /etc/ssh/host
AuthorizedKeysFile /etc/ssh/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
"""
_SSH = """IdentityFile {0}/user
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


class BoardFailed(Exception):
    """The board ended or kept silent, or this machine cannot emulate one."""


class Board:
    """A running board."""

    def __init__(self, image: Image, lab: Lab, page_kib: int = 4) -> None:
        """Describe a board beside the lab's first host, run on the cores of the second."""
        self.lab = lab
        self.page_kib = page_kib
        self._image = image
        self._folder = lab.directory / "board"
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def check() -> None:
        """Raise BoardFailed, saying what to install, if this machine cannot emulate a board."""
        for program, package in ((QEMU, "qemu-system-arm"), ("ssh-keygen", "openssh-client")):
            if shutil.which(program) is None:
                raise BoardFailed(f"no {program}. Fix: apt-get install {package}")

    def __enter__(self) -> "Board":
        """Boot, and return when the board's sshd listens."""
        self.check()
        (self._folder / "bin").mkdir(parents=True)
        for name in ("host", "user"):
            key = str(self._folder / name)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        (self._folder / "ssh_config").write_text(_SSH.format(self._folder))
        ssh = self._folder / "bin" / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self._folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)
        initramfs = self._folder / "initramfs.cpio"
        parts = (self._image.initramfs, self._image.modules(self.page_kib))
        initramfs.write_bytes(b"".join(part.read_bytes() for part in parts) + self._own_files())
        tap = attached(self.lab, "h1", "tap", INTERFACE)
        try:
            address = ["ip", "address", "add", f"{HOST_ADDRESS}/24", "dev", INTERFACE]
            self.lab.run("h1", address, check=True)
            self._process = self._start(tap, initramfs)
        finally:
            os.close(tap)
        try:
            self._wait_until_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the board, and with it the interface."""
        self._end()

    def environment(self) -> dict[str, str]:
        """Return this process's environment, in which `ssh` needs no password for the board."""
        return dict(os.environ) | {"PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}"}

    def run(self, command: str, **options: Any) -> "subprocess.CompletedProcess[Any]":
        """Run a shell's command on the board to its end."""
        ssh = [str(self._folder / "bin" / "ssh"), BOARD_ADDRESS, command]
        return self.lab.run("h1", ssh, check=False, **options)

    def put(self, file: Path, place: Path) -> None:
        """Copy a program or a library to an absolute path on the board."""
        with file.open("rb") as content:
            command = f"mkdir -p {place.parent} && cat >{place} && chmod 755 {place}"
            done = self.run(command, stdin=content, capture_output=True, text=True)
        if done.returncode != 0:
            raise BoardFailed(f"{place} cannot be written on the board: {done.stderr}")

    def kill(self) -> None:
        """End the board at once, as if its power had failed."""
        assert self._process is not None
        self._process.kill()

    def log(self) -> str:
        """Return what the board's kernel, its process 1 and its sshd have said."""
        return self._log.read_text(errors="replace")

    def _own_files(self) -> bytes:
        archive = Archive()
        archive.add_file("init", Path(__file__).with_name("init.sh").read_bytes(), 0o755)
        archive.add_file("etc/passwd", _USERS.encode())
        archive.add_file("etc/ssh/sshd_config", _SSHD.encode())
        archive.add_file("etc/ssh/host", (self._folder / "host").read_bytes(), 0o600)
        archive.add_file("etc/ssh/user.pub", (self._folder / "user.pub").read_bytes())
        archive.add_directory("root")
        return archive.packed()

    def _start(self, tap: int, initramfs: Path) -> "subprocess.Popen[bytes]":
        command = [
            QEMU,
            *MACHINE,
            "-cpu",
            PROCESSORS[self.page_kib],
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]
        command += ["-kernel", str(self._image.kernel(self.page_kib)), "-initrd", str(initramfs)]
        command += ["-append", f"{KERNEL_ARGUMENTS} INTERFACE={INTERFACE} ADDRESS={BOARD_ADDRESS}/24"]
        command += ["-netdev", f"tap,id=wire,fd={tap}"]
        command += ["-device", f"virtio-net-pci,netdev=wire,mac={MAC},romfile="]
        command += ["-chardev", f"file,id=log,path={self._log}", "-serial", "chardev:log"]
        with (self._folder / "qemu").open("wb") as complaints:
            return self.lab.popen("h2", command, stdin=subprocess.DEVNULL, stderr=complaints, pass_fds=[tap])

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (self._log.exists() and "board: ready" in self.log()):
            if self._process.poll() is not None:
                raise BoardFailed(f"the board has ended: {(self._folder / 'qemu').read_text()}")
            if time.monotonic() > deadline:
                raise BoardFailed(f"no board after {READY_TIMEOUT_S} s\n{self.log() if self._log.exists() else ''}")
            time.sleep(0.1)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
