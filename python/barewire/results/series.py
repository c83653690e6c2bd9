# SPDX-License-Identifier: Apache-2.0 OR MIT
"""From raw samples to series: each launch summarised first, statistics only between launches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args

import numpy as np
import polars as pl

from barewire.models.derived import DERIVED_TESTS
from barewire.models.naming import FLOOR, PACKET, is_floor, read_subject
from barewire.models.verdict import floor_verdict, fraction_of_limit, protocol_of, wire_verdict
from barewire.models.wire import Link, Test, wire_limit
from barewire.results.derived import derived_samples
from barewire.results.quantities import COMPARED_UNITS, TIME_UNITS, may_be_zero, over_all
from barewire.results.run import Place, Row, Series, Stop
from barewire.stats import is_precise, mean_interval, median_interval

# What a program says of its own computation and clock, under this variant, is no result.
CALIBRATION = "calibration"
TEST_ORDER = ("pingpong", "stream", "bidirectional")
# A subject not listed follows, the floor is last.
SUBJECT_ORDER = ("tcp", "udp", "raw", "xdp", "llc1", "llc2", "llc3", "endpoint", "messages", "libfabric")

_KEY = (
    "test",
    "subject",
    "pairs",
    "processes",
    "ranks",
    "variant",
    "quantity",
    "parameter",
    "parameter_value",
    "message_bytes",
)
Key = tuple[Place, str, Row]


def series_from_samples(
    frame: pl.DataFrame,
    link: Link | None = None,
    *,
    hosts: int | None = None,
    stops: Mapping[Key, Stop] | None = None,
) -> list[Series]:
    """One series per place, row and subject of `frame` (columns of `SAMPLE_SCHEMA`), sorted.

    Warm-up is left out. Samples without a finite value are not used, nor is a goodput sample that lost messages:
    a rate must be free of loss. What pairs, processes or ranks did at once becomes one sample as `combined` has it.
    The limit is the wire's where `link` has a rate, else the floor over the same link for the same test, pairs, size.
    `hosts` is how many an MPI job's ranks were on: where there are more ranks, no link bounds the messages of all.
    `stops` says why measuring ended, by `series_key`; where it does not, it is "converged"
    if the launches are precise and "budget" otherwise. ValueError when one series mixes units.
    """
    measured = _comparable(frame.filter(pl.col("phase") == "measure"))
    parts = measured.partition_by(_KEY, as_dict=True, maintain_order=True)
    unjudged = sorted((_summary(dict(zip(_KEY, key, strict=True)), part) for key, part in parts.items()), key=_order)
    floors = {_floor_key(one): one for one in unjudged if is_floor(one.subject)}
    stops = stops or {}
    judged = [_judge(one, _bounding(one, link, hosts), floors.get(_floor_key(one))) for one in unjudged]
    return [replace(one, stop=stops.get(series_key(one), one.stop)) for one in judged]


def _comparable(measured: pl.DataFrame) -> pl.DataFrame:
    """What people compare: what was measured, or what follows from it."""
    derived, _ = derived_samples(measured)
    own = ~pl.col("test").cast(pl.String).is_in(DERIVED_TESTS) & (pl.col("variant").cast(pl.String) != CALIBRATION)
    return pl.concat([measured.filter(pl.col("unit").cast(pl.String).is_in(COMPARED_UNITS) & own), derived])


def series_key(one: Series) -> Key:
    """What identifies a series in its run."""
    return one.place, one.subject, one.row


def _floor_key(one: Series) -> tuple[Place, Row, str]:
    """What a series and the floor that limits it have in common."""
    return one.place, one.row, read_subject(one.subject).link


def _bounding(one: Series, link: Link | None, hosts: int | None) -> Link | None:
    return None if hosts is not None and one.ranks > hosts else link


def _summary(key: dict[str, Any], part: pl.DataFrame) -> Series:
    units = part["unit"].unique().to_list()
    if len(units) != 1:
        raise ValueError(f"the series {key} mixes the units {', '.join(sorted(units))}")
    whole = combined(part)
    lossy = pl.col("lost") > 0 if units[0] not in TIME_UNITS else pl.lit(False)
    # What follows from a curve may be nothing, or less: an overhead that hides in the noise.
    right = pl.col("value").is_finite() & (
        (pl.col("value") > 0) | pl.lit(key["test"] in DERIVED_TESTS or may_be_zero(key["quantity"]))
    )
    used = whole.filter(~lossy & right)
    per_launch = used.group_by("launch").agg(
        pl.col("value").median().alias("median"), pl.col("value").mean().alias("mean")
    )
    per_launch = per_launch.sort("launch")
    medians = [float(value) for value in per_launch["median"]]
    means = [float(value) for value in per_launch["mean"]]
    values = used["value"].to_numpy()
    quantiles = [float(q) for q in np.quantile(values, [0, 0.01, 0.25, 0.75, 0.99, 1])] if len(values) else [None] * 6
    low, p01, p25, p75, p99, high = quantiles
    return Series(
        **key,
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


def combined(part: pl.DataFrame) -> pl.DataFrame:
    """What all pairs, processes or ranks of one series did at once, as one sample; each by itself where it stays one.

    Goodput adds up, a time of all is that of the last, or their mean where it is a part of another; one way times of
    several pairs are as many samples. A block that not all finished keeps no value, and so is not used.
    """
    how = over_all(part["test"][0], part["quantity"][0], part["unit"][0])
    parties = ("pair", "process", "rank")
    at_once = part.select(parties).n_unique() if part["ranks"][0] else part["pairs"][0] * part["processes"][0]
    if at_once == 1 or how == "each":
        return part
    of_each = part.group_by("launch", "block", *parties).agg(pl.col("value").mean(), pl.col("lost").sum())
    whole = pl.col("value").count() == at_once
    value = {"total": pl.col("value").sum(), "slowest": pl.col("value").max(), "mean": pl.col("value").mean()}[how]
    summed = of_each.group_by("launch", "block").agg(
        pl.when(whole).then(value).otherwise(None).alias("value"), pl.col("lost").sum()
    )
    return summed.sort("launch", "block")


def _judge(one: Series, link: Link | None, floor: Series | None) -> Series:
    if one.median is None:
        return one
    lower_is_better = one.lower_is_better
    protocol = protocol_of(one.subject)
    if link is not None and link.rate_bit_s is not None:
        limit = None
        if protocol is not None and one.test in get_args(Test):
            limit = wire_limit(cast(Test, one.test), one.message_bytes, protocol, link)
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


def _order(one: Series) -> tuple[Any, ...]:
    test_rank = TEST_ORDER.index(one.test) if one.test in TEST_ORDER else len(TEST_ORDER)
    return test_rank, one.place, *subject_order(one.subject), one.row.order


def subject_order(subject: str) -> tuple[int, str]:
    """Sorting key: tcp, udp, raw with their variants, others, the floor."""
    transport, link, _ = read_subject(subject)
    if transport == FLOOR:
        return len(SUBJECT_ORDER) + 1, subject
    name = "xdp" if transport == "raw" and link != PACKET else transport
    return SUBJECT_ORDER.index(name) if name in SUBJECT_ORDER else len(SUBJECT_ORDER), subject
