# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Derives series from raw samples: each launch is summarised first, statistics are between launches only."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args

import numpy as np
import polars as pl

from barewire.models.derived import DERIVED_TESTS
from barewire.models.naming import FLOOR, XDP_LINKS, floor_link, is_floor, mtu_of, read_subject
from barewire.models.verdict import floor_verdict, fraction_of_limit, protocol_of, wire_verdict
from barewire.models.wire import Link, Test, wire_limit
from barewire.results.derived import derived_samples
from barewire.results.quantities import COMPARED_UNITS, TIME_UNITS, may_be_zero, over_all
from barewire.results.run import Place, Row, Series, Stop
from barewire.stats.confidence import CONFIDENCE
from barewire.stats.convergence import launches_to_converge, samples_to_converge
from barewire.stats.intervals import PRECISION, is_precise, mean_interval, median_interval

# Variant under which a program reports its own computation and clock, which are not results.
CALIBRATION = "calibration"
TEST_ORDER = ("pingpong", "stream", "bidirectional")
# Subjects that are not listed come after these, the floor last.
SUBJECT_ORDER = ("tcp", "udp", "raw", "xdp", "llc1", "llc2", "llc3", "kernel-llc2", "endpoint", "messages", "libfabric")

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
    precision: float = PRECISION,
    confidence: float = CONFIDENCE,
) -> list[Series]:
    """Return one series per table, row and subject of `frame` (columns of `SAMPLE_SCHEMA`), sorted.

    Warm-up is left out. Samples without a finite value are not used, nor is a goodput sample with lost messages: a rate
    must be free of loss. `combined` merges concurrent samples of pairs, processes or ranks. The limit is the wire's if
    `link` has a rate (with a subject's own MTU, if it has one in its name), otherwise the floor over the same link for
    the same test, pairs and size. `hosts` is the number
    of hosts of an MPI job: with more ranks than hosts no link bounds the messages of all. `stops` has the reasons why
    measuring ended, by `series_key`; the default is "converged" if the launches are precise and "budget" otherwise.
    `precision` is the half width of a median's interval of this `confidence` at which it is precise, relative to the
    median; the intervals of the series are those of 95 %.
    ValueError if one series mixes units.
    """
    measured = _comparable(frame.filter(pl.col("phase") == "measure"))
    parts = measured.partition_by(_KEY, as_dict=True, maintain_order=True)
    unjudged = sorted(
        (_summary(dict(zip(_KEY, key, strict=True)), part, precision, confidence) for key, part in parts.items()),
        key=_order,
    )
    floors = {_floor_key(each): each for each in unjudged if is_floor(each.subject)}
    stops = stops or {}
    judged = [_judge(each, _bounding(each, link, hosts), floors.get(_floor_key(each))) for each in unjudged]
    return [replace(each, stop=stops.get(series_key(each), each.stop)) for each in judged]


def _comparable(measured: pl.DataFrame) -> pl.DataFrame:
    """Return the samples in units of results, measured or derived."""
    derived, _ = derived_samples(measured)
    not_calibration = ~pl.col("test").cast(pl.String).is_in(DERIVED_TESTS) & (
        pl.col("variant").cast(pl.String) != CALIBRATION
    )
    return pl.concat([measured.filter(pl.col("unit").cast(pl.String).is_in(COMPARED_UNITS) & not_calibration), derived])


def series_key(series: Series) -> Key:
    """Return the key that identifies a series in its run."""
    return series.place, series.subject, series.row


def _floor_key(series: Series) -> tuple[Place, Row, str, int | None]:
    """Return the coordinates that a series shares with the floor that limits it."""
    return series.place, series.row, floor_link(read_subject(series.subject).link), mtu_of(series.subject)


def _bounding(series: Series, link: Link | None, hosts: int | None) -> Link | None:
    return None if hosts is not None and series.ranks > hosts else link


