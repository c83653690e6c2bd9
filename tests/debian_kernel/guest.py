# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a program under Debian's kernel: a guest in qemu that sees this machine's files, and can change none of them."""

import shutil
import subprocess
from pathlib import Path

from barewire.guests.debian import CannotBuild
from barewire.guests.image import Image
from barewire.guests.machines import QEMU, qemu_command

# Some 10 s on an idle machine.
TIMEOUT_S = 150.0


def check() -> None:
    """Raise CannotBuild, saying what to install, if this machine has no qemu."""
    if shutil.which(QEMU) is None:
        raise CannotBuild(f"no {QEMU}. Fix: apt-get install qemu-system-x86")


def run(image: Image, program: str, scratch: Path) -> str:
    """Run a shell's command in the guest; return what it has printed. Quotes must be single ones."""
    said, log = scratch / "said", scratch / "log"
    ends = "echo 'guest: done' >/dev/ttyS0; echo o >/proc/sysrq-trigger; sleep 60"
    command = qemu_command(image, f"({program}) >/dev/ttyS1 2>&1; {ends}", processors=2)
    for name, path in (("log", log), ("said", said)):
        command += ["-chardev", f"file,id={name},path={path}", "-serial", f"chardev:{name}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    kernel_log = log.read_text(errors="replace") if log.exists() else ""
    assert done.returncode == 0 and "guest: done" in kernel_log, f"{done.stderr}\n{kernel_log}"
    return said.read_text(errors="replace")
