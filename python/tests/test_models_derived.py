# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Derived values of a launch, from records with known results."""

import pytest

from barewire.models.derived import LOGP_VARIANTS, Findings, Point, derived

COMPUTATIONS = [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]


def curve(variant: str, size: int, flat_ns: float, added_ns: float, rank: int = 0) -> list[Point]:
    """One value is always an outlier, which medians ignore."""
    return [
        Point(variant, "time", size, rank, computation, [time, time, time * 9])
        for computation in COMPUTATIONS
        for time in [max(flat_ns, added_ns + computation)]
    ]


def derived_value(findings: Findings, *key: str | int) -> float:
    """Return the value of a variant, quantity and message size."""
    values = {found[:3]: found.value for found in findings.values}
    assert key in values, findings.problems
    return values[key]


def test_overlap_yields_what_each_variant_hides():
    found = derived("overlap", [*curve("pingpong", 8, 500, 200), *curve("local-receive", 8, 500, 500, rank=1)])
    assert found.problems == []
    assert derived_value(found, "pingpong", "hidden", 8) == pytest.approx(300)
    assert derived_value(found, "pingpong", "hidden_share", 8) == pytest.approx(0.6)
    assert derived_value(found, "local-receive", "hidden", 8) == pytest.approx(0)
    assert derived_value(found, "local-receive", "uncomputed", 8) == pytest.approx(500)


def test_overheads_by_hidden_computation_and_by_call_are_both_derived():
    points = [
        *curve("gap-send", 8, 500, 200),
        Point("calibration", "clock", 0, 0, None, [24.0]),
        Point("calibration", "clock", 0, 1, None, [20.0]),
        Point("call-send", "time", 8, 0, None, [124.0]),
        Point("call-receive", "time", 8, 1, 900.0, [70.0]),
        Point("call-receive-irecv", "time", 8, 1, 900.0, [75.0]),
    ]
    found = derived("overhead", points)
    assert found.problems == []
    assert derived_value(found, "gap-send", "overhead", 8) == pytest.approx(200)
    assert derived_value(found, "gap-send", "gap", 8) == pytest.approx(500)
    assert derived_value(found, "call-send", "overhead", 8) == pytest.approx(100)
    assert derived_value(found, "call-receive", "overhead", 8) == pytest.approx(50)
    assert derived_value(found, "call-receive-irecv", "overhead", 8) == pytest.approx(35), "the clock is read twice"


def logp_points(size: int, round_trip_ns: float, mode: str = "", gap_ns: float = 500) -> list[Point]:
    return [
        Point(f"roundtrip{mode}", "time", size, 0, None, [round_trip_ns]),
        Point(f"gap{mode}", "time", size, 0, None, [gap_ns]),
        *curve(f"gap-send{mode}", size, gap_ns, 200),
        *curve(f"gap-receive{mode}", size, gap_ns, 300, rank=1),
    ]


def test_logp_yields_all_parameters_and_the_latency_of_the_smallest_size():
    found = derived("logp", [*logp_points(1024, 4000), *logp_points(8, 1600)])
    expected = {"eel": 800, "gap": 500, "os": 200, "or": 300, "opportunity": 1100, "latency": 300}
    assert {name: derived_value(found, "logp", name, 8) for name in expected} == pytest.approx(expected)
    assert derived_value(found, "logp", "opportunity", 1024) == pytest.approx(3500)
    assert found.problems == []
    assert [each.message_bytes for each in found.values if each.quantity == "latency"] == [8]


def test_each_mode_of_logp_has_its_own_parameters():
    """One mode lacks a variant: its parameters are not completed from another mode's."""
    incomplete = [point for point in logp_points(8, 1800, "-irecv") if point.variant != "gap-receive-irecv"]
    found = derived("logp", [*logp_points(8, 1600), *logp_points(8, 2600, "-synchronous", 700), *incomplete])
    assert [derived_value(found, variant, "eel", 8) for variant in LOGP_VARIANTS] == [800, 1300, 900]
    assert [derived_value(found, variant, "gap", 8) for variant in LOGP_VARIANTS] == [500, 700, 500]
    assert derived_value(found, "logp-synchronous", "latency", 8) == pytest.approx(1300 - 200 - 300)
    assert {each.quantity for each in found.values if each.variant == "logp-irecv"} == {"eel", "gap", "os"}
    assert len(found.values) == 6 + 6 + 3


