# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Values derived from a launch's curves: overheads, hidden computation, latency, availability, b_eff's rings.

Each launch yields one value of each, as if it had been measured, so that derived values have series, intervals and
comparisons like all others. The curves remain in the samples.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from barewire.models.derived import WITH_DERIVED, Findings, Point, derived
from barewire.models.logp import POINTS_MIN
from barewire.results.schema import sample_frame

COMPUTATION = "computation_ns"
# Conversions to the units of results: from ns, shares, and bytes per second.
_UNITS = {"ns": ("us", 1e-3), "1": ("%", 1e2), "B/s": ("Mbit/s", 8e-6)}
_LAUNCH_KEY = ("launch", "test", "subject", "ranks")
_POINT = ("variant", "quantity", "message_bytes", "rank", "parameter_value")


class Curve(NamedTuple):
    """Median time of messages as a function of the concurrent computation, both in µs and ascending, in one launch."""

    subject: str
    variant: str
    message_bytes: int
    computation_us: tuple[float, ...]
    time_us: tuple[float, ...]


def derived_samples(frame: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return one value for each launch, size and quantity; and what could not be derived, with the reason."""
    columns: dict[str, list[Any]] = {
        name: [] for name in (*_LAUNCH_KEY, "variant", "quantity", "message_bytes", "value", "unit")
    }
    problems: Counter[str] = Counter()
    for launch_key, launch in _launches(frame):
        try:
            findings = derived(launch_key["test"], _points(launch))
        except ValueError as error:  # for example, the launch ended between two records
            findings = Findings([], [str(error)])
        problems.update(
            f"{launch_key['test']} {launch_key['subject']} × {launch_key['ranks']}: {text}"
            for text in findings.problems
        )
        for finding in findings.values:
            unit, factor = _UNITS[finding.unit]
            row = launch_key | finding._asdict() | {"value": finding.value * factor, "unit": unit}
            for name, values in columns.items():
                values.append(row[name])
    messages = tuple(f"{text} ({count} launch{'es' if count > 1 else ''})" for text, count in problems.items())
    return sample_frame(columns, phase="measure", block=0), messages


def curves(frame: pl.DataFrame, test: str, ranks: int) -> list[Curve]:
    """Return every curve of every launch of one test."""
    swept = frame.filter((pl.col("ranks") == ranks) & (pl.col("parameter") == COMPUTATION))
    times = swept.filter(pl.col("quantity") == "time")
    result = []
    for launch_key, launch in _launches(times):
        if launch_key["test"] != test:
            continue
        medians = launch.group_by("variant", "message_bytes", "parameter_value").agg(pl.col("value").median())
        parts = medians.sort("parameter_value").partition_by("variant", "message_bytes", as_dict=True)
        for (variant, size), points in parts.items():
            if points.height < POINTS_MIN:
                continue
            computation = tuple(ns / 1e3 for ns in points["parameter_value"])
            result.append(Curve(launch_key["subject"], str(variant), int(size), computation, tuple(points["value"])))
    return result


def _launches(frame: pl.DataFrame) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    derivable = frame.filter(pl.col("test").cast(pl.String).is_in(WITH_DERIVED) & (pl.col("phase") == "measure"))
    for key, launch in derivable.partition_by(_LAUNCH_KEY, as_dict=True, maintain_order=True).items():
        yield dict(zip(_LAUNCH_KEY, key, strict=True)), launch


def _points(launch: pl.DataFrame) -> Iterator[Point]:
    in_ns = pl.when(pl.col("unit").cast(pl.String) == "us").then(pl.col("value") * 1e3).otherwise(pl.col("value"))
    return itertools.starmap(Point, launch.group_by(_POINT, maintain_order=True).agg(in_ns).iter_rows())
