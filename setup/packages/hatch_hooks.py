# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the wheel's build adds: dependencies from setup/requirements.in, native files, the sources of mpi/."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# `natives.sh` checks that the native files need no newer glibc.
_TAG = "py3-none-manylinux_2_28_x86_64"


class Dependencies(MetadataHookInterface):
    """Reads the dependencies from the list that everything else uses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the project's metadata."""
        lines = (Path(self.root) / "setup" / "requirements.in").read_text().splitlines()
        metadata["dependencies"] = [line for line in lines if line and not line.startswith("#")]


class NativeFiles(BuildHookInterface[Any]):
    """Puts what `natives.sh` and `sbom.py` made into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files and the platform."""
        made = Path(self.root) / "target" / "packages"
        if not (made / "native" / "commit").is_file():
            raise SystemExit("the wheel's native files are missing: run `make packages`")
        build_data["pure_python"] = False
        build_data["tag"] = _TAG
        build_data["force_include"][str(made / "native")] = "barewire/native"
        sources = Path(self.root) / "mpi"
        # Without mpi/build, where `make -C mpi` puts its programs.
        for source in sorted(sources.iterdir()):
            if source.name != "build":
                build_data["force_include"][str(source)] = f"barewire/native/mpi/{source.name}"
        build_data["sbom_files"] = [str(made / "barewire.cdx.json")]
