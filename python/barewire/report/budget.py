# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budget in words and as a picture: a waterfall, each layer beginning where the one below it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barewire.models.budget import Budget, Layer
from barewire.models.naming import FLOOR, read_mpi_subject
from barewire.report.figures import GRID, INK, Figure, colour_of, layout_of, plain_axis, shortened
from barewire.report.words import message_size, number, quantity, subject_name

# What each layer of the path does; the words of the picture's rows and of the table.
_DOES = {
    FLOOR: "frames",
    "raw": "raw Ethernet",
    "llc1": "LLC 1",
    "llc2": "LLC 2",
    "endpoint": "endpoint",
    "messages": "messages",
    "libfabric": "libfabric",
    "tcp": "TCP sockets",
    "libfabric-tcp": "libfabric over TCP",
}
_ROW_PX, _FRAME_PX = 30, 64
_BAR, _LINE = 0.62, 1.25
_OVER = {"barewire": "", "tcp": " over TCP", "ucx": " over UCX’s TCP", "udp": " over UDP"}
# Room for the words behind the longest bar, as a share of it.
_LABEL_ROOM = 0.5
# A bar whose length may be nothing is only outlined.
_FAINT = "66"


@dataclass(frozen=True)
class Bar:
    """One row of the picture: where its bar begins and ends, with what uncertainty, and what stands beside it."""

    label: str
    subject: str
    begin: float
    end: float
    low: float
    high: float
    text: str
    is_told_apart: bool


def layer_name(subject: str, libraries: Mapping[str, str]) -> str:
    """A layer in words: `openmpi-5/tcp` → Open MPI 5.0.11 over TCP."""
    mpi = read_mpi_subject(subject)
    if mpi is None:
        return _DOES.get(subject) or subject_name(subject)
    return libraries.get(mpi.library, mpi.library) + _OVER.get(mpi.fabric, f" over {mpi.fabric}")


def headline(one: Budget, libraries: Mapping[str, str]) -> str:
    """The budget of one size in a sentence: what the frames take, what all layers above add, and TCP beside it."""
    first, best, yardstick = one.path[0], one.best, one.best_yardstick
    name = layer_name(best.subject, libraries)
    above = best.step.total - first.step.total
    size = message_size(one.message_bytes).replace(" ", "\u00a0")
    said = f"Of {quantity(best.step.total, 'us')} that {size} take {name} one way, {quantity(first.step.total, 'us')} "
    said += f"are {_first_words(first)}; all layers above add {quantity(above, 'us')}."
    if yardstick is not None:
        beside = layer_name(yardstick.subject, libraries)
        said += f" {beside} takes {quantity(yardstick.step.total, 'us')}, {number(yardstick.step.total / best.step.total)} times that."
    return said


def _first_words(first: Layer) -> str:
    return "the frames themselves" if first.subject == FLOOR else layer_name(first.subject, {})


def added(layer: Layer) -> str:
    """`+0.062 [0.055, 0.070]`, with a sign, in µs."""
    step = layer.step
    value = f"{'+' if step.added >= 0 else '−'}{number(abs(step.added))}"
    return value if step.added_ci95 is None else f"{value} [{_signed(step.added_ci95[0])}, {_signed(step.added_ci95[1])}]"


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else ''}{number(abs(value))}"


def waterfall(budgets: Sequence[Budget], libraries: Mapping[str, str]) -> Figure:
    """One choice for each message size; the TCP totals stand below the path as bars of their own."""
    choices, rows = [], 0
    for one in budgets:
        bars = _bars(one, libraries)
        rows = max(rows, len(bars))
        far = max(max(bar.end, bar.high) for bar in bars)
        traces = [_bar_trace(bars), _words(bars, far), *_connectors(one, bars), *_limit(one, bars)]
        x_axis = {**plain_axis("µs, one way"), "range": [0, far * (1 + _LABEL_ROOM)], "zeroline": True, "zerolinecolor": INK}
        choices.append({"label": message_size(one.message_bytes), "data": traces, "xaxis": x_axis})
    drawn = layout_of(plain_axis("µs, one way"), {**plain_axis(""), "autorange": "reversed", "ticks": "", "showgrid": False})
    drawn |= {"hovermode": "closest", "showlegend": False, "barmode": "overlay"}
    return {"data": [], "layout": drawn, "choices": choices, "chosen": 0, "height_px": _FRAME_PX + _ROW_PX * rows}


