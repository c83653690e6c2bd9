# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Debian's packages, found and fetched by this machine's apt, unpacked and never installed."""

import lzma
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import MachineCannot


class CannotBuild(MachineCannot):
    """This machine cannot make the image; the message says what to install."""


@dataclass(frozen=True)
class Debian:
    """The packages of this machine's architecture; `fix` ends errors."""

    fix: str

    def concrete(self, meta_package: str) -> tuple[str, str]:
        """Return name and version of the package that a meta package such as linux-image-amd64 stands for."""
        found = re.search(r"Depends: (\S+-\d\S*)", self.output(["apt-cache", "depends", meta_package]))
        if found is None:
            raise CannotBuild(f"apt knows no {meta_package}. Fix: {self.fix}")
        shown = self.output(["apt-cache", "show", "--no-all-versions", found[1]])
        version = re.search(r"^Version: (\S+)", shown, re.MULTILINE)
        if version is None:
            raise CannotBuild(f"apt knows no version of {found[1]}. Fix: {self.fix}")
        return found[1], version[1]

    def unpack(self, package: str, tree: Path) -> None:
        """Fetch a package, NAME or NAME=VERSION, without what it depends on, and unpack it into `tree`."""
        with tempfile.TemporaryDirectory() as folder:
            self.output(["apt-get", "download", package], cwd=Path(folder))
            archives = list(Path(folder).glob("*.deb"))
            if len(archives) != 1:
                raise CannotBuild(f"apt-get download left {len(archives)} packages of {package}")
            self.output(["dpkg-deb", "--extract", str(archives[0]), str(tree)])

    def output(self, command: list[str], cwd: Path | None = None) -> str:
        """Return what a command prints; CannotBuild if it fails."""
        environment = dict(os.environ) | {"LC_ALL": "C"}
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise CannotBuild(f"{' '.join(command[:3])} failed: {last}. Fix: {self.fix}")
        return done.stdout


def modules_in_order(tree: Path, wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    """Return (name, content) of an unpacked kernel's modules and all that they depend on, dependencies first."""
    files = {_module_name(path): path for path in tree.glob("**/modules/**/*.ko*")}
    order: list[tuple[str, bytes]] = []
    # A newer kernel may have built in what was a module.
    built_in = [line for listed in tree.glob("**/modules.builtin") for line in listed.read_text().splitlines()]
    done = {_module_name(Path(line)) for line in built_in}

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

    for name in wanted:
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
