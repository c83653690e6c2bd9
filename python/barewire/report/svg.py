# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Draws the report's figures as SVG, from the data and layout of plotly's figures; pure.

Of plotly's language only what these figures use is drawn: lines, bands, markers, bars, labels, error bars, shapes, a
legend. A trace of another type is refused.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

from barewire.report.figures import GRID, INK, SURFACE, Figure, drawn_points

_WIDTH, _NARROW_BELOW = 760, 480
_TOP, _RIGHT, _AXIS_HEIGHT, _LEGEND_ROW = 12, 18, 50, 22
_PLOT_HEIGHT_MIN, _PLOT_HEIGHT_MAX, _HEIGHT_SHARE = 230, 400, 0.53
_FONT = "13px system-ui, sans-serif"
_CHARACTER_PX, _LINE_PX = 7.2, 15
# The most that labels of the y axis may take of the width.
_LABELS_SHARE = 0.5
_DASHES = {"dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4", "longdash": "13 5", "longdashdot": "13 4 2 4"}
_ALPHA_COLOUR = re.compile(r"(#[0-9A-Fa-f]{6})([0-9A-Fa-f]{2})")
_BOLD = re.compile(r"<b>(.*?)</b>")
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
# Lines of hatches in a square of 8 px.
_HATCHES = {
    "/": "M-1 9L9-1M-1 1L1-1M7 9L9 7",
    "\\": "M-1-1L9 9M7-1L9 1M-1 7L1 9",
    "x": "M0 0L8 8M8 0L0 8",
    "-": "M0 4H8",
    "|": "M4 0V8",
    "+": "M4 0V8M0 4H8",
    ".": "M3 4h2",
}


@dataclass(frozen=True)
class _Axis:
    """Maps values to pixels; `low` and `high` are ends of the axis, logarithms or numbers of categories on such."""

    layout: Mapping[str, Any]
    low: float
    high: float
    start_px: float
    end_px: float
    categories: Sequence[str] = ()

    @property
    def is_log(self) -> bool:
        return self.layout.get("type") == "log"

    def px(self, value: Any, shift: float = 0.0) -> float:
        """A value's place; `shift` moves it, in units of the axis."""
        at = self.categories.index(value) if self.categories else math.log10(value) if self.is_log else value
        return self.start_px + (at + shift - self.low) / (self.high - self.low) * (self.end_px - self.start_px)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """The positions in pixels and labels of the ticks on the axis."""
        if self.categories:
            yield from ((self.px(name), name) for name in self.categories)
            return
        values = self.layout.get("tickvals") or _even_ticks(self.low, self.high)
        percent = self.layout.get("tickformat") == ".0%"
        labels = self.layout.get("ticktext") or [f"{value:.0%}" if percent else f"{value:.6g}" for value in values]
        slack = (self.high - self.low) * 1e-6
        for value, label in zip(values, labels, strict=True):
            at = math.log10(value) if self.is_log else value
            if self.low - slack <= at <= self.high + slack:
                yield self.px(value), str(label)


@dataclass
class _Canvas:
    """A figure being drawn: its axes, the box of its plot, and shapes defined once and used by reference.

    `ids` makes the names of these unique in a page.
    """

    x: _Axis
    y: _Axis
    ids: str
    definitions: dict[str, str] = field(default_factory=dict)

    def define(self, body: str) -> str:
        """The name of a definition, whose text has `{id}` in place of the name."""
        return self.definitions.setdefault(body, f"{self.ids}{len(self.definitions)}")

    def definition_texts(self) -> str:
        texts = "".join(body.replace("{id}", name) for body, name in self.definitions.items())
        return f"<defs>{texts}</defs>" if texts else ""


