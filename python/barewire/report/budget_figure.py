# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budget as a waterfall chart: each bar begins where that of the layer below ends."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barewire.models.budget import Budget, Layer
from barewire.report.figures import INK, Figure, colour_of, layout_of, plain_axis, point_data, shortened
from barewire.report.words import message_size, number

_ROW_PX = 27
_BAR_HEIGHT, _OUTLINE_PX = 0.66, 1.25
# Space for labels after the longest bar, and before the first bar of a close-up, as shares of the shown range.
_WORDS_ROOM, _BEFORE = 0.42, 0.06
# Opacity of bars that are not significant.
_FAINT = "55"
_LIMIT_COLOUR = "#D55E00"
# One colour for all libraries and one for all yardsticks; each layer of the path has its own.
_LIBRARY_COLOUR, _BESIDE_COLOUR = "#882255", "#D55E00"
_LIBRARIES, _BESIDE = "with an MPI library", "the same over TCP"


class Formatters(NamedTuple):
    """Formatters of layers and numbers."""

    layer: Callable[[str], str]
    added: Callable[[Layer, float], str]
    fixed: Callable[[float, float], str]


class Bar(NamedTuple):
    """One row: begin and end of its bar, the interval of the end, and the labels beside it."""

    label: str
    colour: str
    begin: float
    end: float
    low: float
    high: float
    words: str
    few_words: str
    rounds: int
    is_significant: bool = True


def waterfall(budgets: Sequence[Budget], names: Formatters, *, beside: bool) -> Figure:
    """One choice per message size: with TCP `beside` the layers, or a close-up of the layers above the first."""
    choices, rows = [], 0
    for budget in budgets:
        path = _path_bars(budget, names)
        libraries = [_bar(layer, budget, names) for layer in budget.libraries]
        yardsticks = [_beside_bar(layer, budget, names) for layer in budget.yardsticks] if beside else []
        bars = [*path, *libraries, *yardsticks]
        labels = [bar.label for bar in path]
        labels += [_heading(_LIBRARIES), *(bar.label for bar in libraries)] if libraries else []
        labels += [_heading(_BESIDE), *(bar.label for bar in yardsticks)] if yardsticks else []
        near, far = (0.0, max(max(bar.end, bar.high) for bar in bars)) if beside else _around(bars)
        traces = [_bars(bars), *_words(bars, far - near), _connectors(path, libraries)]
        if budget.limit_us is not None and near <= budget.limit_us <= far * (1 + _WORDS_ROOM):
            traces.append(_limit(budget.limit_us, labels))
        x_axis = {**plain_axis("µs, one way"), "range": [near, far + (far - near) * _WORDS_ROOM]}
        y_axis = {**plain_axis(""), "type": "category", "categoryorder": "array", "categoryarray": labels[::-1]}
        y_axis |= {"range": [-0.7, len(labels) - 0.3], "ticks": "", "showgrid": False}
        choice = {"label": message_size(budget.message_bytes), "data": traces, "xaxis": x_axis, "yaxis": y_axis}
        choices.append(choice)
        rows = max(rows, len(labels))
    drawn = layout_of(plain_axis("µs, one way"), plain_axis(""))
    drawn |= {"hovermode": "closest", "showlegend": False, "barmode": "overlay"}
    sizes = {"choices": choices, "choice": "Message size", "chosen": 0}
    return {"data": [], "layout": drawn, **sizes, "height_px": _ROW_PX * rows}


def _path_bars(budget: Budget, names: Formatters) -> list[Bar]:
    first = budget.path[0]
    total, path_total_us = first.step.total, budget.best.step.total
    low, high = first.step.total_interval or (total, total)
    words = f"<b>{names.fixed(total, path_total_us)}</b>"
    base = Bar(
        names.layer(first.subject), colour_of(first.subject), 0.0, total, low, high, words, words, first.step.rounds
    )
    return [base, *(_bar(layer, budget, names) for layer in budget.path[1:])]


