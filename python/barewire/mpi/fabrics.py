# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What each library must be told so that its messages take a path, as environment variables; pure.

Variables and not options, because they mean the same to mpirun and to srun, and have precedence over the parameter
files of a distribution: Debian's says `mtl = ^ofi`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import MachineCannot, WrongUse
from barewire.models.naming import MPI_FABRICS, OTHER_PROVIDER
from barewire.mpi.eager import eager_settings
from barewire.mpi.libraries import Family, Library

PROVIDER = "barewire"
PROVIDER_FILE = f"lib{PROVIDER}-fi.so"
# Makes sched_yield cheap, and leaves out what Open MPI waits for without need; crates/provider/preload.
YIELD_FILE = f"lib{PROVIDER}-yield.so"
START_FILES = [f"lib{PROVIDER}-{name}.so" for name in ("start", "psm_infinipath", "psm2")]
FABRICS = f"{', '.join(MPI_FABRICS)}, or ofi-NAME for any other libfabric provider, such as ofi-tcp"
WAITS = ("spin", "adaptive", "block")
LINKS = ("packet", "xdp")
PROGRESSES = ("auto", "manual")
# Of frames: authenticated, and messages encrypted as well.
AUTHS = ("none", "job", "encrypt")
# Of the library, over any fabric: a thread of its own.
THREAD = "thread"
# Parameters of the provider; crates/provider reads them.
INTERFACE, LINK, WAIT, PROGRESS, TOKEN, YIELD, AUTH, SECRET = (
    f"FI_BAREWIRE_{name}" for name in ("INTERFACE", "LINK", "WAIT", "PROGRESS", "TOKEN", "YIELD", "AUTH", "SECRET")
)
# Never shown.
HIDDEN = (TOKEN, SECRET)
_SECRET = re.compile(r"(?:[0-9a-fA-F]{2}){16,64}")


@dataclass(frozen=True)
class Wishes:
    """What the caller asked for; None is what nobody asked for."""

    fabric: str = PROVIDER
    interface: str | None = None
    link: str | None = None
    wait: str | None = None
    progress: str | None = None
    eager: int | None = None
    # Survivors of a failed rank go on (user-level failure mitigation).
    ulfm: bool = False
    auth: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no fabric is, and what this fabric does not know."""
        if self.fabric not in MPI_FABRICS and OTHER_PROVIDER.fullmatch(self.fabric) is None:
            raise WrongUse(f"unknown fabric '{self.fabric}'; there are: {FABRICS}")
        own = (
            ("--wait", self.wait, WAITS),
            ("--link", self.link, LINKS),
            ("--progress", None if self.progress == THREAD else self.progress, (*PROGRESSES, THREAD)),
            ("--auth", self.auth, AUTHS),
        )
        for name, value, known in own:
            if value is not None and self.fabric != PROVIDER:
                raise WrongUse(f"{name} belongs to --fabric {PROVIDER}; {self.fabric} does that in its own way")
            if value is not None and value not in known:
                raise WrongUse(f"unknown {name} '{value}'; there are: {', '.join(known)}")

    @property
    def provider(self) -> str | None:
        """The libfabric provider that is asked for by name; None where the library's own layers are."""
        if self.fabric.startswith("ofi-"):
            return self.fabric.removeprefix("ofi-")
        return self.fabric if self.fabric in (PROVIDER, "udp") else None


@dataclass(frozen=True)
class Setting:
    """One environment variable of the job and where it came from."""

    name: str
    value: str
    source: str


