# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run in Python: its samples and series as frames, its fits, comparisons and figures.

Frames are polars'; `to_pandas` converts. Every frame of series has a column `unit`, in which its values are.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from barewire.errors import MachineCannot, WrongUse
from barewire.measure.recover import recover_run
from barewire.report import figures, words
from barewire.report.versus import Settings, compare_in_run, compare_runs
from barewire.results.confidence import as_asked
from barewire.results.run import Place, Series
from barewire.results.run import Run as Record
from barewire.results.store import samples as read_samples
from barewire.results.tables import comparisons_frame, laws_frame, series_frame

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objs._figure import Figure

Against = Literal["size", "ratio", "distribution"]


class Run:
    """One run on disk. `record` is its content in full: parameters, environment, launches, warnings."""

    def __init__(self, directory: Path, record: Record) -> None:
        """Wrap a run that has been read; `load` reads one."""
        self.directory, self.record = directory, record

    @classmethod
    def load(cls, directory: "str | os.PathLike[str]", *, confidence: float | None = None) -> "Run":
        """Open the run in `directory`; WrongUse if there is none. An interrupted run is recovered first.

        Intervals and verdicts have this confidence, 0.5 to 0.999, by default that for which the run was measured;
        ValueError for another.
        """
        path = Path(directory)
        return cls(path, as_asked(recover_run(path), path, confidence))

    def __repr__(self) -> str:
        """Return what the run is, in one line."""
        record = self.record
        state = "" if record.complete else f", incomplete ({record.stopped_by})"
        return f"<Run {record.id}: {len(record.launches)} launches, {len(record.series)} series{state}>"

    @cached_property
    def samples(self) -> pl.DataFrame:
        """All samples, with those of the warm-up: columns as in docs/data.md, each `value` in its `unit`."""
        return read_samples(self.directory)

    def series(self, **coordinates: Any) -> pl.DataFrame:
        """Return one row for each series: medians, intervals and quantiles in `unit`, sizes in bytes.

        Keywords select by a column: `run.series(test="pingpong", message_bytes=64)`. Column names are those of
        `run.json`; an interval is two columns, at 95 % `ci95_low` and `ci95_high`.
        """
        return series_frame(self._selected(coordinates))

    def to_pandas(self, frame: pl.DataFrame | None = None) -> "pandas.DataFrame":
        """Return a frame of this run, by default `samples`, as pandas' frame; text as categories."""
        try:
            import pandas
        except ImportError:
            raise MachineCannot("pandas is not installed: pip install pandas, or use the polars frames") from None
        chosen = self.samples if frame is None else frame
        # polars' own conversion needs pyarrow.
        data = {
            column.name: column.to_numpy() if column.dtype.is_numeric() else column.to_list()
            for column in chosen.iter_columns()
        }
        texts = [name for name, kind in chosen.schema.items() if isinstance(kind, pl.Categorical)]
        return pandas.DataFrame(data).astype(dict.fromkeys(texts, "category"))

    def compare(self, baseline: "str | Run" = "tcp", *, across_environments: bool = False) -> pl.DataFrame:
        """Compare every subject with `baseline`: a subject or fabric of this run, or another run.

        Against another run every subject is compared with itself there. One row for each comparison: `ratio` is
        `median_a` (the subject) divided by `median_b`, with its interval, `verdict` is about A. WrongUse if there
        is nothing to compare, or if the runs are of different environments.
        """
        if isinstance(baseline, Run):
            found = compare_runs(self.record, baseline.record, self._settings, across_environments=across_environments)
        else:
            found = compare_in_run(self.record, baseline, self._settings)
        if not found:
            raise WrongUse(f"{self.directory} contains nothing to compare with {baseline}")
        return comparisons_frame(versus.to_json() for versus in found)

    def fit(self) -> pl.DataFrame:
        """Fit the time of ping-pongs, µs, as α + β·s in pieces: one row for each piece, with the break before it.

        Subjects with fewer than eight message sizes have no rows.
        """
        return laws_frame(self.record)

    def plot(self, against: Against = "size", *, baseline: str = "tcp", **coordinates: Any) -> "Figure":
        """Return a figure of one table of series.

        `against` is "size": medians with intervals by message size; "ratio": each subject divided by `baseline`; or
        "distribution": all samples of one message size. Keywords select series as in `series`; WrongUse, with the
        choices, if they leave several tables. MachineCannot if plotly is not installed; `figure` needs none.
        """
        try:
            from plotly.graph_objs._figure import Figure
        except ImportError:
            raise MachineCannot("plotly is not installed: pip install plotly; `barewire export` draws SVG") from None

        figure = self.figure(against, baseline=baseline, **coordinates)
        return Figure({"data": figure["data"], "layout": figure["layout"]})  # type: ignore[no-untyped-call]

    def figure(self, against: Against = "size", *, baseline: str = "tcp", **coordinates: Any) -> figures.Figure:
        """Return the figure of `plot` as plain JSON: plotly's data and layout."""
        chosen = _one_table(self._selected(coordinates))
        if against == "size":
            return figures.against_size(chosen, _quantity_name(chosen))
        if against == "ratio":
            found = [versus for versus in compare_in_run(self.record, baseline, self._settings) if versus.a in chosen]
            if not found:
                raise WrongUse(f"nothing here is compared with {baseline}")
            return figures.ratios(found, words.baseline_name(baseline, {series.subject for series in chosen}))
        if against == "distribution":
            return _distribution(self.samples, chosen)
        raise WrongUse(f"a figure shows size, ratio or distribution, not {against!r}")

    @property
    def _settings(self) -> Settings:
        return Settings(confidence=self.record.confidence)

    def _selected(self, coordinates: dict[str, Any]) -> list[Series]:
        unknown = [name for name in coordinates if name not in Series.__dataclass_fields__]
        if unknown:
            known = ", ".join(Series.__dataclass_fields__)
            raise WrongUse(f"series have no column {', '.join(unknown)}; they have {known}")
        return [
            series
            for series in self.record.series
            if all(getattr(series, name) == value for name, value in coordinates.items())
        ]


def _one_table(series: Sequence[Series]) -> list[Series]:
    """Return series of one table and variant with a median; WrongUse with the choices otherwise."""
    usable = [each for each in series if each.median is not None]
    if not usable:
        raise WrongUse("no series is selected: `series()` lists them")
    tables = list(dict.fromkeys((each.place, each.variant) for each in usable))
    if len(tables) > 1:
        names = "; ".join(_keywords(place, variant) for place, variant in tables)
        raise WrongUse(f"a figure shows one of these: {names}")
    return usable


def _keywords(place: Place, variant: str) -> str:
    """Return keywords that select a table."""
    named = {**place._asdict(), "variant": variant}
    defaults = {**Place("")._asdict(), "variant": ""}
    return ", ".join(f"{name}={value!r}" for name, value in named.items() if value != defaults[name])


def _quantity_name(series: Sequence[Series]) -> str:
    what = "time" if series[0].lower_is_better else "rate" if series[0].unit.endswith("/s") else "value"
    return f"median {what}"


def _distribution(frame: pl.DataFrame, series: Sequence[Series]) -> figures.Figure:
    rows = {each.row for each in series}
    if len(rows) > 1:
        sizes = ", ".join(str(row.message_bytes) for row in sorted(rows, key=lambda row: row.order))
        raise WrongUse(f"a distribution is of one message size: say message_bytes=…, one of {sizes}")
    return figures.chosen(figures.distributions(frame, series))