def _bar(layer: Layer, budget: Budget, names: Formatters) -> Bar:
    """The bar of a layer above another one."""
    step, path_total_us = layer.step, budget.best.step.total
    begin = step.total - step.added
    low, high = step.added_interval or (step.added, step.added)
    few = f"<b>{names.fixed(step.total, path_total_us)}</b>"
    words = f"{names.added(layer, path_total_us)}  =  {few}"
    # Without an interval the significance is unknown, so the bar is not faint.
    is_significant = step.is_told_apart or step.added_interval is None
    colour = _LIBRARY_COLOUR if layer.is_library else colour_of(layer.subject)
    label = f"+ {names.layer(layer.subject)}"
    return Bar(label, colour, begin, step.total, begin + low, begin + high, words, few, is_significant)


def _beside_bar(layer: Layer, budget: Budget, names: Formatters) -> Bar:
    total, path_total_us = layer.step.total, budget.best.step.total
    low, high = layer.step.total_interval or (total, total)
    few = f"<b>{names.fixed(total, path_total_us)}</b>"
    words = f"{few}   {number(total / path_total_us)} ×"
    return Bar(names.layer(layer.subject), _BESIDE_COLOUR, 0.0, total, low, high, words, few, layer.step.rounds)


def _around(bars: Sequence[Bar]) -> tuple[float, float]:
    """Range of a close-up: from just before the end of the first bar, or of any bar further left."""
    first, *upper = bars
    near = min([first.low, *(min(bar.begin, bar.end, bar.low) for bar in upper)])
    far = max([first.high, *(max(bar.begin, bar.end, bar.high) for bar in upper)])
    return near - (far - near) * _BEFORE, far


def _heading(text: str) -> str:
    return f"<i>{text}</i>"


def _bars(bars: Sequence[Bar]) -> dict[str, Any]:
    colours = [bar.colour for bar in bars]
    fills = [colour if bar.is_significant else colour + _FAINT for colour, bar in zip(colours, bars, strict=True)]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [bar.label for bar in bars],
        "base": [shortened(bar.begin) for bar in bars],
        "x": [shortened(bar.end - bar.begin) for bar in bars],
        "width": _BAR_HEIGHT,
        "marker": {
            "color": fills,
            "line": {"color": colours, "width": _OUTLINE_PX},
            # Hatched if the layer takes less time than the layer below.
            "pattern": {"shape": ["/" if bar.end < bar.begin else "" for bar in bars], "solidity": 0.35},
        },
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [shortened(max(0.0, bar.high - bar.end)) for bar in bars],
            "arrayminus": [shortened(max(0.0, bar.end - bar.low)) for bar in bars],
            "color": INK,
            "thickness": 1.5,
            "width": 4,
        },
        # The interval of what a bar adds, as its length is what it adds.
        "customdata": [_data(bar) for bar in bars],
        "hovertemplate": "%{y}: %{x:.4g} µs [%{customdata[0]:.4g}, %{customdata[1]:.4g}]<extra></extra>",
    }


def _data(bar: Bar) -> list[float | None]:
    interval = None if bar.low == bar.high else (bar.low - bar.begin, bar.high - bar.begin)
    return point_data(interval, bar.rounds)


def _words(bars: Sequence[Bar], shown: float) -> list[dict[str, Any]]:
    """Labels for wide and for narrow pages."""
    same = {
        "type": "scatter",
        "mode": "text",
        "x": [shortened(max(bar.begin, bar.end, bar.high) + shown * 0.01) for bar in bars],
        "y": [bar.label for bar in bars],
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
    wide = {**same, "text": [bar.words for bar in bars], "meta": "wide"}
    return [wide, {**same, "text": [bar.few_words for bar in bars], "meta": "narrow"}]


def _connectors(path: Sequence[Bar], libraries: Sequence[Bar]) -> dict[str, Any]:
    """Lines from the end of each layer to the next layer."""
    x: list[float | None] = []
    y: list[str | None] = []
    links = [*itertools.pairwise(path), *((path[-1], library) for library in libraries[-1:])]
    for lower, upper in links:
        x += [shortened(lower.end), shortened(lower.end), None]
        y += [lower.label, upper.label, None]
    line = {"color": INK, "width": 1, "dash": "dot"}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip"}


def _limit(limit_us: float, labels: Sequence[str]) -> dict[str, Any]:
    """A line at the time that the frames occupy the wire."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [shortened(limit_us)] * 2,
        "y": [labels[0], labels[-1]],
        "line": {"color": _LIMIT_COLOUR, "width": 2, "dash": "dash"},
        "hovertemplate": f"the wire’s limit: {number(limit_us)} µs<extra></extra>",
    }
