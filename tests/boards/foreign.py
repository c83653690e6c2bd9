# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Debian's packages of another architecture, with all that they depend on."""

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from barewire.guests.debian import CannotBuild, Debian

# apt with folders of its own, in which no package counts as installed: a foreign architecture leaves no trace here.
_CONFIGURATION = """
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
Dir::Etc::SourceParts "{folder}/sources";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


@dataclass(frozen=True)
class Foreign(Debian):
    """The packages of another architecture, by an apt that is set up in `folder`."""

    architecture: str
    folder: Path

    def __post_init__(self) -> None:
        """Set up apt, with fresh lists, also of the backports to this machine's release."""
        for name in ("sources", "state/lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        for source in Path("/etc/apt/sources.list.d").glob("*"):
            (self.folder / "sources" / source.name).symlink_to(source)
        (self.folder / "sources" / "backports.list").write_text(_backports(Debian(self.fix)))
        configuration = _CONFIGURATION.format(architecture=self.architecture, folder=self.folder)
        (self.folder / "apt.conf").write_text(configuration)
        self.output(["apt-get", "update", "-qq"])

    def unpack_with_dependencies(self, packages: Iterable[str], tree: Path) -> None:
        """Fetch packages and all that they depend on, and unpack them into `tree`."""
        self.output(["apt-get", "install", "-qq", "--yes", "--download-only", *packages])
        for archive in sorted((self.folder / "cache" / "archives").glob("*.deb")):
            self.output(["dpkg-deb", "--extract", str(archive), str(tree)])

    def output(self, command: list[str], cwd: Path | None = None) -> str:
        """Return what a command prints, with this configuration of apt; CannotBuild if it fails."""
        return super().output(["env", f"APT_CONFIG={self.folder}/apt.conf", *command], cwd)


def _backports(debian: Debian) -> str:
    """Return the source of the backports beside this machine's release, in the form of sources.list."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    wanted = ["Created-By: Packages", "Component: main", "Origin: Debian", f"Release: {release}"]
    mirrors = debian.output(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]).split()
    if not mirrors:
        raise CannotBuild(f"apt knows no release {release!r} of Debian's. Fix: {debian.fix}")
    return f"deb [signed-by={_KEYS}] {mirrors[0]} {release}-backports main\n"
