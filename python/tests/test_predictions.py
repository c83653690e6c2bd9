# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is said of predictions: marks, and intervals that hold as often as they say."""

from dataclasses import replace

import numpy as np
import pytest

from barewire.models.times import Times
from barewire.results.computations import Computation
from barewire.results.functions import Function
from barewire.results.model import Model
from barewire.results.prediction import Request, predict

SIZES = tuple(2**n for n in range(3, 19))
# µs of a message of s bytes: fixed, and per byte.
COSTS_US = {
    "latency": (12.0, 0.0085),
    "exchanged": (15.0, 0.012),
    "gap": (5.0, 0.0085),
    "send": (2.0, 0.0),
    "receive": (3.0, 0.0),
}
# Messages of 1000 B and their parts lie between the measured sizes.
REQUESTS = [
    Request(kernel, 8, size)
    for kernel in ("exchange", "bcast", "allreduce", "alltoall", "allgather")
    for size in (8, 1000, 65536)
]


def model(generator: np.random.Generator, noise: float, launches: int = 8) -> Model:
    """Each size's noise, and half as much of a whole launch."""

    def measured(fixed_us: float, us_per_byte: float) -> Function:
        factors = generator.normal(1, noise, (launches, len(SIZES))) * generator.normal(1, noise / 2, (launches, 1))
        return Function("synthetic", Times(SIZES, (fixed_us + us_per_byte * np.asarray(SIZES)) * factors))

    functions = {name: measured(*costs) for name, costs in COSTS_US.items()}
    return Model((), None, None, None, {"raw": functions}, ())


def test_more_ranks_than_were_measured_are_marked() -> None:
    """Messages are those of two ranks; a kernel that was measured on more counts."""
    measured = model(np.random.default_rng(0), noise=0.01)

    def marks(of: Model, request: Request) -> set[str]:
        return {mark for each in predict(of, "raw", request, None) for mark in each.marks}

    assert [marks(measured, Request("bcast", ranks, 64)) for ranks in (2, 3, 64)] == [
        set(),
        {"more than the 2 ranks measured"},
        {"more than the 2 ranks measured"},
    ]
    transform = Computation("fft", "original", 8, "order", 16.0, 1, (1e4,) * 8)
    measured = replace(measured, computations=(transform,))
    of_fft = [marks(measured, Request("fft", ranks, parameter=16.0, variants=("original",))) for ranks in (8, 16)]
    assert of_fft == [set(), {"more than the 8 ranks measured"}]
    assert marks(measured, Request("bcast", 8, 64)) == {"more than the 2 ranks measured"}


def coverage(experiments: int) -> list[float]:
    """Return for each prediction the share of experiments whose interval contains the one of a model without noise."""

    def predicted(of: Model) -> list[tuple[float, tuple[float, float] | None]]:
        times = [each.time_us for request in REQUESTS for each in predict(of, "raw", request, None)]
        return [(time.value, time.interval) for time in times]

    truths = [value for value, _ in predicted(model(np.random.default_rng(0), noise=0))]
    held = np.zeros(len(truths))
    for seed in range(experiments):
        found = predicted(model(np.random.default_rng(seed), noise=0.01))
        held += [
            interval is not None and interval[0] <= truth <= interval[1]
            for (_, interval), truth in zip(found, truths, strict=True)
        ]
    return list(held / experiments)


def test_intervals_of_predictions_contain_the_truth() -> None:
    """The bounds allow for the scatter of 20 experiments, whose predictions are of the same messages."""
    shares = coverage(20)
    assert 0.85 <= np.mean(shares) <= 0.995 and min(shares) >= 0.65, shares


@pytest.mark.matrix
def test_intervals_of_95_percent_cover_about_95() -> None:
    """Means of two neighbouring sizes are covered a little less often."""
    shares = coverage(500)
    assert 0.92 <= np.mean(shares) <= 0.97 and min(shares) >= 0.87, shares
