# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures as plain JSON: data and layout in plotly's language, in the light theme's colours; `svg.py` draws them.

Every colour is a key of `DARK`, so that the page's style can switch themes by replacing colours. `customdata` of a
trace has `point_data` of each point, which tooltips and CSV show beside the value. Besides plotly's data and layout a
figure may have `choices`, each with data, axes and a caption of its own, and `interval`, what low and high are.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from barewire.models.naming import FLOOR, is_floor, on_link_of, read_mpi_subject, read_subject
from barewire.models.verdict import protocol_of
from barewire.report.versus import MARGIN, Versus
from barewire.report.words import message_size, row_name, subject_name, unit_name
from barewire.results.run import Row, Series, Shared
from barewire.results.series import SUBJECT_ORDER, combined, usable

Figure = dict[str, Any]

INK, GRID, SURFACE = "#1B2430", "#D8DEE6", "#FFFFFF"
# Okabe and Ito 2008: distinguishable with any common colour vision deficiency; the markers differ as well.
_COLOURS = {
    "tcp": "#D55E00",
    "udp": "#009E73",
    "raw": "#0072B2",
    "xdp": "#E69F00",
    "llc1": "#56B4E9",
    "llc2": "#CC79A7",
    "llc3": "#B8860B",
    "kernel-llc2": "#7A5C00",
    "endpoint": "#332288",
    "messages": "#A0522D",
    "libfabric": "#2F6F4E",
    "libfabric-tcp": "#B5446E",
    "libfabric-udp": "#5B8C2A",
    "llc1+xdp": "#117733",
    "llc2+xdp": "#882255",
    "llc3+xdp": "#999933",
    "endpoint+xdp": "#AA4499",
    "floor": "#6B7682",
    "barewire": "#0072B2",
    "ucx": "#CC79A7",
    "shm": "#56B4E9",
    # Methods of a host's measurements.
    "read": "#0072B2",
    "write": "#D55E00",
    "stream": "#CC79A7",
    "copy": "#009E73",
    "memcpy": "#B8860B",
    "map": "#D55E00",
    "mapped": "#009E73",
    "copied": "#0072B2",
    "gathered": "#D55E00",
}
_OTHERS = ("#CC79A7", "#B58900", "#2E8FC9")
DARK = {
    INK: "#E4E9F0",
    GRID: "#323C49",
    SURFACE: "#171D26",
    "#D55E00": "#FF8B3D",
    "#009E73": "#2FCB9C",
    "#0072B2": "#5AB4F5",
    "#6B7682": "#A3AFBD",
    "#CC79A7": "#E79CC6",
    "#B58900": "#E3B93C",
    "#2E8FC9": "#8FD0FA",
    "#56B4E9": "#8FD3F8",
    "#B8860B": "#E0B040",
    "#E69F00": "#FFC24A",
    "#117733": "#4CC27A",
    "#882255": "#D96BA0",
    "#999933": "#D6D65C",
    "#332288": "#8C7BFF",
    "#AA4499": "#E48FD8",
    "#A0522D": "#DB8A5E",
    "#2F6F4E": "#5FBF93",
    "#B5446E": "#EC7FA8",
    "#5B8C2A": "#9BD05F",
    "#7A5C00": "#C9A227",
}
# For MPI subjects with settings beyond the fabric, which have no colour by name.
_PALETTE = tuple(colour for colour in DARK if colour not in (INK, GRID, SURFACE, "#6B7682"))
_LIBRARY_DASH = {"openmpi": "solid", "mpich-5": "dot", "openmpi-5": "longdash", "mpich": "dashdot", "intel": "dash"}
_BAND_ALPHA = "38"  # hexadecimal, of 255
_MARKERS = {
    "tcp": "square",
    "udp": "diamond",
    "raw": "circle",
    "xdp": "pentagon",
    "llc1": "triangle-up",
    "llc2": "star",
    "llc3": "hexagon",
    "kernel-llc2": "star-diamond",
    "endpoint": "bowtie",
    "messages": "hourglass",
    "libfabric": "diamond-wide",
    "libfabric-tcp": "square-cross",
    "libfabric-udp": "diamond-cross",
    "barewire": "circle",
    "ucx": "triangle-down",
    "shm": "cross",
    "floor": "cross-thin-open",
}
# For lines that would otherwise look alike but for their colour.
_SPARE_MARKERS = (
    "diamond",
    "triangle-up",
    "star",
    "pentagon-open",
    "hexagon-open",
    "diamond-open",
    "square-open",
    "cross",
)
# Hatches of bars, by number: told apart without colour.
_HATCHES = ("", "/", "\\", "x", "-", "|", "+", ".")
_WAITING_DASH = {"": "solid", "adaptive": "longdash", "block": "dot", "busypoll": "dashdot", "cold": "dot"}
_LABELLED_MAX = 12
# Deviation from the mean up to which shares count as even.
EVEN_SHARES = 0.1
# Both ends, even steps, and the tail.
_PROBABILITIES = [0, 0.01, *np.linspace(0.025, 0.975, 39).round(3).tolist(), 0.985, 0.99, 0.995, 0.999, 0.9999, 1.0]
# Markers on a curve of many points.
_MARKERS_ON_CURVE = 6
# Of more rows only so many have a distribution in a page: the first, the last, even steps, and 64 bytes.
DISTRIBUTIONS_MAX = 12
_SHORT_BYTES = 64


