# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budget in words: names of layers, sentences, the page's part about it."""

from collections.abc import Mapping, Sequence
from typing import Any

from barewire.models.budget import Budget, Layer
from barewire.models.naming import FLOOR, read_mpi_subject
from barewire.report.budget_figure import Names, waterfall
from barewire.report.words import message_size, number, quantity, subject_name
from barewire.results import Run
from barewire.results.budget import budgets_of
from barewire.stats.comparison import RESAMPLES

# What each layer of the path brings.
_BRINGS = {
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
_OVER = {"barewire": "", "tcp": " over TCP", "ucx": " over UCX’s TCP", "udp": " over UDP"}


def layer_name(subject: str, libraries: Mapping[str, str]) -> str:
    """A layer in words: `openmpi-5/tcp` → Open MPI 5.0.11 over TCP; `libraries` has the versions."""
    mpi = read_mpi_subject(subject)
    if mpi is None:
        return _BRINGS.get(subject) or subject_name(subject)
    return libraries.get(mpi.library, mpi.library) + _OVER.get(mpi.fabric, f" over {mpi.fabric}")


def headline(one: Budget, libraries: Mapping[str, str]) -> str:
    """One size in two sentences: what the frames take, what all layers above add, and TCP beside it."""
    first, best, yardstick = one.path[0], one.best, one.best_yardstick
    size = message_size(one.message_bytes).replace(" ", "\u00a0")
    total, frames = quantity(best.step.total, "us"), quantity(first.step.total, "us")
    above = quantity(best.step.total - first.step.total, "us")
    base = "the frames themselves" if first.subject == FLOOR else layer_name(first.subject, libraries)
    said = f"{size} take {total} one way through {layer_name(best.subject, libraries)}: {base} {frames}, "
    said += f"all layers above {above}."
    if yardstick is not None:
        times = number(yardstick.step.total / best.step.total)
        beside = layer_name(yardstick.subject, libraries)
        said += f" The best over TCP, {beside}, takes {quantity(yardstick.step.total, 'us')}, {times}\u00a0× that."
    return said


def headlines(run: Run) -> list[str]:
    """The shortest and the longest message; none of a run of another kind."""
    budgets = budgets_of(run)
    return [headline(one, run.parameters["libraries"]) for one in dict.fromkeys([*budgets[:1], *budgets[-1:]])]


def fixed(value: float, whole: float) -> str:
    """A part of a whole with as many decimals as all its other parts: nanoseconds below 10 µs, then ever fewer."""
    decimals = next((n for n, most in ((3, 10), (2, 100), (1, 1000)) if whole < most), 0)
    return f"{'−' if value < 0 and round(value, decimals) else ''}{abs(value):.{decimals}f}"


def added(layer: Layer, whole: float) -> str:
    """`+0.062 [0.055, 0.070]` of a whole, in µs."""
    step = layer.step
    value = fixed(step.added, whole)
    signed = value if value.startswith("−") else f"+{value}"
    return f"{signed} {_interval(step.added_ci95, whole)}".rstrip()


def in_all(layer: Layer, whole: float) -> str:
    """`1.013 [1.002, 1.020]`: a layer with all that is below it, in µs."""
    return f"{fixed(layer.step.total, whole)} {_interval(layer.step.total_ci95, whole)}".rstrip()


def _interval(ci95: tuple[float, float] | None, whole: float) -> str:
    return "" if ci95 is None else f"[{fixed(ci95[0], whole)}, {fixed(ci95[1], whole)}]"


def sections(run: Run) -> list[dict[str, Any]]:
    """The page's part about the budget; empty for a run of another kind."""
    budgets, libraries = budgets_of(run), run.parameters.get("libraries", {})
    if not budgets:
        return []

    def name(subject: str) -> str:
        return layer_name(subject, libraries)

    names = Names(name, added, fixed)
    whole = (
        "A bar begins where that of the layer below ends, and is as long as the difference of the two medians; the "
        "line across its end is the 95 % interval of that difference. Faint: cannot be told from nothing. Hatched: "
        "takes time away. Libraries stand side by side on libfabric. At the foot the same over TCP, each as a whole, "
        "and how many times the fastest library over Barewire it takes."
    )
    pictures = [{"title": "From the wire up", "caption": whole, "figure": waterfall(budgets, names, beside=True)}]
    if all(len(one.path) > 1 for one in budgets):
        close = "The same from the end of the first bar on, without TCP: what software adds to the frames."
        pictures.append({"title": "Close up", "caption": close, "figure": waterfall(budgets, names, beside=False)})
    return [
        {
            "id": "budget",
            "title": "Latency budget: what each layer adds",
            "explanation": "The same bytes there and back through every layer of one path, launched in turn in this "
            "one run: half a round trip, in µs. Differences and their intervals come from whole rounds, resampled "
            f"{RESAMPLES} times: what disturbed a whole round is no difference between its layers.",
            "figures": pictures,
            "tables": [_table(budgets, libraries)],
        }
    ]


def _table(budgets: Sequence[Budget], libraries: Mapping[str, str]) -> dict[str, Any]:
    """All sizes: a row for each layer, and for each size what it adds and the time with all below it."""
    cells: dict[str, dict[int, tuple[str, str]]] = {}
    for one in budgets:
        for layer in (*one.path, *one.libraries, *one.yardsticks):
            whole = one.best.step.total
            texts = (added(layer, whole) if layer.below else "", in_all(layer, whole))
            cells.setdefault(layer_name(layer.subject, libraries), {})[one.message_bytes] = texts
    headings = ["layer"]
    for one in budgets:
        headings += [f"{message_size(one.message_bytes)}: adds, µs", "in all, µs"]
    rows = [
        [name, *(text for one in budgets for text in of_sizes.get(one.message_bytes, ("–", "–")))]
        for name, of_sizes in cells.items()
    ]
    limits = [
        f"{message_size(one.message_bytes)} {number(one.limit_us)} µs" for one in budgets if one.limit_us is not None
    ]
    notes = [f"The wire’s limit, its frames at the link’s rate: {', '.join(limits)}."] if limits else []
    return {"title": "All numbers", "headings": headings, "rows": rows, "notes": notes}
