# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How several processes share an interface: the value of each, of all together, and the fairness."""

from collections.abc import Sequence
from typing import cast

import polars as pl

from barewire.results.quantities import TIME_UNITS
from barewire.results.run import Series, Shared
from barewire.results.series import combined
from barewire.stats.comparison import compare_over_sizes
from barewire.stats.intervals import median_interval


def shared_from_samples(frame: pl.DataFrame, series: Sequence[Series]) -> tuple[Shared, ...]:
    """Return a record for each of `series`, in order and with its confidence.

    `frame` (columns of `SAMPLE_SCHEMA`) has their samples.
    A block of rates counts if all processes have a value and none lost a message. Within a launch a process's value is
    the mean of its blocks for rates, and the median of its samples for times.
    """
    single = {(each.test, each.subject, each.message_bytes): each for each in series if each.processes == 1}
    measured = frame.filter(pl.col("phase") == "measure")
    return tuple(_shared(each, single.get((each.test, each.subject, each.message_bytes)), measured) for each in series)


def _shared(series: Series, single: Series | None, measured: pl.DataFrame) -> Shared:
    keys = ("test", "subject", "processes", "message_bytes")
    part = measured.filter(pl.all_horizontal(pl.col(name) == getattr(series, name) for name in keys))
    launches = _values(part, series)
    each = [[launch[process] for launch in launches] for process in range(series.processes)]
    shares = [[value * len(launch) / sum(launch) for value in launch] for launch in launches]
    smallest, largest = [min(launch) for launch in shares], [max(launch) for launch in shares]
    ratio, ratio_interval = (1.0 if series == single and series.median else None), None
    if series != single and single is not None and single.launch_medians and series.launch_medians:
        medians = (series.launch_medians, single.launch_medians)
        (result,) = compare_over_sizes([medians], lower_is_better=series.lower_is_better, confidence=series.confidence)
        ratio, ratio_interval = result.ratio, result.ratio_interval
    return Shared(
        test=series.test,
        subject=series.subject,
        message_bytes=series.message_bytes,
        processes=series.processes,
        unit=series.unit,
        median=series.median,
        interval=series.interval,
        ratio_to_one=ratio,
        ratio_to_one_interval=ratio_interval,
        smallest_share=_median(smallest),
        smallest_share_interval=_interval(smallest, series.confidence),
        largest_share=_median(largest),
        largest_share_interval=_interval(largest, series.confidence),
        each=tuple(_median(values) for values in each),
        each_interval=tuple(_interval(values, series.confidence) for values in each),
        launches=len(launches),
        confidence=series.confidence,
    )


def _values(part: pl.DataFrame, series: Series) -> list[list[float]]:
    """Return the value of each process by number, for each launch in which all processes have one."""
    valid = pl.col("value").is_finite() & (pl.col("value") > 0)
    if series.unit in TIME_UNITS:
        value, used = pl.col("value").median(), part.filter(valid)
    else:
        # A block counts for all processes or for none.
        whole = combined(part).filter(valid & (pl.col("lost") == 0))
        value, used = pl.col("value").mean(), part.join(whole.select("launch", "block"), on=["launch", "block"])
    by_launch: dict[int, dict[int, float]] = {}
    for launch, process, number in used.group_by("launch", "process").agg(value).sort("launch", "process").iter_rows():
        by_launch.setdefault(launch, {})[process] = cast(float, number)
    processes = range(series.processes)
    return [
        [values[process] for process in processes] for values in by_launch.values() if len(values) == series.processes
    ]


def _median(values: Sequence[float]) -> float | None:
    return cast(float, pl.Series(values).median()) if values else None


def _interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    return median_interval(values, confidence) if values else None