def svg(figure: Figure, title: str, *, width: int = _WIDTH, ids: str = "d", css_class: str = "") -> str:
    """Return an SVG document of a figure with one choice of traces; ValueError for a trace of another type.

    One with a `css_class` is part of a page: its title is not shown when the pointer rests on it. `ids` begins the
    names of its parts, which must be unique in a page.
    """
    is_narrow = width < _NARROW_BELOW
    traces = [trace for trace in figure["data"] if trace.get("meta", "") != ("wide" if is_narrow else "narrow")]
    layout = figure["layout"]
    unknown = {trace.get("type", "scatter") for trace in traces} - {"scatter", "bar"}
    if unknown:
        raise ValueError(f"only lines, markers and bars can be drawn as SVG, not {', '.join(sorted(unknown))}")
    legend_rows = _legend_rows(
        [trace for trace in traces if trace.get("showlegend", True) and trace.get("name")], width
    )
    usual = min(_PLOT_HEIGHT_MAX, max(_PLOT_HEIGHT_MIN, round(width * _HEIGHT_SHARE)))
    plot_height = figure.get("height_px", usual)
    most = width * _LABELS_SHARE / _CHARACTER_PX
    if names := _categories(layout["yaxis"], traces, "y"):
        # Every category has its label.
        plot_height = max(plot_height, len(names) * (max(len(_wrapped(name, most)) for name in names) * _LINE_PX + 4))
    bottom = _TOP + plot_height
    axis_height = _AXIS_HEIGHT if layout["xaxis"]["title"]["text"] else 26
    height = bottom + axis_height + _LEGEND_ROW * len(legend_rows) + (4 if legend_rows else 0)
    y_axis = _axis(layout, traces, "y", bottom, _TOP)
    labels = [(at, _wrapped(label, most)) for at, label in y_axis.ticks()]
    title_px = 22 if layout["yaxis"]["title"]["text"] else 4
    widest = max(
        (len(line.removeprefix("<i>").removesuffix("</i>")) for _, lines in labels for line in lines), default=0
    )
    left = title_px + 12 + widest * _CHARACTER_PX
    canvas = _Canvas(_axis(layout, traces, "x", left, width - _RIGHT), y_axis, ids)
    drawn = [
        *(_shape(shape, canvas) for shape in layout.get("shapes", ())),
        *_traces(traces, layout, canvas),
        *_legend(legend_rows, bottom + axis_height, canvas),
    ]
    kind = f' class="{css_class}"' if css_class else ""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg{kind} xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}" '
        f'fill="{INK}" text-anchor="middle" style="font:{_FONT}">',
        "" if css_class else f"<title>{escape(title)}</title>",
        canvas.definition_texts(),
        f'<rect width="{width}" height="{height}" fill="{SURFACE}"/>',
        *_grid(canvas, labels),
        *drawn,
        "</svg>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _axis(layout: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], name: str, start: float, end: float) -> _Axis:
    axis = layout[f"{name}axis"]
    categories = _categories(axis, traces, name)
    if categories:
        # Without its own range, the first is on top, and left.
        low, high = axis.get("range") or (-0.5, len(categories) - 0.5)
        ends = (high, low) if name == "y" and "range" not in axis else (low, high)
        return _Axis(axis, *ends, start, end, categories)
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
    # Bars and shares begin at the axis.
    at_zero = low == 0 and not is_log and (axis.get("rangemode") == "tozero" or _has_bars(traces))
    return _Axis(axis, low if at_zero else low - margin, high + margin, start, end)


def _categories(axis: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], name: str) -> Sequence[str]:
    if "categoryarray" in axis:
        return list(axis["categoryarray"])
    found = dict.fromkeys(value for trace in traces for value in trace.get(name, ()) if isinstance(value, str))
    return list(found)


def _has_bars(traces: Sequence[Mapping[str, Any]]) -> bool:
    return any(trace.get("type") == "bar" for trace in traces)


def _value_name(trace: Mapping[str, Any]) -> str:
    return "x" if trace.get("orientation") == "h" else "y"


def _extent(layout: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], name: str) -> Iterator[float | None]:
    """Everything that an axis must show."""
    stacked: dict[Any, float] = {}
    for trace in traces:
        values = trace[name]
        if trace.get("type") == "bar" and name == _value_name(trace):
            yield 0.0
            bases = trace.get("base") or [0.0] * len(values)
            if layout.get("barmode") == "stack":
                for at, value in zip(trace["y" if name == "x" else "x"], values, strict=True):
                    stacked[at] = stacked.get(at, 0.0) + (value or 0.0)
                yield from stacked.values()
            values = [base + value for base, value in zip(bases, values, strict=True)]
        yield from values
        error = trace.get(f"error_{name}")
        if error:
            for value, up, down in zip(values, error["array"], error["arrayminus"], strict=True):
                if value is not None:
                    yield from (value + up, value - down)
    for shape in layout.get("shapes", ()):
        if shape.get(f"{name}ref") != "paper":
            yield from (shape[f"{name}0"], shape[f"{name}1"])


