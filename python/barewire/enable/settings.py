# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What each MPI library must be told to use our provider without `barewire run`; pure.

Parameter files and modulefiles are generated from these settings, so they cannot disagree.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import WrongUse, unknown
from barewire.mpi.fabrics import INTERFACE, PROVIDER, FabricOptions, fabric_settings
from barewire.mpi.libraries import Family, Library

# What a rank without our provider does: it uses TCP, or the job ends with the library's error. TCP unless asked:
# Open MPI's ranks that no launcher starts, as a serial program is, read its files, but nobody tells them the folder.
FALLBACKS = ("tcp", "none")
PROVIDER_PATH, SELECTED = "FI_PROVIDER_PATH", "FI_PROVIDER"
# Open MPI reads its parameters from the environment under this prefix.
MCA = "OMPI_MCA_"
_INTERFACES = re.compile(r"[\w.@-]{1,15}(,[\w.@-]{1,15}){0,3}")
# Characters that separate values in one of the files.
_SAFE_PATH = re.compile(r"/[^\s'\"\\;:,#=$]*")


@dataclass(frozen=True)
class Wanted:
    """What plain launchers shall do. `provider` is the folder of libbarewire-fi.so."""

    provider: Path
    fallback: str = FALLBACKS[0]
    interface: str | None = None

    def __post_init__(self) -> None:
        """Reject values that a parameter file cannot hold."""
        if self.fallback not in FALLBACKS:
            raise unknown("--fallback", self.fallback, FALLBACKS)
        if _SAFE_PATH.fullmatch(str(self.provider)) is None:
            raise WrongUse(f"--provider must be an absolute path without spaces, quotes and \\;:,#=$: {self.provider}")
        if self.interface is not None and _INTERFACES.fullmatch(self.interface) is None:
            raise WrongUse(f"--interface must be 1 to 4 names of interfaces, as in eth0,eth1: {self.interface}")


@dataclass(frozen=True)
class Variable:
    """An environment variable of a modulefile. `joined`: the value is put before that of other modules.

    Any other value must have no colon: environment-modules 5.2 takes back only what follows it.
    """

    name: str
    value: str
    joined: bool = False


def open_mpi_parameters(wanted: Wanted) -> dict[str, str]:
    """Return the parameters of Open MPI. They suit versions 4 and 5, which read the same file of a user.

    btl ofi is left out, because it sleeps for a second at the end of each program. With osc rdma last, version 4 sends
    one-sided operations as messages over Barewire; version 5 has no such component, and sends them between hosts by btl
    tcp.
    """
    return {
        "pml": "cm" if wanted.fallback == "none" else "^ucx",
        "mtl": "ofi",
        "mtl_ofi_provider_include": PROVIDER,
        "btl": "^ofi,uct,openib,usnic",
        "osc": "^ucx",
        "osc_rdma_priority": "1",
    }


def rank_variables(library: Library, wanted: Wanted) -> dict[str, str]:
    """Return the environment variables of this library's ranks. MachineCannot if it was built without libfabric."""
    variables = {PROVIDER_PATH: str(wanted.provider), SELECTED: PROVIDER}
    if library.family is not Family.OPEN_MPI:
        chosen = fabric_settings(library, FabricOptions(), one_host=False, lab=False)
        variables = {setting.name: setting.value for setting in chosen} | variables
    if library.family is Family.MPICH:
        variables[SELECTED] = _selected(wanted)
    if wanted.interface is not None:
        variables[INTERFACE] = wanted.interface
    return variables


def shell_variables(wanted: Wanted) -> list[Variable]:
    """Return the environment variables with which all libraries at once use our provider, for modulefiles."""
    variables = [Variable(PROVIDER_PATH, str(wanted.provider), joined=True), Variable(SELECTED, _selected(wanted))]
    if wanted.interface is not None:
        variables.append(Variable(INTERFACE, wanted.interface))
    # Open MPI does not pass variables of other names on to ranks on other hosts. Not mca_base_env_list: version 4 ends
    # jobs that use it beside -x.
    forwarded = ";".join(variable.name for variable in variables)
    return [
        *variables,
        *(Variable(f"{MCA}{name}", value) for name, value in open_mpi_parameters(wanted).items()),
        Variable(f"{MCA}mca_base_env_list_internal", forwarded),
        Variable("PMIX_MCA_pmdl_ompi_include_envars", "OMPI_*,OPAL_*,FI_*"),
        # Intel MPI needs none: shm:ofi is its default.
        Variable("MPIR_CVAR_CH4_NETMOD", "ofi"),
    ]


def missing(library: Library, effective: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that keep this library from our provider; `effective` is as a rank sees it."""
    demanded: dict[str, re.Pattern[str]] = {SELECTED: re.compile(rf"{PROVIDER}(,.*)?")}
    if library.family is Family.OPEN_MPI:
        demanded = {
            f"{MCA}pml": re.compile(r"cm|\^ucx"),
            f"{MCA}mtl": re.compile("ofi"),
            f"{MCA}mtl_ofi_provider_include": re.compile(PROVIDER),
        }
        if SELECTED in effective:
            demanded[SELECTED] = re.compile(rf"(.*,)?{PROVIDER}(,.*)?")
    elif library.family is Family.INTEL and "I_MPI_FABRICS" in effective:
        demanded["I_MPI_FABRICS"] = re.compile("shm:ofi|ofi")
    elif len(library.netmods) > 1:
        demanded["MPIR_CVAR_CH4_NETMOD"] = re.compile("ofi")
    wrong = [name for name, pattern in demanded.items() if pattern.fullmatch(effective.get(name, "")) is None]
    return wrong if effective.get(PROVIDER_PATH) else [*wrong, PROVIDER_PATH]


def _selected(wanted: Wanted) -> str:
    return PROVIDER if wanted.fallback == "none" else f"{PROVIDER},tcp"