def against_size(series: Sequence[Series], what: str, *, size: str = "message size") -> Figure:
    """Median against message size, log-log: a band for the interval, the limit dashed; one test, one unit.

    The axis of medians is linear if none is above 0; otherwise those of 0 and less are left out.
    """
    traces: list[dict[str, Any]] = []
    shown = [s for s in series if s.median is not None and s.message_bytes]
    positive = [s for s in shown if s.median and s.median > 0]
    for subject in dict.fromkeys(s.subject for s in series):
        points = [s for s in positive or shown if s.subject == subject]
        traces += _line(subject, points) if points else []
    traces += _wire_limits(series)
    title = f"{what}, {unit_name(series[0].unit)}"
    layout = layout_of(size_axis(series, size), log_axis(title, traces, "y") if positive else plain_axis(title))
    return {"data": distinct(traces), "layout": layout}


def against_processes(shared: Sequence[Shared], what: str) -> Figure:
    """Total over all processes against their number: a band for the interval; one test and size."""
    traces: list[dict[str, Any]] = []
    for subject in dict.fromkeys(row.subject for row in shared):
        points = [row for row in shared if row.subject == subject and row.median is not None]
        known = [(row.processes, row.median or 0.0, row.interval, row.launches, None) for row in points]
        traces += curve(subject, known, unit_name(shared[0].unit)) if known else []
    axis = log_axis(f"{what}, {unit_name(shared[0].unit)}", traces, "y")
    return {"data": distinct(traces), "layout": layout_of(_processes_axis(shared), axis)}


def shares(shared: Sequence[Shared]) -> Figure:
    """Bars from the smallest to the largest share, relative to the mean; lines at ±10 %."""
    traces = []
    for subject in dict.fromkeys(row.subject for row in shared):
        points = [row for row in shared if row.subject == subject and row.smallest_share and row.largest_share]
        if points:
            traces.append(
                {
                    **style_of(subject),
                    "mode": "markers",
                    "x": [row.processes for row in points],
                    "y": [1 for _ in points],
                    "error_y": {
                        "type": "data",
                        "symmetric": False,
                        "array": [shortened((row.largest_share or 1) - 1) for row in points],
                        "arrayminus": [shortened(1 - (row.smallest_share or 1)) for row in points],
                        "thickness": 1.5,
                        "width": 5,
                    },
                    "customdata": [
                        point_data((row.smallest_share or 1, row.largest_share or 1), row.launches) for row in points
                    ],
                    "hovertemplate": "%{customdata[0]:.3g} to %{customdata[1]:.3g}",
                }
            )
    layout = layout_of(_processes_axis(shared), {**plain_axis("share of the mean"), "rangemode": "tozero"})
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": INK, "width": 1}, "layer": "below"}
    layout["shapes"] = [{**line, "y0": y, "y1": y} for y in (1 - EVEN_SHARES, 1 + EVEN_SHARES)]
    return {"data": distinct(traces), "layout": layout, "interval": "smallest to largest share"}