def _grid(canvas: _Canvas, y_labels: Sequence[tuple[float, Sequence[str]]]) -> Iterator[str]:
    x_axis, y_axis = canvas.x, canvas.y
    left, right, bottom = x_axis.start_px, x_axis.end_px, max(y_axis.start_px, y_axis.end_px)
    free_px = -math.inf
    lines, texts = [], []
    for at, label in sorted(x_axis.ticks()):
        lines.append(f"M{at:.1f} {_TOP}V{bottom}")
        # Labels that would overlap are left out; their lines stay.
        half = len(label) * _CHARACTER_PX / 2
        if at - half > free_px:
            texts.append(_text(at, bottom + 18, label))
            free_px = at + half + 6
    free_px = math.inf
    for at, label_lines in sorted(y_labels, key=lambda label: -label[0]):
        lines.append(f"M{left:.1f} {at:.1f}H{right}")
        if y_axis.categories or at < free_px:
            above = (len(label_lines) - 1) * _LINE_PX / 2
            texts += [
                _text(left - 8, at + 4 - above + number * _LINE_PX, line, anchor="end")
                for number, line in enumerate(label_lines)
            ]
            free_px = at - _LINE_PX * len(label_lines)
    if y_axis.categories:
        lines = [line for line in lines if "V" in line]
    yield f'<path d="{"".join(lines)}" stroke="{GRID}" fill="none"/>'
    yield from texts
    x_title, y_title = (axis.layout["title"]["text"] for axis in (x_axis, y_axis))
    if x_title:
        # In the middle of the plot, or of the figure if it is longer.
        half = len(x_title) * _CHARACTER_PX / 2
        yield _text(max(min((left + right) / 2, right + _RIGHT - half), half), bottom + 40, x_title)
    if y_title:
        yield _text(15, _TOP + (bottom - _TOP) / 2, y_title, turned=True)


def _text(x: float, y: float, text: str, *, anchor: str = "middle", turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    slant = ""
    if text.startswith("<i>"):
        text, slant = text[3:-4], ' font-style="italic"'
    body = "".join(
        f'<tspan font-weight="700">{escape(part)}</tspan>' if number % 2 else escape(part)
        for number, part in enumerate(_BOLD.split(text))
    )
    side = "" if anchor == "middle" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{side}{slant}{turn}>{body}</text>'


def _shape(shape: Mapping[str, Any], canvas: _Canvas) -> str:
    x = [_at(shape, canvas.x, "x", end) for end in "01"]
    y = [_at(shape, canvas.y, "y", end) for end in "01"]
    if shape["type"] == "line":
        line = shape["line"]
        path = f"M{x[0]:.1f} {y[0]:.1f}L{x[1]:.1f} {y[1]:.1f}"
        return f'<path d="{path}" stroke="{line["color"]}" stroke-width="{line["width"]}"{_dash(line)}/>'
    left, top, width, height = min(x), min(y), abs(x[1] - x[0]), abs(y[1] - y[0])
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" {_fill(shape["fillcolor"])}/>'


def _at(shape: Mapping[str, Any], axis: _Axis, name: str, end: str) -> float:
    value = shape[f"{name}{end}"]
    if shape.get(f"{name}ref") == "paper":
        return float(axis.start_px + value * (axis.end_px - axis.start_px))
    return axis.px(value)


def _traces(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], canvas: _Canvas) -> Iterator[str]:
    """The marks of each trace; those that have data are of class `t`, in the order of `drawn_points`."""
    bars = [trace for trace in traces if trace.get("type") == "bar"]
    grouped = [
        trace for trace in traces if trace.get("type", "scatter") == "scatter" and trace.get("mode") == "markers"
    ]
    ends: dict[Any, float] = {}
    for trace in traces:
        if trace.get("type") == "bar":
            count = len(bars) if layout.get("barmode") == "group" else 1
            number = bars.index(trace) if count > 1 else 0
            yield from _bars(trace, canvas, count, number, ends if layout.get("barmode") == "stack" else None)
        else:
            is_grouped = layout.get("scattermode") == "group" and trace in grouped
            shift = 0.7 * ((grouped.index(trace) + 0.5) / len(grouped) - 0.5) if is_grouped else 0.0
            yield from _scatter(trace, layout, canvas, shift)


