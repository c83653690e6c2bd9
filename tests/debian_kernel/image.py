# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes what qemu boots: Debian's own kernel, the modules that a lab needs, and busybox. Nothing is installed.

The result lies in target/debian-kernel/VERSION-DIGEST/, as that of kernel_llc/image.py does.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from guests import debian, initramfs
from guests.cache import make_once
from guests.debian import CannotBuild, Debian, modules_in_order
from guests.initramfs import Archive
from kernel_llc.image import META_PACKAGE, uncompressed

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "target" / "debian-kernel"
INIT = HERE / "init.sh"
SHELL = "busybox-static"
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "af_packet", "veth", "bridge")
MODULES += ("sch_tbf", "sch_netem", "sch_ingress", "cls_bpf")


@dataclass(frozen=True)
class Image:
    """What qemu boots."""

    kernel: Path
    initramfs: Path


def build() -> Image:
    """Return the image, made now if it is not in the cache; CannotBuild says what is missing."""
    missing = [program for program in ("apt-get", "dpkg-deb") if shutil.which(program) is None]
    if missing:
        raise CannotBuild(f"no {', '.join(missing)} here, which a Debian has")
    packages = Debian("apt-get update, on a Debian of amd64")
    package, version = packages.concrete(META_PACKAGE)
    directory = CACHE / f"{version}-{_digest()}"
    make_once(directory, lambda image, scratch: _make(packages, f"{package}={version}", image, scratch / "tree"))
    return Image(directory / "vmlinux", directory / "initramfs.cpio")


def _digest() -> str:
    state = hashlib.sha256(repr((MODULES, SHELL)).encode())
    for path in (INIT, Path(__file__), Path(debian.__file__), Path(initramfs.__file__)):
        state.update(path.read_bytes())
    return state.hexdigest()[:12]


def _make(packages: Debian, package: str, image: Path, tree: Path) -> None:
    packages.unpack(package, tree)
    packages.unpack(SHELL, tree)
    (image / "vmlinux").write_bytes(uncompressed(next((tree / "boot").glob("vmlinuz-*")).read_bytes()))
    archive = Archive()
    for name in ("dev", "proc", "root", "bin"):
        archive.add_directory(name)
    archive.add_console()
    archive.add_file("init", INIT.read_bytes(), 0o755)
    archive.add_file("bin/busybox", (tree / "bin" / "busybox").read_bytes(), 0o755)
    archive.add_modules(modules_in_order(tree, MODULES))
    (image / "initramfs.cpio").write_bytes(archive.packed())
