# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes the board: Debian's arm64 kernel, Open MPI, libfabric and sshd, unpacked into a file system in memory.

The result lies in target/boards/DIGEST/, DIGEST being that of everything here that goes into it. `tree` is the same
file system as files, with the headers of Open MPI: what programs for the board are compiled against.
"""

import hashlib
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from barewire.guests import debian, initramfs
from barewire.guests.cache import make_once
from barewire.guests.debian import CannotBuild, modules_in_order
from barewire.guests.initramfs import Archive
from boards import foreign
from boards.foreign import Foreign

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "target" / "boards"
# By the size of a page in KiB. A Raspberry Pi 5 has 16; Debian's kernel for that is in its backports.
KERNELS = {4: "linux-image-arm64", 16: "linux-image-arm64-16k"}
PACKAGES = ("busybox-static", "openmpi-bin", "openssh-server", "python3")
HEADERS = "libopenmpi-dev"
MODULES = ("virtio_pci", "virtio_net")
# Half of all files, which neither a program nor a launcher reads.
LEFT_OUT = ("usr/include", "usr/lib/aarch64-linux-gnu/perl", "usr/share/doc", "usr/share/locale", "usr/share/perl")
FIX = "setup/setup.sh cross, on a Debian whose mirror has arm64"


@dataclass(frozen=True)
class Image:
    """What qemu boots, and what programs are compiled against."""

    directory: Path

    @property
    def tree(self) -> Path:
        """The file system as files."""
        return self.directory / "tree"

    @property
    def initramfs(self) -> Path:
        """The file system packed."""
        return self.directory / "initramfs.cpio"

    def kernel(self, page_kib: int) -> Path:
        """Return the kernel with pages of this size."""
        return self.directory / f"kernel-{page_kib}"

    def modules(self, page_kib: int) -> Path:
        """Return that kernel's modules, packed."""
        return self.directory / f"modules-{page_kib}.cpio"


def build() -> Image:
    """Return the image, made now if it is not in the cache; CannotBuild says what is missing."""
    missing = [program for program in ("apt-get", "dpkg-deb") if shutil.which(program) is None]
    if missing:
        raise CannotBuild(f"no {', '.join(missing)} here, which a Debian has")
    directory = CACHE / _digest()
    make_once(directory, lambda image, scratch: _make(Image(image), scratch))
    return Image(directory)


def _digest() -> str:
    state = hashlib.sha256(repr((KERNELS, PACKAGES, HEADERS, MODULES, LEFT_OUT)).encode())
    for path in (Path(__file__), *(Path(module.__file__) for module in (foreign, debian, initramfs))):
        state.update(path.read_bytes())
    return state.hexdigest()[:12]


def _make(image: Image, scratch: Path) -> None:
    packages = Foreign(FIX, "arm64", scratch / "apt")
    for page_kib, meta_package in KERNELS.items():
        name, version = packages.concrete(meta_package)
        tree = scratch / name
        packages.unpack(f"{name}={version}", tree)
        shutil.copy(next((tree / "boot").glob("vmlinuz-*")), image.kernel(page_kib))
        modules = Archive()
        modules.add_modules(modules_in_order(tree, MODULES))
        image.modules(page_kib).write_bytes(modules.packed())
    packages.unpack_with_dependencies(PACKAGES, image.tree)
    packages.unpack(HEADERS, image.tree)
    files = Archive()
    files.add_directory("dev")
    files.add_console()
    _add_tree(files, image.tree, LEFT_OUT)
    image.initramfs.write_bytes(files.packed())


def _add_tree(files: Archive, tree: Path, left_out: Sequence[str]) -> None:
    """Add the directories, files and symbolic links below a directory, except below those of its directories."""
    for path in sorted(tree.rglob("*")):
        name, mode = str(path.relative_to(tree)), path.lstat().st_mode
        if name.startswith(tuple(f"{other}/" for other in left_out)):
            continue
        if stat.S_ISLNK(mode):
            files._add(name, stat.S_IFLNK | 0o777, str(path.readlink()).encode())
        elif stat.S_ISDIR(mode):
            files.add_directory(name)
        elif stat.S_ISREG(mode):
            files.add_file(name, path.read_bytes(), stat.S_IMODE(mode))


if __name__ == "__main__":
    print(build())
