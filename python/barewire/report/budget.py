# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budget as text: names of layers, sentences, and its section of the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from barewire.models.budget import Budget, Layer
from barewire.models.naming import FLOOR, read_mpi_subject
from barewire.report.budget_figure import Formatters, waterfall
from barewire.report.words import interval_heading, message_size, number, quantity, subject_name
from barewire.results.budget import budgets_of
from barewire.results.run import Run
from barewire.stats.comparison import RESAMPLES

# Display names of the layers.
_LAYER_NAMES = {
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
_FABRIC_SUFFIXES = {"barewire": "", "tcp": " over TCP", "ucx": " over UCX’s TCP", "udp": " over UDP"}


def layer_name(subject: str, libraries: Mapping[str, str]) -> str:
    """Display name of a layer: `openmpi-5/tcp` → Open MPI 5.0.11 over TCP; `libraries` has the versions."""
    mpi = read_mpi_subject(subject)
    if mpi is None:
        return _LAYER_NAMES.get(subject) or subject_name(subject)
    return libraries.get(mpi.library, mpi.library) + _FABRIC_SUFFIXES.get(mpi.fabric, f" over {mpi.fabric}")


def headline(budget: Budget, libraries: Mapping[str, str]) -> str:
    """Two sentences about one size: the time of the frames and of the layers above them, and TCP for comparison."""
    first, best, yardstick = budget.path[0], budget.best, budget.best_yardstick
    size = message_size(budget.message_bytes).replace(" ", "\u00a0")
    total, frames = quantity(best.step.total, "us"), quantity(first.step.total, "us")
    above = quantity(best.step.total - first.step.total, "us")
    base = "the frames themselves" if first.subject == FLOOR else layer_name(first.subject, libraries)
    text = f"{size} take {total} one way through {layer_name(best.subject, libraries)}: {base} {frames}, "
    text += f"all layers above {above}."
    if yardstick is not None:
        times = number(yardstick.step.total / best.step.total)
        beside = layer_name(yardstick.subject, libraries)
        text += f" The best over TCP, {beside}, takes {quantity(yardstick.step.total, 'us')}, {times}\u00a0× that."
    return text


def headlines(run: Run) -> list[str]:
    """Headlines for the shortest and the longest message; empty for a run of another kind."""
    budgets = budgets_of(run)
    return [headline(budget, run.parameters["libraries"]) for budget in dict.fromkeys([*budgets[:1], *budgets[-1:]])]


def fixed(value: float, path_total_us: float) -> str:
    """A value with decimals chosen by the total: nanoseconds below 10 µs, fewer for longer totals."""
    decimals = next((n for n, most in ((3, 10), (2, 100), (1, 1000)) if path_total_us < most), 0)
    return f"{'−' if value < 0 and round(value, decimals) else ''}{abs(value):.{decimals}f}"


def added(layer: Layer, path_total_us: float) -> str:
    """`+0.062 [0.055, 0.070]`: the time that a layer adds, in µs, with decimals for the total `path_total_us`."""
    step = layer.step
    value = fixed(step.added, path_total_us)
    signed = value if value.startswith("−") else f"+{value}"
    return f"{signed} {_interval(step.added_interval, path_total_us)}".rstrip()


def cumulative(layer: Layer, path_total_us: float) -> str:
    """`1.013 [1.002, 1.020]`: the time of a layer and all layers below it, in µs."""
    return f"{fixed(layer.step.total, path_total_us)} {_interval(layer.step.total_interval, path_total_us)}".rstrip()


def _interval(interval: tuple[float, float] | None, path_total_us: float) -> str:
    return "" if interval is None else f"[{fixed(interval[0], path_total_us)}, {fixed(interval[1], path_total_us)}]"


def sections(run: Run) -> list[dict[str, Any]]:
    """The budget's section of the page; empty for a run of another kind."""
    budgets, libraries = budgets_of(run), run.parameters.get("libraries", {})
    if not budgets:
        return []

    def name(subject: str) -> str:
        return layer_name(subject, libraries)

    names = Formatters(name, added, fixed)
    whole = waterfall(budgets, names, beside=True)
    for choice, each in zip(whole["choices"], budgets, strict=True):
        choice["caption"] = _caption(each, run.confidence)
    pictures = [{"title": "From the wire up", "caption": "", "figure": whole, "full": True}]
    if all(len(budget.path) > 1 for budget in budgets):
        close = "The same from the end of the first bar on, without TCP: the time that software adds to the frames."
        figure = waterfall(budgets, names, beside=False)
        pictures.append({"title": "Close up", "caption": close, "figure": figure, "full": True})
    return [
        {
            "id": "budget",
            "title": "Latency budget: what each layer adds",
            "explanation": "Half the round trip of the same payload through every layer of one path, in µs, with "
            "interleaved launches. Intervals of differences come from whole rounds, resampled "
            f"{RESAMPLES} times, so that a disturbance of a whole round does not count as a difference.",
            "figures": pictures,
            "tables": [_table(budgets, libraries)],
        }
    ]


def _caption(budget: Budget, confidence: float) -> str:
    """What the waterfall of one size shows."""
    layers = [*budget.path, *budget.libraries]
    steps = [layer.step for layer in layers if layer.below]
    parts = ["A bar begins where that of the layer below ends: its length is the difference of the two medians."]
    if any(layer.step.total_interval for layer in layers):
        parts.append(f"The line across its end is that difference’s {interval_heading(confidence)}.")
    if any(step.added_interval and not step.is_told_apart for step in steps):
        parts.append("Faint: not significantly different from 0.")
    if any(step.added < 0 for step in steps):
        parts.append("Hatched: negative.")
    if len(budget.libraries) > 1:
        parts.append(f"The {len(budget.libraries)} libraries are side by side on the same layer.")
    if budget.yardsticks:
        parts.append("At the bottom totals over TCP, with the ratio to the fastest over Barewire.")
    if budget.limit_us is not None:
        parts.append("Dashed: the wire’s limit.")
    return " ".join(parts)


def _table(budgets: Sequence[Budget], libraries: Mapping[str, str]) -> dict[str, Any]:
    """All sizes: a row per layer; per size the time it adds and the total up to it."""
    cells: dict[str, dict[int, tuple[str, str]]] = {}
    for budget in budgets:
        for layer in (*budget.path, *budget.libraries, *budget.yardsticks):
            path_total_us = budget.best.step.total
            texts = (added(layer, path_total_us) if layer.below else "", cumulative(layer, path_total_us))
            cells.setdefault(layer_name(layer.subject, libraries), {})[budget.message_bytes] = texts
    headings = ["layer"]
    for budget in budgets:
        headings += [f"{message_size(budget.message_bytes)}: adds, µs", "in all, µs"]
    rows = [
        [name, *(text for budget in budgets for text in of_sizes.get(budget.message_bytes, ("–", "–")))]
        for name, of_sizes in cells.items()
    ]
    limits = [
        f"{message_size(budget.message_bytes)} {number(budget.limit_us)} µs"
        for budget in budgets
        if budget.limit_us is not None
    ]
    notes = [f"The wire’s limit, its frames at the link’s rate: {', '.join(limits)}."] if limits else []
    return {"title": "All numbers", "headings": headings, "rows": rows, "notes": notes}
