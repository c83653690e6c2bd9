# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The environment variables that select a path in each library; pure.

Environment variables rather than options: they mean the same to mpirun and to srun, and override the parameter files
of a distribution (Debian's has `mtl = ^ofi`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import MachineCannot, WrongUse, unknown
from barewire.installed import FIX, MPICH_FIX, SOURCE
from barewire.models.naming import MPI_FABRICS, OTHER_PROVIDER
from barewire.mpi.eager import eager_settings
from barewire.mpi.libraries import Family, Library

PROVIDER = "barewire"
PROVIDER_FILE = f"lib{PROVIDER}-fi.so"
# Makes sched_yield cheap and skips waits in Open MPI that are unnecessary; crates/provider/preload.
YIELD_FILE = f"lib{PROVIDER}-yield.so"
START_FILES = [f"lib{PROVIDER}-{name}.so" for name in ("start", "psm_infinipath", "psm2")]
_YIELD_WHEN_IDLE = "OMPI_MCA_mpi_yield_when_idle"
FABRICS = f"{', '.join(MPI_FABRICS)}, or ofi-NAME for any other libfabric provider, such as ofi-tcp"
WAITS = ("spin", "adaptive", "block")
LINKS = ("auto", "packet", "xdp", "udp")
# Those that need the right to frames.
LINKS_BY_FRAMES = ("packet", "xdp")
PROGRESSES = ("auto", "manual")
# Authentication of frames: none, authenticated, or authenticated with encrypted messages.
AUTHS = ("none", "job", "encrypt")
# The library's own progress thread, over any fabric.
THREAD = "thread"
# Parameters that crates/provider reads.
INTERFACE, LINK, WAIT, PROGRESS, TOKEN, YIELD, AUTH, SECRET, LABELS = (
    f"FI_BAREWIRE_{name}"
    for name in ("INTERFACE", "LINK", "WAIT", "PROGRESS", "TOKEN", "YIELD", "AUTH", "SECRET", "LABELS")
)
# Never printed.
HIDDEN = (TOKEN, SECRET)
_SECRET = re.compile(r"(?:[0-9a-fA-F]{2}){16,64}")


@dataclass(frozen=True)
class FabricOptions:
    """The requested path; None is unspecified."""

    fabric: str = PROVIDER
    interface: str | None = None
    link: str | None = None
    wait: str | None = None
    progress: str | None = None
    eager: int | None = None
    # User-level failure mitigation: survivors of a failed rank continue.
    ulfm: bool = False
    auth: str | None = None

    def __post_init__(self) -> None:
        """Reject unknown fabrics and values, and options that do not apply to this fabric."""
        if self.fabric not in MPI_FABRICS and OTHER_PROVIDER.fullmatch(self.fabric) is None:
            raise unknown("fabric", self.fabric, MPI_FABRICS, ", or ofi-NAME for any other libfabric provider")
        options = (
            ("--wait", self.wait, WAITS),
            ("--link", self.link, LINKS),
            ("--progress", None if self.progress == THREAD else self.progress, (*PROGRESSES, THREAD)),
            ("--auth", self.auth, AUTHS),
        )
        for name, value, choices in options:
            if value is not None and self.fabric != PROVIDER:
                raise WrongUse(f"{name} applies to --fabric {PROVIDER} only, not to {self.fabric}")
            if value is not None and value not in choices:
                raise unknown(name, value, choices)

    @property
    def provider(self) -> str | None:
        """The libfabric provider that is selected by name; None if the library uses its own layers."""
        if self.fabric.startswith("ofi-"):
            return self.fabric.removeprefix("ofi-")
        return self.fabric if self.fabric in (PROVIDER, "udp") else None


@dataclass(frozen=True)
class Setting:
    """One environment variable of the job and its origin."""

    name: str
    value: str
    source: str


def fabric_settings(library: Library, requested: FabricOptions, *, one_host: bool, lab: bool) -> list[Setting]:
    """Return the variables that select the path in this library. MachineCannot if it was built without that path."""
    if requested.fabric == "shm" and not one_host:
        raise WrongUse("--fabric shm carries messages within one host only; give one host, or another fabric")
    if requested.ulfm and library.family is not Family.OPEN_MPI:
        raise MachineCannot(f"{library} has no user-level failure mitigation: use Open MPI 5")
    chosen = {Family.OPEN_MPI: _open_mpi, Family.MPICH: _mpich, Family.INTEL: _intel}[library.family](
        library, requested
    )
    if chosen.get("FI_PROVIDER") in ("tcp", "udp") and requested.interface is not None:
        # One name: for a list libfabric would use all interfaces.
        chosen[f"FI_{chosen['FI_PROVIDER'].upper()}_IFACE"] = requested.interface.split(",")[0]
    if (
        any(name.startswith("UCX_") for name in chosen)
        and requested.interface is not None
        and requested.fabric != "shm"
    ):
        chosen["UCX_NET_DEVICES"] = requested.interface
    if one_host and requested.fabric == PROVIDER and chosen.get("OMPI_MCA_btl") == "ofi,sm,self":
        # Within a host shared memory is faster for one-sided operations, and btl ofi sleeps a second at teardown.
        chosen["OMPI_MCA_btl"] = "sm,self"
    if lab and chosen.get("UCX_TLS") == "tcp,self,sm":
        # To UCX the hosts of a lab are one machine: it would send between them through shared memory.
        chosen["UCX_TLS"] = "tcp,self"
    if requested.eager is not None:
        chosen |= eager_settings(library, requested.fabric, requested.eager)
    if requested.progress == THREAD:
        chosen |= _progress_thread(library, requested)
    return [Setting(name, value, f"--fabric {requested.fabric}") for name, value in chosen.items()]


def provider_settings(
    requested: FabricOptions,
    environment: Mapping[str, str],
    *,
    interface: str | None,
    crowded: bool,
    token: str,
    secret: str,
) -> list[Setting]:
    """Return our provider's parameters; options take precedence over the environment, and that over defaults.

    `interface` is the lab's. `crowded` means that ranks share a core, where a spinning rank takes it from the rank that
    it waits for. `token` and `secret` apply unless the environment has others. WrongUse if the environment has a value
    that each rank would reject.
    """
    parameters = (
        (INTERFACE, requested.interface, "--interface"),
        (LINK, requested.link, "--link"),
        (WAIT, requested.wait, "--wait"),
        (PROGRESS, None if requested.progress == THREAD else requested.progress, "--progress"),
        (AUTH, requested.auth, "--auth"),
    )
    settings = []
    for name, value, option in parameters:
        if value is not None:
            settings.append(Setting(name, value, option))
        elif name in environment:
            settings.append(Setting(name, environment[name], "environment"))
        elif name == INTERFACE and interface is not None:
            settings.append(Setting(name, interface, "lab"))
        elif name == WAIT and crowded:
            settings.append(Setting(name, "adaptive", "more ranks than cores"))
    if YIELD in environment:
        settings.append(Setting(YIELD, environment[YIELD], "environment"))
    elif crowded:
        # Open MPI's blocking send of a long message polls its completion queue and never yields.
        settings.append(Setting(YIELD, "1", "more ranks than cores"))
    if TOKEN in environment:
        settings.append(Setting(TOKEN, environment[TOKEN], "environment"))
    else:
        settings.append(Setting(TOKEN, token, "generated for this run"))
    if auth_of(settings).value != AUTHS[0]:
        settings.append(_secret(environment, secret))
    return settings


def auth_of(settings: Sequence[Setting]) -> Setting:
    """Return how a job's frames are authenticated; WrongUse if the value is unknown."""
    setting = next((setting for setting in settings if setting.name == AUTH and setting.value), None)
    if setting is None:
        return Setting(AUTH, AUTHS[0], "default")
    if setting.value not in AUTHS:
        raise unknown(AUTH, setting.value, AUTHS)
    return setting


def _secret(environment: Mapping[str, str], drawn: str) -> Setting:
    value = environment.get(SECRET)
    if not value:
        return Setting(SECRET, drawn, "generated for this run")
    if _SECRET.fullmatch(value) is None:
        raise WrongUse(
            f"{SECRET} must be 32 to 128 hexadecimal digits, an even number; unset it to generate one for each run"
        )
    return Setting(SECRET, value, "environment")


def provider_folder(environment: Mapping[str, str], built: Path) -> Setting:
    """Return the provider's folder from the environment or here. MachineCannot if it contains no provider."""
    # libfabric looks for providers in all of them.
    given = environment.get("FI_PROVIDER_PATH", "")
    if folders := [Path(folder) for folder in given.split(":") if folder]:
        source, value, fix = "environment", given, f"correct FI_PROVIDER_PATH, or unset it to use that of {SOURCE}"
    else:
        folders, source, value, fix = [built], SOURCE, str(built), FIX
    if not any((folder / PROVIDER_FILE).is_file() for folder in folders):
        raise MachineCannot(f"no {PROVIDER_FILE} in {' or '.join(map(str, folders))}: {fix}")
    return Setting("FI_PROVIDER_PATH", value, source)


def yield_settings(library: Library, environment: Mapping[str, str]) -> list[Setting]:
    """Return the settings with which a waiting rank yields its core after each empty poll; MPICH does without any.

    Over our provider as well, which yields after several polls: programs are 10 to 25 % faster. Beside processes that
    compute, where each yield costs a scheduler's slice, they are up to 1.5 times as slow, and faster than over TCP.
    """
    if library.family is not Family.OPEN_MPI:
        return []
    if _YIELD_WHEN_IDLE in environment:
        return [Setting(_YIELD_WHEN_IDLE, environment[_YIELD_WHEN_IDLE], "environment")]
    return [Setting(_YIELD_WHEN_IDLE, "1", "more ranks than cores")]


def own_core_settings(library: Library, environment: Mapping[str, str], built: Path) -> list[Setting]:
    """Return the settings that keep a waiting rank on its core; MPICH calls sched_yield after each empty poll."""
    return _preload(built, [YIELD_FILE], environment, "a core for each rank") if library.family is Family.MPICH else []


def start_settings(library: Library, environment: Mapping[str, str], built: Path) -> list[Setting]:
    """Return the settings that shorten a job's start over our provider; for Open MPI only, since MPICH needs none."""
    return _preload(built, START_FILES, environment, "a quicker start") if library.family is Family.OPEN_MPI else []


def _preload(built: Path, names: Sequence[str], environment: Mapping[str, str], reason: str) -> list[Setting]:
    files = [str(built / name) for name in names if (built / name).is_file()]
    # The loader would take the words of such a path for files of their own.
    if not files or any(character.isspace() or character == ":" for character in str(built)):
        return []
    return [Setting("LD_PRELOAD", ":".join(filter(None, (*files, environment.get("LD_PRELOAD")))), reason)]


def launcher_settings(library: Library, interface: str) -> list[Setting]:
    """Return the settings that bind the launcher's own connections to an interface, apart from the ranks' messages."""
    variables = {
        Family.OPEN_MPI: ["OMPI_MCA_oob_tcp_if_include"] if library.major < 5 else ["PRTE_MCA_prte_if_include"],
        Family.MPICH: ["HYDRA_IFACE"],
        Family.INTEL: ["I_MPI_HYDRA_IFACE"],
    }[library.family]
    return [Setting(name, interface, "lab") for name in variables]


def report_settings(library: Library) -> dict[str, str]:
    """Return the settings that make a library report its path; `explain.read_report` reads the output."""
    if library.family is Family.OPEN_MPI:
        names = ("pml_base", "mtl_base", "btl_base", "bml_base", "opal_common_ofi")
        return {f"OMPI_MCA_{name}_verbose": "10" for name in names}
    return {"MPIR_CVAR_DEBUG_SUMMARY": "1"} if library.family is Family.MPICH else {"I_MPI_DEBUG": "4"}


def _progress_thread(library: Library, requested: FabricOptions) -> dict[str, str]:
    if library.family is Family.MPICH:
        return {"MPIR_CVAR_ASYNC_PROGRESS": "1"}
    if library.family is Family.INTEL:
        return {"I_MPI_ASYNC_PROGRESS": "1"}
    if requested.fabric == "tcp":
        return {"OMPI_MCA_btl_tcp_progress_thread": "1"}
    raise MachineCannot(
        f"{library} has its own progress thread over tcp only: over {requested.fabric} omit --progress thread"
    )


def _open_mpi(library: Library, requested: FabricOptions) -> dict[str, str]:
    # One-sided operations must not bypass the fabric. In version 4 osc pt2pt sends them through any pml, but Debian
    # excludes it; version 5 has rdma alone, over the btl.
    one_sided = {} if requested.fabric == "ucx" else {"OMPI_MCA_osc": "^ucx,rdma" if library.major < 5 else "^ucx"}
    layers = _open_mpi_layers(library, requested)
    return one_sided | (_fault_tolerant(library, requested, layers) if requested.ulfm else layers)


def _fault_tolerant(library: Library, requested: FabricOptions, layers: dict[str, str]) -> dict[str, str]:
    """Only pml ob1 handles failures, so two-sided messages use the provider's byte-transfer layer as well."""
    if library.major < 5 or requested.fabric not in (PROVIDER, "tcp", "shm"):
        raise MachineCannot(
            f"{library} has no fault tolerance over {requested.fabric}: Open MPI 5 has over {PROVIDER} or tcp"
        )
    # coll han (5.0.11) takes a part's failure for success: a sum over survivors was 0 without an error, even over TCP.
    overrides = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_coll": "^han"}
    if requested.fabric == PROVIDER:
        overrides |= {"OMPI_MCA_btl_ofi_mode": "2", "OMPI_MCA_btl_ofi_provider_include": PROVIDER}
    return {name: value for name, value in layers.items() if "_mtl" not in name} | overrides


def _open_mpi_layers(library: Library, requested: FabricOptions) -> dict[str, str]:
    shared = "vader" if library.major < 5 else "sm"
    if requested.fabric == "tcp":
        chosen = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": f"tcp,{shared},self"}
        return chosen | ({"OMPI_MCA_btl_tcp_if_include": requested.interface} if requested.interface else {})
    if requested.fabric == "shm":
        return {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": f"{shared},self"}
    if requested.fabric == "ucx":
        # Without InfiniBand Open MPI disables UCX unless any transport and device is allowed explicitly.
        kind = "pml_ucx" if library.major < 5 else "opal_common_ucx"
        any_transport = {f"OMPI_MCA_{kind}_tls": "any", f"OMPI_MCA_{kind}_devices": "any"}
        return {"OMPI_MCA_pml": "ucx", "UCX_TLS": "tcp,self,sm"} | any_transport
    provider = requested.provider
    assert provider is not None
    # Lists libfabric's layered names as well, because Open MPI compares whole names.
    layered = {"tcp": "tcp,tcp;ofi_rxm", "udp": "udp;ofi_rxd"}.get(provider, provider)
    chosen = {"OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi", "OMPI_MCA_mtl_ofi_provider_include": layered}
    # No byte-transfer layer over TCP: one-sided operations would use it silently. Version 5 needs a layer over the
    # same provider for them; version 4 sends them through the pml.
    layers = f"{shared},self" if library.major < 5 else f"ofi,{shared},self"
    return chosen | {"OMPI_MCA_btl": layers, "FI_PROVIDER": provider}


def _mpich(library: Library, requested: FabricOptions) -> dict[str, str]:
    if requested.fabric == "ucx" or (requested.fabric in ("tcp", "shm") and "ofi" not in library.netmods):
        if "ucx" not in library.netmods:
            raise MachineCannot(f"{library} was built without UCX; it has: {', '.join(library.netmods)}")
        ucx_transports = "sm,self" if requested.fabric == "shm" else "tcp,self,sm"
        return {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": ucx_transports}
    if "ofi" not in library.netmods:
        raise MachineCannot(
            f"{library} was built for {', '.join(library.netmods) or 'another device'} only, without libfabric: "
            f"build the program with mpich-5 ({MPICH_FIX}), or use --fabric ucx or tcp"
        )
    # Within a host MPICH's own shared memory carries all messages, and a provider is only opened. Not libfabric's shm:
    # its addresses contain process IDs, and MPICH aborts when their numbers of digits differ.
    provider = requested.provider or ("tcp" if requested.fabric == "shm" else requested.fabric)
    return {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": provider}


def _intel(library: Library, requested: FabricOptions) -> dict[str, str]:
    if requested.fabric == "ucx":
        raise MachineCannot(f"{library} supports UCX only through its own provider for InfiniBand: use another fabric")
    settings = {"I_MPI_ROOT": str(library.prefix)}
    if requested.fabric == "shm":
        return settings | {"I_MPI_FABRICS": "shm"}
    if (bundled := _intel_libfabric(library)) is not None:
        # The distribution's, its default, has a tcp provider that hangs in messages longer than their receives (1.17).
        providers = bundled.parent / "prov" if (bundled.parent / "prov").is_dir() else bundled.parent
        settings |= {"I_MPI_OFI_LIBRARY": str(bundled)}
        if requested.fabric != PROVIDER:
            settings |= {"FI_PROVIDER_PATH": str(providers)}
    return settings | {"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": requested.provider or requested.fabric}


def _intel_libfabric(library: Library) -> Path | None:
    """Return the libfabric of Intel MPI: beside it in wheels, in a folder of its own in Intel's packages."""
    for folder in ("lib", "libfabric/lib", "opt/mpi/libfabric/lib"):
        if (file := library.prefix / folder / "libfabric.so.1").is_file():
            return file
    return None
