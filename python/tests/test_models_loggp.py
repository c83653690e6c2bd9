# SPDX-License-Identifier: Apache-2.0 OR MIT
"""LogGP and LogGPS come out of synthetic functions with known parameters, and say what they cannot."""

import numpy as np
import pytest

from barewire.models.loggp import fit_loggp
from barewire.models.times import CannotSay, Times

SIZES = tuple(2**n for n in range(3, 21))
L_US, OS_US, OR_US, G_US, PER_BYTE_US = 6.0, 2.0, 3.0, 4.0, 0.0085


def functions(
    seed: int, launches: int = 12, noise: float = 0.01, eager: int = 1 << 30, step_us: float = 0.0
) -> tuple[Times, Times, Times, Times]:
    """EEL, Os, Or and g of LogGPS with these parameters."""
    generator = np.random.default_rng(seed)
    sizes = np.asarray(SIZES, dtype=float)
    long = (sizes - 1) * PER_BYTE_US
    synchronised = np.where(sizes > eager, step_us, 0.0)
    truths = (OS_US + L_US + OR_US + long + synchronised, OS_US + 0 * sizes, OR_US + 0 * sizes, G_US + long)
    noisy = [truth * generator.normal(1, noise, (launches, len(SIZES))) for truth in truths]
    return tuple(Times(SIZES, each) for each in noisy)  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(5))
def test_parameters_are_within_one_percent_at_one_percent_noise(seed: int) -> None:
    fit = fit_loggp(*functions(seed))
    assert fit.latency_us.value == pytest.approx(L_US, rel=0.01)
    assert fit.send_overhead_us.value == pytest.approx(OS_US, rel=0.01)
    assert fit.receive_overhead_us.value == pytest.approx(OR_US, rel=0.01)
    assert fit.overhead_us.value == pytest.approx((OS_US + OR_US) / 2, rel=0.01)
    assert fit.gap_us.value == pytest.approx(G_US, rel=0.01)
    assert fit.us_per_byte is not None and fit.us_per_byte.value == pytest.approx(PER_BYTE_US, rel=0.01)
    assert fit.synchronisation is None and not fit.unsaid
    assert fit.residual is not None and abs(fit.residual.relative) < 0.02


def test_the_step_of_the_rendezvous_is_s() -> None:
    fit = fit_loggp(*functions(1, eager=16384, step_us=60.0))
    s = fit.synchronisation
    assert s is not None and s.last_eager_bytes == 16384 and s.first_rendezvous_bytes == 32768
    assert s.step_us.value == pytest.approx(60, rel=0.1)
    assert s.step_us.interval is not None and s.step_us.interval[0] > 0


def test_the_step_of_a_second_frame_is_not_s() -> None:
    tables = functions(1, eager=16384, step_us=60.0)
    assert fit_loggp(*tables, is_frame=lambda point: point.explains(16384)).synchronisation is None


def coverage(experiments: int) -> float:
    """Return the share of experiments whose interval of L contains it."""
    held = 0
    for seed in range(experiments):
        found = fit_loggp(*functions(seed, launches=8)).latency_us
        assert found.interval is not None
        held += found.interval[0] <= L_US <= found.interval[1]
    return held / experiments


@pytest.mark.matrix
def test_the_interval_of_l_covers_93_to_97_percent() -> None:
    assert 0.93 <= coverage(1000) <= 0.97


def test_a_few_sizes_still_give_l_and_o_but_not_g_per_byte() -> None:
    tables = [times.at({8, 1024}) for times in functions(2)]
    fit = fit_loggp(*tables)
    assert fit.latency_us.value == pytest.approx(L_US, rel=0.05)
    assert fit.us_per_byte is None and "3 sizes or more" in fit.unsaid[0]


def test_functions_of_different_sizes_say_nothing() -> None:
    eel, send, receive, gap = functions(1)
    with pytest.raises(CannotSay, match="same sizes"):
        fit_loggp(eel, send.at({8, 16, 32}), receive, gap)


def test_a_gap_that_does_not_grow_has_no_per_byte_time() -> None:
    eel, send, receive, _ = functions(1)
    flat = Times(SIZES, np.full((12, len(SIZES)), 4.0))
    fit = fit_loggp(eel, send, receive, flat)
    assert fit.us_per_byte is None and "does not grow" in fit.unsaid[0]
