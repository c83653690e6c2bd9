# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Draws the report's line figures as SVG, from the same data and layout that plotly gets; pure.

plotly itself needs a whole browser for that (kaleido). Lines, bands, markers, error bars, shapes and a legend are all
that these figures have; a trace of another type is refused.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from barewire.report.figures import GRID, INK, SURFACE, Figure

_WIDTH, _PLOT_HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _AXIS_HEIGHT, _LEGEND_ROW = 78, 16, 14, 52, 22
_FONT = "13px system-ui, sans-serif"
_CHARACTER_PX, _LINE_PX = 7.4, 15
_DASHES = {"dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4", "longdash": "13 5", "longdashdot": "13 4 2 4"}
_ALPHA_COLOUR = re.compile(r"(#[0-9A-Fa-f]{6})([0-9A-Fa-f]{2})")
# Corners of markers, in units of half their size.
_MARKERS: dict[str, Sequence[tuple[float, float]]] = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "triangle-up": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    "triangle-down": ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
    "bowtie": ((-1.1, -0.8), (1.1, 0.8), (1.1, -0.8), (-1.1, 0.8)),
    "hourglass": ((-0.8, -1.1), (0.8, -1.1), (-0.8, 1.1), (0.8, 1.1)),
    "cross": (
        *((-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4)),
        *((0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4)),
    ),
}
_POLYGONS = {"pentagon": 5, "hexagon": 6}
_STAR = tuple(
    (radius * math.sin(step * math.pi / 5), -radius * math.cos(step * math.pi / 5))
    for step, radius in enumerate((1.3, 0.55) * 5)
)


