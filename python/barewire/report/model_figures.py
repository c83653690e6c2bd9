# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures of models: laws in pieces with their breaks, parametrised LogP, speed-up, predictions beside measurements."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from barewire.models.breakpoints import Break, Piecewise, find_breakpoints
from barewire.models.causes import Limit, explanations
from barewire.report.captions import without_place
from barewire.report.figures import (
    INK,
    Figure,
    combined_with_choice,
    curve,
    distinct,
    error_bars,
    layout_of,
    log_axis,
    plain_axis,
    point_data,
    shortened,
    size_axis,
    style_of,
)
from barewire.report.mpi import task_name
from barewire.report.prediction import errors_text
from barewire.report.words import interval_heading, message_size, percent, subject_name, test_title, unit_name
from barewire.results.held_out import Checked, Errors
from barewire.results.laws import SIZES_MIN, Law
from barewire.results.limits import limits_of
from barewire.results.run import Run, Series
from barewire.results.speedups import Speedup, speedups

Captioned = dict[str, Any]
_POINTS_OF_PIECE = 12
_BREAK_COLOUR, _BREAK_BAND = "#882255", "#88225522"
# The four functions of parametrised LogP: names, and looks that differ without colour.
_LOGP = {
    "eel": ("EEL, end to end", "#0072B2", "circle", "solid"),
    "gap": ("g, gap", "#D55E00", "square", "dash"),
    "os": ("Os, sending", "#009E73", "triangle-up", "dot"),
    "or": ("Or, receiving", "#CC79A7", "diamond", "dashdot"),
}
# Errors of a prediction that are good, shown as lines beside the diagonal.
_GOOD_ERROR = 0.15


def laws_figure(run: Run, laws: Sequence[Law]) -> Captioned:
    """Times against size with the fitted pieces, and where they break; one choice for each law."""
    figures = {}
    for law in laws:
        series = [
            s
            for s in run.series
            if (s.place, s.subject, s.variant) == (law.place, law.subject, law.variant) and s.median
        ]
        parts = [subject_name(law.subject), law.variant, f"{law.place.ranks} ranks" if law.place.ranks else ""]
        figures[", ".join(filter(None, parts))] = _law(series, law.fit, limits_of(run, law.subject))
    return {"title": "Time in pieces", "caption": "", "figure": combined_with_choice(figures, "Of")}


def _law(series: Sequence[Series], fit: Piecewise, limits: list[Limit]) -> Figure:
    medians = [s.median or 0.0 for s in series]
    style = style_of(series[0].subject)
    points = {
        **style,
        "mode": "markers",
        "x": [s.message_bytes for s in series],
        "y": [shortened(median) for median in medians],
        "error_y": error_bars(medians, [s.interval for s in series]),
        "customdata": [point_data(s.interval, s.launches, s.samples) for s in series],
        "hovertemplate": "%{y:.4g} µs",
    }
    pieces, breaks = _pieces(fit), _breaks(fit, limits, medians)
    unit = unit_name(series[0].unit)
    layout = layout_of(size_axis(series), log_axis(f"median time, {unit}", [points, *pieces, *breaks], "y"))
    many = f"{len(fit.pieces)} pieces" if len(fit.pieces) > 1 else "one piece"
    error = f"off by {fit.error:.1%} (root mean square)"
    caption = f"Points: medians. Line: α + β·s in {many}, {error}. {_break_words(fit, limits)}"
    return {"data": [*breaks, *pieces, points], "layout": layout, "caption": caption}


def _pieces(fit: Piecewise) -> list[dict[str, Any]]:
    traces = []
    for count, piece in enumerate(fit.pieces):
        sizes = np.geomspace(max(1, piece.first_bytes), max(1, piece.last_bytes), _POINTS_OF_PIECE)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "fitted pieces",
                "showlegend": count == 0,
                "x": [shortened(size) for size in sizes],
                "y": [shortened(piece.alpha + piece.per_byte * size) for size in sizes],
                "line": {"color": INK, "width": 1.5},
                "hoverinfo": "skip",
            }
        )
    return traces


