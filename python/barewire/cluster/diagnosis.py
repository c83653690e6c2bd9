# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is wrong with a cluster, from what was measured; pure.

A path is judged against the median of all paths, and a port is blamed for what most of its paths have in common. A
fault hides smaller ones of the same port: a port that passes nothing is not also reported as slow.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from statistics import median

import numpy as np

from barewire.cluster import words
from barewire.cluster.attribution import attribute, both_ways
from barewire.cluster.finding import Blame, Direction, Finding, Kind
from barewire.cluster.measured import HostState, Measured, Path
from barewire.cluster.tournament import Pair

# A cable with the bit error rate that IEEE 802.3 allows (1e-10 to 1e-12) loses one frame of 1e5 or fewer; a port with
# a fault loses many more. Fewer lost frames than the count may be one burst of something else.
LOSS_MIN, LOST_FRAMES_MIN = 1e-3, 5
# A single path has no other paths as witnesses.
PAIR_LOSS_MIN = 5e-3
# Collisions under load lose some percent. A port that drops loses the same share with and without the other direction;
# at half duplex acknowledgements collide without it, so some is lost as well.
DUPLEX_LOSS_MIN, DUPLEX_RATIO, DUPLEX_DEVIATIONS = 0.01, 2.0, 3.0
# Negotiation is by a factor of ten or 2.5, so half is a fault; a busy core rarely halves the better of two tests.
SLOW_RATIO = 0.5
# With few paths as witnesses: on two cores that a dozen other programs use, some stayed below half through all tests.
FEW_PATHS, FEW_SLOW_RATIO = 3, 0.25
REORDERING_MIN, REORDERED_FRAMES_MIN = 2e-3, 5
# The shortest of dozens of round trips is little disturbed; interrupt moderation differs by some tens of µs.
LATENCY_RATIO, LATENCY_MIN_NS = 4.0, 100_000
# One busy program on the same core takes half of it. On a machine that hosts share, others' programs come and go.
CORE_SHARE_RATIO, SHARED_CORE_SHARE_RATIO = 0.6, 0.5
# Turbo and heat make 20 % between equal hosts.
WORK_RATIO = 1.4
# From idle to all ports: a switch without a bottleneck gives all of it.
OVERLOAD_RATIO, OVERLOAD_LOSS = 0.6, 0.01
# Hosts that are needed to say what is usual.
USUAL_HOSTS = 3
# From this number on, fewer than half of the paths touch any one host.
MANY_HOSTS = 5
BETTER_HIGH, BETTER_LOW = 0.75, 0.25

# What makes a port or path look like something else as well.
_CAUSES = {
    # A sender's own acknowledgements collide as well, so some frames are lost without load from the other side.
    Kind.LOSS: {Kind.DUPLEX},
    Kind.SLOW: {Kind.NEGOTIATION, Kind.LOSS, Kind.DUPLEX, Kind.REORDERING},
    Kind.LATENCY: {Kind.NEGOTIATION, Kind.SLOW},
}


def diagnose(measured: Measured) -> list[Finding]:
    """Return all findings, the gravest kinds first."""
    ill: set[str] = set()  # hosts whose paths say nothing more
    findings = [words.unreachable(host, reason) for host, reason in measured.unreachable.items()]
    findings += _negotiation(measured)
    for step in (_dead, _cores, _duplex, _losses, _reordering, _mtu, _slow, _latency, _overload):
        found = step(measured, ill)
        findings += found
        if step in (_dead, _cores):
            ill |= {finding.subject for finding in found if finding.subject in measured.hosts}
    return _without_repetition(findings)


