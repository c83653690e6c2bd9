# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures of what only MPI runs have: variants side by side, curves against a computation, phases of a kernel."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from barewire.report.figures import (
    INK,
    Figure,
    chosen_from,
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

# Told apart by anybody, in the order in which phases follow each other; Okabe and Ito 2008.
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
    """Medians of all variants beside each other with their 95 % intervals; a choice of what they do."""
    tasks: dict[str, list[Series]] = {}
    for one in series:
        if one.median is not None:
            tasks.setdefault(task_name(one), []).append(one)
    figures = {task: _variants(chosen, what) for task, chosen in tasks.items()}
    return chosen_from(figures, "Of") if figures else {"data": [], "layout": layout_of(plain_axis(""), plain_axis(""))}


def against_computation(curves: Sequence[Curve], what: str = "time of messages") -> Figure:
    """Time against the computation beside it: points of all launches, a line through their medians."""
    choices: dict[str, dict[str, list[Curve]]] = {}
    for curve in sorted(curves, key=lambda one: (one.variant, one.message_bytes)):
        label = f"{curve.variant}, {message_size(curve.message_bytes)}"
        choices.setdefault(label, {}).setdefault(curve.subject, []).append(curve)
    figures = {}
    for label, by_subject in choices.items():
        traces = [trace for subject, of_subject in by_subject.items() for trace in _curve_traces(subject, of_subject)]
        axis = plain_axis("computation alone, µs")
        figures[label] = {"data": traces, "layout": layout_of(axis, plain_axis(f"{what}, µs"))}
    return chosen_from(figures, "Variant and message size")


def phases(times: dict[tuple[str, str], dict[str, Series]]) -> Figure:
    """Stacked bars: the phases of each subject and variant, means over the ranks; the rest of the slowest, hollow."""
    names = list(dict.fromkeys(name for of_one in times.values() for name in of_one if name != KERNEL_TOTAL))
    labels = [f"{subject_name(subject)}, {variant}" for subject, variant in times]
    traces: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        values = [_median(of_one.get(name)) for of_one in times.values()]
        traces.append(_bars(labels, values, name, _PHASE_COLOURS[place % len(_PHASE_COLOURS)]))
    rest = []
    for of_one in times.values():
        whole = _median(of_one.get(KERNEL_TOTAL))
        rest.append(max(0.0, whole - sum(_median(of_one.get(name)) for name in names)))
    traces.append(_bars(labels, rest, "beyond the mean rank", "rgba(0,0,0,0)"))
    layout = layout_of(plain_axis("ms"), {**plain_axis(""), "autorange": "reversed"})
    return {"data": traces, "layout": layout | {"barmode": "stack"}, "height_px": 80 + 26 * len(labels)}


def _variants(series: Sequence[Series], what: str) -> Figure:
    traces = []
    for subject in dict.fromkeys(one.subject for one in series):
        points = [one for one in series if one.subject == subject]
        bounds = [one.ci95 or (one.median or 0.0, one.median or 0.0) for one in points]
        traces.append(
            {
                **style_of(subject),
                "mode": "markers",
                "x": [one.variant for one in points],
                "y": [shortened(one.median) for one in points],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [
                        shortened(high - (one.median or 0)) for one, (_, high) in zip(points, bounds, strict=True)
                    ],
                    "arrayminus": [
                        shortened((one.median or 0) - low) for one, (low, _) in zip(points, bounds, strict=True)
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
    whole = [curve for curve in curves if len(curve.time_us) == max(len(one.time_us) for one in curves)]
    x, y = (np.median([getattr(curve, name) for curve in whole], axis=0) for name in ("computation_us", "time_us"))
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


def _median(one: Series | None) -> float:
    return 0.0 if one is None or one.median is None else one.median
