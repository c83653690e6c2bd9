# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures specific to MPI runs: variants side by side, curves against a computation, phases of a kernel."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from barewire.models.logp import hidden_computation
from barewire.report.figures import (
    INK,
    SURFACE,
    Figure,
    combined_with_choice,
    distinct,
    error_bars,
    hatch,
    layout_of,
    log_axis,
    plain_axis,
    point_data,
    rows_px,
    shortened,
    style_of,
)
from barewire.report.mpi import task_name
from barewire.report.words import bounds, message_size, number, subject_name, unit_name
from barewire.results.derived import Curve
from barewire.results.quantities import KERNEL_TOTAL
from barewire.results.run import Series
from barewire.stats.confidence import CONFIDENCE
from barewire.stats.intervals import median_interval

# Distinguishable with colour vision deficiencies, in the order of phases; Okabe and Ito 2008.
_PHASE_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
    "#999933",
    "#332288",
    "#882255",
    "#B8860B",
)

BEYOND_MEAN = "beyond the mean rank"


def by_variant(series: Sequence[Series], what: str) -> Figure:
    """Medians of all variants side by side with their intervals; one choice per task, of which there is one."""
    tasks: dict[str, list[Series]] = {}
    for s in series:
        if s.median is not None:
            tasks.setdefault(task_name(s), []).append(s)
    return combined_with_choice({task: _variants(chosen, what) for task, chosen in tasks.items()}, "Of")


def against_computation(curves: Sequence[Curve], *, confidence: float = CONFIDENCE) -> Figure:
    """Time against the computation beside it: points of all launches, a line through their medians, its flat part.

    The caption of each choice says how far the flat part extends.
    """
    choices: dict[str, dict[str, list[Curve]]] = {}
    for curve in sorted(curves, key=lambda curve: (curve.variant, curve.message_bytes)):
        label = f"{curve.variant}, {message_size(curve.message_bytes)}"
        choices.setdefault(label, {}).setdefault(curve.subject, []).append(curve)
    figures = {}
    for label, by_subject in choices.items():
        traces: list[dict[str, Any]] = []
        flat = []
        for subject, of_subject in by_subject.items():
            traces += _curve_traces(subject, of_subject)
            found = _flat_part(subject, of_subject, confidence)
            if found is not None:
                traces.append(found[0])
                flat.append(f"{subject_name(subject)} {found[1]}")
        axis = {**plain_axis("computation alone, µs"), "rangemode": "tozero"}
        layout = layout_of(axis, {**plain_axis("time of messages, µs"), "rangemode": "tozero"})
        caption = "Small points: every launch. Line: their medians."
        if flat:
            caption += f" Thick: the flat part, in which the computation is hidden, up to {'; '.join(flat)} µs."
        figures[label] = {"data": distinct(traces), "layout": layout, "caption": caption}
    return combined_with_choice(figures, "Variant and message size")


def _flat_part(subject: str, curves: Sequence[Curve], confidence: float) -> tuple[dict[str, Any], str] | None:
    """The flat part of a subject's curves as a thick line, and its end in words; None if no launch's curve has one."""
    fits = []
    for curve in curves:
        try:
            fits.append(hidden_computation(curve.computation_us, curve.time_us))
        except ValueError:  # this launch's curve never rises, or is too short: the run's warnings say so
            continue
    if not fits:
        return None
    hidden = [fit.hidden_ns for fit in fits]  # of curves in µs, so in µs
    end, interval = float(np.median(hidden)), median_interval(hidden, confidence)
    level = shortened(float(np.median([fit.flat_ns for fit in fits])))
    style = style_of(subject)
    trace = {
        **style,
        "mode": "lines",
        "line": style["line"] | {"width": 6},
        "opacity": 0.5,
        "name": f"{subject_name(subject)}, flat part",
        "showlegend": False,
        "x": [0, shortened(end)],
        "y": [level, level],
        "customdata": [point_data(None, len(fits)), point_data(interval, len(fits))],
        "hovertemplate": "flat up to %{x:.4g} µs",
    }
    return trace, f"{number(end)} {bounds(interval)}".rstrip()


