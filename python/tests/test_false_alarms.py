# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Simulated runs: how often `compare` sees what is not there, and finds what is.

The short forms run always, the full ones with `make matrix`, which prints their numbers. A run has ten launches with a
spread of 1 %, of which a part is common to all sizes of a launch, as drift and memory layout are.
"""

import os
from collections.abc import Callable

import numpy as np
import pytest
from synthetic import run_of, series_of

from barewire.report.versus import Settings, Versus, compare_runs
from barewire.results import Run

SIZES = [2**exponent for exponent in range(24)]
LAUNCHES = 10
AT_99 = Settings(confidence=0.99)

Noise = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def _even(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """1 % in all: 0.7 % by launch, and 0.7 % by size and launch."""
    launches, sizes = shape
    return generator.normal(0, 0.00707, (launches, 1)) + generator.normal(0, 0.00707, (launches, sizes))


def _delayed(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """One launch in twenty is delayed by up to half."""
    return _even(generator, shape) + (generator.random(shape) < 0.05) * generator.uniform(0, 0.4, shape)


def _skewed(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """A long tail to one side."""
    return generator.exponential(0.01, shape)


NOISES: list[Noise] = [_even, _delayed, _skewed]


def _run(name: str, generator: np.random.Generator, factors: dict[str, np.ndarray], noise: Noise = _even) -> Run:
    """A run of subjects; `factors` has the level of each at each size."""
    series = []
    for subject, levels in factors.items():
        values = levels * np.exp(noise(generator, (LAUNCHES, len(levels))))
        series += [
            series_of([float(v) for v in values[:, n]], subject=subject, message_bytes=SIZES[n])
            for n in range(len(levels))
        ]
    return run_of(name, series)


def _levels(count: int, factor: float = 1.0) -> np.ndarray:
    return np.full(count, 5.0 * factor)


def _alarms(compared: list[Versus]) -> bool:
    return any(versus.verdict.endswith("faster") for versus in compared)


def _null_alarms(trials: int, noise: Noise, *, sizes: int, with_floor: bool) -> int:
    count = 0
    for seed in range(trials):
        generator = np.random.default_rng(seed)
        subjects = {"raw": _levels(sizes)} | ({"floor": _levels(sizes, 0.9)} if with_floor else {})
        old = _run("old", generator, subjects, noise)
        # With a floor the new run's machine is slower by a quarter.
        moved = {name: levels * (1.25 if with_floor else 1) for name, levels in subjects.items()}
        new = _run("new", generator, moved, noise)
        compared = compare_runs(new, old, AT_99)
        count += _alarms([versus for versus in compared if versus.a.subject == "raw"])
    return count


def _found(trials: int, *, sizes: int, slower: int, confidence: float, with_floor: bool = False) -> float:
    """The share of runs in which each of `slower` sizes, 3 % slower, is found."""
    count = 0
    for seed in range(trials):
        generator = np.random.default_rng(10_000 + seed)
        planted = _levels(sizes)
        planted[:slower] *= 1.03
        floor = {"floor": _levels(sizes, 0.9)} if with_floor else {}
        old = _run("old", generator, {"raw": _levels(sizes), **floor})
        new = _run("new", generator, {"raw": planted, **floor})
        compared = compare_runs(new, old, Settings(confidence=confidence))
        count += all(versus.verdict == "B faster" for versus in compared if versus.a.subject == "raw"
                     and versus.a.message_bytes in SIZES[:slower])  # fmt: skip
    return count / trials


@pytest.mark.parametrize("with_floor", [False, True])
def test_equal_runs_are_rarely_told_apart(with_floor: bool) -> None:
    """At 99 %: a run with a false alarm at any of 12 sizes is one of a hundred at most; here of 40."""
    assert _null_alarms(40, _even, sizes=12, with_floor=with_floor) <= 2


def test_three_percent_are_found() -> None:
    assert _found(40, sizes=8, slower=1, confidence=0.95) >= 0.9


@pytest.mark.matrix
@pytest.mark.parametrize("with_floor", [False, True])
@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.__name__[1:])
def test_false_alarms_at_99_percent(noise: Noise, with_floor: bool, capsys: pytest.CaptureFixture[str]) -> None:
    trials = int(os.environ.get("BAREWIRE_TRIALS", "1000"))
    count = _null_alarms(trials, noise, sizes=24, with_floor=with_floor)
    with capsys.disabled():
        print(f"\nfalse alarms, 24 sizes, {noise.__name__[1:]} noise, floor {with_floor}: {count} of {trials} runs")
    # 1 % and two standard errors.
    assert count <= trials * 0.01 + 2 * (trials * 0.01) ** 0.5


@pytest.mark.matrix
@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize(("sizes", "slower"), [(8, 1), (24, 1), (24, 24)])
def test_three_percent_among_many_sizes(
    sizes: int, slower: int, confidence: float, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = int(os.environ.get("BAREWIRE_TRIALS", "1000"))
    shares = [
        _found(trials, sizes=sizes, slower=slower, confidence=confidence, with_floor=floor) for floor in (False, True)
    ]
    with capsys.disabled():
        print(f"\n+3 % at {slower} of {sizes} sizes, {confidence:.0%}: found {shares[0]:.1%}, by floor {shares[1]:.1%}")
    assert shares[0] >= 0.0
