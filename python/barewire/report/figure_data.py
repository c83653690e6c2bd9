# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a figure shows as data: each point with its interval and counts, for tooltips, CSV and a table; pure."""

from collections.abc import Mapping
from typing import Any

from barewire.report.figures import Figure, chosen, drawn_points
from barewire.report.words import interval_heading
from barewire.stats.confidence import CONFIDENCE

# The axis whose values are message sizes has one of these titles.
_SIZES = ("message size", "block size")


def figure_data(figure: Figure, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """Return plain JSON: for each choice its series, whose points are in the order in which `svg.py` draws them.

    Intervals are said to have this confidence, unless the figure says otherwise.

    `x` and `y` are titles of axes; `c` of a series has `point_data` of each point, or once if all points share them.
    Values of y that all series have in common are given once.
    """
    count = len(figure["choices"]) if "choices" in figure else 1
    first = chosen(figure, 0)
    x, y = (first["layout"][f"{name}axis"]["title"]["text"] for name in "xy")
    document: dict[str, Any] = {
        "x": x,
        "y": y,
        "sizes": x in _SIZES,
        "interval": figure.get("interval", interval_heading(confidence)),
        "choices": [{"series": _series(figure, number)} for number in range(count)],
    }
    if "choices" in figure:
        document["choice"] = figure["choice"]
        for choice, labelled in zip(document["choices"], figure["choices"], strict=True):
            choice["label"] = labelled["label"]
    if "shared_y" in figure:
        document["shared"] = figure["shared_y"]
    return document


def _series(figure: Figure, number: int) -> list[dict[str, Any]]:
    drawn = chosen(figure, number)
    shared = figure.get("shared_y")
    return [
        _points(trace, drawn["layout"], shared)
        for trace in drawn["data"]
        if trace.get("hoverinfo") != "skip" and trace.get("mode") != "text"
    ]


def _points(trace: Mapping[str, Any], layout: Mapping[str, Any], shared: list[float] | None) -> dict[str, Any]:
    points = list(drawn_points(trace, layout))
    series: dict[str, Any] = {"name": trace.get("name", ""), "x": [x for x, _, _ in points]}
    y = [y for _, y, _ in points]
    if y != shared:
        series["y"] = y
    if "customdata" in trace:
        counts = [trace["customdata"][number] for _, _, number in points]
        series["c"] = counts[0] if counts and all(each == counts[0] for each in counts) else counts
    return series
