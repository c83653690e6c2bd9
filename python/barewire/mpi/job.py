# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One MPI job: ranks on hosts, with settings, as the command line of its library's own launcher; pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from barewire.mpi.fabrics import SECRET, TOKEN, Setting
from barewire.mpi.libraries import Family, Library
from barewire.mpi.placement import LOCAL_HOST

_PLACE = Path(__file__).with_name("place.py")
# Parameters of the paths that a user may have set; Open MPI takes no variable along but its own.
_CARRIED_ALONG = ("FI_", "UCX_", "BAREWIRE_", "LD_LIBRARY_PATH", "MPI4PY_")
# Runs as often as wanted, each time with a token and a secret that nobody has read here.
_FRESH = {name: f"$(od -An -N{size} -tx1 /dev/urandom | tr -d ' \\n')" for name, size in ((TOKEN, 8), (SECRET, 32))}


@dataclass(frozen=True)
class Job:
    """What runs where. `remote_shell` is what reaches the other hosts, None for the launcher's own way (ssh)."""

    library: Library
    shares: tuple[tuple[str, int], ...]
    settings: tuple[Setting, ...]
    program: tuple[str, ...]
    remote_shell: str | None = None
    in_lab: bool = False
    in_slurm: bool = False
    as_root: bool = False
    python: str = "python3"
    # Whether the launcher shall give each rank a core; else it does as its library likes.
    pinned: bool = False
    # More for the launcher than what follows from the rest.
    options: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return sum(count for _, count in self.shares)

    def with_program(self, program: Sequence[str], more: Mapping[str, str]) -> "Job":
        """Return the same job, but of another program, with more settings."""
        added = tuple(Setting(name, value, "for the report") for name, value in more.items())
        return replace(self, program=tuple(program), settings=self.settings + added)

    def with_mark(self, mark: str) -> "Job":
        """Return the same job with a variable NAME=VALUE in its processes' environment, to know them by."""
        name, _, value = mark.partition("=")
        return replace(self, settings=(*self.settings, Setting(name, value, "to know the job's processes by")))

    def environment(self) -> dict[str, str]:
        """Return the variables that the launcher must have."""
        own = {setting.name: setting.value for setting in self.settings}
        if self.remote_shell is not None and self.library.family is Family.OPEN_MPI:
            own |= {"OMPI_MCA_plm_rsh_agent": self.remote_shell, "PRTE_MCA_plm_ssh_agent": self.remote_shell}
        return own

    def command(self, inherited: Mapping[str, str]) -> list[str]:
        """Return the launcher's command line; `inherited` is the environment that `environment` is added to."""
        if self.in_slurm:
            return self._srun(inherited)
        # Intel's mpirun is a script that takes any mpiexec.hydra of the PATH, such as a distribution's MPICH's.
        launcher = [self.library.program("mpiexec.hydra" if self.library.family is Family.INTEL else "mpirun")]
        make = self._open_mpi if self.library.family is Family.OPEN_MPI else self._hydra
        return [*launcher, *make(inherited), *self._placed_program()]

    def shell_line(self, inherited: Mapping[str, str]) -> str:
        """Return the same for a shell, variables included; instead of token and secret stands how to draw them."""
        settings = [f"{name}={_FRESH.get(name) or shlex.quote(value)}" for name, value in self.environment().items()]
        return " ".join([*settings, shlex.join(self.command(inherited))])

    def _open_mpi(self, inherited: Mapping[str, str]) -> list[str]:
        hosts = ",".join(f"{host}:{count}" for host, count in self.shares)
        options = [*self.options, "-n", str(self.ranks), "--host", hosts]
        if self.as_root:
            options.append("--allow-run-as-root")
        if self.in_lab:
            options += ["--bind-to", "none"]
        elif self.pinned:
            options += ["--bind-to", "core:overload-allowed"]
        names = {*self.environment(), *(name for name in inherited if name.startswith(_CARRIED_ALONG))}
        for name in sorted(name for name in names if not name.startswith(("OMPI_", "PRTE_"))):
            options += ["-x", name]
        return options

    def _hydra(self, inherited: Mapping[str, str]) -> list[str]:
        options = ["-n", str(self.ranks)]
        if self.shares[0][0] != LOCAL_HOST or len(self.shares) > 1:
            options += ["-hosts", ",".join(f"{host}:{count}" for host, count in self.shares)]
        if self.remote_shell is not None:
            flag = "-bootstrap" if self.library.family is Family.INTEL else "-launcher"
            options = [flag, "ssh", f"{flag}-exec", self.remote_shell, *options]
        if self.in_lab and self.library.family is Family.INTEL:
            options += ["-genv", "I_MPI_PIN", "0"]
        elif self.pinned and self.library.family is Family.MPICH:
            options += ["-bind-to", "core"]
        return options

    def _srun(self, inherited: Mapping[str, str]) -> list[str]:
        options = ["srun", "-n", str(self.ranks), "--export=ALL"]
        if "SLURM_MPI_TYPE" not in inherited:
            options.append("--mpi=pmix" if self.library.family is Family.OPEN_MPI else "--mpi=pmi2")
        if self.shares[0][0] != LOCAL_HOST:
            # Without their number srun takes the other nodes of the allocation, too.
            options += ["-N", str(len(self.shares)), "-w", ",".join(host for host, _ in self.shares)]
        if self.pinned:
            options.append("--cpu-bind=cores")
        return [*options, *self.program]

    def _placed_program(self) -> list[str]:
        if self.in_lab and any(count > 1 for _, count in self.shares):
            return [self.python, "-I", "-S", str(_PLACE), *self.program]
        return list(self.program)
