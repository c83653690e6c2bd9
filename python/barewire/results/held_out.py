# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Predictions of what another run has measured, beside its measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barewire.models.collectives import ALGORITHMS
from barewire.models.kernels import KERNEL_VARIANTS
from barewire.models.times import CannotSay, Estimate
from barewire.results.functions import in_us
from barewire.results.model import Model
from barewire.results.prediction import Prediction, Request, predict
from barewire.results.quantities import KERNEL_TOTAL, has_own_sizes, is_kernel
from barewire.results.run import Run, Series
from barewire.stats.confidence import interval_name

# Variants of mpi/alltoall that are one algorithm; a library chooses that of its own collectives.
_ALLTOALL_WAYS: Mapping[str, str] = {"pairwise-sendrecv": "pairwise exchange", "irecv-isend": "all at once"}
_RING = ("beff", "natural", "latency")
# What is predicted is the slowest rank's time; imported runs also have the mean over the ranks and the fastest's.
_OF_THE_SLOWEST: Mapping[str, str] = {"exchange": "exchange", "alltoall": "alltoall", "collective": "time"}


@dataclass(frozen=True)
class Checked:
    """A prediction, the measured time, and the error: predicted / measured − 1."""

    prediction: Prediction
    measured_us: Estimate
    measured_as: str
    error: float

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {
            **self.prediction.to_json(),
            "measured_us": {
                "value": self.measured_us.value,
                interval_name(self.prediction.confidence): self.measured_us.interval,
            },
            "measured_as": self.measured_as,
            "error": self.error,
        }


@dataclass(frozen=True)
class Errors:
    """Mean and largest magnitude of the errors of one kernel, and the number of predictions."""

    kernel: str
    mean: float
    worst: float
    count: int


def check(
    model: Model, run: Run, kernels: Sequence[str], subject: str | None, ranks: Sequence[int] | None, cores: int | None
) -> tuple[list[Checked], list[str]]:
    """Predict everything of these kernels that the run has measured; and sentences on what cannot be predicted."""
    checked, unsaid = [], []
    for series in run.series:
        is_asked = subject in (None, series.subject) and (ranks is None or series.ranks in ranks)
        wanted = _request(series) if is_asked and series.median is not None else None
        if wanted is None or wanted[0].kernel not in kernels or series.subject not in model.functions:
            continue
        request, way, factor = wanted
        try:
            prediction = _chosen(predict(model, series.subject, request, cores, run.confidence), way)
        except CannotSay as reason:
            unsaid.append(f"{request.kernel}, {request.ranks} ranks: cannot say: {reason}")
            continue
        measured = _measured(series, factor)
        error = prediction.time_us.value / measured.value - 1
        checked.append(Checked(prediction, measured, f"{series.test} {series.variant}".strip(), error))
    return checked, list(dict.fromkeys(unsaid))


def errors(checked: Sequence[Checked]) -> list[Errors]:
    """Return the errors of each kernel."""
    summary = []
    for kernel in dict.fromkeys(each.prediction.kernel for each in checked):
        magnitudes = [abs(each.error) for each in checked if each.prediction.kernel == kernel]
        summary.append(Errors(kernel, float(np.mean(magnitudes)), max(magnitudes), len(magnitudes)))
    return summary


def _request(series: Series) -> tuple[Request, str | None, float] | None:
    """Return what predicts a series, its way (None: the fastest), and the factor of its values; None without any."""
    ranks, size = series.ranks, series.message_bytes
    if is_kernel(series.test):
        has_model = series.variant in KERNEL_VARIANTS.get(series.test, ())
        if series.quantity != KERNEL_TOTAL or ranks < 2 or not has_model:
            return None
        bytes_of = 0 if has_own_sizes(series.test) else size
        grid = series.parameter if series.test == "krylov" else ""
        request = Request(series.test, ranks, bytes_of, series.parameter_value, (series.variant,), grid)
        return request, series.variant, 1.0
    if series.pairs != 1 or series.parameter or series.quantity != _OF_THE_SLOWEST.get(series.test, series.quantity):
        return None
    if (series.test, series.variant) in (("pingpong", "blocking-standard"), ("exchange", "sendrecv")):
        return Request(series.test, 2, size), None, 1.0
    if (series.test, series.variant, series.quantity) == _RING:
        return Request("ring", ranks, size), None, 2.0
    if series.test == "alltoall" and series.variant in ("collective", *_ALLTOALL_WAYS):
        return Request("alltoall", ranks, size), _ALLTOALL_WAYS.get(series.variant), 1.0
    if series.test == "collective" and series.variant in ALGORITHMS:
        return Request(series.variant, ranks, size), None, 1.0
    return None


def _chosen(predictions: Iterator[Prediction], way: str | None) -> Prediction:
    candidates = [each for each in predictions if way in (None, each.way)]
    return min(candidates, key=lambda each: each.time_us.value)


def _measured(series: Series, factor: float) -> Estimate:
    def us(value: float) -> float:
        return in_us(value, series.unit) * factor

    interval = None if series.interval is None else (us(series.interval[0]), us(series.interval[1]))
    return Estimate(us(series.median or 0.0), interval)
