# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The path of a job's messages: requested settings compared with reports of witnesses and library; pure."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barewire.mpi.fabrics import (
    INTERFACE,
    LINK,
    LINKS,
    LINKS_BY_FRAMES,
    PROGRESS,
    PROVIDER,
    PROVIDER_FILE,
    SECRET,
    TOKEN,
    WAIT,
    FabricOptions,
    Setting,
    auth_of,
)
from barewire.mpi.job import Job
from barewire.mpi.libraries import Family
from barewire.mpi.placement import LOCAL_HOST
from barewire.mpi.witness import MARK


@dataclass(frozen=True)
class Row:
    """One part of the path. `seen` is the evidence, empty if there is none; `wrong` describes a difference."""

    what: str
    taken: str
    source: str
    seen: str = ""
    wrong: str = ""


@dataclass(frozen=True)
class Report:
    """The layers and the libfabric provider that a library reported, and error messages."""

    layers: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    # Messages of our own programs in the ranks, mostly the provider's.
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Observations of the witnesses, by rank, and the output of their library."""

    ranks: list[dict[str, Any]] = field(default_factory=list)
    report: Report = Report()


def read_evidence(output: str) -> Evidence:
    """Read the output of a job of witnesses."""
    # Launchers may prefix lines with a rank's name, or join several lines.
    found = (_facts_at(output, match.end()) for match in re.finditer(re.escape(MARK), output))
    ranks = [facts for facts in found if facts is not None]
    return Evidence(sorted(ranks, key=lambda facts: facts["rank"]), read_report(output))


def _facts_at(output: str, start: int) -> dict[str, Any] | None:
    """Return the facts that begin there; None if another rank printed into them: this one then counts as missing."""
    try:
        facts: dict[str, Any] = json.JSONDecoder().raw_decode(output, start)[0]
    except ValueError:
        return None
    return facts


def read_report(output: str) -> Report:
    """Read the output that `fabrics.report_settings` enables."""
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


def rows(job: Job, requested: FabricOptions, reason: str, evidence: Evidence | None) -> list[Row]:
    """Compare the requested path with the observed one; without evidence, list the request only."""
    table = [
        _library(job, reason, evidence),
        Row("ranks", _requested_hosts(job), *_rank_hosts(job, evidence)),
        _layer(job, requested, evidence),
    ]
    if requested.provider is not None or (evidence is not None and evidence.report.providers):
        table.append(_provider(job, requested, evidence))
    if requested.fabric == PROVIDER:
        table += _provider_rows(job, evidence)
    elif evidence is not None:
        peers = sorted({peer for facts in evidence.ranks for peer in facts["tcp_peers"]})
        table.append(Row("TCP connections", f"to {', '.join(peers)}" if peers else "none", "", "open sockets"))
    return table


def _library(job: Job, reason: str, evidence: Evidence | None) -> Row:
    taken = f"{job.library} ({job.library.file})"
    if evidence is None:
        return Row("library", taken, reason)
    real = _of_any_architecture(str(job.library.file.resolve()))
    mismatched = [facts["rank"] for facts in evidence.ranks if real not in map(_of_any_architecture, facts["files"])]
    wrong = f"ranks {_abbreviated(mismatched)} have another libmpi mapped" if mismatched else ""
    return Row("library", taken, reason, _matching(evidence, len(mismatched)), wrong)


def _of_any_architecture(path: str) -> str:
    """Return a path without Debian's folder of an architecture: a job's hosts may have different ones."""
    return re.sub(r"/\w+-linux-gnu/", "/", path)


def _requested_hosts(job: Job) -> str:
    if job.in_slurm and job.shares[0][0] == LOCAL_HOST:
        return f"{job.ranks} in the allocation"
    return ", ".join(f"{count} on {host}" for host, count in job.shares)


def _rank_hosts(job: Job, evidence: Evidence | None) -> tuple[str, str, str]:
    if evidence is None:
        return "options", "", ""
    missing = job.ranks - len(evidence.ranks)
    hosts = Counter(facts["host"] for facts in evidence.ranks)
    by_host = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
    if missing:
        reasons = "; ".join(evidence.report.complaints)
        return "options", "", f"{missing} of {job.ranks} did not answer{': ' if reasons else ''}{reasons}"
    # srun spreads ranks over nodes by rules of its own.
    differs = job.in_slurm and job.shares[0][0] != LOCAL_HOST and _by_short_name(hosts) != _by_short_name(job.shares)
    return "options", f"{len(evidence.ranks)} answered: {by_host}", f"they are {by_host}" if differs else ""


def _by_short_name(shares: Mapping[str, int] | Sequence[tuple[str, int]]) -> dict[str, int]:
    return {host.split(".")[0]: count for host, count in dict(shares).items()}


def _layer(job: Job, requested: FabricOptions, evidence: Evidence | None) -> Row:
    requested_layers = _requested_layers(job)
    source = f"--fabric {requested.fabric}"
    if evidence is None:
        return Row("layer", " / ".join(requested_layers), source)
    seen = evidence.report.layers
    missing = [layer for layer in requested_layers if layer not in seen]
    wrong = f"the library does not report {', '.join(missing)}" if missing else ""
    taken = [layer for layer in requested_layers if layer in seen] + sorted(seen - set(requested_layers))
    return Row("layer", " / ".join(taken), source, "library's report", wrong)


def _requested_layers(job: Job) -> list[str]:
    settings = job.environment()
    if job.library.family is Family.OPEN_MPI:
        names = [f"pml {settings['OMPI_MCA_pml']}"]
        return names + ([f"mtl {settings['OMPI_MCA_mtl']}"] if "OMPI_MCA_mtl" in settings else [])
    if job.library.family is Family.INTEL:
        return ["ch4 ofi"] if "ofi" in settings["I_MPI_FABRICS"] else []
    return [f"ch4 {settings['MPIR_CVAR_CH4_NETMOD']}"]


def _provider(job: Job, requested: FabricOptions, evidence: Evidence | None) -> Row:
    source = f"--fabric {requested.fabric}"
    wanted = job.environment().get("FI_PROVIDER", "")
    if evidence is None:
        return Row("provider", wanted, source)
    versions = sorted({facts["libfabric"] for facts in evidence.ranks if facts["libfabric"]})
    reported = sorted(evidence.report.providers)
    files = {file for facts in evidence.ranks for file in facts["files"] if file.endswith(f"lib{wanted}-fi.so")}
    paths = "".join(f" ({file})" for file in sorted(files))
    taken = f"{', '.join(reported) or wanted}{paths}, libfabric {', '.join(versions)}"
    if wanted == PROVIDER:
        missing = [f["rank"] for f in evidence.ranks if not any(x.endswith(f"/{PROVIDER_FILE}") for x in f["files"])]
        wrong = f"ranks {_abbreviated(missing)} did not load {PROVIDER_FILE}" if missing else ""
        if not wrong and reported and not all(PROVIDER in name for name in reported):
            wrong = f"the library reports {', '.join(reported)}"
        return Row("provider", taken, source, f"mapped files: {_matching(evidence, len(missing))}", wrong)
    wrong = (
        f"the library reports {', '.join(reported)}"
        if reported and not any(wanted in name for name in reported)
        else ""
    )
    return Row("provider", taken, source, "library's report" if reported else "", wrong)


def _provider_rows(job: Job, evidence: Evidence | None) -> list[Row]:
    # The provider takes an empty value for none.
    settings = {setting.name: setting for setting in job.settings if setting.value}
    interface, link = settings.get(INTERFACE), settings.get(LINK)
    wanted = interface.value if interface else "first one that is up"
    source = interface.source if interface else "default"
    table = []
    if evidence is None:
        table += [
            Row("interface", wanted, source),
            Row("link", link.value if link else LINKS[0], link.source if link else "default"),
        ]
    else:
        table += _sockets(evidence, interface.value if interface else None, source, link)
    for what, name, default in (
        ("waiting", WAIT, "provider's default"),
        ("progress", PROGRESS, "requested by the library, usually manual"),
    ):
        setting = settings.get(name)
        table.append(Row(what, setting.value if setting else default, setting.source if setting else "default"))
    token = next(setting for setting in job.settings if setting.name == TOKEN)
    taken = "16 hexadecimal digits, not shown" if token.value else "none, or of Open MPI 4's transport key"
    table.append(Row("job token", taken, token.source))
    table.append(_authentication(job, evidence))
    return table


def _authentication(job: Job, evidence: Evidence | None) -> Row:
    mode = auth_of(job.settings)
    secrets = [setting for setting in job.settings if setting.name == SECRET]
    taken = mode.value + "".join(f", secret {secret.source}, not shown" for secret in secrets)
    if evidence is None:
        return Row("authentication", taken, mode.source)
    # A rank without the secret refuses to start and does not answer.
    mismatched = [facts["rank"] for facts in evidence.ranks if facts["auth"] != mode.value]
    wrong = f"ranks {_abbreviated(mismatched)} differ" if mismatched else ""
    return Row("authentication", taken, mode.source, f"environment: {_matching(evidence, len(mismatched))}", wrong)


def _sockets(evidence: Evidence, interface: str | None, source: str, link: Setting | None) -> list[Row]:
    """Return the interface, the link and its carriers, as the ranks' open sockets and connections show them."""
    facts = evidence.ranks
    interfaces = sorted({entry for rank in facts for name in ("packet", "udp") for entry in rank[name].items()})
    batches = sum(rank["xdp"] and bool(rank["packet"]) for rank in facts)
    missing = [rank["rank"] for rank in facts if not (rank["packet"] or rank["xdp"] or rank["udp"])]
    wrong = f"ranks {_abbreviated(missing)} have no socket for frames or UDP" if missing else ""
    if interface is not None and any(name not in interface.split(",") for name, _ in interfaces):
        wrong = f"ranks use {', '.join(name for name, _ in interfaces)}"
    taken = ", ".join(f"{name}, MTU {mtu}" for name, mtu in interfaces) or interface or "unknown"
    seen = f"open sockets: {_matching(evidence, len(missing))}"
    reached = [carrier for rank in facts for carrier in rank["reached"].values() if carrier != "memory"]
    carriers = Counter(re.split(r"[*+]", carrier)[0] for carrier in reached)
    widest = max((int(carrier.partition("*")[2] or 1) for carrier in reached), default=1)
    # A rank with a packet socket may have an AF_XDP socket as well, which sends its batches.
    frames = "xdp" if any(rank["xdp"] and not rank["packet"] for rank in facts) else "packet"
    names = {"frames": frames, "udp": "udp"}
    actual = " and ".join(names[carrier] for carrier in names if carriers[carrier]) or "none: one host"
    batch_note = f", {batches} of {len(facts)} ranks send batches by AF_XDP" if batches else ""
    spread_note = f", long messages over up to {widest} interfaces" if widest > 1 else ""
    spread_note += ", long messages by UDP" if "frames+udp" in reached else ""
    wanted = LINKS[0] if link is None else link.value
    others = [names[carrier] for carrier in names if carriers[carrier] and wanted not in (LINKS[0], names[carrier])]
    differs = f"ranks use the link {' and '.join(others)}" if others else ""
    total = f"connections: {sum(carriers.values())}"
    return [
        Row("interface", taken, source, seen, wrong),
        Row("link", actual + spread_note + batch_note, "default" if link is None else link.source, total, differs),
        *_carriers(evidence, wanted),
    ]


