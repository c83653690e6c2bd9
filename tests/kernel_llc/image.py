# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes the guest: Debian's own kernel, the modules AF_LLC needs, and one static program. Nothing is installed.

The result lies in target/kernel-llc/VERSION-DIGEST/, VERSION being the kernel package's and DIGEST that of everything
here that goes into the guest; so it is made once, in some seconds, and again when either changes.
"""

import hashlib
import lzma
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "target" / "kernel-llc"
META_PACKAGE = "linux-image-amd64"
MODULES = ("virtio_pci", "virtio_net", "llc2", "sch_netem")
SOURCES = ("init.c", "roles.c", "netem.c", "guest.h")
COMPILER = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static")

_XZ_MAGIC = b"\xfd7zXZ\x00"
_ELF_MAGIC = b"\x7fELF"
_DEVICE_CONSOLE = (5, 1)


class CannotBuild(Exception):
    """This machine cannot make the image; the message says what to install."""


@dataclass(frozen=True)
class Image:
    """What qemu boots."""

    kernel: Path
    initramfs: Path
    version: str


def build() -> Image:
    """Return the image, made now if it is not in the cache; CannotBuild says what is missing."""
    _need("apt-get", "dpkg-deb", "gcc")
    package, version = _concrete_package()
    directory = CACHE / f"{version}-{_digest()}"
    if not directory.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="making-") as name:
            made = Path(name) / "image"
            made.mkdir()
            _make(package, version, made, Path(name))
            try:
                made.rename(directory)
            except OSError:
                if not directory.is_dir():  # somebody else was faster; theirs is the same
                    raise
    return Image(directory / "vmlinux", directory / "initramfs.cpio", version)


def _need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise CannotBuild(f"no {', '.join(missing)} here. Fix: on a Debian of amd64, {_apt_line()}")


def _apt_line() -> str:
    lines = (HERE / "apt.txt").read_text().splitlines()
    return "apt-get install " + " ".join(line for line in lines if line and not line.startswith("#"))


def _concrete_package() -> tuple[str, str]:
    """Return the name and version of the package that the meta package stands for."""
    wanted = _output(["apt-cache", "depends", META_PACKAGE])
    found = re.search(r"Depends: (linux-image-\S+)", wanted)
    if found is None:
        raise CannotBuild(f"apt knows no {META_PACKAGE}. Fix: apt-get update, on a Debian of amd64")
    versions = re.search(
        r"^Version: (\S+)", _output(["apt-cache", "show", "--no-all-versions", found[1]]), re.MULTILINE
    )
    if versions is None:
        raise CannotBuild(f"apt knows no version of {found[1]}. Fix: apt-get update")
    return found[1], versions[1]


def _digest() -> str:
    state = hashlib.sha256(repr((MODULES, COMPILER)).encode())
    for path in (*(HERE / name for name in SOURCES), Path(__file__)):
        state.update(path.read_bytes())
    return state.hexdigest()[:12]


def _make(package: str, version: str, image: Path, scratch: Path) -> None:
    _output(["apt-get", "download", f"{package}={version}"], cwd=scratch)
    archives = list(scratch.glob("*.deb"))
    if len(archives) != 1:
        raise CannotBuild(f"apt-get download left {len(archives)} packages of {package}={version}")
    tree = scratch / "tree"
    _output(["dpkg-deb", "--extract", str(archives[0]), str(tree)])
    (image / "vmlinux").write_bytes(_uncompressed(next((tree / "boot").glob("vmlinuz-*")).read_bytes()))
    program = scratch / "init"
    sources = [str(HERE / name) for name in SOURCES if name.endswith(".c")]
    _output([*COMPILER, "-o", str(program), *sources, "-lm"])
    (image / "initramfs.cpio").write_bytes(_initramfs(program.read_bytes(), _modules_in_order(tree)))


def _uncompressed(kernel: bytes) -> bytes:
    """Return the ELF kernel inside a bzImage: qemu starts it directly, which saves unpacking it in an emulated CPU."""
    start = kernel.find(_XZ_MAGIC)
    if start < 0:
        return kernel  # packed otherwise: slower to boot, but boots
    inner = lzma.LZMADecompressor().decompress(kernel[start:])
    return inner if inner.startswith(_ELF_MAGIC) else kernel


def _modules_in_order(tree: Path) -> list[tuple[str, bytes]]:
    """Return (name, content) of the wanted modules and all that they depend on, dependencies first."""
    files = {_module_name(path): path for path in tree.glob("**/modules/**/*.ko*")}
    order: list[tuple[str, bytes]] = []
    done: set[str] = set()

    def visit(name: str) -> None:
        if name in done:
            return
        done.add(name)
        if name not in files:
            raise CannotBuild(f"Debian's kernel package has no module {name} any more; build it in, or choose another")
        content = _module_content(files[name])
        for dependency in _dependencies(content):
            visit(dependency)
        order.append((name, content))

    for name in MODULES:
        visit(name)
    return order


def _module_name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def _module_content(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def _dependencies(module: bytes) -> Iterable[str]:
    """Read the one line of a module's own description that depmod(8) would read; the package has no modules.dep."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    names = found[1].decode().split(",") if found else []
    return [name.replace("-", "_") for name in names if name]


def _initramfs(program: bytes, modules: Iterable[tuple[str, bytes]]) -> bytes:
    """Pack the guest's files as a cpio archive of the kind the kernel unpacks ("newc")."""
    archive = bytearray()
    for directory in ("dev", "modules"):
        archive += _entry(directory, stat.S_IFDIR | 0o755)
    archive += _entry("dev/console", stat.S_IFCHR | 0o600, device=_DEVICE_CONSOLE)
    archive += _entry("init", stat.S_IFREG | 0o755, program)
    for number, (name, content) in enumerate(modules):
        archive += _entry(f"modules/{number:02}-{name}.ko", stat.S_IFREG | 0o644, content)
    archive += _entry("TRAILER!!!", 0)
    return bytes(archive)


def _entry(name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """Header of 8-digit hexadecimal fields, name, content; name and content each padded to four bytes.

    Fields: inode, mode, uid, gid, links, mtime, size, device major and minor, device number major and minor,
    length of the name with its NUL, checksum.
    """
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _output(command: list[str], cwd: Path | None = None) -> str:
    environment = dict(os.environ) | {"LC_ALL": "C"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CannotBuild(f"{' '.join(command[:3])} failed: {last}. Fix: apt-get update; {_apt_line()}")
    return done.stdout


if __name__ == "__main__":
    print(build())