def fabric_settings(library: Library, wishes: Wishes, *, one_host: bool, lab: bool) -> list[Setting]:
    """Return what selects the path in this library. MachineCannot if it was built without that path."""
    if wishes.fabric == "shm" and not one_host:
        raise WrongUse("--fabric shm carries messages within one host only; give one host, or another fabric")
    if wishes.ulfm and library.family is not Family.OPEN_MPI:
        raise MachineCannot(f"{library} does not let survivors of a failed rank go on: Open MPI 5 does")
    chosen = {Family.OPEN_MPI: _open_mpi, Family.MPICH: _mpich, Family.INTEL: _intel}[library.family](library, wishes)
    if chosen.get("FI_PROVIDER") in ("tcp", "udp") and wishes.interface is not None:
        chosen[f"FI_{chosen['FI_PROVIDER'].upper()}_IFACE"] = wishes.interface
    if any(name.startswith("UCX_") for name in chosen) and wishes.interface is not None and wishes.fabric != "shm":
        chosen["UCX_NET_DEVICES"] = wishes.interface
    if one_host and wishes.fabric == PROVIDER and chosen.get("OMPI_MCA_btl") == "ofi,sm,self":
        # Within a host shared memory carries one-sided operations, faster; and btl ofi sleeps a second at its end.
        chosen["OMPI_MCA_btl"] = "sm,self"
    if lab and chosen.get("UCX_TLS") == "tcp,self,sm":
        # The hosts of a lab are one machine to UCX, which would send between them through shared memory.
        chosen["UCX_TLS"] = "tcp,self"
    if wishes.eager is not None:
        chosen |= eager_settings(library, wishes.fabric, wishes.eager)
    if wishes.progress == THREAD:
        chosen |= _progress_thread(library, wishes)
    return [Setting(name, value, f"--fabric {wishes.fabric}") for name, value in chosen.items()]


def provider_settings(
    wishes: Wishes, environment: Mapping[str, str], *, interface: str | None, crowded: bool, token: str, secret: str
) -> list[Setting]:
    """Return the parameters of our own provider: an option goes before the environment, and that before the default.

    `interface` is what the place (a lab) says; `crowded` that ranks share a core, where spinning takes it from the
    one that is waited for; `token` and `secret` are for where nobody gave others. WrongUse for what in the environment
    each rank would refuse.
    """
    asked = (
        (INTERFACE, wishes.interface, "--interface"),
        (LINK, wishes.link, "--link"),
        (WAIT, wishes.wait, "--wait"),
        (PROGRESS, None if wishes.progress == THREAD else wishes.progress, "--progress"),
        (AUTH, wishes.auth, "--auth"),
    )
    settings = []
    for name, value, option in asked:
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
        # Open MPI's blocking send of a long message asks its queue without end and never yields.
        settings.append(Setting(YIELD, "1", "more ranks than cores"))
    if TOKEN in environment:
        settings.append(Setting(TOKEN, environment[TOKEN], "environment"))
    else:
        settings.append(Setting(TOKEN, token, "drawn for this run"))
    if auth_of(settings).value != AUTHS[0]:
        settings.append(_secret(environment, secret))
    return settings


def auth_of(settings: Sequence[Setting]) -> Setting:
    """Return how a job's frames are authenticated; WrongUse if that is no way to."""
    found = next((setting for setting in settings if setting.name == AUTH and setting.value), None)
    if found is None:
        return Setting(AUTH, AUTHS[0], "default")
    if found.value not in AUTHS:
        raise WrongUse(f"unknown {AUTH} '{found.value}'; there are: {', '.join(AUTHS)}")
    return found


def _secret(environment: Mapping[str, str], drawn: str) -> Setting:
    given = environment.get(SECRET)
    if not given:
        return Setting(SECRET, drawn, "drawn for this run")
    if _SECRET.fullmatch(given) is None:
        raise WrongUse(
            f"{SECRET} must be 32 to 128 hexadecimal digits, an even number: unset it, and one is drawn for each run"
        )
    return Setting(SECRET, given, "environment")


def provider_folder(environment: Mapping[str, str], built: Path) -> Setting:
    """Find the folder of our provider: the environment's or the checkout's. MachineCannot if it has no provider."""
    if "FI_PROVIDER_PATH" in environment:
        folder, source = Path(environment["FI_PROVIDER_PATH"]), "environment"
        fix = "correct FI_PROVIDER_PATH, or unset it to use this checkout's"
    else:
        folder, source, fix = built, "this checkout", "run `make build`"
    if not (folder / PROVIDER_FILE).is_file():
        raise MachineCannot(f"no {PROVIDER_FILE} in {folder}: {fix}")
    return Setting("FI_PROVIDER_PATH", str(folder), source)


