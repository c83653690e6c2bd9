# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes what qemu boots: Debian's own kernel, the modules that are wanted, and busybox. Nothing is installed.

The kernel is that of `linux-image-amd64`, 70 MB to fetch. The result lies in VERSION-DIGEST below
`installed.guests()`, VERSION being the kernel package's and DIGEST that of all else that goes into it; so it is made
once, in some seconds, and again when either changes.
"""

import hashlib
import lzma
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from barewire import installed
from barewire.guests import debian, initramfs
from barewire.guests.cache import make_once
from barewire.guests.debian import CannotBuild, Debian, modules_in_order
from barewire.guests.initramfs import Archive

META_PACKAGE = "linux-image-amd64"
_SHELL = "busybox-static"
_FIX = "apt-get update, on a Debian of amd64"
_XZ_MAGIC = b"\xfd7zXZ\x00"
_ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class Image:
    """What qemu boots; `version` is the kernel package's."""

    kernel: Path
    initramfs: Path
    version: str


def build(init: Path, modules: Sequence[str]) -> Image:
    """Return the image with `init`, a script for busybox, and these modules; made now if it does not exist.

    CannotBuild says what is missing. Without apt's lists an earlier image is good enough.
    """
    missing = [program for program in ("apt-get", "dpkg-deb") if shutil.which(program) is None]
    if missing:
        raise CannotBuild(f"no {', '.join(missing)} here, which a Debian has: its kernel is fetched by them")
    digest = _digest(init, modules)
    packages = Debian(_FIX)
    try:
        package, version = packages.concrete(META_PACKAGE)
    except CannotBuild:
        earlier = sorted(installed.guests().glob(f"*-{digest}"), key=lambda path: path.stat().st_mtime)
        if not earlier:
            raise
        return _image(earlier[-1])
    directory = installed.guests() / f"{version}-{digest}"
    try:
        make_once(
            directory, lambda made, scratch: _make(packages, f"{package}={version}", init, modules, made, scratch)
        )
    except OSError as error:
        raise CannotBuild(f"cannot write {error.filename or directory}: {error.strerror}") from error
    return _image(directory)


def _image(directory: Path) -> Image:
    return Image(directory / "vmlinux", directory / "initramfs.cpio", directory.name.rpartition("-")[0])


def _digest(init: Path, modules: Sequence[str]) -> str:
    state = hashlib.sha256(repr((tuple(modules), _SHELL)).encode())
    for path in (init, Path(__file__), Path(debian.__file__), Path(initramfs.__file__)):
        state.update(path.read_bytes())
    return state.hexdigest()[:12]


def _make(packages: Debian, package: str, init: Path, modules: Sequence[str], made: Path, scratch: Path) -> None:
    tree = scratch / "tree"
    packages.unpack(package, tree)
    packages.unpack(_SHELL, tree)
    (made / "vmlinux").write_bytes(uncompressed(next((tree / "boot").glob("vmlinuz-*")).read_bytes()))
    archive = Archive()
    for name in ("dev", "proc", "root", "bin"):
        archive.add_directory(name)
    archive.add_console()
    archive.add_file("init", init.read_bytes(), 0o755)
    archive.add_file("bin/busybox", (tree / "bin" / "busybox").read_bytes(), 0o755)
    archive.add_modules(modules_in_order(tree, modules))
    (made / "initramfs.cpio").write_bytes(archive.packed())


def uncompressed(kernel: bytes) -> bytes:
    """Return the ELF kernel inside a bzImage: qemu starts it directly, which saves unpacking it in an emulated CPU."""
    start = kernel.find(_XZ_MAGIC)
    if start < 0:
        return kernel  # packed otherwise: slower to boot, but boots
    inner = lzma.LZMADecompressor().decompress(kernel[start:])
    return inner if inner.startswith(_ELF_MAGIC) else kernel