# More pairs of one carrier are counted.
_NAMED_PAIRS = 8
# The carriers between two hosts, or within one, quickest first; without the number of interfaces, as in `frames*2`.
_CARRIERS = ("memory", "frames+udp", "frames*", "frames", "udp", "none")


def _carriers(evidence: Evidence, wanted: str) -> list[Row]:
    """Return for each carrier the pairs of hosts that it joins, and why none is quicker.

    A pair of which some ranks use another one counts for the slowest.
    """
    host_of = {address: rank["host"] for rank in evidence.ranks for address in rank["own"]}
    slowest: dict[frozenset[str], int] = {}
    for rank in evidence.ranks:
        for address, carrier in rank["reached"].items():
            if address in host_of:
                pair = frozenset((rank["host"], host_of[address]))
                found = _CARRIERS.index(re.sub(r"\*\d+", "*", carrier))
                slowest[pair] = max(slowest.get(pair, 0), found)
    groups = {
        carrier: [pair for pair, found in slowest.items() if found == number]
        for number, carrier in enumerate(_CARRIERS)
    }
    *others, largest = sorted(groups.keys() - {"memory"}, key=lambda carrier: len(groups[carrier]))
    rest = largest if all(len(groups[carrier]) <= _NAMED_PAIRS for carrier in others) else None
    return [
        Row(
            *(_carrier_name(carrier), _named(pairs, is_rest=carrier == rest)),
            _why_not_quicker(carrier, wanted, evidence, pairs),
            f"connections: {len(pairs)} {'hosts' if carrier == 'memory' else 'pairs of hosts'}",
        )
        for carrier, pairs in groups.items()
        if pairs
    ]