def ratios(comparisons: Sequence[Versus], base: str) -> Figure:
    """Ratio to `base` against message size with its interval; the line at 1 and ±2 % around it."""
    traces = []
    for subject in dict.fromkeys(versus.a.subject for versus in comparisons):
        chosen = [versus for versus in comparisons if versus.a.subject == subject and versus.a.message_bytes]
        ratio = _ratio_points(chosen, "y")
        traces.append({**style_of(subject), "x": [versus.a.message_bytes for versus in chosen], **ratio})
    axis = log_axis(f"ratio to {base}", [*traces, {"y": [1]}], "y")
    layout = layout_of(size_axis([versus.a for versus in comparisons]), axis)
    layout["shapes"] = _around_one("y")
    return {"data": distinct(traces), "layout": layout}


def ratio_rows(comparisons: Sequence[Versus], base: str, rows: Sequence[str]) -> Figure:
    """The same as `ratios` without a size axis; `rows` has the name of each comparison's row."""
    traces = []
    for subject in dict.fromkeys(versus.a.subject for versus in comparisons):
        chosen = [(versus, row) for versus, row in zip(comparisons, rows, strict=True) if versus.a.subject == subject]
        ratio = _ratio_points([versus for versus, _ in chosen], "x")
        traces.append({**style_of(subject), "mode": "markers", "y": [row for _, row in chosen], **ratio})
    axis = log_axis(f"ratio to {base}", [*traces, {"x": [1]}], "x")
    layout = layout_of(axis, {**plain_axis(""), "type": "category", "autorange": "reversed"})
    layout |= {"shapes": _around_one("x"), "scattermode": "group", "hovermode": "closest"}
    return {"data": distinct(traces), "layout": layout, "height_px": rows_px(len(set(rows)), len(traces))}


def _ratio_points(chosen: Sequence[Versus], name: str) -> dict[str, Any]:
    """Ratios with their intervals along an axis."""
    ratio = [versus.result.ratio for versus in chosen]
    bounds = [versus.result.ratio_interval for versus in chosen]
    return {
        name: [shortened(value) for value in ratio],
        f"error_{name}": error_bars(ratio, bounds),
        "customdata": [
            point_data(versus.result.ratio_interval, min(versus.result.launches_a, versus.result.launches_b))
            for versus in chosen
        ],
        "hovertemplate": f"%{{{name}:.3g}} ×",
    }


def _around_one(name: str) -> list[dict[str, Any]]:
    """Shapes across the plot: a line at 1, and the band of differences that do not matter."""
    other = "x" if name == "y" else "y"
    across = {f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1, "layer": "below"}
    band = {"type": "rect", f"{name}0": 1 - MARGIN, f"{name}1": 1 + MARGIN, "fillcolor": INK + "22"}
    line = {"type": "line", f"{name}0": 1, f"{name}1": 1, "line": {"color": INK, "width": 1.5}}
    return [{**across, **band, "line": {"width": 0}}, {**across, **line}]


def rows_px(rows: int, marks: int) -> int:
    """The height of a plot with so many marks for each category of its y axis."""
    return 20 + rows * max(28, 14 * marks)


def error_bars(values: Sequence[float], bounds: Sequence[tuple[float, float] | None]) -> dict[str, Any]:
    """The intervals of values as error bars; one of no length for a value without any."""
    known = [interval or (value, value) for value, interval in zip(values, bounds, strict=True)]
    return {
        "type": "data",
        "symmetric": False,
        "array": [shortened(high - value) for value, (_, high) in zip(values, known, strict=True)],
        "arrayminus": [shortened(value - low) for value, (low, _) in zip(values, known, strict=True)],
        "thickness": 1.5,
        "width": 5,
    }


