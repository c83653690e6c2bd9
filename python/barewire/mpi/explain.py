# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which path a job's messages really take: what was asked for beside what witnesses saw and the library said; pure."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barewire.mpi.fabrics import (
    INTERFACE,
    LINK,
    PROGRESS,
    PROVIDER,
    PROVIDER_FILE,
    SECRET,
    TOKEN,
    WAIT,
    Setting,
    Wishes,
    auth_of,
)
from barewire.mpi.job import Job
from barewire.mpi.libraries import Family
from barewire.mpi.placement import LOCAL_HOST
from barewire.mpi.witness import MARK


@dataclass(frozen=True)
class Row:
    """One part of the path; `seen` is how it is known, empty where it was only asked for. `wrong` says what differs."""

    what: str
    taken: str
    source: str
    seen: str = ""
    wrong: str = ""


@dataclass(frozen=True)
class Report:
    """What a library said of the layers and the libfabric provider that it took, and what was complained of."""

    layers: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    # What our own programs in the ranks' place complained of, the provider most of all.
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What the witnesses saw, by rank, and what their library said."""

    ranks: list[dict[str, Any]] = field(default_factory=list)
    report: Report = Report()


def read_evidence(output: str) -> Evidence:
    """Read the output of a job of witnesses."""
    # Launchers may put a rank's name before its lines, or join the lines of several.
    decoder = json.JSONDecoder()
    ranks = [decoder.raw_decode(output, match.end())[0] for match in re.finditer(re.escape(MARK), output)]
    return Evidence(sorted(ranks, key=lambda facts: facts["rank"]), read_report(output))


def read_report(output: str) -> Report:
    """Read what libraries say with `fabrics.report_settings`."""
    layers = {f"pml {name}" for name in re.findall(r"select: component (cm|ob1|ucx) selected", output)}
    layers |= {f"mtl {name}" for name in re.findall(r"\(\s*mtl\) Selected component \[(\w+)\]", output)}
    layers |= {f"btl {name}" for name in re.findall(r"Using (\w+) btl for send to", output)} - {"btl self"}
    if "UCX netmod Capability" in output:
        layers.add("ch4 ucx")
    if "MPIDI_OFI_ENABLE_TAGGED" in output or "MPI startup(): libfabric provider" in output:
        layers.add("ch4 ofi")
    # Open MPI 4 calls the domain (an interface) a provider, and the provider prov.
    providers = re.findall(r"mtl:ofi:prov: (\S+)", output) or re.findall(r"mtl:ofi:provider: (\S+)", output)
    providers += re.findall(r"libfabric provider: (\S+)", output)
    complaints = dict.fromkeys(re.findall(r"barewire: (.+?)\s*$", output, re.MULTILINE))
    return Report(frozenset(layers), frozenset(providers), tuple(complaints))


def rows(job: Job, wishes: Wishes, reason: str, evidence: Evidence | None) -> list[Row]:
    """Compare what was asked for with what was seen; without evidence only the former."""
    table = [
        _library(job, reason, evidence),
        Row("ranks", _asked_places(job), *_where(job, evidence)),
        _layer(job, wishes, evidence),
    ]
    if wishes.provider is not None or (evidence is not None and evidence.report.providers):
        table.append(_provider(job, wishes, evidence))
    if wishes.fabric == PROVIDER:
        table += _own(job, evidence)
    elif evidence is not None:
        peers = sorted({peer for facts in evidence.ranks for peer in facts["tcp_peers"]})
        table.append(Row("TCP connections", f"to {', '.join(peers)}" if peers else "none", "", "open sockets"))
    return table


def _library(job: Job, reason: str, evidence: Evidence | None) -> Row:
    taken = f"{job.library} ({job.library.file})"
    if evidence is None:
        return Row("library", taken, reason)
    real = str(job.library.file.resolve())
    others = [facts["rank"] for facts in evidence.ranks if real not in facts["files"]]
    wrong = f"ranks {_few(others)} have another libmpi mapped" if others else ""
    return Row("library", taken, reason, _count(evidence, len(others)), wrong)


def _asked_places(job: Job) -> str:
    if job.in_slurm and job.shares[0][0] == LOCAL_HOST:
        return f"{job.ranks} in the allocation"
    return ", ".join(f"{count} on {host}" for host, count in job.shares)


def _where(job: Job, evidence: Evidence | None) -> tuple[str, str, str]:
    if evidence is None:
        return "options", "", ""
    missing = job.ranks - len(evidence.ranks)
    hosts = Counter(facts["host"] for facts in evidence.ranks)
    places = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
    if missing:
        why = "; ".join(evidence.report.complaints)
        return "options", "", f"{missing} of {job.ranks} did not answer{': ' if why else ''}{why}"
    # srun spreads ranks over nodes by rules of its own.
    differs = job.in_slurm and job.shares[0][0] != LOCAL_HOST and _by_short_name(hosts) != _by_short_name(job.shares)
    return "options", f"{len(evidence.ranks)} answered: {places}", f"they are {places}" if differs else ""


def _by_short_name(shares: Mapping[str, int] | Sequence[tuple[str, int]]) -> dict[str, int]:
    return {host.split(".")[0]: count for host, count in dict(shares).items()}


def _layer(job: Job, wishes: Wishes, evidence: Evidence | None) -> Row:
    asked = _asked_layers(job)
    source = f"--fabric {wishes.fabric}"
    if evidence is None:
        return Row("layer", " / ".join(asked), source)
    seen = evidence.report.layers
    missing = [layer for layer in asked if layer not in seen]
    wrong = f"the library does not say that it took {', '.join(missing)}" if missing else ""
    taken = [layer for layer in asked if layer in seen] + sorted(seen - set(asked))
    return Row("layer", " / ".join(taken), source, "library's report", wrong)


def _asked_layers(job: Job) -> list[str]:
    settings = job.environment()
    if job.library.family is Family.OPEN_MPI:
        names = [f"pml {settings['OMPI_MCA_pml']}"]
        return names + ([f"mtl {settings['OMPI_MCA_mtl']}"] if "OMPI_MCA_mtl" in settings else [])
    if job.library.family is Family.INTEL:
        return ["ch4 ofi"] if "ofi" in settings["I_MPI_FABRICS"] else []
    return [f"ch4 {settings['MPIR_CVAR_CH4_NETMOD']}"]


def _provider(job: Job, wishes: Wishes, evidence: Evidence | None) -> Row:
    source = f"--fabric {wishes.fabric}"
    asked = job.environment().get("FI_PROVIDER", "")
    if evidence is None:
        return Row("provider", asked, source)
    versions = sorted({facts["libfabric"] for facts in evidence.ranks if facts["libfabric"]})
    said = sorted(evidence.report.providers)
    files = {file for facts in evidence.ranks for file in facts["files"] if file.endswith(f"lib{asked}-fi.so")}
    taken = (
        f"{', '.join(said) or asked}{''.join(f' ({file})' for file in sorted(files))}, libfabric {', '.join(versions)}"
    )
    if asked == PROVIDER:
        without = [f["rank"] for f in evidence.ranks if not any(x.endswith(f"/{PROVIDER_FILE}") for x in f["files"])]
        wrong = f"ranks {_few(without)} did not load {PROVIDER_FILE}" if without else ""
        if not wrong and said and not all(PROVIDER in name for name in said):
            wrong = f"the library says that it took {', '.join(said)}"
        return Row("provider", taken, source, f"mapped files: {_count(evidence, len(without))}", wrong)
    wrong = (
        f"the library says that it took {', '.join(said)}" if said and not any(asked in name for name in said) else ""
    )
    return Row("provider", taken, source, "library's report" if said else "", wrong)


def _own(job: Job, evidence: Evidence | None) -> list[Row]:
    settings = {setting.name: setting for setting in job.settings}
    interface, link = settings.get(INTERFACE), settings.get(LINK)
    asked = interface.value if interface else "the first that is up"
    source = interface.source if interface else "default"
    table = []
    if evidence is None:
        table += [
            Row("interface", asked, source),
            Row("link", link.value if link else "packet", link.source if link else "default"),
        ]
    else:
        table += _sockets(evidence, interface.value if interface else None, source, link)
    for what, name, otherwise in (
        ("waiting", WAIT, "the provider's own choice"),
        ("progress", PROGRESS, "as the library asks, mostly manual"),
    ):
        found = settings.get(name)
        table.append(Row(what, found.value if found else otherwise, found.source if found else "default"))
    table.append(Row("job token", "16 hexadecimal digits, not shown", settings[TOKEN].source))
    table.append(_authentication(job, evidence))
    return table


def _authentication(job: Job, evidence: Evidence | None) -> Row:
    asked = auth_of(job.settings)
    secrets = [setting for setting in job.settings if setting.name == SECRET]
    taken = asked.value + "".join(f", secret {secret.source}, not shown" for secret in secrets)
    if evidence is None:
        return Row("authentication", taken, asked.source)
    # A rank that lacks the secret refuses to start, and does not answer.
    others = [facts["rank"] for facts in evidence.ranks if facts["auth"] != asked.value]
    wrong = f"ranks {_few(others)} have another" if others else ""
    return Row("authentication", taken, asked.source, f"environment: {_count(evidence, len(others))}", wrong)


def _sockets(evidence: Evidence, interface: str | None, source: str, link: Setting | None) -> list[Row]:
    """The interface and the link, by the sockets that ranks have open."""
    found = sorted({(name, mtu) for facts in evidence.ranks for name, mtu in facts["packet"].items()})
    # Beside a packet socket one of AF_XDP sends its batches.
    xdp = any(facts["xdp"] and not facts["packet"] for facts in evidence.ranks)
    batches = sum(facts["xdp"] and bool(facts["packet"]) for facts in evidence.ranks)
    without = [facts["rank"] for facts in evidence.ranks if not facts["packet"] and not facts["xdp"]]
    wrong = f"ranks {_few(without)} have no socket for frames" if without else ""
    if interface is not None and any(name != interface for name, _ in found):
        wrong = f"frames go through {', '.join(name for name, _ in found)}"
    taken = ", ".join(f"{name}, MTU {mtu}" for name, mtu in found) or interface or "unknown"
    seen = f"open sockets: {_count(evidence, len(without))}"
    other = "xdp" if xdp else "packet"
    how = f", {batches} of {len(evidence.ranks)} ranks send batches by AF_XDP" if batches else ""
    differs = f"ranks have a socket of the link {other}" if link is not None and link.value != other else ""
    return [
        Row("interface", taken, source, seen, wrong),
        Row("link", other + how, "default" if link is None else link.source, seen, differs),
    ]


def _count(evidence: Evidence, others: int) -> str:
    return f"{len(evidence.ranks) - others} of {len(evidence.ranks)} ranks"


def _few(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, …" if len(ranks) > 8 else shown
