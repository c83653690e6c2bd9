# SPDX-License-Identifier: Apache-2.0 OR MIT
"""From raw samples to series: each launch summarised first, statistics only between launches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np
import polars as pl

from barewire.models.naming import FLOOR, PACKET, is_floor, read_subject
from barewire.models.verdict import floor_verdict, fraction_of_limit, protocol_of, wire_verdict
from barewire.models.wire import Link, Test, wire_limit
from barewire.results.run import TIME_UNITS, Series, Stop
from barewire.stats import is_precise, mean_interval, median_interval

TEST_ORDER = ("pingpong", "stream", "bidirectional")
# A subject not listed follows, the floor is last.
SUBJECT_ORDER = ("tcp", "udp", "raw", "xdp", "llc1", "llc2", "llc3", "endpoint", "messages", "libfabric")

_KEY = ["test", "subject", "pairs", "processes", "message_bytes"]
Key = tuple[str, str, int, int, int]


def series_from_samples(
    frame: pl.DataFrame,
    link: Link | None = None,
    *,
    stops: Mapping[Key, Stop] | None = None,
) -> list[Series]:
    """One series per (test, subject, pairs, processes, message_bytes) of `frame` (columns of `SAMPLE_SCHEMA`), sorted.

    Warm-up is left out. Samples without a finite value are not used, nor is a goodput sample that lost messages:
    a rate must be free of loss. With several pairs or processes a goodput sample is the sum over those of one block.
    The limit is the wire's where `link` has a rate, else the floor over the same link for the same test, pairs, size.
    `stops` says why measuring ended, by `series_key`; where it does not, it is "converged"
    if the launches are precise and "budget" otherwise. ValueError when one series mixes units.
    """
    measured = frame.filter(pl.col("phase") == "measure")
    parts = measured.partition_by(_KEY, as_dict=True, maintain_order=True)
    unjudged = sorted((_summary(cast(Key, key), part) for key, part in parts.items()), key=_order)
    floors = {_floor_key(one): one for one in unjudged if is_floor(one.subject)}
    stops = stops or {}
    judged = [_judge(one, link, floors.get(_floor_key(one))) for one in unjudged]
    return [replace(one, stop=stops.get(series_key(one), one.stop)) for one in judged]


def series_key(one: Series) -> Key:
    """What identifies a series in its run."""
    return one.test, one.subject, one.pairs, one.processes, one.message_bytes


def _floor_key(one: Series) -> tuple[str, int, int, int, str]:
    """What a series and the floor that limits it have in common."""
    return one.test, one.pairs, one.processes, one.message_bytes, read_subject(one.subject).link


def _summary(key: Key, part: pl.DataFrame) -> Series:
    units = part["unit"].unique().to_list()
    if len(units) != 1:
        raise ValueError(f"the series {key} mixes the units {', '.join(sorted(units))}")
    whole = part if units[0] in TIME_UNITS else sum_over_pairs(part)
    lossy = pl.col("lost") > 0 if units[0] not in TIME_UNITS else pl.lit(False)
    used = whole.filter(~lossy & pl.col("value").is_finite() & (pl.col("value") > 0))
    per_launch = used.group_by("launch").agg(
        pl.col("value").median().alias("median"), pl.col("value").mean().alias("mean")
    )
    per_launch = per_launch.sort("launch")
    medians = [float(value) for value in per_launch["median"]]
    means = [float(value) for value in per_launch["mean"]]
    values = used["value"].to_numpy()
    quantiles = [float(q) for q in np.quantile(values, [0, 0.01, 0.25, 0.75, 0.99, 1])] if len(values) else [None] * 6
    low, p01, p25, p75, p99, high = quantiles
    test, subject, pairs, processes, message_bytes = key
    return Series(
        test=test,
        subject=subject,
        pairs=pairs,
        processes=processes,
        message_bytes=message_bytes,
        unit=units[0],
        median=float(np.median(medians)) if medians else None,
        ci95=median_interval(medians) if medians else None,
        mean=float(np.mean(means)) if means else None,
        mean_ci95=mean_interval(means) if means else None,
        min=low,
        max=high,
        p01=p01,
        p25=p25,
        p75=p75,
        p99=p99,
        launches=len(medians),
        samples=used.height,
        samples_measured=whole.height,
        lost=int(part["lost"].sum()),
        lossy_samples=whole.filter(pl.col("lost") > 0).height,
        limit=None,
        limit_kind=None,
        fraction_of_limit=None,
        verdict="no limit known" if medians else "no loss-free sample",
        stop="converged" if medians and is_precise(medians) else "budget",
        launch_medians=tuple(medians),
    )


def sum_over_pairs(part: pl.DataFrame) -> pl.DataFrame:
    """One row per launch and block: the goodput of all pairs, or of all processes, together.

    A block that some pair did not finish is no sum of all pairs: it keeps no value, and so is not used.
    """
    at_once = part["pairs"][0] * part["processes"][0]
    if at_once == 1:
        return part
    per_pair = part.group_by("launch", "block", "pair", "process").agg(pl.col("value").mean(), pl.col("lost").sum())
    whole = pl.col("value").count() == at_once
    summed = per_pair.group_by("launch", "block").agg(
        pl.when(whole).then(pl.col("value").sum()).otherwise(None).alias("value"), pl.col("lost").sum()
    )
    return summed.sort("launch", "block")


def _judge(one: Series, link: Link | None, floor: Series | None) -> Series:
    if one.median is None:
        return one
    lower_is_better = one.lower_is_better
    protocol = protocol_of(one.subject)
    if link is not None and link.rate_bit_s is not None:
        limit = None if protocol is None else wire_limit(cast(Test, one.test), one.message_bytes, protocol, link)
        if limit is None:
            return one
        verdict = wire_verdict(one.median, limit, lower_is_better=lower_is_better)
        fraction = fraction_of_limit(one.median, limit, lower_is_better=lower_is_better)
        return replace(one, limit=limit, limit_kind="wire", fraction_of_limit=fraction, verdict=verdict)
    if floor is None or floor.median is None:
        return one
    verdict = floor_verdict(one.subject, _interval(one), _interval(floor), lower_is_better=lower_is_better)
    fraction = fraction_of_limit(one.median, floor.median, lower_is_better=lower_is_better)
    return replace(one, limit=floor.median, limit_kind="floor", fraction_of_limit=fraction, verdict=verdict)


def _interval(one: Series) -> tuple[float, float]:
    """Below 6 launches the range of the launches: the widest interval they can give."""
    return one.ci95 or (min(one.launch_medians), max(one.launch_medians))


def _order(one: Series) -> tuple[int, str, int, int, int, str, int]:
    test_rank = TEST_ORDER.index(one.test) if one.test in TEST_ORDER else len(TEST_ORDER)
    return test_rank, one.test, one.pairs, one.processes, *subject_order(one.subject), one.message_bytes


def subject_order(subject: str) -> tuple[int, str]:
    """Sorting key: tcp, udp, raw with their variants, others, the floor."""
    transport, link, _ = read_subject(subject)
    if transport == FLOOR:
        return len(SUBJECT_ORDER) + 1, subject
    name = "xdp" if transport == "raw" and link != PACKET else transport
    return SUBJECT_ORDER.index(name) if name in SUBJECT_ORDER else len(SUBJECT_ORDER), subject
