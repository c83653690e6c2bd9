# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes the guest: Debian's own kernel, the modules AF_LLC needs, and one static program. Nothing is installed.

The result lies in target/kernel-llc/VERSION-DIGEST/, VERSION being the kernel package's and DIGEST that of everything
here that goes into the guest; so it is made once, in some seconds, and again when either changes.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from barewire.guests import debian, initramfs
from barewire.guests.cache import make_once
from barewire.guests.debian import CannotBuild, Debian, modules_in_order
from barewire.guests.image import META_PACKAGE, uncompressed
from barewire.guests.initramfs import Archive

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "target" / "kernel-llc"
MODULES = ("virtio_pci", "virtio_net", "llc2", "sch_netem")
SOURCES = ("init.c", "roles.c", "netem.c", "guest.h")
COMPILER = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static")


@dataclass(frozen=True)
class Image:
    """What qemu boots."""

    kernel: Path
    initramfs: Path
    version: str


def build() -> Image:
    """Return the image, made now if it is not in the cache; CannotBuild says what is missing."""
    _need("apt-get", "dpkg-deb", "gcc")
    packages = Debian(f"apt-get update, on a Debian of amd64; {_apt_line()}")
    package, version = packages.concrete(META_PACKAGE)
    directory = CACHE / f"{version}-{_digest()}"
    make_once(directory, lambda image, scratch: _make(packages, f"{package}={version}", image, scratch))
    return Image(directory / "vmlinux", directory / "initramfs.cpio", version)


def _need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise CannotBuild(f"no {', '.join(missing)} here. Fix: on a Debian of amd64, {_apt_line()}")


def _apt_line() -> str:
    lines = (HERE / "apt.txt").read_text().splitlines()
    return "apt-get install " + " ".join(line for line in lines if line and not line.startswith("#"))


def _digest() -> str:
    state = hashlib.sha256(repr((MODULES, COMPILER)).encode())
    for path in (*(HERE / name for name in SOURCES), Path(__file__), Path(debian.__file__), Path(initramfs.__file__)):
        state.update(path.read_bytes())
    return state.hexdigest()[:12]


def _make(packages: Debian, package: str, image: Path, scratch: Path) -> None:
    tree = scratch / "tree"
    packages.unpack(package, tree)
    (image / "vmlinux").write_bytes(uncompressed(next((tree / "boot").glob("vmlinuz-*")).read_bytes()))
    program = scratch / "init"
    sources = [str(HERE / name) for name in SOURCES if name.endswith(".c")]
    packages.output([*COMPILER, "-o", str(program), *sources, "-lm"])
    archive = Archive()
    archive.add_directory("dev")
    archive.add_console()
    archive.add_file("init", program.read_bytes(), 0o755)
    archive.add_modules(modules_in_order(tree, MODULES))
    (image / "initramfs.cpio").write_bytes(archive.packed())


if __name__ == "__main__":
    print(build())