def point_data(
    interval: tuple[float, float] | None = None, launches: int | None = None, samples: int | None = None
) -> list[float | None]:
    """The ends of a point's interval, the launches and the samples behind it; None where there is none."""
    low, high = interval or (None, None)
    return [shortened(low), shortened(high), launches, samples]


def drawn_points(trace: Mapping[str, Any], layout: Mapping[str, Any]) -> Iterator[tuple[Any, Any, int]]:
    """The points of a trace that can be drawn, with their numbers: a logarithmic axis has no place for 0 and less."""
    is_log = [layout[f"{name}axis"].get("type") == "log" for name in "xy"]
    for number, point in enumerate(zip(trace["x"], trace["y"], strict=True)):
        if all(value is not None and (not log or value > 0) for value, log in zip(point, is_log, strict=True)):
            yield (*point, number)


def distinct(traces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same traces, no two of the legend with the same marker and dash, or without lines the same marker."""
    seen: set[tuple[str, str]] = set()
    changed = []
    for trace in traces:
        if trace.get("showlegend", True) and "markers" in trace.get("mode", ""):
            spare = iter(_SPARE_MARKERS)
            dash = trace["line"].get("dash", "") if "lines" in trace["mode"] else ""
            while (look := (trace["marker"]["symbol"], dash)) in seen:
                symbol = next(spare, None)
                if symbol is None:
                    break
                trace = {**trace, "marker": {**trace["marker"], "symbol": symbol}}
            seen.add(look)
        changed.append(trace)
    return changed


def hatch(number: int) -> dict[str, Any]:
    """The hatch of bars by number, which tells them apart without colour; the first have none."""
    return {"shape": _HATCHES[number % len(_HATCHES)], "solidity": 0.35}


def chosen(figure: Figure, number: int | None = None) -> Figure:
    """Return a figure with one of its choices of traces, by default the first shown one; without `choices`."""
    if "choices" not in figure:
        return figure
    choice = figure["choices"][figure["chosen"] if number is None else number]
    axes = {name: choice[name] for name in ("xaxis", "yaxis") if name in choice}
    data = choice["data"]
    if "shared_y" in figure:
        data = [{**trace, "y": figure["shared_y"]} for trace in data]
    own = {key: value for key, value in figure.items() if key not in ("choices", "choice", "chosen", "shared_y")}
    return {**own, "data": data, "layout": {**figure["layout"], **axes}}


def distributions(frame: pl.DataFrame, series: Sequence[Series]) -> Figure:
    """Share of measured samples at or below a value, one choice of traces for each of `DISTRIBUTIONS_MAX` rows at most.

    `series`: of one place; `frame`: a run's raw samples, columns of `SAMPLE_SCHEMA`. The samples are those of the
    series' statistics: of pairs, processes and ranks `combined`. Of each subject and row the quantiles at
    `_PROBABILITIES` are kept.
    """
    unit, place = unit_name(series[0].unit), series[0].place
    keep = pl.all_horizontal(pl.col(name) == value for name, value in place._asdict().items())
    keep &= pl.col("phase") == "measure"
    rows = _spread(sorted({s.row for s in series}, key=lambda row: row.order))
    keep &= pl.col("message_bytes").is_in([row.message_bytes for row in rows])
    parts = (
        usable(combined(frame.lazy().filter(keep).collect()))
        .select(*_ROW, "subject", "value", "launch")
        .partition_by(*_ROW, "subject", as_dict=True)
    )
    choices: list[dict[str, Any]] = []
    for row in rows:
        traces = []
        for subject in dict.fromkeys(s.subject for s in series):
            part = parts.get((row.message_bytes, row.variant, row.value, subject))
            if part is not None:
                traces.append(_distribution(subject, part, unit))
        axis = log_axis(f"one sample, {unit}", traces, "x")
        choices.append({"label": row_name(row, place), "data": distinct(traces), "xaxis": axis})
    layout = layout_of(plain_axis(f"one sample, {unit}"), plain_axis("share of samples at or below"))
    layout["yaxis"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    layout["hovermode"] = "closest"
    # All traces share their y values; repeating them would double the size of a page with many sizes.
    shared = {"choices": choices, "shared_y": _PROBABILITIES}
    short = next((place for place, row in enumerate(rows) if row.message_bytes == _SHORT_BYTES), 0)
    return {"data": [], "layout": layout, **shared, "chosen": short, "choice": _choice_of(rows)}


_ROW = ("message_bytes", "variant", "parameter_value")


def _spread(rows: Sequence[Row]) -> list[Row]:
    """At most `DISTRIBUTIONS_MAX` rows: the first and the last, those of 64 bytes, and others in even steps."""
    if len(rows) <= DISTRIBUTIONS_MAX:
        return list(rows)
    last = DISTRIBUTIONS_MAX - 1
    kept = {round(number * (len(rows) - 1) / last) for number in range(DISTRIBUTIONS_MAX)}
    short = [at for at, row in enumerate(rows) if row.message_bytes == _SHORT_BYTES][:1]
    if short and short[0] not in kept:
        kept.remove(min(kept - {0, len(rows) - 1}, key=lambda at: abs(at - short[0])))
        kept.add(short[0])
    return [rows[at] for at in sorted(kept)]


def combined_with_choice(figures: Mapping[str, Figure], choice: str) -> Figure:
    """Combine figures into one with a choice between them; a single figure is returned as is, with its caption."""
    if len(figures) == 1:
        return next(iter(figures.values()))
    choices = [
        {
            "label": label,
            "data": figure["data"],
            "xaxis": figure["layout"]["xaxis"],
            "yaxis": figure["layout"]["yaxis"],
            **({"caption": figure["caption"]} if "caption" in figure else {}),
        }
        for label, figure in figures.items()
    ]
    first = next(iter(figures.values()))
    heights = [figure["height_px"] for figure in figures.values() if "height_px" in figure]
    height = {"height_px": max(heights)} if heights else {}
    return {"data": [], "layout": first["layout"], "choices": choices, "chosen": 0, "choice": choice, **height}


def _choice_of(rows: Sequence[Row]) -> str:
    return "Variant and message size" if any(row.variant for row in rows) else "Message size"


def bars(labels: Sequence[str], values: Sequence[float], colours: Sequence[str], what: str) -> Figure:
    """One bar from 1 for each value, the first on top; logarithmic, so that half and double have equal lengths."""
    logs = [math.log10(value) for value in values]
    # With room for the numbers beside the bars.
    far = max([math.log10(2), *map(abs, logs)]) * 1.3
    trace = {
        "type": "bar",
        "orientation": "h",
        # Bars of logarithms on a linear axis start at 0, which is 1; on plotly's logarithmic axis they could not.
        "x": [shortened(log) for log in logs],
        "y": list(labels),
        "text": [f"{value:.3g} ×" for value in values],
        "textposition": "auto",
        "marker": {"color": list(colours)},
        "hovertemplate": "%{y}: %{text}<extra></extra>",
        "showlegend": False,
    }
    ticks = [tick for tick in (0.1, 0.2, 0.25, 0.5, 0.8, 1, 1.25, 2, 4, 5, 10) if abs(math.log10(tick)) <= far]
    axis = {**plain_axis(what), "tickvals": [math.log10(tick) for tick in ticks], "ticktext": [f"{t:g}" for t in ticks]}
    layout = layout_of({**axis, "range": [-far, far]}, {**plain_axis(""), "autorange": "reversed"})
    layout["hovermode"] = "closest"
    line = {"type": "line", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1}
    layout["shapes"] = [{**line, "line": {"color": INK, "width": 1.5}}]
    return {"data": [trace], "layout": layout, "height_px": 20 + 22 * len(labels)}


def _line(subject: str, points: Sequence[Series]) -> list[dict[str, Any]]:
    known = [(s.message_bytes, s.median or 0.0, s.interval, s.launches, s.samples) for s in points]
    return curve(subject, known, unit_name(points[0].unit))


def curve(
    subject: str,
    points: Sequence[tuple[int, float, tuple[float, float] | None, int, int | None]],
    unit: str,
    style: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """A line through (x, value, interval, launches, samples) and the band of the intervals, if there are any.

    For values above 0 a band stays there, too, below all others of its line: a logarithmic axis has no place for 0.
    """
    style = style or style_of(subject)
    x = [at for at, *_ in points]
    bounds = [interval or (value, value) for _, value, interval, _, _ in points]
    lowest = min((end for interval in bounds for end in interval if end > 0), default=0.0) / 2
    bounds = [
        (lowest if low <= 0 < value else low, high) for (low, high), (_, value, *_) in zip(bounds, points, strict=True)
    ]
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": x + x[::-1],
        "y": [shortened(high) for _, high in bounds] + [shortened(low) for low, _ in reversed(bounds)],
        "fill": "toself",
        "fillcolor": style["line"]["color"] + _BAND_ALPHA,
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": subject,
    }
    line = {
        **style,
        "x": x,
        "y": [shortened(value) for _, value, *_ in points],
        "customdata": [point_data(interval, launches, samples) for _, _, interval, launches, samples in points],
        "hovertemplate": f"%{{y:.4g}} {unit}",
    }
    return [band, line] if any(interval for _, _, interval, _, _ in points) else [line]


def _wire_limits(series: Sequence[Series]) -> list[dict[str, Any]]:
    """One dashed line per protocol and MTU; the floor has none, because it is a subject itself."""
    traces = []
    limits: dict[str, dict[int, float]] = {}
    for s in series:
        if s.limit_kind == "wire" and s.limit is not None and s.message_bytes:
            name = on_link_of(protocol_of(s.subject) or s.subject, s.subject)
            limits.setdefault(name, {})[s.message_bytes] = s.limit
    for protocol, points in limits.items():
        name = f"wire limit, {subject_name(protocol)}"
        style = {"color": colour_of(protocol), "dash": "dash", "width": 1.25}
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "line": style,
                "x": sorted(points),
                "y": [shortened(points[size]) for size in sorted(points)],
                "hovertemplate": "%{y:.4g}",
            }
        )
    return traces


def _distribution(subject: str, part: pl.DataFrame, unit: str) -> dict[str, Any]:
    style = style_of(subject)
    count = point_data(None, part["launch"].n_unique(), part.height)
    return {
        **style,
        "marker": style["marker"] | {"maxdisplayed": _MARKERS_ON_CURVE},
        "x": [shortened(value) for value in np.quantile(part["value"].to_numpy(), _PROBABILITIES)],
        "customdata": [count] * len(_PROBABILITIES),
        "hovertemplate": f"%{{y:.1%}} at or below %{{x:.4g}} {unit}",
    }


def style_of(subject: str) -> dict[str, Any]:
    """Style of a subject's line."""
    base, dash, is_plain = _marker_and_dash(subject)
    symbol = _MARKERS.get(base) or _MARKERS.get(read_subject(base).transport, "triangle-up")
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": subject_name(subject),
        "legendgroup": subject,
        "line": {"color": colour_of(subject), "dash": dash, "width": 2},
        "marker": {
            "symbol": symbol if is_plain else f"{symbol}-open",
            "size": 8,
            "line": {"width": 2, "color": colour_of(subject)},
        },
    }


