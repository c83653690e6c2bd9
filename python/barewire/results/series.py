# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Derives series from raw samples: each launch is summarised first, statistics are between launches only."""

import math
from collections.abc import Iterator, Sequence
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
from barewire.results.run import Place, Row, Series
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
_IS_LOSSY = pl.col("lost") > 0


def series_from_samples(
    frame: pl.DataFrame,
    link: Link | None = None,
    *,
    hosts: int | None = None,
    precision: float = PRECISION,
    confidence: float = CONFIDENCE,
) -> list[Series]:
    """Return one series per table, row and subject of `frame` (columns of `SAMPLE_SCHEMA`), sorted.

    Warm-up is left out. Samples without a finite value are not used, nor is a goodput sample with lost messages: a rate
    must be free of loss. `combined` merges concurrent samples of pairs, processes or ranks. The limit is the wire's if
    `link` has a rate (with a subject's own MTU, if it has one in its name), otherwise the floor over the same link for
    the same test, pairs and size. `hosts` is the number of hosts of an MPI job: with more ranks than hosts no link
    bounds the messages of all; if it is unknown, none bounds those of several pairs. `precision` is the half
    width of a median's interval of this `confidence` at which it is precise, relative to the median; the intervals of
    the series are those of 95 %. ValueError if one series mixes units.
    """
    measured = _comparable(frame.filter(pl.col("phase") == "measure"))
    unjudged = sorted(_summaries(measured, precision, confidence), key=_order)
    floors = {_floor_key(each): each for each in unjudged if is_floor(each.subject)}
    return [_judge(each, _bounding(each, link, hosts), floors.get(_floor_key(each))) for each in unjudged]


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
    has_links = series.ranks <= hosts if hosts is not None else not series.ranks or series.pairs == 1
    return link if has_links else None


def _summaries(measured: pl.DataFrame, precision: float, confidence: float) -> Iterator[Series]:
    """Summarise each series; what is alike for all is computed for all at once, as a run may have thousands."""
    units = measured.group_by(_KEY, maintain_order=True).agg(pl.col("unit").unique(), pl.col("lost").sum())
    whole = combined(measured)
    counts = whole.group_by(_KEY).agg(pl.len(), _IS_LOSSY.sum().alias("lossy"))
    used = usable(whole)
    launches = (
        used.group_by(*_KEY, "launch", maintain_order=True)
        .agg(pl.col("value").median().alias("median"), pl.col("value").mean().alias("mean"), "value")
        .sort("launch", maintain_order=True)
        .group_by(_KEY)
        .agg("launch", "median", "mean", "value")
    )
    count_of = {row[:-2]: row[-2:] for row in counts.iter_rows()}
    launches_of = {row[:-4]: row[-4:] for row in launches.iter_rows()}
    for *values, units_of, lost in units.iter_rows():
        key = dict(zip(_KEY, values, strict=True))
        if len(units_of) != 1:
            raise ValueError(f"the series {key} mixes the units {', '.join(sorted(units_of))}")
        numbers, medians, means, samples = launches_of.get(tuple(values), ((), (), (), ()))
        measured_count, lossy_count = count_of[tuple(values)]
        yield Series(
            **key,
            unit=units_of[0],
            **_statistics(medians, means, samples),
            launches=len(medians),
            samples=sum(map(len, samples)),
            samples_measured=measured_count,
            lost=lost,
            lossy_samples=lossy_count,
            limit=None,
            limit_kind=None,
            fraction_of_limit=None,
            verdict="no limit known" if medians else "no loss-free sample",
            stop="converged" if medians and is_precise(medians, precision, confidence) else "budget",
            launch_medians=tuple(medians),
            launch_numbers=tuple(numbers),
            launches_to_converge=launches_to_converge(medians, precision, confidence),
            samples_to_converge=_samples_to_converge(samples, precision),
        )


def _statistics(medians: Sequence[float], means: Sequence[float], samples: Sequence[Sequence[float]]) -> dict[str, Any]:
    names = ("min", "p01", "p25", "p75", "p99", "max")
    if not medians:
        return dict.fromkeys((*names, "median", "interval", "mean", "mean_interval"))
    quantiles = np.quantile(np.concatenate(samples), [0, 0.01, 0.25, 0.75, 0.99, 1])
    return dict(zip(names, map(float, quantiles), strict=True)) | {
        "median": float(np.median(medians)),
        "interval": median_interval(medians),
        "mean": float(np.mean(means)),
        "mean_interval": mean_interval(means),
    }


def _samples_to_converge(launches: Sequence[Sequence[float]], precision: float) -> int | None:
    """Return the median over the launches' samples; None if more than half did not converge."""
    counts = [samples_to_converge(np.asarray(values), precision) or math.inf for values in launches]
    median = float(np.median(counts)) if counts else math.inf
    return math.ceil(median) if math.isfinite(median) else None


def combined(samples: pl.DataFrame) -> pl.DataFrame:
    """Merge the concurrent samples of all pairs, processes or ranks of each series, unless they stay separate.

    Goodput is summed. A time of all is that of the last one, or the mean if it is a part of another time. One-way times
    of several pairs stay separate. A block that not all have finished has no value, and is not used. Returns the
    columns that identify a series, `unit`, `launch`, `block`, `value` and `lost`.
    """
    kinds = samples.select("test", "quantity", "unit").unique()
    modes = kinds.with_columns(pl.Series("over", [over_all(*kind) for kind in kinds.iter_rows()], dtype=pl.String))
    parties = ("pair", "process", "rank")
    party_count = (
        pl.when(pl.col("ranks") > 0)
        .then(pl.struct(parties).n_unique().over(_KEY).cast(pl.Int64))
        .otherwise(pl.col("pairs").cast(pl.Int64) * pl.col("processes"))
    )
    counted = samples.join(modes, on=["test", "quantity", "unit"], maintain_order="left").with_columns(
        party_count.alias("parties")
    )
    is_separate = (pl.col("parties") == 1) | (pl.col("over") == "each")
    separate = counted.filter(is_separate)
    block = (*_KEY, "unit", "launch", "block")
    by_party = (
        counted.filter(~is_separate)
        .group_by(*block, "over", "parties", *parties)
        .agg(pl.col("value").mean(), pl.col("lost").sum())
    )
    over, value = pl.col("over").first(), pl.col("value")
    of_all = (
        pl.when(over == "total").then(value.sum()).when(over == "slowest").then(value.max()).otherwise(value.mean())
    )
    merged = by_party.group_by(block).agg(
        pl.when(value.count() == pl.col("parties").first()).then(of_all).otherwise(None).alias("value"),
        pl.col("lost").sum(),
    )
    columns = (*block, "value", "lost")
    return pl.concat([separate.select(columns), merged.sort("launch", "block").select(columns)])


def usable(whole: pl.DataFrame) -> pl.DataFrame:
    """Return those of `combined` samples that statistics are made of: with a value, and rates free of loss."""
    # Derived values may be 0 or negative, such as an overhead below the noise.
    quantities = whole["quantity"].cast(pl.String).unique()
    has_any_sign = pl.col("test").cast(pl.String).is_in(DERIVED_TESTS) | pl.col("quantity").cast(pl.String).is_in(
        [quantity for quantity in quantities if may_be_zero(quantity)]
    )
    return whole.filter(
        pl.col("unit").cast(pl.String).is_in(TIME_UNITS) | ~_IS_LOSSY,
        pl.col("value").is_finite() & ((pl.col("value") > 0) | has_any_sign),
    )


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
        if series.ranks and not lower_is_better:
            limit *= series.pairs  # each rank has a host and a link of its own
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
