# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run at another confidence: the same launches, with wider or narrower intervals."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from barewire.results.run import Run, Series
from barewire.results.sharing import shared_from_samples
from barewire.results.store import samples
from barewire.stats.confidence import CONFIDENCE
from barewire.stats.intervals import median_interval

Interval = tuple[float, float]


def asked_confidence(run: Run) -> float:
    """Return the confidence that the run was measured for: `--confidence`, or 95 %."""
    return float(run.parameters.get("confidence", CONFIDENCE))


def as_asked(run: Run, directory: Path, confidence: float | None = None) -> Run:
    """Return a run as it is in `directory` with intervals of this confidence, or of that it was measured for."""
    chosen = confidence or asked_confidence(run)
    return run if chosen == run.confidence else at_confidence(run, samples(directory), chosen)


def at_confidence(run: Run, frame: pl.DataFrame, confidence: float) -> Run:
    """Return a run as it is on disk with all intervals of this confidence; `frame` has its samples.

    Verdicts about limits stay as they were measured. ValueError for a confidence outside 0.5 … 0.999.
    """
    if confidence == run.confidence:
        return run
    series = tuple(_series(each, confidence) for each in run.series)
    shared = shared_from_samples(frame, series) if run.shared else ()
    return replace(run, series=series, shared=shared, confidence=confidence)


def _series(series: Series, confidence: float) -> Series:
    medians = series.launch_medians
    return replace(
        series,
        interval=median_interval(medians, confidence) if medians else None,
        mean_interval=_rescaled(series.mean_interval, series.launches - 1, series.confidence, confidence),
        confidence=confidence,
    )


def _rescaled(interval: Interval | None, freedom: int, before: float, after: float) -> Interval | None:
    """Return Student's interval at another confidence."""
    if interval is None:
        return None
    from scipy import stats  # imported late, as in `barewire.stats.intervals`

    factor = float(stats.t.ppf((1 + after) / 2, freedom) / stats.t.ppf((1 + before) / 2, freedom))
    middle, half = (interval[0] + interval[1]) / 2, (interval[1] - interval[0]) / 2 * factor
    return middle - half, middle + half
