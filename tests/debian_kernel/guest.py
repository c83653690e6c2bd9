# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a program under Debian's kernel: a guest in qemu that sees this machine's files, and can change none of them."""

import shutil
import subprocess
from pathlib import Path

from kernel_llc.guest import KERNEL_ARGUMENTS

from barewire.guests.debian import CannotBuild
from barewire.guests.image import Image

QEMU = "qemu-system-x86_64"
MEMORY_MIB = 512
# Some 10 s on an idle machine.
TIMEOUT_S = 150.0


def check() -> None:
    """Raise CannotBuild, saying what to install, if this machine has no qemu."""
    if shutil.which(QEMU) is None:
        raise CannotBuild(f"no {QEMU}. Fix: apt-get install qemu-system-x86")


def run(image: Image, program: str, scratch: Path) -> str:
    """Run a shell's command in the guest; return what it has printed. Quotes must be single ones."""
    said, log = scratch / "said", scratch / "log"
    command = [QEMU, "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "2"]
    command += ["-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    command += ["-kernel", str(image.kernel), "-initrd", str(image.initramfs)]
    command += ["-append", f'{KERNEL_ARGUMENTS} rdinit=/init "PROGRAM={program}"']
    command += ["-fsdev", "local,id=machine,path=/,security_model=none,readonly=on,multidevs=remap"]
    command += ["-device", "virtio-9p-pci,fsdev=machine,mount_tag=machine"]
    for name, path in (("log", log), ("said", said)):
        command += ["-chardev", f"file,id={name},path={path}", "-serial", f"chardev:{name}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    kernel_log = log.read_text(errors="replace") if log.exists() else ""
    assert done.returncode == 0 and "guest: done" in kernel_log, f"{done.stderr}\n{kernel_log}"
    return said.read_text(errors="replace")
