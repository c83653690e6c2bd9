# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run's results as polars frames: one row for each series, launch or piece of a law."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from barewire.results.laws import laws_of
from barewire.results.run import Run, Series
from barewire.stats.confidence import with_interval_names

_INTERVAL = re.compile(r"(.*_)?(interval|ci[0-9.]+)")


def series_frame(series: Iterable[Series]) -> pl.DataFrame:
    """Return one row for each series: the fields of `Series`, intervals as two columns, all values in `unit`."""
    rows = [_flat(each.to_json()) for each in series]
    fields = dict.fromkeys(name for name in Series.__dataclass_fields__ if name != "confidence")
    return _frame(rows, list(rows[0] if rows else _flat(with_interval_names(fields))))


def laws_frame(run: Run) -> pl.DataFrame:
    """Return one row for each piece of each ping-pong's law, α + β·s, with the break at which it begins.

    α in µs, β in ns for each byte. Subjects with fewer than eight sizes have none.
    """
    rows = []
    for law in laws_of(run):
        breaks = [None, *law.fit.breaks]
        for piece, before in zip(law.fit.pieces, breaks, strict=True):
            rows.append(
                {
                    "subject": law.subject,
                    "variant": law.variant,
                    "ranks": law.place.ranks,
                    "pairs": law.place.pairs,
                    "from_bytes": piece.first_bytes,
                    "to_bytes": piece.last_bytes,
                    "alpha_us": piece.alpha,
                    "beta_ns_per_byte": piece.per_byte * 1e3,
                    "break_low_bytes": None if before is None else before.low,
                    "break_high_bytes": None if before is None else before.high,
                    "step_us": None if before is None else before.jump,
                }
            )
    return _frame(rows, _LAW_COLUMNS)


# The frame has them even without rows.
_LAW_COLUMNS = (
    *("subject", "variant", "ranks", "pairs", "from_bytes", "to_bytes", "alpha_us", "beta_ns_per_byte"),
    *("break_low_bytes", "break_high_bytes", "step_us"),
)


def comparisons_frame(comparisons: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return one row for each comparison (`Versus.to_json`), intervals as two columns."""
    return pl.DataFrame([_flat(each) for each in comparisons], infer_schema_length=None)


def without_lists(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame for formats without lists: their values joined by spaces."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists)


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values as columns; an interval is two."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if _INTERVAL.fullmatch(name):
            flat[f"{prefix}{name}_low"], flat[f"{prefix}{name}_high"] = value or (None, None)
        elif isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> pl.DataFrame:
    """Return a frame that has its columns even without rows."""
    if not rows:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.Null))
    return pl.DataFrame(rows, infer_schema_length=None).select(columns)
