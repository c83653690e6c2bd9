# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures of a profile: parts of each rank's time, calls, and time in MPI over the run."""

from collections.abc import Mapping, Sequence
from typing import Any

from barewire.report.figures import INK, Figure, hatch, layout_of, plain_axis, rows_px, shortened
from barewire.report.profile import size_class
from barewire.results.job_profile import JobProfile, Parts

PART_COLOURS = {
    "outside MPI": "#0072B2",
    "moving messages": "#009E73",
    "asking": "#CC79A7",
    "waiting": "#D55E00",
}
_CALLS_DRAWN = 10


def parts_of(parts: Parts) -> dict[str, float]:
    """Parts by name."""
    values = (parts.outside_s, parts.moving_s, parts.asking_s, parts.waiting_s)
    return dict(zip(PART_COLOURS, values, strict=True))


def stacked(parts: Mapping[str, Parts]) -> Figure:
    """A stacked bar of the parts for each label, in seconds."""
    labels = list(parts)
    traces = []
    for number, (name, colour) in enumerate(PART_COLOURS.items()):
        values = [parts_of(s)[name] for s in parts.values()]
        traces.append(_bar(labels, values, name, colour, number))
    layout = layout_of(plain_axis("seconds"), {**plain_axis(""), "autorange": "reversed", "type": "category"})
    return {"data": traces, "layout": layout | {"barmode": "stack"}, "height_px": rows_px(len(labels), 1)}


def calls_bars(profiles: Mapping[str, JobProfile], colours: Mapping[str, str]) -> Figure:
    """Mean time per rank by call and size, side by side for all profiles."""
    totals: dict[str, float] = {}
    by_label: dict[str, dict[str, float]] = {}
    for name, profile in profiles.items():
        for s in profile.calls:
            sized = "" if s.row.bytes_from is None else f", {size_class(s.row.bytes_from, s.row.bytes_below)}"
            label = s.row.call + sized
            time = s.row.time_s / max(1, len(profile.ranks))
            totals[label] = totals.get(label, 0.0) + time
            by_label.setdefault(name, {})[label] = time
    labels = sorted(totals, key=lambda label: -totals[label])[:_CALLS_DRAWN]
    traces = [
        _bar(labels, [by_label.get(name, {}).get(label, 0.0) for label in labels], name, colours[name], number)
        for number, name in enumerate(profiles)
    ]
    layout = layout_of(plain_axis("seconds of the mean rank"), {**plain_axis(""), "autorange": "reversed"})
    layout |= {"barmode": "group"}
    return {"data": traces, "layout": layout, "height_px": rows_px(len(labels), len(profiles))}


def over_time(profile: JobProfile) -> Figure:
    """Share of time in MPI over the run: mean, smallest and largest of all ranks."""
    columns = _columns(profile.bins)
    width = max((width for width, _ in profile.bins), default=0.0)
    x = [shortened((at + 0.5) * width) for at in range(len(columns))]
    looks = (("most", max, "#D55E00", "dot"), ("mean", _mean, "#0072B2", "solid"), ("least", min, "#009E73", "dot"))
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": x,
            "y": [shortened(100 * pick(column)) for column in columns],
            "line": {"color": colour, "dash": dash, "width": 2},
            "hovertemplate": f"{name}: %{{y:.3g}} % at %{{x:.3g}} s<extra></extra>",
        }
        for name, pick, colour, dash in looks
        if name == "mean" or len(profile.bins) > 1
    ]
    layout = layout_of(plain_axis("seconds after the begin of MPI_Init"), plain_axis("% of time in MPI"))
    return {"data": traces, "layout": layout, "height_px": 200}


def _columns(bins: Sequence[tuple[float, tuple[float, ...]]]) -> list[list[float]]:
    """Share of each time bin in MPI, for each rank; 0 to 1 per thread."""
    width = max((width for width, _ in bins), default=0.0)
    if width == 0:
        return []
    rows = []
    for bin_width, values in bins:
        ratio = round(width / bin_width) if bin_width else 1
        rows.append([sum(values[at : at + ratio]) / width for at in range(0, len(values), ratio)])
    length = max(map(len, rows))
    return [[row[at] if at < len(row) else 0.0 for row in rows] for at in range(length)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _bar(labels: Sequence[str], values: Sequence[float], name: str, colour: str, number: int) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [shortened(value) for value in values],
        "y": list(labels),
        "marker": {"color": colour, "line": {"color": INK, "width": 0.5}, "pattern": hatch(number)},
        "hovertemplate": f"{name}: %{{x:.4g}} s<extra></extra>",
    }