def _scatter(trace: Mapping[str, Any], layout: Mapping[str, Any], canvas: _Canvas, shift: float) -> Iterator[str]:
    x_shift, y_shift = (shift if axis.categories else 0.0 for axis in (canvas.x, canvas.y))
    if trace.get("mode") == "text":
        yield from _labels(trace, canvas)
        return
    if trace.get("fill") == "toself":
        points = [(canvas.x.px(x), canvas.y.px(y)) for x, y, _ in drawn_points(trace, layout)]
        if points:
            yield f'<path d="{_path(points)}Z" {_fill(trace["fillcolor"])}/>'
        return
    rows = list(drawn_points(trace, layout))
    points = [(canvas.x.px(x, x_shift), canvas.y.px(y, y_shift)) for x, y, _ in rows]
    line, mode = trace.get("line", {}), trace.get("mode", "lines")
    colour = line.get("color") or trace["marker"]["color"]
    yield from _error_bars(trace, points, [number for _, _, number in rows], canvas, colour)
    shown = _sparse(points, trace["marker"].get("maxdisplayed", 0)) if "markers" in mode else []
    stroke = f' stroke="{colour}" stroke-width="{line.get("width", 2)}"{_dash(line)}' if "lines" in mode else ""
    data = "" if trace.get("hoverinfo") == "skip" else ' class="t"'
    opacity = f' opacity="{trace["opacity"]}"' if "opacity" in trace else ""
    paths = "".join(_path(run) for run in _runs(points, [number for _, _, number in rows]))
    if len(shown) == len(points):
        # A path of one point has no markers, so it ends where it begins.
        paths += "l0 0" if len(points) == 1 else ""
        refs = _marker_refs(trace, canvas, ("start",) if len(points) == 1 else ("start", "mid", "end"))
        yield f'<path{data} d="{paths}" fill="none"{stroke}{refs}{opacity}/>'
        return
    yield f'<path{data} d="{paths}" fill="none"{stroke}{opacity}/>'
    if shown:
        yield f'<path d="{_path(shown)}" fill="none"{_marker_refs(trace, canvas, ("start", "mid", "end"))}/>'


def _marker_refs(trace: Mapping[str, Any], canvas: _Canvas, places: Sequence[str]) -> str:
    if "markers" not in trace.get("mode", "lines"):
        return ""
    name = canvas.define(_marker(trace))
    return "".join(f' marker-{place}="url(#{name})"' for place in places)


def _runs(points: Sequence[tuple[float, float]], numbers: Sequence[int]) -> Iterator[Sequence[tuple[float, float]]]:
    """The points of a line, in pieces where numbers are missing."""
    begin = 0
    for at in range(1, len(points) + 1):
        if at == len(points) or numbers[at] != numbers[at - 1] + 1:
            yield points[begin:at]
            begin = at