def _breaks(fit: Piecewise, limits: list[Limit], values: Iterable[float]) -> list[dict[str, Any]]:
    """For each break the band of its interval, and a marker with its number above."""
    known = [value for value in values if value > 0]
    low, high = min(known), max(known) * 1.2
    traces: list[dict[str, Any]] = []
    for count, point in enumerate(fit.breaks, 1):
        at = math.sqrt(point.last_before * point.first_after)
        band = {"fill": "toself", "fillcolor": _BREAK_BAND, "line": {"width": 0}, "hoverinfo": "skip"}
        left, right = min(point.low, point.last_before), max(point.high, point.first_after)
        traces.append(
            {
                **{"type": "scatter", "mode": "lines", "showlegend": False, **band},
                "x": [max(1, left), right, right, max(1, left)],
                "y": [shortened(low), shortened(low), shortened(high), shortened(high)],
            }
        )
        look = {"line": {"color": _BREAK_COLOUR}, "marker": {"symbol": "triangle-down", "size": 9}}
        traces.append(
            {
                **{"type": "scatter", "mode": "markers", "showlegend": count == 1, **look},
                "name": "breaks" if count == 1 else f"break {count}",
                "x": [shortened(at)],
                "y": [shortened(high)],
                "customdata": [point_data()],
                "hovertemplate": _break_name(point, limits),
            }
        )
        label = {"type": "scatter", "mode": "text", "showlegend": False, "hoverinfo": "skip"}
        traces.append(
            {**label, "x": [shortened(at)], "y": [shortened(high)], "text": [str(count)], "textposition": "top center"}
        )
    return traces


def _break_words(fit: Piecewise, limits: list[Limit]) -> str:
    if not fit.breaks:
        return "No break was found."
    named = "; ".join(f"{count} {_break_name(point, limits)}" for count, point in enumerate(fit.breaks, 1))
    return f"Breaks, with bands for their intervals: {named}."


def _break_name(point: Break, limits: list[Limit]) -> str:
    causes = explanations(point, limits)
    interval = f"[{message_size(point.low)}, {message_size(point.high)}]"
    return f"above {message_size(point.last_before)} {interval}{': ' if causes else ''}{', '.join(causes)}"


def logp_figures(run: Run) -> Iterator[tuple[int, Captioned]]:
    """For each number of ranks EEL, g, Os and Or against size, with the breaks of EEL; one choice for each subject."""
    measured = [s for s in run.series if (s.test, s.variant) == ("logp", "logp") and s.quantity in _LOGP and s.median]
    for ranks in sorted({s.ranks for s in measured}):
        figures = {}
        for subject in dict.fromkeys(s.subject for s in measured if s.ranks == ranks):
            of_subject = [s for s in measured if (s.ranks, s.subject) == (ranks, subject)]
            if len({s.message_bytes for s in of_subject}) > 1:
                figures[subject_name(subject)] = _logp(of_subject, limits_of(run, subject))
        if figures:
            yield ranks, {"title": "LogP by size", "caption": "", "figure": combined_with_choice(figures, "Of")}


def _logp(series: Sequence[Series], limits: list[Limit]) -> Figure:
    traces: list[dict[str, Any]] = []
    for quantity, (name, colour, symbol, dash) in _LOGP.items():
        points = sorted((s for s in series if s.quantity == quantity), key=lambda s: s.message_bytes)
        positive = [s for s in points if s.median is not None and s.median > 0]
        if positive:
            marker = {"symbol": symbol, "size": 8, "line": {"width": 2, "color": colour}}
            line = {"color": colour, "dash": dash, "width": 2}
            style = {"type": "scatter", "mode": "lines+markers", "name": name, "line": line, "marker": marker}
            known = [(s.message_bytes, s.median or 0.0, s.interval, s.launches, s.samples) for s in positive]
            traces += curve(quantity, known, "µs", style)
    caption = (
        f"Medians with bands for their {percent(series[0].confidence)} intervals."
        if any("fill" in trace for trace in traces)
        else "Medians."
    )
    caption += without_place(series)
    eel = sorted((s for s in series if s.quantity == "eel"), key=lambda s: s.message_bytes)
    marks: list[dict[str, Any]] = []
    if len(eel) >= SIZES_MIN:
        fit = find_breakpoints([s.message_bytes for s in eel], [s.launch_medians for s in eel])
        marks = _breaks(fit, limits, [s.median or 0.0 for s in series])
        caption += f" {_break_words(fit, limits).replace('Breaks', 'Breaks of EEL')}"
    layout = layout_of(size_axis(series), log_axis("µs", traces, "y"))
    return {"data": [*marks, *traces], "layout": layout, "caption": caption}


def speedup_figures(run: Run) -> Iterator[tuple[str, list[Captioned]]]:
    """For each kernel that was measured at several numbers of ranks: its speed-up and its efficiency."""
    tests: dict[str, dict[str, dict[str, list[Speedup]]]] = {}
    for each in speedups(run):
        task = ", ".join(filter(None, (each.variant, task_name(each))))
        tests.setdefault(each.test, {}).setdefault(task, {}).setdefault(each.subject, []).append(each)
    for test, tasks in tests.items():
        yield test, [_scaling(test, tasks, as_efficiency=False), _scaling(test, tasks, as_efficiency=True)]


