# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Calibration: parameters are recovered from exact latencies."""

import pytest

from barewire.sdn.calibration import fit

RATE = 25_000_000


def latency(size: int, efficiency: float, overhead_s: float) -> float:
    return overhead_s + size * 8 / (RATE * efficiency)


def test_the_parameters_of_exact_latencies_are_recovered() -> None:
    found = fit([(size, latency(size, 0.9, 0.002)) for size in (1_000, 10_000, 50_000, 2_000_000)], RATE)
    assert (found.efficiency, found.overhead_s) == (pytest.approx(0.9), pytest.approx(0.002))
    assert found.worst_residual == pytest.approx(0, abs=1e-9)


def test_an_overhead_is_never_negative() -> None:
    """Times that would need a negative overhead are fitted with 0, and the residual shows the error."""
    found = fit([(1_000, 0.0001), (10_000, 0.003), (100_000, 0.04)], RATE)
    assert found.overhead_s == 0 and found.worst_residual > 0.05


def test_latencies_impossible_for_transfers_are_refused() -> None:
    with pytest.raises(ValueError, match="two message sizes"):
        fit([(1_000, 0.1), (1_000, 0.2)], RATE)
    with pytest.raises(ValueError, match="above 0"):
        fit([(1_000, 0.0), (2_000, 0.2)], RATE)
    with pytest.raises(ValueError, match="no longer"):
        fit([(1_000, 1.0), (1_000_000, 0.01)], RATE)
