# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A host's run shown: tables and bars on the terminal, figures for the page."""

import math
from collections.abc import Sequence

from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from barewire.report.figures import Figure, bars
from barewire.report.words import interval, message_size, number, quantity, subject_name, test_title, unit_name
from barewire.results import Run
from barewire.results.host import HOST_TEST_ORDER, Crossover, Measure, Reference

# Half to double fill the bar; what lies beyond ends at its edge, and the number beside it says how far.
_FULL_BAR_LOG2 = 1.0
_BAR_COLUMNS = 24
WORSE, BETTER = "#D55E00", "#0072B2"


def print_host(
    console: Console,
    run: Run,
    measures: Sequence[Measure],
    crossovers: Sequence[Crossover],
    reference: Reference | None,
) -> None:
    """Print all measures, the crossovers, and bars against the reference."""
    for test in HOST_TEST_ORDER:
        sized = [one for one in measures if one.name.startswith(f"{test}/") and one.block_bytes is not None]
        if sized:
            console.print(_sizes_table(test, sized))
    times = [one for one in measures if one.block_bytes is None]
    if times:
        console.print(_times_table(times))
    for one in crossovers:
        console.print(f"{one.name}: {sentence(one)}")
    compared = chosen_for_bars(measures)
    if reference is not None and compared:
        console.print(_bars_table(compared, reference))
    for warning in run.warnings:
        console.print(f"[yellow]{escape(warning)}[/]")
    if not run.complete:
        console.print(f"[yellow]This run is incomplete (stopped by {escape(str(run.stopped_by))}).[/]")
    if any(one.ci95 is None for one in measures):
        console.print("[dim]No interval where fewer than 6 launches were made.[/]")


def sentence(one: Crossover) -> str:
    """Up to which size the first way is cheaper, with the interval."""
    if one.bytes >= one.largest_bytes:
        said = f"{one.first} is cheaper at all sizes up to {message_size(one.largest_bytes)}"
    elif one.bytes <= one.smallest_bytes:
        said = f"{one.second} is cheaper at all sizes from {message_size(one.smallest_bytes)}"
    else:
        said = f"{one.first} is cheaper up to {number(one.bytes, 4)} B, {one.second} above"
    return said if one.ci95 is None else f"{said}; 95 % interval {interval(one.ci95, 4)} B"


def headlines(measures: Sequence[Measure], crossovers: Sequence[Crossover], reference: Reference | None) -> list[str]:
    """What the run says in a few sentences."""
    found = []
    reads = [one for one in measures if one.name == "memory/read" and one.block_bytes]
    if reads:
        near, far = reads[0], reads[-1]
        found.append(
            f"Memory is read at {quantity(near.median, near.unit)} in blocks of {message_size(near.block_bytes or 0)} "
            f"and at {quantity(far.median, far.unit)} in blocks of {message_size(far.block_bytes or 0)}."
        )
    named = {one.name: one for one in measures}
    if "syscall/getppid" in named and "switch/process" in named:
        call, switch = named["syscall/getppid"].median, named["switch/process"].median
        found.append(f"A system call takes {quantity(call, 'ns')}, a context switch {quantity(switch, 'ns')}.")
    found += [f"{one.name.capitalize()}: {sentence(one)}." for one in crossovers]
    if reference is not None:
        system = reference.environment
        found.append(f"Reference: run {reference.run}, {system.get('cpu')}, Linux {system.get('kernel')}.")
    return found


def chosen_for_bars(measures: Sequence[Measure]) -> list[Measure]:
    """Those with a reference; of each that has sizes only the smallest and the largest."""
    compared = [one for one in measures if one.times_reference is not None]
    ends: dict[str, list[int]] = {}
    for one in compared:
        ends.setdefault(one.name, []).append(one.block_bytes or 0)
    return [one for one in compared if (one.block_bytes or 0) in (min(ends[one.name]), max(ends[one.name]))]


def bar_figure(measures: Sequence[Measure]) -> Figure:
    """How many times better than the reference, one bar each, on a logarithmic axis around 1."""
    labels = [_label(one) for one in measures]
    values = [one.times_reference or 1.0 for one in measures]
    return bars(labels, values, [BETTER if value >= 1 else WORSE for value in values], "times as good as the reference")


def _sizes_table(test: str, measures: Sequence[Measure]) -> Table:
    """Sizes × subjects."""
    title = f"{test_title(test)}, {unit_name(measures[0].unit)}: median ± half its 95 % interval"
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    table.add_column("block", justify="right", no_wrap=True)
    names = list(dict.fromkeys(one.name for one in measures))
    for name in names:
        table.add_column(subject_name(name.partition("/")[2]), justify="right")
    cells = {(one.block_bytes, one.name): _median(one) for one in measures}
    for size in sorted({one.block_bytes or 0 for one in measures}):
        table.add_row(message_size(size), *(cells.get((size, name), "–") for name in names))
    return table


def _median(one: Measure) -> str:
    if one.ci95 is None:
        return number(one.median)
    return f"{number(one.median)} [dim]±{(one.ci95[1] - one.ci95[0]) / 2 / one.median:.0%}[/]"


def _times_table(measures: Sequence[Measure]) -> Table:
    table = Table(title="Times without a size, ns", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in ("median [95 %]", "min", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in measures:
        median = number(one.median) + ("" if one.ci95 is None else f" {interval(one.ci95)}")
        table.add_row(one.name, median, number(one.min), number(one.p99))
    return table


def _bars_table(measures: Sequence[Measure], reference: Reference) -> Table:
    title = f"Against the reference {reference.run}: bars from half as good (left) to twice (right)"
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    for name in ("", "block"):
        table.add_column(name, no_wrap=True)
    table.add_column("times", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in measures:
        times = one.times_reference or 1.0
        size = "" if one.block_bytes is None else message_size(one.block_bytes)
        table.add_row(one.name, size, number(times), _bar(times))
    return table


def _bar(times: float) -> RenderableType:
    far = max(-1.0, min(1.0, math.log2(times) / _FULL_BAR_LOG2))
    colour = "green" if far >= 0 else "red"
    return Bar(2.0, 1 + min(far, 0.0), 1 + max(far, 0.0), width=_BAR_COLUMNS, color=colour)


def _label(one: Measure) -> str:
    return one.name if one.block_bytes is None else f"{one.name} {message_size(one.block_bytes)}"
