# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What one launch's records of overlap, overhead, logp, availability, beff and nonblocking come to.

A launch is the experimental unit: its curves are fitted here, and statistics over launches are made of the results.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from barewire.models import beff
from barewire.models.logp import HiddenComputation, Parameters, hidden_computation, wire_latency_ns


class Point(NamedTuple):
    """The measured values of one record of the C suite, warm-up left out; times in ns.

    `parameter_value` is the record's coordinate (computation_ns, ring), None where it has none.
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
    """What could be derived, and one sentence for each curve that gave nothing."""

    values: list[Derived]
    problems: list[str]

    def value(self, variant: str, quantity: str, message_bytes: int) -> float:
        """One of the values. ValueError where there is none, with the problems."""
        for one in self.values:
            if one[:3] == (variant, quantity, message_bytes):
                return one.value
        raise ValueError(f"no {quantity} of {variant} with {message_bytes} bytes: {'; '.join(self.problems)}")


def derived(test: str, points: Iterable[Point]) -> Findings:
    """All that follows from one launch of `test`. ValueError for a test of which nothing is derived.

    overlap: of each variant `uncomputed`, `hidden` and `added` (ns), `hidden_share` (of the uncomputed time).
    overhead: of gap-send, gap-isend and gap-receive `gap`, `overhead` and `added`; of call-send and call-receive
    `overhead`, the call's time without the reading of the clock.
    logp: `eel`, `gap`, `os`, `or`, `opportunity`, and of the smallest size `latency`.
    availability: of send and receive `uncomputed`, `overhead`, `availability` (a share).
    beff: of natural and random `latency` (ns) and `bandwidth` (B/s, of each process).
    nonblocking: of each variant `hidden_share` (of its time without computation).
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
    for variant, size, curve in _curves([one for one in points if one.variant.startswith("gap-")], findings):
        findings.values += [
            Derived(variant, "gap", size, curve.flat_ns),
            Derived(variant, "overhead", size, curve.overhead_ns),
            Derived(variant, "added", size, curve.added_ns),
        ]
    clock_ns = {one.rank: _median(one) for one in points if (one.variant, one.quantity) == ("calibration", "clock")}
    for one in points:
        if one.variant.startswith("call-") and one.quantity == "time":
            call_ns = _median(one) - clock_ns.get(one.rank, 0.0)
            findings.values.append(Derived(one.variant, "overhead", one.message_bytes, call_ns))


def _logp(points: list[Point], findings: Findings) -> None:
    fitted = {(variant, size): curve for variant, size, curve in _curves(points, findings)}
    single = {
        (one.variant, one.message_bytes): _median(one)
        for one in points
        if one.quantity == "time" and one.parameter_value is None
    }
    complete = []
    for size in sorted({one.message_bytes for one in points if one.variant != "calibration"}):
        sent, received = fitted.get(("gap-send", size)), fitted.get(("gap-receive", size))
        round_trip, gap = single.get(("roundtrip", size)), single.get(("gap", size))
        found = {
            "eel": None if round_trip is None else round_trip / 2,
            "gap": gap,
            "os": None if sent is None else sent.overhead_ns,
            "or": None if received is None else received.overhead_ns,
        }
        findings.values += [Derived("logp", name, size, value) for name, value in found.items() if value is not None]
        if sent is not None and received is not None and round_trip is not None and gap is not None:
            one = Parameters(size, round_trip / 2, sent.overhead_ns, received.overhead_ns, gap)
            complete.append(one)
            findings.values.append(Derived("logp", "opportunity", size, one.opportunity_ns))
            if not one.keeps_bound:
                findings.problems.append(
                    f"{size} bytes: Os + Or is above 2 EEL: they are not part of one message's way"
                )
    if complete:
        smallest = min(one.message_bytes for one in complete)
        findings.values.append(Derived("logp", "latency", smallest, wire_latency_ns(complete)))


def _availability(points: list[Point], findings: Findings) -> None:
    for variant, size, curve in _curves(points, findings):
        findings.values += [
            Derived(variant, "uncomputed", size, curve.flat_ns),
            Derived(variant, "overhead", size, curve.added_ns),
            Derived(variant, "availability", size, curve.availability, "1"),
        ]


def _beff(points: list[Point], findings: Findings) -> None:
    times: dict[tuple[str, int], dict[float, dict[str, dict[int, Sequence[float]]]]] = {}
    for one in points:
        if one.quantity == "time" and one.parameter_value is not None:
            ring, method = one.variant.split("-")
            rings = times.setdefault((ring, one.message_bytes), {})
            rings.setdefault(one.parameter_value, {}).setdefault(method, {})[one.rank] = one.values
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
    for one in points:
        times.setdefault((one.variant, one.message_bytes), {}).setdefault(one.quantity, []).append(one.values)
    for (variant, size), quantities in times.items():
        if not {"time", "beside", "computation"} <= quantities.keys():
            continue
        # What all ranks did at once took as long as the slowest of them.
        alone_ns, beside_ns, computation_ns = (
            float(np.median(np.max(np.array(quantities[name]), axis=0))) for name in ("time", "beside", "computation")
        )
        share = (alone_ns + computation_ns - beside_ns) / alone_ns
        findings.values.append(Derived(variant, "hidden_share", size, min(max(share, 0.0), 1.0), "1"))


def _curves(points: list[Point], findings: Findings) -> list[tuple[str, int, HiddenComputation]]:
    """Every curve of time against computation, fitted; those that cannot be become problems."""
    curves: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for one in points:
        if one.quantity == "time" and one.parameter_value is not None:
            curves.setdefault((one.variant, one.message_bytes), []).append((one.parameter_value, _median(one)))
    fitted = []
    for (variant, size), curve in curves.items():
        computation, time = zip(*curve, strict=True)
        try:
            fitted.append((variant, size, hidden_computation(computation, time)))
        except ValueError as error:
            findings.problems.append(f"{variant}, {size} bytes: {error}")
    return fitted


def _median(point: Point) -> float:
    return float(np.median(point.values))


_DERIVATIONS: dict[str, Callable[[list[Point], Findings], None]] = {
    "overlap": _overlap,
    "overhead": _overhead,
    "logp": _logp,
    "availability": _availability,
    "beff": _beff,
    "nonblocking": _nonblocking,
}

# Of which something is derived.
WITH_DERIVED = tuple(_DERIVATIONS)
# Of which nothing else is compared: their records are curves, or parts of what is derived.
DERIVED_TESTS = tuple(test for test in WITH_DERIVED if test != "nonblocking")
