# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hockney's model finds the parameters of synthetic times, with honest intervals, and says so where it cannot.

The independent oracles are scipy's: a weighted least-squares fit, and the bootstrap of one launch statistic.
"""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

from barewire.models.hockney import fit_hockney
from barewire.models.times import CannotSay, Times
from barewire.results.fits import fit_latency
from barewire.results.model import model_of_table
from barewire.study import tables

SIZES = tuple(2**n for n in range(3, 21))
ALPHA_US, US_PER_BYTE = 12.0, 0.0085
PUBLISHED = Path(tables.__file__).parent / "published"


def launches(seed: int, count: int, noise: float = 0.01, drift: float = 0.0, sizes: tuple[int, ...] = SIZES) -> Times:
    """Launches of a linear law; `noise` of each size, `drift` of a whole launch."""
    generator = np.random.default_rng(seed)
    truth = ALPHA_US + US_PER_BYTE * np.asarray(sizes)
    factors = generator.normal(1, noise, (count, len(sizes))) * generator.normal(1, drift, (count, 1))
    return Times(sizes, truth * factors)


@pytest.mark.parametrize("seed", range(5))
def test_parameters_are_within_one_percent_at_one_percent_noise(seed: int) -> None:
    fit = fit_hockney(launches(seed, 8))
    assert fit.alpha_us is not None and fit.rate_mbit_s is not None and fit.half_bytes is not None
    assert fit.alpha_us.value == pytest.approx(ALPHA_US, rel=0.01)
    assert fit.rate_mbit_s.value == pytest.approx(8 / US_PER_BYTE, rel=0.01)
    assert fit.half_bytes.value == pytest.approx(ALPHA_US / US_PER_BYTE, rel=0.02)
    assert fit.is_good and not fit.unsaid


def coverage(experiments: int, count: int, drift: float) -> tuple[float, float]:
    """Return the shares of experiments whose intervals contain α and the slope."""
    held = np.zeros(2)
    for seed in range(experiments):
        fit = fit_hockney(launches(seed, count, drift=drift, sizes=SIZES))
        for at, (found, truth) in enumerate(((fit.alpha_us, ALPHA_US), (fit.us_per_byte, US_PER_BYTE))):
            assert found is not None and found.interval is not None
            held[at] += found.interval[0] <= truth <= found.interval[1]
    return float(held[0] / experiments), float(held[1] / experiments)


def test_intervals_contain_the_truth_about_as_often_as_they_say() -> None:
    """The bounds allow for the scatter of 200 experiments; the next test is the exact one."""
    assert all(0.91 <= share <= 0.99 for share in coverage(200, 8, drift=0.0))


@pytest.mark.matrix
@pytest.mark.parametrize("drift", [0.0, 0.01])
@pytest.mark.parametrize("count", [6, 8, 12])
def test_intervals_of_95_percent_cover_93_to_97(count: int, drift: float) -> None:
    assert all(0.93 <= share <= 0.97 for share in coverage(2000, count, drift))


def test_the_line_agrees_with_scipys_weighted_fit() -> None:
    times = launches(3, 6)
    sizes = np.asarray(times.sizes, dtype=float)
    (alpha, slope), _ = optimize.curve_fit(lambda s, a, b: a + b * s, sizes, times.medians, sigma=times.medians)
    fit = fit_hockney(times)
    assert fit.alpha_us is not None and fit.us_per_byte is not None
    assert fit.alpha_us.value == pytest.approx(alpha, rel=1e-6)
    assert fit.us_per_byte.value == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("sizes", [(8,), (8, 4096)])
def test_fewer_than_three_sizes_say_nothing(sizes: tuple[int, ...]) -> None:
    with pytest.raises(CannotSay, match="3 sizes or more"):
        fit_hockney(launches(1, 6, sizes=sizes))


def test_a_constant_time_has_a_latency_but_no_rate() -> None:
    fit = fit_hockney(Times(SIZES, np.full((6, len(SIZES)), 5.0)))
    assert fit.alpha_us is not None and fit.alpha_us.value == pytest.approx(5.0)
    assert fit.rate_mbit_s is None and fit.half_bytes is None and "do not grow" in fit.unsaid[0]


def test_long_messages_alone_have_a_rate_but_no_latency() -> None:
    sizes = tuple(2**n for n in range(24, 28))
    fit = fit_hockney(launches(2, 6, sizes=sizes))
    assert fit.rate_mbit_s is not None and fit.alpha_us is None and "shorter messages" in fit.unsaid[0]


def test_one_line_through_a_jump_is_called_bad_with_the_place_of_its_worst_residual() -> None:
    times = launches(1, 6)
    jumped = Times(SIZES, times.values + np.where(np.asarray(SIZES) > 1024, 30.0, 0.0))
    fit = fit_hockney(jumped)
    assert not fit.is_good and fit.worst.message_bytes in (1024, 2048, 4096)


def test_below_six_launches_there_is_no_interval() -> None:
    fit = fit_hockney(launches(1, 5))
    assert fit.alpha_us is not None and fit.alpha_us.interval is None


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_no_times_are_rejected(bad: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Times.of({8: [1.0, 2.0], 64: [1.0, bad]})
    with pytest.raises(CannotSay, match="no launch"):
        Times.of({8: []})


def test_a_run_cut_short_counts_its_complete_launches_only() -> None:
    times = Times.of({8: [1.0, 1.1, 1.2, 1.3], 64: [2.0, 2.1, 2.2], 4096: [9.0]})
    assert times.sizes == (8, 64) and times.launches == 3


def test_pazs_raw_frames_are_pointed_out_as_impossible_and_one_size_says_no_more() -> None:
    """11 µs there and back for 1400 B: the frames alone take 11.5 µs one way at 1 Gb/s."""
    model = model_of_table(PUBLISHED / "paz2010_pingpong.csv", 1e9, 1500)
    fits = {
        name: fit_latency(name, "", functions["latency"].times, [], model.rate_bit_s, model.mtu)
        for name, functions in model.functions.items()
    }
    (sentence,) = fits["raw_socket"].impossible
    assert "5.5 µs one way for 1400 B is impossible" in sentence and "11.5 µs at 1000 Mbit/s" in sentence
    assert fits["mpi_tcp"].impossible == ()
    assert "3 sizes" in str(fits["raw_socket"].hockney)
    ratio = model.functions["mpi_tcp"]["latency"].times.medians / model.functions["raw_socket"]["latency"].times.medians
    assert ratio[0] == pytest.approx(174 / 11)


def test_watters_means_give_llc_the_lower_latency_and_a_rate_below_the_link() -> None:
    """Table A.1: 64 µs against 73 µs for one byte, over 100 Mb/s."""
    lines = [line for line in (PUBLISHED / "watter2006_netpipe_time.csv").read_text().splitlines() if line[0] != "#"]
    rows = list(csv.DictReader(lines))
    fits = {}
    for name in ("llc", "tcp"):
        times = Times.of({int(row["message_bytes"]): [float(row[f"{name}_mean_s"]) * 1e6] for row in rows})
        fits[name] = fit_latency(name, "", times, [], 1e8, 1500)
        assert fits[name].impossible == ()
    alphas = {name: fit.hockney.alpha_us.value for name, fit in fits.items()}  # type: ignore[union-attr]
    rates = {name: fit.hockney.rate_mbit_s.value for name, fit in fits.items()}  # type: ignore[union-attr]
    assert alphas["llc"] < alphas["tcp"] and 0.8 < alphas["llc"] / alphas["tcp"] < 0.95
    assert all(60 < rate < 100 for rate in rates.values())