def _marker_and_dash(subject: str) -> tuple[str, str, bool]:
    """Key of a line's marker, its dash, and whether the subject has default settings."""
    mpi = read_mpi_subject(subject)
    if mpi is not None:
        # The marker shows the fabric and the dash the library.
        return mpi.fabric, _LIBRARY_DASH.get(mpi.library, "longdashdot"), not mpi.settings
    name, _, waiting = subject.partition("/")
    settings = read_subject(subject).settings
    base = str(read_subject(name)._replace(settings=()))
    dash = "dash" if is_floor(subject) else _WAITING_DASH.get(waiting, "longdashdot")
    return base, dash, not waiting and not settings


def colour_of(subject: str) -> str:
    """By name, not by index: a subject has the same colour in every figure."""
    mpi = read_mpi_subject(subject)
    if mpi is not None and not mpi.settings and mpi.fabric in _COLOURS:
        return _COLOURS[mpi.fabric]
    if mpi is not None:
        return _PALETTE[sum(f"{mpi.fabric}{mpi.settings}".encode()) % len(_PALETTE)]
    if settings := read_subject(subject).settings:
        return _PALETTE[sum(f"{subject.split('/')[0]}{settings}".encode()) % len(_PALETTE)]
    base = subject.split("/")[0]
    return _COLOURS["floor"] if is_floor(subject) else _COLOURS.get(base, _OTHERS[sum(base.encode()) % len(_OTHERS)])


