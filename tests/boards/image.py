# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes the board: Debian's arm64 kernel, Open MPI, libfabric and sshd, unpacked into a file system in memory.

The result lies in target/boards/DIGEST/, DIGEST being that of everything here that goes into it. `tree` is the same
file system as files, with the headers of Open MPI: what programs for the board are compiled against.
"""

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from guests import debian, initramfs
from guests.debian import CannotBuild, Debian, modules_in_order
from guests.initramfs import Archive

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "target" / "boards"
META_PACKAGE = "linux-image-arm64"
PACKAGES = ("busybox-static", "openmpi-bin", "openssh-server", "python3")
HEADERS = "libopenmpi-dev"
MODULES = ("virtio_pci", "virtio_net")
# Half of all files, which neither a program nor a launcher reads.
LEFT_OUT = ("usr/include", "usr/lib/aarch64-linux-gnu/perl", "usr/share/doc", "usr/share/locale", "usr/share/perl")
FIX = "setup/setup.sh cross, on a Debian whose mirror has arm64"


@dataclass(frozen=True)
class Image:
    """What qemu boots, and what programs are compiled against."""

    kernel: Path
    initramfs: Path
    tree: Path


def build() -> Image:
    """Return the image, made now if it is not in the cache; CannotBuild says what is missing."""
    missing = [program for program in ("apt-get", "dpkg-deb") if shutil.which(program) is None]
    if missing:
        raise CannotBuild(f"no {', '.join(missing)} here, which a Debian has")
    CACHE.mkdir(parents=True, exist_ok=True)
    directory = CACHE / _digest()
    if not directory.is_dir():
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="making-") as name:
            made = Path(name) / "image"
            made.mkdir()
            _make(made, Path(name))
            try:
                made.rename(directory)
            except OSError:
                if not directory.is_dir():  # somebody else was faster; theirs is the same
                    raise
    return Image(directory / "kernel", directory / "initramfs.cpio", directory / "tree")


def _digest() -> str:
    state = hashlib.sha256(repr((META_PACKAGE, PACKAGES, HEADERS, MODULES, LEFT_OUT)).encode())
    for path in (Path(__file__), Path(debian.__file__), Path(initramfs.__file__)):
        state.update(path.read_bytes())
    return state.hexdigest()[:12]


def _make(image: Path, scratch: Path) -> None:
    packages = Debian.foreign("arm64", scratch / "apt", FIX)
    name, version = packages.concrete(META_PACKAGE)
    kernel_tree = scratch / "kernel"
    packages.unpack(f"{name}={version}", kernel_tree)
    shutil.copy(next((kernel_tree / "boot").glob("vmlinuz-*")), image / "kernel")
    packages.unpack_with_dependencies(PACKAGES, image / "tree")
    archive = Archive()
    archive.add_directory("dev")
    archive.add_console()
    archive.add_modules(modules_in_order(kernel_tree, MODULES))
    archive.add_tree(image / "tree", LEFT_OUT)
    packages.unpack(HEADERS, image / "tree")
    (image / "initramfs.cpio").write_bytes(archive.packed())


if __name__ == "__main__":
    print(build())