def _negotiation(measured: Measured) -> list[Finding]:
    """Find ports that say themselves that they are slower than expected, or half duplex."""
    speeds = [host.speed_mbit_s for host in measured.hosts.values() if host.speed_mbit_s is not None]
    usual = median(speeds) if len(speeds) >= USUAL_HOSTS else None
    findings = []
    for name, host in measured.hosts.items():
        expected = host.expected_speed_mbit_s or usual
        if host.duplex == "half":
            findings.append(words.half_duplex(name, host))
        elif expected is not None and host.speed_mbit_s is not None and host.speed_mbit_s < expected:
            findings.append(words.negotiated(name, host, expected))
    return findings


def _dead(measured: Measured, _ill: Collection[str]) -> list[Finding]:
    bad = {ends for ends, path in measured.paths.items() if path.is_dead}
    return [words.dead(blame) for blame in attribute(bad, measured.paths)]


def _cores(measured: Measured, ill: Collection[str]) -> list[Finding]:
    """Compare what a computing program got on each host."""
    hosts = {name: host for name, host in measured.hosts.items() if name not in ill}
    shares = [host.core_share for host in hosts.values() if host.core_share is not None]
    works = [host.work_ns for host in hosts.values() if host.work_ns is not None]
    if len(shares) < USUAL_HOSTS or len(works) < USUAL_HOSTS:
        return []
    ratio = SHARED_CORE_SHARE_RATIO if measured.shares_cores else CORE_SHARE_RATIO
    usual_work_ns = median(works)
    findings = []
    for name, host in hosts.items():
        # Hosts of a lab have one core or another, which differ in what else runs there.
        alike = [each.core_share for each in hosts.values() if each.cores == host.cores and each.core_share is not None]
        usual_share = median(alike if len(alike) >= USUAL_HOSTS else shares)
        if host.core_share is not None and host.core_share < ratio * usual_share:
            findings.append(words.starved(name, host.core_share, usual_share))
        elif host.work_ns is not None and host.work_ns > WORK_RATIO * usual_work_ns:
            findings.append(words.clocked_down(name, host.work_ns, usual_work_ns))
    return findings


def _losses(measured: Measured, ill: Collection[str]) -> list[Finding]:
    paths = _healthy(measured, ill)
    bad = {ends for ends, path in paths.items() if path.lost and not path.is_dead}
    return [
        words.loss(blame, lost, sent, _errors_of(measured, blame))
        for blame in attribute(bad, paths)
        for lost, sent in [_pooled(paths, blame, lambda path: path.lost, lambda path: path.sent)]
        if lost >= LOST_FRAMES_MIN and lost >= (PAIR_LOSS_MIN if blame.host is None else LOSS_MIN) * sent
    ]


def _duplex(measured: Measured, ill: Collection[str]) -> list[Finding]:
    paths = _healthy(measured, ill)
    bad = {
        ends
        for ends, path in paths.items()
        if path.both_lost >= LOST_FRAMES_MIN
        and path.both_loss >= max(DUPLEX_LOSS_MIN, DUPLEX_RATIO * path.loss)
        and _loses_more_under_load(path)
        and not path.is_dead
    }
    return [
        words.duplex(blame, (lost, sent), _pooled(paths, blame, lambda path: path.lost, lambda path: path.sent))
        for blame in attribute(both_ways(bad), paths)
        for lost, sent in [_pooled(paths, blame, lambda path: path.both_lost, lambda path: path.both_sent)]
    ]


def _loses_more_under_load(path: Path) -> bool:
    """Return whether chance rarely puts so many of a path's lost frames into the test with load from the other side."""
    lost, share = path.lost + path.both_lost, path.both_sent / (path.sent + path.both_sent)
    return path.both_lost - lost * share >= DUPLEX_DEVIATIONS * math.sqrt(lost * share * (1 - share))