def colour_by_number(number: int) -> str:
    """A colour by index, for subjects that have none by name."""
    return _PALETTE[number % len(_PALETTE)]


def size_axis(series: Iterable[Series], title: str = "message size") -> dict[str, Any]:
    """A logarithmic axis of message sizes, labelled at those that were measured."""
    sizes = sorted({s.message_bytes for s in series if s.message_bytes})
    round_sizes = [size for size in sizes if size & (size - 1) == 0]
    # Of many sizes only powers of two have a label: the others are perturbed ones.
    ticks = round_sizes if len(sizes) > _LABELLED_MAX and len(round_sizes) > 3 else sizes
    return {**plain_axis(title), "type": "log", "tickvals": ticks, "ticktext": [message_size(n) for n in ticks]}


def _processes_axis(shared: Iterable[Shared]) -> dict[str, Any]:
    return {**plain_axis("processes"), "tickvals": sorted({row.processes for row in shared})}


def log_axis(title: str, traces: Iterable[dict[str, Any]], axis: str) -> dict[str, Any]:
    """A logarithmic axis with full labels: plotly's own are single digits between decades.

    It is linear if no value is above 0.
    """
    values = [value for trace in traces for value in trace[axis] if value and value > 0]
    if not values:
        return plain_axis(title)
    low, high = min(values), max(values)
    ticks = _ticks(low, high)
    log = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:.10g}" for tick in ticks]}
    # By default plotly shows two decades around a single value.
    close = {"range": [math.log10(low * 0.93), math.log10(high * 1.07)]} if high / low < 1.2 else {}
    return {**plain_axis(title), **log, **close}