@dataclass(frozen=True)
class _Axis:
    """Maps values to pixels; `low` and `high` are ends of the axis, logarithms on a logarithmic one."""

    layout: Mapping[str, Any]
    low: float
    high: float
    start_px: float
    end_px: float

    @property
    def is_log(self) -> bool:
        return self.layout.get("type") == "log"

    def px(self, value: float) -> float:
        at = math.log10(value) if self.is_log else value
        return self.start_px + (at - self.low) / (self.high - self.low) * (self.end_px - self.start_px)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Return the positions in pixels and labels of the ticks on the axis."""
        values = self.layout.get("tickvals") or _even_ticks(self.low, self.high)
        percent = self.layout.get("tickformat") == ".0%"
        labels = self.layout.get("ticktext") or [f"{value:.0%}" if percent else f"{value:.6g}" for value in values]
        slack = (self.high - self.low) * 1e-6
        for value, label in zip(values, labels, strict=True):
            at = math.log10(value) if self.is_log else value
            if self.low - slack <= at <= self.high + slack:
                yield self.px(value), str(label)


def svg(figure: Figure, title: str) -> str:
    """Return an SVG document of a figure with one choice of traces; ValueError for a trace that is not a line."""
    traces, layout = figure["data"], figure["layout"]
    if any(trace.get("type", "scatter") != "scatter" for trace in traces):
        raise ValueError("only figures of lines and markers can be drawn as SVG")
    legend = [trace for trace in traces if trace.get("showlegend", True) and trace.get("name")]
    rows = _legend_rows(legend)
    height = _TOP + _PLOT_HEIGHT + _AXIS_HEIGHT + _LEGEND_ROW * len(rows)
    x_axis = _axis(layout, traces, "x", _LEFT, _WIDTH - _RIGHT)
    y_axis = _axis(layout, traces, "y", _TOP + _PLOT_HEIGHT, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" style="font:{_FONT}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="{SURFACE}"/>',
        *_grid(x_axis, y_axis),
        *(_shape(shape, x_axis, y_axis) for shape in layout.get("shapes", ())),
        *(part for trace in traces for part in _trace(trace, x_axis, y_axis)),
        *_legend(rows, _TOP + _PLOT_HEIGHT + _AXIS_HEIGHT),
        "</svg>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _axis(layout: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], name: str, start: float, end: float) -> _Axis:
    axis = layout[f"{name}axis"]
    if "range" in axis:
        low, high = axis["range"]
        return _Axis(axis, low, high, start, end)
    is_log = axis.get("type") == "log"
    values = [value for value in _extent(layout, traces, name) if value is not None and (value > 0 or not is_log)]
    if not values:
        return _Axis(axis, 0.0, 1.0, start, end)
    low, high = min(values), max(values)
    if axis.get("rangemode") == "tozero":
        low = min(low, 0.0)
    if is_log:
        low, high = math.log10(low), math.log10(high)
    margin = (high - low) * 0.05 or (0.15 if is_log else abs(high) * 0.1 or 1.0)
    return _Axis(axis, low - margin, high + margin, start, end)


def _extent(layout: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], name: str) -> Iterator[float | None]:
    """Return everything that an axis must show."""
    for trace in traces:
        yield from trace[name]
        error = trace.get("error_y") if name == "y" else None
        if error:
            for value, up, down in zip(trace["y"], error["array"], error["arrayminus"], strict=True):
                yield from (value + up, value - down)
    for shape in layout.get("shapes", ()):
        if shape.get(f"{name}ref") != "paper":
            yield from (shape[f"{name}0"], shape[f"{name}1"])


def _grid(x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    bottom, right = _TOP + _PLOT_HEIGHT, _WIDTH - _RIGHT
    free_px = -math.inf
    for at, label in sorted(x_axis.ticks()):
        yield f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="{GRID}"/>'
        # Labels that would overlap are left out; their lines stay.
        half = len(label) * _CHARACTER_PX / 2
        if at - half > free_px:
            yield _text(at, bottom + 18, label)
            free_px = at + half + 4
    free_px = math.inf
    for at, label in sorted(y_axis.ticks(), reverse=True):
        yield f'<path d="M{_LEFT} {at:.1f}H{right}" stroke="{GRID}"/>'
        if at < free_px:
            yield _text(_LEFT - 8, at + 4, label, anchor="end")
            free_px = at - _LINE_PX
    yield _text((_LEFT + right) / 2, bottom + 40, x_axis.layout["title"]["text"])
    middle = _TOP + _PLOT_HEIGHT / 2
    yield _text(16, middle, y_axis.layout["title"]["text"], turned=True)


def _text(x: float, y: float, text: str, *, anchor: str = "middle", turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{INK}" text-anchor="{anchor}"{turn}>{escape(text)}</text>'


def _shape(shape: Mapping[str, Any], x_axis: _Axis, y_axis: _Axis) -> str:
    x = [_at(shape, x_axis, "x", end, _LEFT, _WIDTH - _RIGHT) for end in "01"]
    y = [_at(shape, y_axis, "y", end, _TOP + _PLOT_HEIGHT, _TOP) for end in "01"]
    if shape["type"] == "line":
        line = shape["line"]
        path = f"M{x[0]:.1f} {y[0]:.1f}L{x[1]:.1f} {y[1]:.1f}"
        return f'<path d="{path}" stroke="{line["color"]}" stroke-width="{line["width"]}"/>'
    left, top, width, height = min(x), min(y), abs(x[1] - x[0]), abs(y[1] - y[0])
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" {_fill(shape["fillcolor"])}/>'


def _at(shape: Mapping[str, Any], axis: _Axis, name: str, end: str, start: float, stop: float) -> float:
    value = shape[f"{name}{end}"]
    return start + value * (stop - start) if shape.get(f"{name}ref") == "paper" else axis.px(value)


def _trace(trace: Mapping[str, Any], x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    points = [
        (x_axis.px(x), y_axis.px(y))
        for x, y in zip(trace["x"], trace["y"], strict=True)
        if x is not None and y is not None and (x > 0 or not x_axis.is_log) and (y > 0 or not y_axis.is_log)
    ]
    if not points:
        return
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    if trace.get("fill") == "toself":
        yield f'<path d="M{path}Z" {_fill(trace["fillcolor"])}/>'
        return
    line = trace.get("line", {})
    if "lines" in trace["mode"]:
        dash = f' stroke-dasharray="{_DASHES[line["dash"]]}"' if line.get("dash", "solid") in _DASHES else ""
        width = line.get("width", 2)
        yield f'<path d="M{path}" fill="none" stroke="{line["color"]}" stroke-width="{width}"{dash}/>'
    yield from _error_bars(trace, x_axis, y_axis)
    if "markers" in trace["mode"]:
        yield from (_marker(trace, x, y) for x, y in points)


def _error_bars(trace: Mapping[str, Any], x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    error = trace.get("error_y")
    if not error:
        return
    colour = trace["line"]["color"]
    for x, y, up, down in zip(trace["x"], trace["y"], error["array"], error["arrayminus"], strict=True):
        at, top, bottom = x_axis.px(x), y_axis.px(y + up), y_axis.px(y - down)
        path = f"M{at - 4:.1f} {top:.1f}h8M{at - 4:.1f} {bottom:.1f}h8M{at:.1f} {top:.1f}V{bottom:.1f}"
        yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _marker(trace: Mapping[str, Any], x: float, y: float) -> str:
    colour = trace["line"]["color"]
    symbol, _, form = trace["marker"]["symbol"].partition("-open")
    is_open = bool(form) or trace["marker"]["symbol"].endswith("-open")
    half = trace["marker"].get("size", 8) / 2
    paint = f'fill="{SURFACE if is_open else colour}" stroke="{colour}" stroke-width="1.5"'
    corners = _corners(symbol)
    if corners is None:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{half:.1f}" {paint}/>'
    path = "L".join(f"{x + half * dx:.1f} {y + half * dy:.1f}" for dx, dy in corners)
    return f'<path d="M{path}Z" {paint}/>'


def _corners(symbol: str) -> Sequence[tuple[float, float]] | None:
    """Return a marker's corners; None for a circle. `diamond-wide`, `cross-thin` … are drawn as the plain form."""
    if symbol == "star":
        return _STAR
    if symbol in _POLYGONS:
        count = _POLYGONS[symbol]
        angles = [2 * math.pi * corner / count for corner in range(count)]
        return [(1.15 * math.sin(angle), -1.15 * math.cos(angle)) for angle in angles]
    return _MARKERS.get(symbol) or _MARKERS.get(symbol.split("-")[0])


