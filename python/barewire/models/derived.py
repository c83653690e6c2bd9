# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Values derived from one launch's records of overlap, overhead, logp, availability, beff and nonblocking.

A launch is the experimental unit: its curves are fitted here, and statistics are computed over launches' results.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from barewire.models import beff
from barewire.models.logp import HiddenComputation, Parameters, hidden_computation, wire_latency_ns


class Point(NamedTuple):
    """The measured values of one record of the C suite, without warm-up; times in ns.

    `parameter_value` is the record's coordinate (computation_ns, ring), None if it has none.
    """

    variant: str
    quantity: str
    message_bytes: int
    rank: int
    parameter_value: float | None
    values: Sequence[float]


class Derived(NamedTuple):
    """One value; `unit` is ns, B/s or 1 (a share)."""

    variant: str
    quantity: str
    message_bytes: int
    value: float
    unit: str = "ns"


@dataclass
class Findings:
    """The derived values, and a sentence for each curve that yielded none."""

    values: list[Derived]
    problems: list[str]


def derived(test: str, points: Iterable[Point]) -> Findings:
    """Return everything derived from one launch of `test`. ValueError for a test from which nothing is derived.

    overlap: for each variant `uncomputed`, `hidden` and `added` (ns), `hidden_share` (of the uncomputed time).
    overhead: for each variant gap-… `gap`, `overhead` and `added`; for each variant call-… `overhead`, the call's time
    without reading the clock.
    logp: for each of `LOGP_VARIANTS` `eel`, `gap`, `os`, `or`, `opportunity`, and for the smallest size `latency`.
    availability: for send and receive `uncomputed`, `overhead`, `availability` (a share).
    beff: for natural and random `latency` (ns) and `bandwidth` (B/s, per process).
    nonblocking: for each variant `hidden_share` (of its time without computation).
    """
    if test not in _DERIVATIONS:
        raise ValueError(f"nothing is derived from {test}; known: {', '.join(_DERIVATIONS)}")
    findings = Findings([], [])
    _DERIVATIONS[test](list(points), findings)
    return findings


def _overlap(points: list[Point], findings: Findings) -> None:
    for variant, size, curve in _curves(points, findings):
        findings.values += [
            Derived(variant, "uncomputed", size, curve.flat_ns),
            Derived(variant, "hidden", size, curve.hidden_ns),
            Derived(variant, "added", size, curve.added_ns),
            Derived(variant, "hidden_share", size, curve.hidden_ns / curve.flat_ns, "1"),
        ]


def _overhead(points: list[Point], findings: Findings) -> None:
    for variant, size, curve in _curves([point for point in points if point.variant.startswith("gap-")], findings):
        findings.values += [
            Derived(variant, "gap", size, curve.flat_ns),
            Derived(variant, "overhead", size, curve.overhead_ns),
            Derived(variant, "added", size, curve.added_ns),
        ]
    clock_ns = {
        point.rank: _median(point) for point in points if (point.variant, point.quantity) == ("calibration", "clock")
    }
    for point in points:
        if point.variant.startswith("call-") and point.quantity == "time":
            # Irecv and Wait are timed apart, each with a clock reading.
            readings = 2 if point.variant == "call-receive-irecv" else 1
            call_ns = _median(point) - readings * clock_ns.get(point.rank, 0.0)
            findings.values.append(Derived(point.variant, "overhead", point.message_bytes, call_ns))


def _logp(points: list[Point], findings: Findings) -> None:
    fitted = {(variant, size): curve for variant, size, curve in _curves(points, findings)}
    single = {
        (point.variant, point.message_bytes): _median(point)
        for point in points
        if point.quantity == "time" and point.parameter_value is None
    }
    for variant in LOGP_VARIANTS:
        _logp_variant(variant, fitted, single, findings)