def _scaling(test: str, tasks: Mapping[str, Mapping[str, Sequence[Speedup]]], *, as_efficiency: bool) -> Captioned:
    figures = {}
    for task, found in tasks.items():
        first = next(iter(found.values()))[0]
        base = first.base_ranks
        traces: list[dict[str, Any]] = []
        for subject, points in found.items():
            known = [
                (each.ranks, each.efficiency, each.efficiency_interval, each.launches, None)
                if as_efficiency
                else (each.ranks, each.speedup, each.speedup_interval, each.launches, None)
                for each in points
            ]
            traces += curve(subject, known, "")
        counts = sorted({at for trace in traces for at in trace["x"]})
        as_ideal = [1.0 if as_efficiency else shortened(at / base) for at in counts]
        dashed = {"line": {"color": INK, "width": 1.25, "dash": "dash"}, "hoverinfo": "skip"}
        traces.append({"type": "scatter", "mode": "lines", "name": "ideal", "x": counts, "y": as_ideal, **dashed})
        axis = {**plain_axis("ranks"), "type": "log", "tickvals": counts, "ticktext": [str(at) for at in counts]}
        what = {**plain_axis("efficiency"), "tickformat": ".0%"} if as_efficiency else plain_axis("speed-up")
        layout = layout_of(axis, {**what, "rangemode": "tozero"})
        of = f"{base} rank{'s' if base > 1 else ''}"
        whole = f"Speed-up over {of} as a share of the ideal" if as_efficiency else f"Speed-up over {of}"
        kind = "the same task" if not first.weak else "a task of the same size for each rank"
        bands = f" Bands: {percent(first.confidence)} intervals." if any("fill" in trace for trace in traces) else ""
        caption = f"{whole}, from medians: {kind} at every number of ranks.{bands}"
        figures[task] = {"data": distinct(traces), "layout": layout, "caption": caption}
    title = f"{test_title(test)}: {'efficiency' if as_efficiency else 'speed-up'}"
    return {"title": title, "caption": "", "figure": combined_with_choice(figures, "Of")}


def prediction_figure(checked: Sequence[Checked], summary: Sequence[Errors]) -> Captioned:
    """Predicted against measured times: on the diagonal a prediction is right; one choice for each kernel."""
    figures, sure = {}, checked[0].prediction.confidence
    for errors in summary:
        of_kernel = [each for each in checked if each.prediction.kernel == errors.kernel]
        traces: list[dict[str, Any]] = []
        for subject in dict.fromkeys(each.prediction.subject for each in of_kernel):
            points = [each for each in of_kernel if each.prediction.subject == subject]
            predicted = [each.prediction.time_us for each in points]
            measured = [each.measured_us for each in points]
            traces.append(
                {
                    **style_of(subject),
                    "mode": "markers",
                    "x": [shortened(each.value) for each in measured],
                    "y": [shortened(each.value) for each in predicted],
                    "error_x": error_bars([each.value for each in measured], [each.interval for each in measured]),
                    "error_y": error_bars([each.value for each in predicted], [each.interval for each in predicted]),
                    "customdata": [point_data(each.interval) for each in predicted],
                    "hovertemplate": "measured %{x:.4g} µs, predicted %{y:.4g} µs",
                }
            )
        values = [value for trace in traces for value in (*trace["x"], *trace["y"])]
        ends = [min(values) * 0.8, max(values) * 1.25]
        lines = [
            _diagonal("right", ends, 1.0, "solid"),
            _diagonal(f"±{_GOOD_ERROR:.0%}", ends, 1 + _GOOD_ERROR, "dash"),
            {**_diagonal("", ends, 1 - _GOOD_ERROR, "dash"), "showlegend": False},
        ]
        axes = [log_axis(f"{what}, µs", [{"x": values}], "x") for what in ("measured", "predicted")]
        figures[errors.kernel] = {
            "data": [*lines, *distinct(traces)],
            "layout": layout_of(*axes) | {"hovermode": "closest"},
            "caption": f"{errors_text(errors).capitalize()}. Bars: {percent(sure)} intervals of both.",
        }
    figure = combined_with_choice(figures, "Kernel") | {"interval": f"{interval_heading(sure)} of the prediction"}
    return {"title": "Predicted and measured", "caption": "", "figure": figure}


def _diagonal(name: str, ends: Sequence[float], factor: float, dash: str) -> dict[str, Any]:
    line = {"color": INK, "width": 1.25, "dash": dash}
    trace = {"type": "scatter", "mode": "lines", "name": name, "line": line, "hoverinfo": "skip"}
    return {**trace, "x": [shortened(end) for end in ends], "y": [shortened(end * factor) for end in ends]}
