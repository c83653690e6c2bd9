# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The report of a host's run: tables and bars on the terminal, figures for the page."""

import math
from collections.abc import Sequence

from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from barewire.report.figures import Figure, bars
from barewire.report.profile import TextTable
from barewire.report.words import (
    bounds,
    interval,
    message_size,
    number,
    percent,
    quantity,
    subject_name,
    test_title,
    unit_name,
)
from barewire.results.host import HOST_TEST_ORDER, Crossover, Measure, Reference
from barewire.results.run import Run
from barewire.stats.confidence import CONFIDENCE, launches_for_interval

# The bar spans half to double; larger deviations end at its edge, with the number beside it.
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
        sized = [
            measure for measure in measures if measure.name.startswith(f"{test}/") and measure.block_bytes is not None
        ]
        if sized:
            console.print(_sizes_table(test, sized, run.confidence))
    times = [measure for measure in measures if measure.block_bytes is None]
    if times:
        console.print(_times_table(times, run.confidence))
    for crossover in crossovers:
        console.print(f"{crossover.name}: {sentence(crossover, run.confidence)}")
    compared = chosen_for_bars(measures)
    if reference is not None and compared:
        console.print(_bars_table(compared, reference))
    for warning in run.warnings:
        console.print(f"[yellow]{escape(warning)}[/]")
    if not run.complete:
        console.print(f"[yellow]This run is incomplete (stopped by {escape(str(run.stopped_by))}).[/]")
    if any(measure.interval is None for measure in measures):
        needed = launches_for_interval(run.confidence)
        console.print(f"[dim]No interval where fewer than {needed} launches were made.[/]")


def sentence(crossover: Crossover, confidence: float = CONFIDENCE) -> str:
    """The size up to which the first method is cheaper, with its interval."""
    if crossover.bytes >= crossover.largest_bytes:
        text = f"{crossover.first} is cheaper at all sizes up to {message_size(crossover.largest_bytes)}"
    elif crossover.bytes <= crossover.smallest_bytes:
        text = f"{crossover.second} is cheaper at all sizes from {message_size(crossover.smallest_bytes)}"
    else:
        text = f"{crossover.first} is cheaper up to {number(crossover.bytes, 4)} B, {crossover.second} above"
    if crossover.interval is None:
        return text
    return f"{text}; {percent(confidence)} interval {interval(crossover.interval, 4)} B"


def headlines(
    measures: Sequence[Measure], crossovers: Sequence[Crossover], reference: Reference | None, confidence: float
) -> list[str]:
    """The key results of the run in sentences."""
    found = []
    reads = [measure for measure in measures if measure.name == "memory/read" and measure.block_bytes]
    if reads:
        near, far = reads[0], reads[-1]
        found.append(
            f"Memory is read at {quantity(near.median, near.unit)} in blocks of {message_size(near.block_bytes or 0)} "
            f"and at {quantity(far.median, far.unit)} in blocks of {message_size(far.block_bytes or 0)}."
        )
    named = {measure.name: measure for measure in measures}
    if "syscall/getppid" in named and "switch/process" in named:
        call, switch = named["syscall/getppid"].median, named["switch/process"].median
        found.append(f"A system call takes {quantity(call, 'ns')}, a context switch {quantity(switch, 'ns')}.")
    found += [f"{crossover.name.capitalize()}: {sentence(crossover, confidence)}." for crossover in crossovers]
    if reference is not None:
        system = reference.environment
        found.append(f"Reference: run {reference.run}, {system.get('cpu')}, Linux {system.get('kernel')}.")
    return found


