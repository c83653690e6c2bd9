# SPDX-License-Identifier: Apache-2.0 OR MIT
"""LogGP and LogGPS come out of synthetic functions with known parameters, and say what they cannot."""

import numpy as np
import pytest

from barewire.models.causes import Limit
from barewire.models.loggp import fit_loggp
from barewire.models.times import CannotSay, Times

SIZES = tuple(2**n for n in range(3, 21))
L_US, OS_US, OR_US, G_US, PER_BYTE_US, STEP_US = 6.0, 2.0, 3.0, 4.0, 0.0085, 60.0


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
    fit = fit_loggp(*functions(1, eager=16384, step_us=STEP_US))
    s = fit.synchronisation
    assert s is not None and s.last_eager_bytes == 16384 and s.first_rendezvous_bytes == 32768
    assert s.step_us.value == pytest.approx(STEP_US, rel=0.1)
    assert s.step_us.interval is not None and s.step_us.interval[0] > 0


def test_the_step_of_a_second_frame_is_not_s() -> None:
    tables = functions(1, eager=16384, step_us=STEP_US)
    assert fit_loggp(*tables, is_frame=lambda point: Limit("", 16384).explains(point)).synchronisation is None


def coverage(experiments: int, launches: int) -> dict[str, float]:
    """Return the share of experiments whose interval contains a parameter, by its name."""
    truths = {
        "latency_us": L_US,
        "send_overhead_us": OS_US,
        "receive_overhead_us": OR_US,
        "overhead_us": (OS_US + OR_US) / 2,
        "gap_us": G_US,
        "us_per_byte": PER_BYTE_US,
        "step_us": STEP_US,
    }
    held = dict.fromkeys(truths, 0)
    for seed in range(experiments):
        fit = fit_loggp(*functions(seed, launches=launches, eager=16384, step_us=STEP_US))
        assert fit.synchronisation is not None
        for name, truth in truths.items():
            found = fit.synchronisation.step_us if name == "step_us" else getattr(fit, name)
            held[name] += found.interval[0] <= truth <= found.interval[1]
    return {name: count / experiments for name, count in held.items()}


def test_intervals_contain_the_truth_about_as_often_as_they_say() -> None:
    """The bounds allow for the scatter of 100 experiments; the next test is the exact one."""
    shares = coverage(100, launches=8)
    assert all(0.87 <= share <= 1 for share in shares.values()), shares


@pytest.mark.matrix
@pytest.mark.parametrize("launches", [6, 8, 12])
def test_intervals_of_95_percent_cover_93_to_97(launches: int) -> None:
    shares = coverage(1000, launches)
    # S is the difference of two lines of few launches.
    assert all((0.92 if name == "step_us" else 0.93) <= share <= 0.97 for name, share in shares.items()), shares


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