def _sparse(points: Sequence[tuple[float, float]], most: int) -> Sequence[tuple[float, float]]:
    if not most or len(points) <= most:
        return points
    return [points[round((number + 0.5) * len(points) / most - 0.5)] for number in range(most)]


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A path through points, relative to the one before, which takes fewer digits."""
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    moves = [(x - a, y - b) for (a, b), (x, y) in pairwise(tenths)]
    steps = "l" + " ".join(f"{x / 10:g} {y / 10:g}" for x, y in moves) if moves else ""
    return f"M{tenths[0][0] / 10:g} {tenths[0][1] / 10:g}{steps}"


def _labels(trace: Mapping[str, Any], canvas: _Canvas) -> Iterator[str]:
    for x, y, text in zip(trace["x"], trace["y"], trace["text"], strict=True):
        position = trace.get("textposition", "middle right")
        if position == "top center":
            yield _text(canvas.x.px(x), canvas.y.px(y) - 8, text)
        else:
            yield _text(canvas.x.px(x) + 4, canvas.y.px(y) + 4, text, anchor="start")


def _bars(
    trace: Mapping[str, Any], canvas: _Canvas, count: int, number: int, ends: dict[Any, float] | None
) -> Iterator[str]:
    """One trace's bars; `count` are side by side, of which this is `number`; stacked ones begin at `ends`."""
    is_horizontal = trace.get("orientation") == "h"
    along, across = (canvas.x, canvas.y) if is_horizontal else (canvas.y, canvas.x)
    names, values = (trace["y"], trace["x"]) if is_horizontal else (trace["x"], trace["y"])
    bases = trace.get("base") or [0.0] * len(values)
    size = trace.get("width", 0.72) / count
    shift = (number + 0.5) * size - size * count / 2
    marker, places, texts = trace["marker"], [], []
    errors = trace.get("error_x" if is_horizontal else "error_y")
    for at, (name, value, base) in enumerate(zip(names, values, bases, strict=True)):
        begin = base
        if ends is not None:
            begin = ends.get(name, 0.0)
            ends[name] = begin + value
        # A close-up does not show the begin of every bar.
        near, far = sorted((along.start_px, along.end_px))
        low, high = (min(max(px, near), far) for px in sorted((along.px(begin), along.px(begin + value))))
        middle = across.px(name, shift)
        half = abs(across.px(name, shift + size / 2) - middle)
        box = (
            (low, middle - half, high - low, 2 * half) if is_horizontal else (middle - half, low, 2 * half, high - low)
        )
        end = along.px(begin + value)
        places.append((end, middle) if is_horizontal else (middle, end))
        x, y, width, height = box
        yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {_paint(marker, at, canvas)}/>'
        if errors:
            up, down = errors["array"][at], errors["arrayminus"][at]
            yield _whisker(along, middle, begin + value - down, begin + value + up, is_horizontal, errors)
        if "text" in trace:
            texts.append(_bar_text(trace["text"][at], end, middle, value >= 0, canvas))
    yield from texts
    if trace.get("hoverinfo") != "skip":
        yield f'<g class="t" data-p="{" ".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>'


def _bar_text(text: str, end: float, middle: float, is_positive: bool, canvas: _Canvas) -> str:
    """Beside the end of a horizontal bar; within the plot."""
    width = len(text) * _CHARACTER_PX
    fits = end + width + 8 < canvas.x.end_px if is_positive else end - width - 8 > canvas.x.start_px
    if is_positive == fits:
        return _text(end + 6, middle + 4, text, anchor="start")
    return _text(end - 6, middle + 4, text, anchor="end")


def _paint(marker: Mapping[str, Any], at: int, canvas: _Canvas) -> str:
    def of(value: Any) -> Any:
        return value[at] if isinstance(value, (list, tuple)) else value

    colour, line = of(marker["color"]), marker.get("line", {})
    hatch = of(marker.get("pattern", {}).get("shape", ""))
    fill = _fill(colour)
    if hatch:
        back, alpha = _split(colour)
        name = canvas.define(
            f'<pattern id="{{id}}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<rect width="8" height="8" fill="{back}" fill-opacity="{alpha:.2f}"/>'
            f'<path d="{_HATCHES[hatch]}" stroke="{SURFACE}" stroke-width="1.5"/></pattern>'
        )
        fill = f'fill="url(#{name})"'
    opacity = f' fill-opacity="{marker["opacity"]}"' if "opacity" in marker else ""
    return f'{fill}{opacity} stroke="{of(line.get("color", INK))}" stroke-width="{line.get("width", 0.5)}"'


def _error_bars(
    trace: Mapping[str, Any],
    points: Sequence[tuple[float, float]],
    numbers: Sequence[int],
    canvas: _Canvas,
    colour: str,
) -> Iterator[str]:
    for name, axis in (("x", canvas.x), ("y", canvas.y)):
        error = trace.get(f"error_{name}")
        if not error:
            continue
        path = []
        for (x, y), number in zip(points, numbers, strict=True):
            value = trace[name][number]
            low, high = value - error["arrayminus"][number], value + error["array"][number]
            if axis.is_log and low <= 0:
                low = 10**axis.low
            path.append(_whisker_path(axis.px(low), axis.px(high), y if name == "x" else x, name == "x"))
        yield f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _whisker(axis: _Axis, middle: float, low: float, high: float, is_horizontal: bool, error: Mapping[str, Any]) -> str:
    path = _whisker_path(axis.px(low), axis.px(high), middle, is_horizontal)
    return f'<path d="{path}" fill="none" stroke="{error["color"]}" stroke-width="{error["thickness"]}"/>'