def _bars(one: Budget, libraries: Mapping[str, str]) -> list[Bar]:
    bars = []
    for layer in (*one.path, *one.libraries):
        step = layer.step
        begin = step.total - step.added
        low, high = step.added_ci95 or (step.added, step.added)
        name = layer_name(layer.subject, libraries)
        is_base = layer.below is None
        text = f"<b>{number(step.total)}</b>" if is_base else f"{added(layer)} = <b>{number(step.total)}</b>"
        # Of what stands on nothing there is nothing to be told apart from.
        told = is_base or step.is_told_apart
        label = name if is_base else f"+ {name}"
        bars.append(Bar(label, layer.subject, begin, step.total, begin + low, begin + high, text, told))
    for layer in one.yardsticks:
        step = layer.step
        low, high = step.total_ci95 or (step.total, step.total)
        times = f"<b>{number(step.total)}</b>  {number(step.total / one.best.step.total)} ×"
        label = layer_name(layer.subject, libraries)
        bars.append(Bar(label, layer.subject, 0.0, step.total, low, high, times, True))
    return bars


def _bar_trace(bars: Sequence[Bar]) -> dict[str, Any]:
    colours = [colour_of(bar.subject) for bar in bars]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [bar.label for bar in bars],
        "base": [shortened(bar.begin) for bar in bars],
        "x": [shortened(bar.end - bar.begin) for bar in bars],
        "width": _BAR,
        "marker": {
            "color": [colour if bar.is_told_apart else colour + _FAINT for colour, bar in zip(colours, bars, strict=True)],
            "line": {"color": colours, "width": _LINE},
            # A layer that takes time away instead of adding some.
            "pattern": {"shape": ["/" if bar.end < bar.begin else "" for bar in bars], "solidity": 0.4},
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
        "customdata": [bar.text for bar in bars],
        "hovertemplate": "%{y}: %{customdata} µs<extra></extra>",
    }


def _words(bars: Sequence[Bar], far: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "x": [shortened(max(bar.begin, bar.end, bar.high) + far * 0.012) for bar in bars],
        "y": [bar.label for bar in bars],
        "text": [bar.text for bar in bars],
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _connectors(one: Budget, bars: Sequence[Bar]) -> list[dict[str, Any]]:
    """From the end of each layer down to the beginning of those that stand on it."""
    x: list[float | None] = []
    y: list[str | None] = []
    for upper, bar in zip(bars[: len(one.path)], bars[1 : len(one.path)], strict=False):
        x += [shortened(upper.end), shortened(upper.end), None]
        y += [upper.label, bar.label, None]
    top = bars[len(one.path) - 1]
    if one.libraries:
        x += [shortened(top.end), shortened(top.end), None]
        y += [top.label, bars[len(one.path) + len(one.libraries) - 1].label, None]
    line = {"color": INK, "width": 1, "dash": "dot"}
    return [{"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip"}]


def _limit(one: Budget, bars: Sequence[Bar]) -> list[dict[str, Any]]:
    """The time that the frames occupy the wire, where that is known."""
    if one.limit_us is None:
        return []
    at = shortened(one.limit_us)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [at, at],
            "y": [bars[0].label, bars[-1].label],
            "line": {"color": GRID, "width": 3, "dash": "dash"},
            "hovertemplate": f"the wire’s limit: {number(one.limit_us)} µs<extra></extra>",
        }
    ]