def _mtu(measured: Measured, ill: Collection[str]) -> list[Finding]:
    """Find hosts with another MTU than most, and paths that do not pass what both ends may send."""
    mtus = [host.expected_mtu or host.mtu for host in measured.hosts.values()]
    usual = max(mtus, key=lambda mtu: (mtus.count(mtu), mtu))
    findings = [
        words.mtu_differs(name, host, host.expected_mtu or usual)
        for name, host in measured.hosts.items()
        if host.mtu != (host.expected_mtu or usual)
    ]
    paths = _healthy(measured, ill)
    passed = {ends: path for ends, path in paths.items() if path.mtu_passed is not None}
    bad = {ends for ends, path in passed.items() if (path.mtu_passed or 0) < path.mtu_expected}
    for blame in attribute(bad, passed):
        largest = max(passed[ends].mtu_passed or 0 for ends in blame.paths)
        findings.append(words.path_mtu(blame, largest, max(passed[ends].mtu_expected for ends in blame.paths)))
    return findings


def _slow(measured: Measured, ill: Collection[str]) -> list[Finding]:
    paths = _healthy(measured, ill)
    rates = _rates(measured, paths)
    if len({host for ends in rates for host in ends}) < USUAL_HOSTS:
        return []
    usual = _usual(measured, rates)
    bad = {ends for ends, rate in rates.items() if rate < SLOW_RATIO * usual[ends]}
    findings = []
    for blame in attribute(bad, rates):
        if blame.host is None and measured.shares_cores:  # other programs slow down any single path
            continue
        pairs = {frozenset(ends) for ends in blame.paths}
        if len(pairs) <= FEW_PATHS and median(rates[ends] / usual[ends] for ends in blame.paths) > FEW_SLOW_RATIO:
            continue
        here = median(paths[ends].bandwidth_bit_s or 0.0 for ends in blame.paths)
        others = median((paths[ends].bandwidth_bit_s or 0.0) / rates[ends] * usual[ends] for ends in blame.paths)
        findings.append(words.slow(blame, here, others, _host_of(measured, blame)))
    return findings


def relative_rates(measured: Measured) -> dict[Pair, float]:
    """Return each path's rate as a share of what is usual; paths through which nothing came are left out."""
    rates = _rates(measured, measured.paths)
    usual = _usual(measured, rates)
    return {ends: rate / usual[ends] for ends, rate in rates.items()}


def _rates(measured: Measured, paths: Mapping[Pair, Path]) -> dict[Pair, float]:
    """Return the rates of the paths that frames and acknowledgements pass; others are slow because of that."""
    return {
        ends: rate
        for ends, path in paths.items()
        if (rate := _relative_rate(measured, ends, path)) is not None
        and not path.is_dead
        and not paths[ends[::-1]].is_dead
    }


def _relative_rate(measured: Measured, ends: Pair, path: Path) -> float | None:
    """Return a path's rate, as a share of its slower interface's expected speed if all of these are known."""
    if path.bandwidth_bit_s is None:
        return None
    speeds = {name: host.expected_speed_mbit_s for name, host in measured.hosts.items()}
    first, second = (speeds[end] for end in ends)
    if first is None or second is None or None in speeds.values():
        return path.bandwidth_bit_s
    return path.bandwidth_bit_s / min(first, second)


def _reordering(measured: Measured, ill: Collection[str]) -> list[Finding]:
    paths = _healthy(measured, ill)
    bad = {
        ends
        for ends, path in paths.items()
        if path.reordered >= REORDERED_FRAMES_MIN and path.reordered >= REORDERING_MIN * path.sent
    }
    return [
        words.reordering(blame, reordered, sent)
        for blame in attribute(bad, paths)
        for reordered, sent in [_pooled(paths, blame, lambda path: path.reordered, lambda path: path.sent)]
    ]


def _latency(measured: Measured, ill: Collection[str]) -> list[Finding]:
    paths = _healthy(measured, ill)
    times = {ends: path.round_trip_ns for ends, path in paths.items() if path.round_trip_ns is not None}
    if len({host for ends in times for host in ends}) < USUAL_HOSTS:
        return []
    usual = _usual(measured, times, BETTER_LOW)
    bad = {
        ends for ends, time in times.items() if time > max(LATENCY_RATIO * usual[ends], usual[ends] + LATENCY_MIN_NS)
    }
    return [
        words.latency(blame, median(times[ends] for ends in blame.paths), median(usual[ends] for ends in blame.paths))
        for blame in attribute(bad, times)
    ]