def _whisker_path(low: float, high: float, middle: float, is_horizontal: bool) -> str:
    if is_horizontal:
        return f"M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8M{low:.1f} {middle:.1f}H{high:.1f}"
    return f"M{middle - 4:.1f} {low:.1f}h8M{middle - 4:.1f} {high:.1f}h8M{middle:.1f} {low:.1f}V{high:.1f}"


def _marker(trace: Mapping[str, Any]) -> str:
    """A definition of a trace's marker."""
    marker = trace["marker"]
    colour = trace.get("line", {}).get("color") or marker["color"]
    symbol, _, form = marker.get("symbol", "circle").partition("-open")
    is_open = bool(form) or marker.get("symbol", "").endswith("-open")
    half = marker.get("size", 8) / 2
    paint = f'fill="{SURFACE if is_open else colour}" stroke="{colour}" stroke-width="1.5"'
    corners = _corners(symbol)
    if corners is None:
        drawn = f'<circle r="{half:.1f}" {paint}/>'
    else:
        drawn = f'<path d="M{"L".join(f"{half * dx:.1f} {half * dy:.1f}" for dx, dy in corners)}Z" {paint}/>'
    return f'<marker id="{{id}}" markerUnits="userSpaceOnUse" overflow="visible">{drawn}</marker>'


def _corners(symbol: str) -> Sequence[tuple[float, float]] | None:
    """A marker's corners; None for a circle. `diamond-wide`, `cross-thin` … are drawn as the plain form."""
    if symbol == "star":
        return _STAR
    if symbol in _POLYGONS:
        count = _POLYGONS[symbol]
        angles = [2 * math.pi * corner / count for corner in range(count)]
        return [(1.15 * math.sin(angle), -1.15 * math.cos(angle)) for angle in angles]
    return _MARKERS.get(symbol) or _MARKERS.get(symbol.split("-")[0])


def _dash(line: Mapping[str, Any]) -> str:
    return f' stroke-dasharray="{_DASHES[line["dash"]]}"' if line.get("dash", "solid") in _DASHES else ""


def _split(colour: str) -> tuple[str, float]:
    """A colour and its opacity."""
    match = _ALPHA_COLOUR.fullmatch(colour)
    return (match[1], int(match[2], 16) / 255) if match else (colour, 1.0)


def _fill(colour: str) -> str:
    solid, alpha = _split(colour)
    return f'fill="{solid}"' if alpha == 1 else f'fill="{solid}" fill-opacity="{alpha:.2f}"'


def _wrapped(label: str, characters: float) -> list[str]:
    """A label in lines of at most so many characters, broken between words."""
    if label.startswith("<i>"):
        return [f"<i>{line}</i>" for line in _wrapped(label[3:-4], characters)]
    lines = [""]
    for word in label.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > characters:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _legend_rows(traces: Sequence[Mapping[str, Any]], width: int) -> list[list[tuple[Mapping[str, Any], float]]]:
    """Traces with their positions, in rows that fit the width."""
    rows: list[list[tuple[Mapping[str, Any], float]]] = []
    at = math.inf
    for trace in traces:
        needed = 44 + len(trace["name"]) * _CHARACTER_PX + 16
        if at + needed > width - 4:
            rows.append([])
            at = 12.0
        rows[-1].append((trace, at))
        at += needed
    return rows


def _legend(rows: Sequence[Sequence[tuple[Mapping[str, Any], float]]], top: float, canvas: _Canvas) -> Iterator[str]:
    for number, row in enumerate(rows):
        y = top + _LEGEND_ROW * number + _LEGEND_ROW / 2
        for trace, x in row:
            if trace.get("type") == "bar":
                yield f'<rect x="{x:.1f}" y="{y - 7:.1f}" width="36" height="14" {_paint(trace["marker"], 0, canvas)}/>'
            else:
                if "lines" in trace["mode"]:
                    line = trace["line"]
                    yield f'<path d="M{x:.1f} {y:.1f}h36" stroke="{line["color"]}" stroke-width="2"{_dash(line)}/>'
                if "markers" in trace["mode"]:
                    name = canvas.define(_marker(trace))
                    yield f'<path d="M{x + 18:.1f} {y:.1f}h0" marker-start="url(#{name})"/>'
            yield _text(x + 44, y + 4, trace["name"], anchor="start")


def _even_ticks(low: float, high: float) -> list[float]:
    """About six round values between two ends."""
    rough = (high - low) / 5
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= rough)
    return [float(f"{number * step:.10g}") for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