def _fill(colour: str) -> str:
    match = _ALPHA_COLOUR.fullmatch(colour)
    if match is None:
        return f'fill="{colour}"'
    return f'fill="{match[1]}" fill-opacity="{int(match[2], 16) / 255:.2f}"'


def _legend_rows(traces: Sequence[Mapping[str, Any]]) -> list[list[tuple[Mapping[str, Any], float]]]:
    """Return traces with their positions, in rows that fit the width."""
    rows: list[list[tuple[Mapping[str, Any], float]]] = []
    at = math.inf
    for trace in traces:
        width = 44 + len(trace["name"]) * _CHARACTER_PX + 16
        if at + width > _WIDTH - _RIGHT:
            rows.append([])
            at = _LEFT
        rows[-1].append((trace, at))
        at += width
    return rows


def _legend(rows: Sequence[Sequence[tuple[Mapping[str, Any], float]]], top: float) -> Iterator[str]:
    for number, row in enumerate(rows):
        y = top + _LEGEND_ROW * number + _LEGEND_ROW / 2
        for trace, x in row:
            line = trace["line"]
            dash = f' stroke-dasharray="{_DASHES[line["dash"]]}"' if line.get("dash", "solid") in _DASHES else ""
            yield f'<path d="M{x:.1f} {y:.1f}h36" stroke="{line["color"]}" stroke-width="2"{dash}/>'
            if "markers" in trace["mode"]:
                yield _marker(trace, x + 18, y)
            yield _text(x + 44, y + 4, trace["name"], anchor="start")


def _even_ticks(low: float, high: float) -> list[float]:
    """Return about six round values between two ends."""
    rough = (high - low) / 5
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= rough)
    return [float(f"{number * step:.10g}") for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