def _summary(key: dict[str, Any], part: pl.DataFrame, precision: float, confidence: float) -> Series:
    units = part["unit"].unique().to_list()
    if len(units) != 1:
        raise ValueError(f"the series {key} mixes the units {', '.join(sorted(units))}")
    whole = combined(part)
    lossy = pl.col("lost") > 0 if units[0] not in TIME_UNITS else pl.lit(False)
    # Derived values may be 0 or negative, such as an overhead below the noise.
    is_valid = pl.col("value").is_finite() & (
        (pl.col("value") > 0) | pl.lit(key["test"] in DERIVED_TESTS or may_be_zero(key["quantity"]))
    )
    used = whole.filter(~lossy & is_valid)
    per_launch = used.group_by("launch").agg(
        pl.col("value").median().alias("median"), pl.col("value").mean().alias("mean"), "value"
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
        interval=median_interval(medians) if medians else None,
        mean=float(np.mean(means)) if means else None,
        mean_interval=mean_interval(means) if means else None,
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
        stop="converged" if medians and is_precise(medians, precision, confidence) else "budget",
        launch_medians=tuple(medians),
        launch_numbers=tuple(per_launch["launch"]),
        launches_to_converge=launches_to_converge(medians, precision, confidence),
        samples_to_converge=_samples_to_converge(per_launch["value"], precision),
    )


def _samples_to_converge(launches: pl.Series, precision: float) -> int | None:
    """Return the median over the launches, each a list of values; None if more than half did not converge."""
    counts = [samples_to_converge(values.to_numpy(), precision) or math.inf for values in launches]
    median = float(np.median(counts)) if counts else math.inf
    return math.ceil(median) if math.isfinite(median) else None


def combined(part: pl.DataFrame) -> pl.DataFrame:
    """Merge the concurrent samples of all pairs, processes or ranks of one series, unless they stay separate.

    Goodput is summed. A time of all is that of the last one, or the mean if it is a part of another time. One-way times
    of several pairs stay separate. A block that not all have finished has no value, and is not used.
    """
    mode = over_all(part["test"][0], part["quantity"][0], part["unit"][0])
    parties = ("pair", "process", "rank")
    party_count = part.select(parties).n_unique() if part["ranks"][0] else part["pairs"][0] * part["processes"][0]
    if party_count == 1 or mode == "each":
        return part
    by_party = part.group_by("launch", "block", *parties).agg(pl.col("value").mean(), pl.col("lost").sum())
    is_complete = pl.col("value").count() == party_count
    value = {"total": pl.col("value").sum(), "slowest": pl.col("value").max(), "mean": pl.col("value").mean()}[mode]
    merged = by_party.group_by("launch", "block").agg(
        pl.when(is_complete).then(value).otherwise(None).alias("value"), pl.col("lost").sum()
    )
    return merged.sort("launch", "block")


def _judge(series: Series, link: Link | None, floor: Series | None) -> Series:
    if series.median is None:
        return series
    lower_is_better = series.lower_is_better
    protocol = protocol_of(series.subject)
    if link is not None and link.rate_bit_s is not None:
        limit = None
        if protocol is not None and series.test in get_args(Test):
            own = replace(link, mtu=mtu_of(series.subject) or link.mtu)
            limit = wire_limit(cast(Test, series.test), series.message_bytes, protocol, own)
        if limit is None:
            return series
        verdict = wire_verdict(series.median, limit, lower_is_better=lower_is_better)
        fraction = fraction_of_limit(series.median, limit, lower_is_better=lower_is_better)
        return replace(series, limit=limit, limit_kind="wire", fraction_of_limit=fraction, verdict=verdict)
    if floor is None or floor.median is None:
        return series
    verdict = floor_verdict(series.subject, _interval(series), _interval(floor), lower_is_better=lower_is_better)
    fraction = fraction_of_limit(series.median, floor.median, lower_is_better=lower_is_better)
    return replace(series, limit=floor.median, limit_kind="floor", fraction_of_limit=fraction, verdict=verdict)


def _interval(series: Series) -> tuple[float, float]:
    """Return the interval; below 6 launches the range of the launches, the widest possible one."""
    return series.interval or (min(series.launch_medians), max(series.launch_medians))


def _order(series: Series) -> tuple[Any, ...]:
    test_rank = TEST_ORDER.index(series.test) if series.test in TEST_ORDER else len(TEST_ORDER)
    return test_rank, series.place, *subject_order(series.subject), series.row.order


def subject_order(subject: str) -> tuple[int, str]:
    """Return the sorting key: tcp, udp, raw with their variants, others, the floor."""
    transport, link, *_ = read_subject(subject)
    if transport == FLOOR:
        return len(SUBJECT_ORDER) + 1, subject
    name = "xdp" if transport == "raw" and link in XDP_LINKS else transport
    return SUBJECT_ORDER.index(name) if name in SUBJECT_ORDER else len(SUBJECT_ORDER), subject
