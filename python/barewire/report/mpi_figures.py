# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures specific to MPI runs: variants side by side, curves against a computation, phases of a kernel."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from barewire.report.figures import (
    INK,
    Figure,
    combined_with_choice,
    layout_of,
    log_axis,
    plain_axis,
    shortened,
    style_of,
)
from barewire.report.mpi import task_name
from barewire.report.words import message_size, subject_name, unit_name
from barewire.results import Series
from barewire.results.derived import Curve
from barewire.results.quantities import KERNEL_TOTAL

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


def by_variant(series: Sequence[Series], what: str) -> Figure:
    """Medians of all variants side by side with their 95 % intervals; one choice per task."""
    tasks: dict[str, list[Series]] = {}
    for s in series:
        if s.median is not None:
            tasks.setdefault(task_name(s), []).append(s)
    figures = {task: _variants(chosen, what) for task, chosen in tasks.items()}
    return (
        combined_with_choice(figures, "Of")
        if figures
        else {"data": [], "layout": layout_of(plain_axis(""), plain_axis(""))}
    )


def against_computation(curves: Sequence[Curve], what: str = "time of messages") -> Figure:
    """Time against the computation beside it: points of all launches, a line through their medians."""
    choices: dict[str, dict[str, list[Curve]]] = {}
    for curve in sorted(curves, key=lambda curve: (curve.variant, curve.message_bytes)):
        label = f"{curve.variant}, {message_size(curve.message_bytes)}"
        choices.setdefault(label, {}).setdefault(curve.subject, []).append(curve)
    figures = {}
    for label, by_subject in choices.items():
        traces = [trace for subject, of_subject in by_subject.items() for trace in _curve_traces(subject, of_subject)]
        axis = plain_axis("computation alone, µs")
        figures[label] = {"data": traces, "layout": layout_of(axis, plain_axis(f"{what}, µs"))}
    return combined_with_choice(figures, "Variant and message size")


def phases(times: dict[tuple[str, str], dict[str, Series]]) -> Figure:
    """Stacked bars: phases of each subject and variant, means over the ranks; hollow: rest of the slowest rank."""
    names = list(dict.fromkeys(name for phases in times.values() for name in phases if name != KERNEL_TOTAL))
    labels = [f"{subject_name(subject)}, {variant}" for subject, variant in times]
    traces: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        values = [_median(phases.get(name)) for phases in times.values()]
        traces.append(_bars(labels, values, name, _PHASE_COLOURS[place % len(_PHASE_COLOURS)]))
    rest = []
    for phases in times.values():
        total = _median(phases.get(KERNEL_TOTAL))
        rest.append(max(0.0, total - sum(_median(phases.get(name)) for name in names)))
    traces.append(_bars(labels, rest, "beyond the mean rank", "rgba(0,0,0,0)"))
    layout = layout_of(plain_axis("ms"), {**plain_axis(""), "autorange": "reversed"})
    return {"data": traces, "layout": layout | {"barmode": "stack"}, "height_px": 80 + 26 * len(labels)}


def _variants(series: Sequence[Series], what: str) -> Figure:
    traces = []
    for subject in dict.fromkeys(s.subject for s in series):
        points = [s for s in series if s.subject == subject]
        bounds = [s.ci95 or (s.median or 0.0, s.median or 0.0) for s in points]
        traces.append(
            {
                **style_of(subject),
                "mode": "markers",
                "x": [s.variant for s in points],
                "y": [shortened(s.median) for s in points],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [shortened(high - (s.median or 0)) for s, (_, high) in zip(points, bounds, strict=True)],
                    "arrayminus": [
                        shortened((s.median or 0) - low) for s, (low, _) in zip(points, bounds, strict=True)
                    ],
                    "thickness": 1.5,
                    "width": 5,
                },
                "hovertemplate": f"%{{y:.4g}} {unit_name(series[0].unit)}",
            }
        )
    axis = log_axis(f"{what}, {unit_name(series[0].unit)}", traces, "y")
    return {"data": traces, "layout": layout_of({**plain_axis(""), "type": "category"}, axis)}


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
    line = {**style, "mode": "lines", "x": [shortened(v) for v in x], "y": [shortened(v) for v in y]}
    return [points, line | {"hovertemplate": "%{y:.4g} µs"}]


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
