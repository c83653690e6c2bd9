# SPDX-License-Identifier: Apache-2.0 OR MIT
"""b_eff's arithmetic on times worked out by hand."""

import pytest

from barewire.models.beff import bandwidth_byte_s, mean_latency_ns, ring_latency_ns


def test_ring_latency_is_half_of_the_fastest_measurements_slowest_rank_with_its_faster_method():
    # Measurement 1: faster method per rank 10, 30; slowest 30. Measurement 2: 20, 24; slowest 24.
    sendrecv = [[10, 40], [50, 24]]
    nonblocking = [[12, 30], [20, 90]]
    assert ring_latency_ns(sendrecv, nonblocking) == 12
    assert ring_latency_ns(sendrecv) == 20


def test_rings_are_averaged_geometrically_and_latency_gives_bandwidth():
    assert mean_latency_ns([10, 40]) == pytest.approx(20)
    assert bandwidth_byte_s(2_000_000, 1e6) == 2e9


def test_invalid_measurements_are_rejected():
    for times in ([[1, 2], [3, 0]], [[1, 2], [3, float("nan")]]):
        with pytest.raises(ValueError, match="above 0"):
            ring_latency_ns(times)
    with pytest.raises(ValueError, match="no method"):
        ring_latency_ns()
    with pytest.raises(ValueError, match="each measurement and rank"):
        ring_latency_ns([[1, 2]], [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="at least one ring"):
        mean_latency_ns([])
    with pytest.raises(ValueError, match="a message"):
        bandwidth_byte_s(0, 10)
