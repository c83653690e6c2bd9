# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Announcements of jobs as JSON: their schema, which the API's document includes, and their meaning for a job. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from barewire.errors import WrongUse
from barewire.sdn.classify.policy import PROFILE, Traffic, parse_traffic
from barewire.sdn.flow import Pattern

RANKS_MAX = 100_000
TRAFFIC_MAX = 100
# In all of a job's traffic.
PORTS_MAX = 1000
PATTERNS_MAX = 1000
# Flows in all patterns of a job: 192 mappers × 192 reducers, about thirty times.
PATTERN_FLOWS_MAX = 1_000_000
LEASE_S_MIN, LEASE_S_MAX, LEASE_S = 1.0, 3600.0, 30.0
VOLUME_MAX_BYTES = 1 << 60
_DESCRIBED = "GET /openapi.json describes all documents"

Document = TypeVar("Document")


class TrafficDocument(Struct, forbid_unknown_fields=True):
    """Flows between a job's hosts."""

    protocol: Annotated[
        Literal["tcp", "udp", "ip", "llc", "tcp6", "udp6", "ip6"] | None,
        Meta(description="tcp, udp and ip (any other) are of IPv4 and IPv6, tcp6, udp6 and ip6 of IPv6 only"),
    ] = None
    ports: Annotated[
        list[int | str], Meta(max_length=PORTS_MAX, description='22, or "1024-1044"; this many in all of a job')
    ] = []


class FlowDocument(Struct, forbid_unknown_fields=True, rename={"source": "from"}, gc=False):
    """A flow of a pattern: its ends are numbers of ranks, or names of hosts."""

    source: int | str
    to: int | str
    bytes: Annotated[int, Meta(ge=1, le=VOLUME_MAX_BYTES)]


PatternDocument = list[FlowDocument]


class Announcement(Struct, forbid_unknown_fields=True):
    """A job to be announced."""

    # Python's $ alone matches before a last line break, too.
    profile: Annotated[str, Meta(pattern=rf"^{PROFILE.pattern}$(?!\n)")]
    hosts: Annotated[list[str], Meta(min_length=1, description="the job's hosts, by the controller's names")]
    name: Annotated[str, Meta(max_length=200)] = ""
    ranks: Annotated[list[str], Meta(max_length=RANKS_MAX, description="each rank's host")] = []
    traffic: Annotated[
        list[TrafficDocument], Meta(max_length=TRAFFIC_MAX, description="the job's flows; none: all of its hosts'")
    ] = []
    patterns: Annotated[
        list[PatternDocument], Meta(description="sets of concurrent flows, in order; the first is current")
    ] = []
    lease_s: Annotated[float, Meta(ge=LEASE_S_MIN, le=LEASE_S_MAX)] = LEASE_S


def read(document: object, kind: type[Document]) -> Document:
    """Read a document: JSON as bytes, or its values. WrongUse says where it is wrong; ValueError: it is not JSON."""
    try:
        if isinstance(document, bytes):
            return msgspec.json.decode(document, type=kind)
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise WrongUse(f"{kind.__name__.lower()}: {error}; {_DESCRIBED}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def check_names(given: Sequence[str], what: str, known: Collection[str]) -> None:
    """Check that all names are known. WrongUse lists those that are not."""
    missing = sorted({name for name in given if name not in known})
    if missing:
        listed = ", ".join(sorted(known)[:20]) or "none yet: give the controller a hosts file"
        raise WrongUse(f"unknown {what}: {', '.join(missing[:20])}; known are {listed}")


def traffic_of(documents: Sequence[TrafficDocument]) -> tuple[Traffic, ...]:
    """Return the traffic of an announcement, merged to one entry for each protocol. WrongUse names the mistake."""
    ports = sum(len(one.ports) for one in documents)
    if ports > PORTS_MAX:
        raise WrongUse(f"a job's traffic has at most {PORTS_MAX} ports or ranges of ports in all, not {ports}")
    of_protocols: dict[str | None, list[Traffic]] = {}
    for number, one in enumerate(documents):
        parsed = parse_traffic({"protocol": one.protocol, "ports": one.ports}, f"traffic {number}")
        of_protocols.setdefault(parsed.protocol, []).append(parsed)
    return tuple(
        Traffic(
            protocol, tuple(chain.from_iterable(one.ports for one in some)) if all(one.ports for one in some) else ()
        )
        for protocol, some in of_protocols.items()
    )


def patterns_of(
    documents: Sequence[PatternDocument], hosts: Collection[str], ranks: Sequence[str], before: int, flows: int
) -> tuple[Pattern, ...]:
    """Return patterns of a job that has `before` patterns with `flows` flows. WrongUse names the mistake.

    The volumes of flows between the same hosts are summed; flows within a host are left out.
    """
    if before + len(documents) > PATTERNS_MAX:
        raise WrongUse(f"a job has at most {PATTERNS_MAX} patterns: announce the following ones as another job")
    if flows + sum(map(len, documents)) > PATTERN_FLOWS_MAX:
        raise WrongUse(f"a job's patterns have at most {PATTERN_FLOWS_MAX} flows in all; announce several jobs")
    return tuple(
        _pattern(document, hosts, ranks, f"pattern {number}") for number, document in enumerate(documents, start=before)
    )


def _pattern(flows: PatternDocument, hosts: Collection[str], ranks: Sequence[str], where: str) -> Pattern:
    volumes: Counter[tuple[str, str]] = Counter()
    for flow in flows:
        ends = _host(flow.source, hosts, ranks, where), _host(flow.to, hosts, ranks, where)
        if ends[0] != ends[1]:
            volumes[ends] += flow.bytes
    return dict(volumes)


def _host(end: int | str, hosts: Collection[str], ranks: Sequence[str], where: str) -> str:
    if isinstance(end, int):
        if 0 <= end < len(ranks):
            return ranks[end]
    elif end in hosts:
        return end
    raise WrongUse(
        f"{where}: {str(end)[:100]!r} is neither a rank of the {len(ranks)} in ranks nor one of the job's hosts"
    )


def schemas(kinds: Sequence[Any], template: str) -> Mapping[str, Any]:
    """Return the JSON schemas of documents by name, which refer to each other by the template `…/{name}`."""
    _, components = msgspec.json.schema_components(kinds, ref_template=template)
    return components