def phases(times: dict[tuple[str, str], dict[str, Series]]) -> Figure:
    """Stacked bars: phases of each subject and variant, means over the ranks; hollow: rest of the slowest rank."""
    names = list(dict.fromkeys(name for phases in times.values() for name in phases if name != KERNEL_TOTAL))
    labels = [f"{subject_name(subject)}, {variant}" for subject, variant in times]
    traces: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        values = [_median(phases.get(name)) for phases in times.values()]
        colour = _PHASE_COLOURS[place % len(_PHASE_COLOURS)]
        traces.append(_bars(labels, values, name.replace("_", " "), colour) | _hatched(colour, place))
    rest = []
    for phases in times.values():
        total = _median(phases.get(KERNEL_TOTAL))
        rest.append(max(0.0, total - sum(_median(phases.get(name)) for name in names)))
    if any(rest):
        traces.append(_bars(labels, rest, BEYOND_MEAN, SURFACE))
    layout = layout_of(plain_axis("ms"), {**plain_axis(""), "autorange": "reversed"})
    return {"data": traces, "layout": layout | {"barmode": "stack"}, "height_px": rows_px(len(labels), 1)}


def _variants(series: Sequence[Series], what: str) -> Figure:
    traces = []
    for subject in dict.fromkeys(s.subject for s in series):
        points = [s for s in series if s.subject == subject]
        medians = [s.median or 0.0 for s in points]
        traces.append(
            {
                **style_of(subject),
                "mode": "markers",
                "x": [shortened(median) for median in medians],
                "y": [s.variant for s in points],
                "error_x": error_bars(medians, [s.interval for s in points]),
                "customdata": [point_data(s.interval, s.launches, s.samples) for s in points],
                "hovertemplate": f"%{{x:.4g}} {unit_name(series[0].unit)}",
            }
        )
    axis = log_axis(f"{what}, {unit_name(series[0].unit)}", traces, "x")
    layout = layout_of(axis, {**plain_axis(""), "type": "category", "autorange": "reversed"})
    layout |= {"scattermode": "group", "hovermode": "closest"}
    variants = len({s.variant for s in series})
    return {"data": distinct(traces), "layout": layout, "height_px": rows_px(variants, len(traces))}


def _curve_traces(subject: str, curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Every launch's points, and a line through the medians of points with the same number."""
    style = style_of(subject)
    points = {
        **style,
        "mode": "markers",
        "x": [shortened(x) for curve in curves for x in curve.computation_us],
        "y": [shortened(y) for curve in curves for y in curve.time_us],
        "marker": style["marker"] | {"size": 5},
        "opacity": 0.45,
        "showlegend": False,
        "hoverinfo": "skip",
    }
    longest = [curve for curve in curves if len(curve.time_us) == max(len(c.time_us) for c in curves)]
    x, y = (np.median([getattr(curve, name) for curve in longest], axis=0) for name in ("computation_us", "time_us"))
    line = {**style, "x": [shortened(v) for v in x], "y": [shortened(v) for v in y]}
    data = {"customdata": [point_data(None, len(longest))] * len(x)}
    return [points, line | data | {"hovertemplate": "%{y:.4g} µs"}]


def _hatched(colour: str, place: int) -> dict[str, Any]:
    return {"marker": {"color": colour, "line": {"color": INK, "width": 0.5}, "pattern": hatch(place)}}


def _bars(labels: Sequence[str], values: Sequence[float], name: str, colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [shortened(value) for value in values],
        "y": list(labels),
        "marker": {"color": colour, "line": {"color": INK, "width": 0.5}},
        "hovertemplate": f"{name}: %{{x:.4g}} ms<extra></extra>",
    }


def _median(series: Series | None) -> float:
    return 0.0 if series is None or series.median is None else series.median