def _ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 of each decade; only decades over a long range, even steps over a short one."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if high / low > 6:
        return [factor * 10.0**decade for decade in decades for factor in ((1, 2, 5) if len(decades) <= 5 else (1,))]
    low, high = low * 0.95, high * 1.05
    rough = (high - low) / 4
    decade_step = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * decade_step for factor in (1, 2, 5, 10) if factor * decade_step >= rough)
    return [float(f"{n * step:.10g}") for n in range(math.ceil(low / step), math.floor(high / step) + 1) if n > 0]


def plain_axis(title: str) -> dict[str, Any]:
    """A linear axis."""
    colours = {"gridcolor": GRID, "linecolor": GRID, "zeroline": False}
    return {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "ticks": "outside",
        "tickcolor": GRID,
        **colours,
    }


def layout_of(x_axis: dict[str, Any], y_axis: dict[str, Any]) -> dict[str, Any]:
    """A figure's layout around two axes."""
    return {
        "xaxis": x_axis,
        "yaxis": y_axis,
        "margin": {"l": 10, "r": 14, "t": 10, "b": 10},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": SURFACE, "bordercolor": GRID, "font": {"color": INK}},
        "legend": {"orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": INK, "activecolor": INK},
        "showlegend": True,
    }


def shortened(value: float | None) -> float | None:
    """Round to five digits: more than a plot shows, and half the page's size."""
    return None if value is None else float(f"{value:.5g}")


assert set(_COLOURS) >= {*SUBJECT_ORDER, FLOOR}, "every known subject has its own colour"