def yield_settings(library: Library) -> list[Setting]:
    """Return what makes a library that waits give its core to others; MPICH does so by itself.

    Not over our provider, which sleeps instead: beside a process that computes, each yield costs a scheduler's slice.
    """
    if library.family is Family.OPEN_MPI:
        return [Setting("OMPI_MCA_mpi_yield_when_idle", "1", "more ranks than cores")]
    return []


def own_core_settings(library: Library, environment: Mapping[str, str], built: Path) -> list[Setting]:
    """Return what keeps a library that waits on its core; MPICH calls sched_yield after every fruitless question."""
    return _preload(built, [YIELD_FILE], environment, "a core for each rank") if library.family is Family.MPICH else []


def start_settings(library: Library, environment: Mapping[str, str], built: Path) -> list[Setting]:
    """Return what spares a job over our provider the waiting for others; Open MPI's, for MPICH has none."""
    return _preload(built, START_FILES, environment, "a quicker start") if library.family is Family.OPEN_MPI else []


def _preload(built: Path, names: Sequence[str], environment: Mapping[str, str], reason: str) -> list[Setting]:
    files = [str(built / name) for name in names if (built / name).is_file()]
    if not files:
        return []
    return [Setting("LD_PRELOAD", ":".join(filter(None, (*files, environment.get("LD_PRELOAD")))), reason)]


def launcher_settings(library: Library, interface: str) -> list[Setting]:
    """Return what keeps the launcher's own connections on an interface, away from what ranks exchange."""
    names = {
        Family.OPEN_MPI: ["OMPI_MCA_oob_tcp_if_include"] if library.major < 5 else ["PRTE_MCA_prte_if_include"],
        Family.MPICH: ["HYDRA_IFACE"],
        Family.INTEL: ["I_MPI_HYDRA_IFACE"],
    }[library.family]
    return [Setting(name, interface, "lab") for name in names]


def report_settings(library: Library) -> dict[str, str]:
    """Return what makes a library say which path it took; `explain.read_report` reads that."""
    if library.family is Family.OPEN_MPI:
        names = ("pml_base", "mtl_base", "btl_base", "bml_base", "opal_common_ofi")
        return {f"OMPI_MCA_{name}_verbose": "10" for name in names}
    return {"MPIR_CVAR_DEBUG_SUMMARY": "1"} if library.family is Family.MPICH else {"I_MPI_DEBUG": "4"}


def _progress_thread(library: Library, wishes: Wishes) -> dict[str, str]:
    if library.family is Family.MPICH:
        return {"MPIR_CVAR_ASYNC_PROGRESS": "1"}
    if library.family is Family.INTEL:
        return {"I_MPI_ASYNC_PROGRESS": "1"}
    if wishes.fabric == "tcp":
        return {"OMPI_MCA_btl_tcp_progress_thread": "1"}
    raise MachineCannot(
        f"{library} has a progress thread of its own over tcp only: over {wishes.fabric} measure it without "
        "--progress thread"
    )


def _open_mpi(library: Library, wishes: Wishes) -> dict[str, str]:
    # One-sided operations shall not go past the fabric. In version 4 pt2pt sends them through any pml, but Debian
    # excludes it; version 5 has rdma alone, over the btl.
    one_sided = {} if wishes.fabric == "ucx" else {"OMPI_MCA_osc": "^ucx,rdma" if library.major < 5 else "^ucx"}
    layers = _open_mpi_layers(library, wishes)
    return one_sided | (_fault_tolerant(library, wishes, layers) if wishes.ulfm else layers)


def _fault_tolerant(library: Library, wishes: Wishes, layers: dict[str, str]) -> dict[str, str]:
    """Only pml ob1 heeds failures, so messages go through the provider's byte-transfer layer, two-sided as well."""
    if library.major < 5 or wishes.fabric not in (PROVIDER, "tcp", "shm"):
        raise MachineCannot(
            f"{library} has no fault tolerance over {wishes.fabric}: Open MPI 5 has over {PROVIDER} or tcp"
        )
    # coll han (5.0.11) takes a part's failure for success: a sum of survivors was 0 without an error, over TCP, too.
    more = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_coll": "^han"}
    if wishes.fabric == PROVIDER:
        more |= {"OMPI_MCA_btl_ofi_mode": "2", "OMPI_MCA_btl_ofi_provider_include": PROVIDER}
    return {name: value for name, value in layers.items() if "_mtl" not in name} | more


