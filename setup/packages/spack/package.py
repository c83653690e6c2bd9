# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Spack's recipe: the provider and the native programs, from a checkout. Not built by `make packages`, nor tried yet.
For Spack 1.0 and later.

Copy it to packages/barewire/package.py of a Spack repository, and set `git` to where the project is kept:
    spack dev-build barewire@main
The `barewire` command comes from the wheel: Spack has not all of its Python packages.
"""

from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.generic import Package


class Barewire(Package):
    """MPI over plain Ethernet frames, without TCP/IP: a provider for libfabric."""

    license("Apache-2.0 OR MIT")
    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("libfabric@1.17:", type="run")

    def setup_run_environment(self, env):
        env.prepend_path("FI_PROVIDER_PATH", self.prefix.lib.libfabric)

    def install(self, spec, prefix):
        Executable(str(Path("tools", "build.sh")))()
        release = Path("target", "release")
        for program in ("barewire-probe", "barewire-host", "barewire-broker", "barewire-floor", "barewire-floor-xdp"):
            mkdirp(prefix.bin)
            install(str(release / program), prefix.bin)
        install_tree(str(release / "libfabric"), prefix.lib.libfabric)