def _overload(measured: Measured, ill: Collection[str]) -> list[Finding]:
    """Compare all ports at once with single pairs that load both directions, as all at once do.

    Where hosts share cores, all at once are slower in any case, and only loss says something of the switch.
    """
    paths = _healthy(measured, ill)
    lossy = {host for ends, path in paths.items() if path.loss >= LOSS_MIN for host in ends}
    together = {ends: path for ends, path in measured.together.items() if ends in paths and not lossy & {*ends}}
    alone = [paths[ends].both_bandwidth_bit_s or 0.0 for ends in measured.alone & paths.keys()]
    if len({host for ends in together for host in ends}) < USUAL_HOSTS or not alone:
        return []
    lost, sent = sum(path.lost for path in together.values()), sum(path.sent for path in together.values())
    losers = {ends[0] for ends, path in together.items() if path.lost}
    is_lossy = sent > 0 and lost >= OVERLOAD_LOSS * sent and 2 * len(losers) > len(measured.hosts)
    here, usual = median(path.bandwidth_bit_s or 0.0 for path in together.values()), median(alone)
    if is_lossy or (not measured.shares_cores and here < OVERLOAD_RATIO * usual):
        return [words.overload(here, usual, lost / max(1, sent))]
    return []


def _healthy(measured: Measured, ill: Collection[str]) -> dict[Pair, Path]:
    return {ends: path for ends, path in measured.paths.items() if not {*ends} & {*ill}}


def _usual(measured: Measured, values: Mapping[Pair, float], better: float = BETTER_HIGH) -> dict[Pair, float]:
    """Return what is usual for each path; of a lab's paths, for those whose ends share a core as well, or do not.

    It is the median, or the better quartile if there are few hosts: a faulty one then is an end of most paths.
    """
    quantile = 0.5 if len({host for ends in values for host in ends}) >= MANY_HOSTS else better
    kinds: dict[bool, list[float]] = {}
    for ends, value in values.items():
        kinds.setdefault(measured.share_core(ends), []).append(value)
    usual = {kind: float(np.quantile(found, quantile)) for kind, found in kinds.items()}
    return {ends: usual[measured.share_core(ends)] for ends in values}


def _pooled(
    paths: dict[Pair, Path], blame: Blame, count: Callable[[Path], int], of: Callable[[Path], int]
) -> tuple[int, int]:
    """Sum over all paths through the blamed port, also those without an event."""
    through = [path for ends, path in paths.items() if _is_through(blame, ends)]
    return sum(map(count, through)), sum(map(of, through))


def _is_through(blame: Blame, ends: Pair) -> bool:
    if blame.host is None:
        return ends in blame.paths
    is_sender, is_receiver = ends[0] == blame.host, ends[1] == blame.host
    return (is_sender and blame.direction != Direction.RECEIVE) or (
        is_receiver and blame.direction != Direction.TRANSMIT
    )


def _errors_of(measured: Measured, blame: Blame) -> dict[str, int]:
    return {} if blame.host is None else dict(measured.hosts[blame.host].errors)


def _host_of(measured: Measured, blame: Blame) -> HostState | None:
    return None if blame.host is None else measured.hosts[blame.host]


def _without_repetition(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out what follows from another finding of the same port, or of the port that all its paths go through."""
    kept: list[Finding] = []
    for finding in findings:
        ends = set.intersection(*map(set, finding.paths)) if finding.paths else set[str]()
        causes = _CAUSES.get(finding.kind, ())
        if not any(each.kind in causes and each.subject in {finding.subject, *ends} for each in kept):
            kept.append(finding)
    return kept