def test_overheads_of_modes_stay_apart():
    by_gap = {"gap-send": 200, "gap-send-synchronous": 500, "gap-receive": 300, "gap-receive-irecv": 120}
    by_call = {"call-send": 150, "call-send-synchronous": 480}
    points = [point for name, overhead in by_gap.items() for point in curve(name, 8, 500, overhead)]
    points += [Point(name, "time", 8, 0, None, [float(time)]) for name, time in by_call.items()]
    found = derived("overhead", points)
    expected = by_gap | by_call
    assert {name: derived_value(found, name, "overhead", 8) for name in expected} == pytest.approx(expected)


def test_a_violated_bound_is_a_problem():
    assert "above 2 EEL" in derived("logp", logp_points(8, 400)).problems[0]


def test_availability_is_the_share_without_overhead():
    found = derived("availability", curve("send", 8, 500, 125))
    assert derived_value(found, "send", "availability", 8) == pytest.approx(0.75)
    assert derived_value(found, "send", "overhead", 8) == pytest.approx(125)


def test_rings_of_both_methods_become_one_latency():
    """Two ranks; natural: faster method per rank 100 and 300; two random rings with 200 and 800."""
    points = [
        Point("natural-sendrecv", "order", 8, 0, 0.0, [0, 1]),
        Point("natural-sendrecv", "time", 8, 0, 0.0, [100.0]),
        Point("natural-sendrecv", "time", 8, 1, 0.0, [900.0]),
        Point("natural-nonblocking", "time", 8, 0, 0.0, [700.0]),
        Point("natural-nonblocking", "time", 8, 1, 0.0, [300.0]),
    ]
    for ring, time in ((1.0, 200.0), (2.0, 800.0)):
        points += [Point("random-sendrecv", "time", 8, rank, ring, [time, 2 * time]) for rank in (0, 1)]
    found = derived("beff", points)
    assert derived_value(found, "natural", "latency", 8) == pytest.approx(150)
    assert derived_value(found, "random", "latency", 8) == pytest.approx(200)
    assert derived_value(found, "random", "bandwidth", 8) == pytest.approx(8e9 / 200)


def test_a_curve_that_cannot_be_fitted_is_a_named_problem_and_does_not_affect_others():
    flat = [Point("pingpong", "time", 64, 0, computation, [5000.0]) for computation in COMPUTATIONS]
    found = derived("overlap", [*flat, *curve("pingpong", 8, 500, 200)])
    assert "pingpong, 64 bytes" in found.problems[0] and "--reach" in found.problems[0]
    assert derived_value(found, "pingpong", "hidden", 8) == pytest.approx(300)
    assert {each.message_bytes for each in found.values} == {8}


def test_a_test_without_derivation_is_rejected():
    with pytest.raises(ValueError, match="known: overlap"):
        derived("pingpong", [])


@pytest.mark.parametrize(("beside", "share"), [(1000, 1.0), (1500, 0.5), (2000, 0.0), (2600, 0.0), (900, 1.0)])
def test_nonblocking_yields_the_share_of_a_collective_that_a_computation_hides(beside, share):
    """The slowest rank counts; the other one is half as slow."""
    times = {"time": 1000, "beside": beside, "computation": 1000}
    points = [
        Point("bcast", quantity, 8, rank, None, [ns / (1 + rank)] * 3)
        for quantity, ns in times.items()
        for rank in range(2)
    ]
    assert derived_value(derived("nonblocking", points), "bcast", "hidden_share", 8) == pytest.approx(share)


def test_nonblocking_without_its_computation_yields_nothing():
    assert derived("nonblocking", [Point("bcast", "time", 8, 0, None, [1.0])]).values == []
