# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What follows from a launch's curves: overheads, hidden computation, latency, availability, b_eff's rings.

Each launch gives one value of each, as if it had been measured; so they have series, intervals and comparisons as all
others. The curves themselves stay among the samples.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from barewire.models.derived import WITH_DERIVED, Findings, Point, derived
from barewire.models.logp import POINTS_MIN
from barewire.results.store import sample_frame

COMPUTATION = "computation_ns"
# To the units in which people compare: from ns, a share, and bytes a second.
_UNITS = {"ns": ("us", 1e-3), "1": ("%", 1e2), "B/s": ("Mbit/s", 8e-6)}
_SAME = ("launch", "test", "subject", "ranks")
_POINT = ("variant", "quantity", "message_bytes", "rank", "parameter_value")


class Curve(NamedTuple):
    """Median time of messages against the computation beside them, both in µs and ascending, in one launch."""

    subject: str
    variant: str
    message_bytes: int
    computation_us: tuple[float, ...]
    time_us: tuple[float, ...]


def derived_samples(frame: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """One value for each launch, size and quantity; and what could not be derived, with the reason."""
    columns: dict[str, list[Any]] = {
        name: [] for name in (*_SAME, "variant", "quantity", "message_bytes", "value", "unit")
    }
    problems: Counter[str] = Counter()
    for same, launch in _launches(frame):
        try:
            findings = derived(same["test"], _points(launch))
        except ValueError as error:  # such as of a launch that broke off between two records
            findings = Findings([], [str(error)])
        problems.update(f"{same['test']} {same['subject']} × {same['ranks']}: {text}" for text in findings.problems)
        for one in findings.values:
            unit, factor = _UNITS[one.unit]
            row = same | one._asdict() | {"value": one.value * factor, "unit": unit}
            for name, values in columns.items():
                values.append(row[name])
    told = tuple(f"{text} ({count} launch{'es' if count > 1 else ''})" for text, count in problems.items())
    return sample_frame(columns, phase="measure", block=0), told


def curves(frame: pl.DataFrame, test: str, ranks: int) -> list[Curve]:
    """Every curve of every launch of one test."""
    swept = frame.filter((pl.col("ranks") == ranks) & (pl.col("parameter") == COMPUTATION))
    times = swept.filter(pl.col("quantity") == "time")
    found = []
    for same, launch in _launches(times):
        if same["test"] != test:
            continue
        medians = launch.group_by("variant", "message_bytes", "parameter_value").agg(pl.col("value").median())
        parts = medians.sort("parameter_value").partition_by("variant", "message_bytes", as_dict=True)
        for (variant, size), points in parts.items():
            if points.height < POINTS_MIN:
                continue
            computation = tuple(ns / 1e3 for ns in points["parameter_value"])
            found.append(Curve(same["subject"], str(variant), int(size), computation, tuple(points["value"])))
    return found


def _launches(frame: pl.DataFrame) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    of_tests = frame.filter(pl.col("test").cast(pl.String).is_in(WITH_DERIVED) & (pl.col("phase") == "measure"))
    for key, launch in of_tests.partition_by(_SAME, as_dict=True, maintain_order=True).items():
        yield dict(zip(_SAME, key, strict=True)), launch


def _points(launch: pl.DataFrame) -> Iterator[Point]:
    for (variant, quantity, size, rank, at), part in launch.partition_by(
        _POINT, as_dict=True, maintain_order=True
    ).items():
        in_us = part["unit"][0] == "us"
        values = (part["value"] * 1e3 if in_us else part["value"]).to_list()
        yield Point(variant, quantity, size, rank, at, values)