def _named(pairs: Sequence[frozenset[str]], *, is_rest: bool) -> str:
    """Return which pairs these are, or that they are all that other carriers do not name."""
    names = sorted("–".join(sorted(pair)) for pair in pairs)
    more = len(names) - _NAMED_PAIRS
    if more > 0 and is_rest:
        return "all pairs not listed"
    return ", ".join(names[:_NAMED_PAIRS]) + (f" and {more} more" if more > 0 else "")


def _carrier_name(carrier: str) -> str:
    names = {
        "frames+udp": "by frames and UDP",
        "frames*": "by several interfaces",
        "udp": "by UDP",
        "none": "by nothing",
    }
    return names.get(carrier, f"by {carrier}")


def _why_not_quicker(carrier: str, wanted: str, evidence: Evidence, pairs: Sequence[frozenset[str]]) -> str:
    if carrier == "udp":
        return _why_udp(wanted, evidence, pairs)
    if carrier.startswith("frames") and wanted in LINKS_BY_FRAMES:
        return f"--link {wanted}: long messages are not sent by UDP"
    return {
        "memory": "one host: nothing is quicker",
        "frames+udp": "nothing is quicker: long messages leave as batches of datagrams",
        "frames*": "nothing is quicker: long messages are spread over the interfaces",
        "frames": "quickest for short messages; long ones need offloads and 10 Gb/s, or more interfaces",
        "none": "no answer yet",
    }[carrier]


def _why_udp(wanted: str, evidence: Evidence, pairs: Sequence[frozenset[str]]) -> str:
    if wanted != LINKS[0]:
        return f"--link {wanted}: frames, which are quicker where they get through, are not tried"
    without = sorted({rank["host"] for rank in evidence.ranks if not rank["packet"] and not rank["xdp"]})
    reasons = []
    if any(pair & set(without) for pair in pairs):
        reasons.append(f"no right to frames on {', '.join(without)}: CAP_NET_RAW or a broker there is quicker")
    if any(not pair & set(without) for pair in pairs):
        reasons.append("frames do not get through: a router, or a filter, is between them")
    return "; ".join(reasons)


def _matching(evidence: Evidence, mismatched: int) -> str:
    return f"{len(evidence.ranks) - mismatched} of {len(evidence.ranks)} ranks"


def _abbreviated(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, …" if len(ranks) > 8 else shown