def _open_mpi_layers(library: Library, wishes: Wishes) -> dict[str, str]:
    shared = "vader" if library.major < 5 else "sm"
    if wishes.fabric == "tcp":
        chosen = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": f"tcp,{shared},self"}
        return chosen | ({"OMPI_MCA_btl_tcp_if_include": wishes.interface} if wishes.interface else {})
    if wishes.fabric == "shm":
        return {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": f"{shared},self"}
    if wishes.fabric == "ucx":
        # Open MPI leaves UCX alone where it finds no InfiniBand, unless told that any transport and device will do.
        kind = "pml_ucx" if library.major < 5 else "opal_common_ucx"
        any_will_do = {f"OMPI_MCA_{kind}_tls": "any", f"OMPI_MCA_{kind}_devices": "any"}
        return {"OMPI_MCA_pml": "ucx", "UCX_TLS": "tcp,self,sm"} | any_will_do
    provider = wishes.provider
    assert provider is not None
    # Named with what libfabric layers over it, for Open MPI compares whole names.
    layered = {"tcp": "tcp,tcp;ofi_rxm", "udp": "udp;ofi_rxd"}.get(provider, provider)
    chosen = {"OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi", "OMPI_MCA_mtl_ofi_provider_include": layered}
    # No byte-transfer layer over TCP: one-sided operations would take it without a word. Version 5 needs one that goes
    # through the same provider for them; version 4 sends them through the pml.
    layers = f"{shared},self" if library.major < 5 else f"ofi,{shared},self"
    return chosen | {"OMPI_MCA_btl": layers, "FI_PROVIDER": provider}


def _mpich(library: Library, wishes: Wishes) -> dict[str, str]:
    if wishes.fabric == "ucx" or (wishes.fabric in ("tcp", "shm") and "ofi" not in library.netmods):
        if "ucx" not in library.netmods:
            raise MachineCannot(f"{library} was built without UCX; it has: {', '.join(library.netmods)}")
        transports = "sm,self" if wishes.fabric == "shm" else "tcp,self,sm"
        return {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": transports}
    if "ofi" not in library.netmods:
        raise MachineCannot(
            f"{library} was built for {', '.join(library.netmods) or 'another device'} only, so no libfabric provider "
            "reaches it: build the program with mpich-5 (`make setup` installs it), or use --fabric ucx or tcp"
        )
    provider = wishes.provider or wishes.fabric
    return {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": provider}


def _intel(library: Library, wishes: Wishes) -> dict[str, str]:
    if wishes.fabric == "ucx":
        raise MachineCannot(
            f"{library} speaks to UCX through a provider of its own for InfiniBand only: use another fabric"
        )
    settings = {"I_MPI_ROOT": str(library.prefix)}
    if wishes.fabric == "shm":
        return settings | {"I_MPI_FABRICS": "shm"}
    if (own := _intel_libfabric(library)) is not None:
        # Else it takes the distribution's, whose tcp provider hangs in messages longer than their receives (1.17).
        providers = own.parent / "prov" if (own.parent / "prov").is_dir() else own.parent
        settings |= {"I_MPI_OFI_LIBRARY": str(own)}
        if wishes.fabric != PROVIDER:
            settings |= {"FI_PROVIDER_PATH": str(providers)}
    return settings | {"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": wishes.provider or wishes.fabric}


def _intel_libfabric(library: Library) -> Path | None:
    """The libfabric that comes with Intel MPI: in wheels beside it, in Intel's own packages in a folder of its own."""
    for folder in ("lib", "libfabric/lib", "opt/mpi/libfabric/lib"):
        if (file := library.prefix / folder / "libfabric.so.1").is_file():
            return file
    return None