def _logp_variant(
    variant: str,
    fitted: dict[tuple[str, int], HiddenComputation],
    single: dict[tuple[str, int], float],
    findings: Findings,
) -> None:
    """Derive the parameters of one mode from its own variants only: none is taken from another mode."""
    mode = variant.removeprefix("logp")
    names = [f"{name}{mode}" for name in ("roundtrip", "gap", "gap-send", "gap-receive")]
    complete = []
    for size in sorted({size for name, size in [*fitted, *single] if name in names}):
        round_trip, gap = (single.get((name, size)) for name in names[:2])
        sent, received = (fitted.get((name, size)) for name in names[2:])
        values = {
            "eel": None if round_trip is None else round_trip / 2,
            "gap": gap,
            "os": None if sent is None else sent.overhead_ns,
            "or": None if received is None else received.overhead_ns,
        }
        findings.values += [Derived(variant, name, size, value) for name, value in values.items() if value is not None]
        if sent is not None and received is not None and round_trip is not None and gap is not None:
            parameters = Parameters(size, round_trip / 2, sent.overhead_ns, received.overhead_ns)
            complete.append(parameters)
            findings.values.append(Derived(variant, "opportunity", size, parameters.opportunity_ns))
            if not parameters.keeps_bound:
                of = f"{variant}, {size} bytes" if mode else f"{size} bytes"
                findings.problems.append(f"{of}: Os + Or is above 2 EEL: they are not part of one message's latency")
    if complete:
        smallest = min(parameters.message_bytes for parameters in complete)
        findings.values.append(Derived(variant, "latency", smallest, wire_latency_ns(complete)))


def _availability(points: list[Point], findings: Findings) -> None:
    for variant, size, curve in _curves(points, findings):
        findings.values += [
            Derived(variant, "uncomputed", size, curve.flat_ns),
            Derived(variant, "overhead", size, curve.added_ns),
            Derived(variant, "availability", size, curve.availability, "1"),
        ]


def _beff(points: list[Point], findings: Findings) -> None:
    times: dict[tuple[str, int], dict[float, dict[str, dict[int, Sequence[float]]]]] = {}
    for point in points:
        if point.quantity == "time" and point.parameter_value is not None:
            ring, method = point.variant.split("-")
            rings = times.setdefault((ring, point.message_bytes), {})
            rings.setdefault(point.parameter_value, {}).setdefault(method, {})[point.rank] = point.values
    for (ring, size), rings in times.items():
        latencies = [
            beff.ring_latency_ns(*(np.transpose([ranks[rank] for rank in sorted(ranks)]) for ranks in methods.values()))
            for methods in rings.values()
        ]
        latency_ns = beff.mean_latency_ns(latencies)
        findings.values.append(Derived(ring, "latency", size, latency_ns))
        if size:
            findings.values.append(Derived(ring, "bandwidth", size, beff.bandwidth_byte_s(size, latency_ns), "B/s"))


def _nonblocking(points: list[Point], findings: Findings) -> None:
    times: dict[tuple[str, int], dict[str, list[Sequence[float]]]] = {}
    for point in points:
        times.setdefault((point.variant, point.message_bytes), {}).setdefault(point.quantity, []).append(point.values)
    for (variant, size), quantities in times.items():
        if not {"time", "beside", "computation"} <= quantities.keys():
            continue
        # A collective of all ranks takes as long as the slowest of them.
        alone_ns, beside_ns, computation_ns = (
            float(np.median(np.max(np.array(quantities[name]), axis=0))) for name in ("time", "beside", "computation")
        )
        share = (alone_ns + computation_ns - beside_ns) / alone_ns
        findings.values.append(Derived(variant, "hidden_share", size, min(max(share, 0.0), 1.0), "1"))


def _curves(points: list[Point], findings: Findings) -> list[tuple[str, int, HiddenComputation]]:
    """Fit every curve of time against computation; curves that cannot be fitted become problems."""
    curves: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for point in points:
        if point.quantity == "time" and point.parameter_value is not None:
            curves.setdefault((point.variant, point.message_bytes), []).append((point.parameter_value, _median(point)))
    fitted = []
    for (variant, size), curve in curves.items():
        computation, time = zip(*curve, strict=True)
        try:
            fitted.append((variant, size, hidden_computation(computation, time)))
        except ValueError as error:
            findings.problems.append(f"{variant}, {size} bytes: {error}")
    return fitted


def _median(point: Point) -> float:
    return median(point.values)


# Variants under which logp's parameters are known: standard mode, synchronous mode, receives posted in advance.
LOGP_VARIANTS = ("logp", "logp-synchronous", "logp-irecv")

_DERIVATIONS: dict[str, Callable[[list[Point], Findings], None]] = {
    "overlap": _overlap,
    "overhead": _overhead,
    "logp": _logp,
    "availability": _availability,
    "beff": _beff,
    "nonblocking": _nonblocking,
}

# Tests from which values are derived.
WITH_DERIVED = tuple(_DERIVATIONS)
# Tests of which only derived values are compared: their records are curves, or parts of derived values.
DERIVED_TESTS = tuple(test for test in WITH_DERIVED if test != "nonblocking")
