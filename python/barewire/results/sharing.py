# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How several processes share an interface: what each gets, what all get, and how evenly."""

from collections.abc import Sequence
from typing import cast

import polars as pl

from barewire.results.quantities import TIME_UNITS
from barewire.results.run import Series, Shared
from barewire.results.series import combined
from barewire.stats import compare_over_sizes, median_interval


def shared_from_samples(frame: pl.DataFrame, series: Sequence[Series]) -> tuple[Shared, ...]:
    """One for each of `series`, which were made from `frame` (columns of `SAMPLE_SCHEMA`), in their order.

    Of a rate a block counts in which all processes have a value and none lost a message; within a launch a process's
    value is the mean of its blocks, of a time the median of its samples.
    """
    alone = {(one.test, one.subject, one.message_bytes): one for one in series if one.processes == 1}
    measured = frame.filter(pl.col("phase") == "measure")
    return tuple(_shared(one, alone.get((one.test, one.subject, one.message_bytes)), measured) for one in series)


def _shared(one: Series, alone: Series | None, measured: pl.DataFrame) -> Shared:
    keys = ("test", "subject", "processes", "message_bytes")
    part = measured.filter(pl.all_horizontal(pl.col(name) == getattr(one, name) for name in keys))
    launches = _values(part, one)
    each = [[launch[process] for launch in launches] for process in range(one.processes)]
    shares = [[value * len(launch) / sum(launch) for value in launch] for launch in launches]
    smallest, largest = [min(launch) for launch in shares], [max(launch) for launch in shares]
    ratio, ratio_ci95 = (1.0 if one == alone and one.median else None), None
    if one != alone and alone is not None and alone.launch_medians and one.launch_medians:
        medians = (one.launch_medians, alone.launch_medians)
        (result,) = compare_over_sizes([medians], lower_is_better=one.lower_is_better)
        ratio, ratio_ci95 = result.ratio, result.ratio_ci95
    return Shared(
        test=one.test,
        subject=one.subject,
        message_bytes=one.message_bytes,
        processes=one.processes,
        unit=one.unit,
        median=one.median,
        ci95=one.ci95,
        ratio_to_one=ratio,
        ratio_to_one_ci95=ratio_ci95,
        smallest_share=_median(smallest),
        smallest_share_ci95=_interval(smallest),
        largest_share=_median(largest),
        largest_share_ci95=_interval(largest),
        each=tuple(_median(values) for values in each),
        each_ci95=tuple(_interval(values) for values in each),
        launches=len(launches),
    )


def _values(part: pl.DataFrame, one: Series) -> list[list[float]]:
    """For each launch in which every process has one: the value of each, by its number."""
    valid = pl.col("value").is_finite() & (pl.col("value") > 0)
    if one.unit in TIME_UNITS:
        value, used = pl.col("value").median(), part.filter(valid)
    else:
        # A block counts for all or for none.
        whole = combined(part).filter(valid & (pl.col("lost") == 0))
        value, used = pl.col("value").mean(), part.join(whole.select("launch", "block"), on=["launch", "block"])
    found: dict[int, dict[int, float]] = {}
    for launch, process, number in used.group_by("launch", "process").agg(value).sort("launch", "process").iter_rows():
        found.setdefault(launch, {})[process] = cast(float, number)
    everyone = range(one.processes)
    return [[values[process] for process in everyone] for values in found.values() if len(values) == one.processes]


def _median(values: Sequence[float]) -> float | None:
    return cast(float, pl.Series(values).median()) if values else None


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    return median_interval(values) if values else None