def tables_of(measures: Sequence[Measure], confidence: float = CONFIDENCE) -> list[TextTable]:
    """All measures as text: a table of sizes and subjects for each test that has sizes, and one of the others."""
    tables = []
    caption = f"Median, with its {percent(confidence)} interval if there are launches enough."
    for test in HOST_TEST_ORDER:
        sized = [each for each in measures if each.name.startswith(f"{test}/") and each.block_bytes is not None]
        if not sized:
            continue
        cells = {(each.block_bytes, each.name): _with_interval(each) for each in sized}
        names = tuple(dict.fromkeys(each.name for each in sized))
        sizes = sorted({each.block_bytes for each in sized if each.block_bytes is not None})
        rows = tuple((message_size(size), *(cells.get((size, name), "–") for name in names)) for size in sizes)
        subjects = tuple(subject_name(name.partition("/")[2]) for name in names)
        tables.append(TextTable(f"{test_title(test)}, {unit_name(sized[0].unit)}", caption, ("block", *subjects), rows))
    others = [each for each in measures if each.block_bytes is None]
    if others:
        rows = tuple((each.name, _with_interval(each), number(each.min), number(each.p99)) for each in others)
        tables.append(TextTable("Times without a size, ns", caption, ("", "median", "min", "p99"), rows))
    return tables


def _with_interval(measure: Measure) -> str:
    return f"{number(measure.median)} {bounds(measure.interval)}".rstrip()


def chosen_for_bars(measures: Sequence[Measure]) -> list[Measure]:
    """Measures with a reference; for those with sizes only the smallest and the largest."""
    compared = [measure for measure in measures if measure.times_reference is not None]
    ends: dict[str, list[int]] = {}
    for measure in compared:
        ends.setdefault(measure.name, []).append(measure.block_bytes or 0)
    return [
        measure
        for measure in compared
        if (measure.block_bytes or 0) in (min(ends[measure.name]), max(ends[measure.name]))
    ]


def bar_figure(measures: Sequence[Measure]) -> Figure:
    """One bar per measure: how many times better than the reference, on a logarithmic axis around 1."""
    labels = [_label(measure) for measure in measures]
    values = [measure.times_reference or 1.0 for measure in measures]
    return bars(labels, values, [BETTER if value >= 1 else WORSE for value in values], "times as good as the reference")


def _sizes_table(test: str, measures: Sequence[Measure], confidence: float) -> Table:
    """Sizes × subjects."""
    title = f"{test_title(test)}, {unit_name(measures[0].unit)}: median ± half its {percent(confidence)} interval"
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    table.add_column("block", justify="right", no_wrap=True)
    names = list(dict.fromkeys(measure.name for measure in measures))
    for name in names:
        table.add_column(subject_name(name.partition("/")[2]), justify="right")
    cells = {(measure.block_bytes, measure.name): _median(measure) for measure in measures}
    for size in sorted({measure.block_bytes or 0 for measure in measures}):
        table.add_row(message_size(size), *(cells.get((size, name), "–") for name in names))
    return table


def _median(measure: Measure) -> str:
    if measure.interval is None:
        return number(measure.median)
    return f"{number(measure.median)} [dim]±{(measure.interval[1] - measure.interval[0]) / 2 / measure.median:.0%}[/]"


def _times_table(measures: Sequence[Measure], confidence: float) -> Table:
    table = Table(title="Times without a size, ns", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in (f"median [{percent(confidence)}]", "min", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    for measure in measures:
        median = number(measure.median) + ("" if measure.interval is None else f" {interval(measure.interval)}")
        table.add_row(measure.name, median, number(measure.min), number(measure.p99))
    return table


def _bars_table(measures: Sequence[Measure], reference: Reference) -> Table:
    title = f"Against the reference {reference.run}: bars from half as good (left) to twice (right)"
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    for name in ("", "block"):
        table.add_column(name, no_wrap=True)
    table.add_column("times", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for measure in measures:
        times = measure.times_reference or 1.0
        size = "" if measure.block_bytes is None else message_size(measure.block_bytes)
        table.add_row(measure.name, size, number(times), _bar(times))
    return table


def _bar(times: float) -> RenderableType:
    far = max(-1.0, min(1.0, math.log2(times) / _FULL_BAR_LOG2))
    colour = "green" if far >= 0 else "red"
    return Bar(2.0, 1 + min(far, 0.0), 1 + max(far, 0.0), width=_BAR_COLUMNS, color=colour)


def _label(measure: Measure) -> str:
    return measure.name if measure.block_bytes is None else f"{measure.name} {message_size(measure.block_bytes)}"
