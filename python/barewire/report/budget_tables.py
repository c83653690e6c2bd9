# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budget on the terminal: a table for each message size, readable at 80 columns."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from barewire.models.budget import Budget, Layer
from barewire.report.budget import added, cumulative, fixed, headline, layer_name
from barewire.report.words import interval_heading, message_size, number
from barewire.results.run import Run
from barewire.stats.confidence import launches_for_interval


def print_budgets(console: Console, run: Run, budgets: Sequence[Budget]) -> None:
    """Print a table, a sentence and the wire limit for each size."""
    libraries: Mapping[str, str] = run.parameters.get("libraries", {})
    for budget in budgets:
        console.print(budget_table(budget, libraries, run.confidence))
        console.print(headline(budget, libraries).replace("\u00a0", " "))
        if budget.limit_us is not None:
            console.print(f"The wire's limit is {number(budget.limit_us)} µs: its frames at the link's rate.")
        console.print()
    if not budgets:
        console.print("[yellow]no result: no layer was measured[/]")
        return
    console.print("[dim]≈ not significantly different from 0.[/]")
    if any(layer.step.added_interval is None for budget in budgets for layer in budget.path):
        console.print(
            f"[dim]No interval where fewer than {launches_for_interval(run.confidence)} launches were made.[/]"
        )


def budget_table(budget: Budget, libraries: Mapping[str, str], confidence: float) -> Table:
    """From the wire upwards: the time that each layer adds, and the total up to it."""
    title = f"Latency budget, {message_size(budget.message_bytes)}: µs one way [{interval_heading(confidence)}]"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("layer")
    for name in ("adds", "in all", "of all"):
        table.add_column(name, justify="right", no_wrap=True)
    best = budget.best.step.total
    for layer in budget.path:
        table.add_row(*_cells(layer, libraries, best, best))
    table.add_section()
    for layer in budget.libraries:
        # The share of a library refers to its own total.
        table.add_row(*_cells(layer, libraries, best, layer.step.total))
    if budget.libraries:
        table.add_section()
    for layer in budget.yardsticks:
        times = f"{number(layer.step.total / best)} ×"
        table.add_row(escape(layer_name(layer.subject, libraries)), "", escape(cumulative(layer, best)), times)
    return table


def _cells(layer: Layer, libraries: Mapping[str, str], best: float, path_total_us: float) -> list[str | Text]:
    step = layer.step
    name = layer_name(layer.subject, libraries)
    total = Text(cumulative(layer, best))
    total.stylize("bold", 0, len(fixed(step.total, best)))
    if layer.below is None:
        return [escape(name), "", total, f"{step.total / path_total_us:.0%}"]
    is_nothing = step.added_interval is not None and not step.is_told_apart
    adds = Text(added(layer, best) + (" ≈" if is_nothing else ""), style="dim" if is_nothing else "")
    return [f"+ {escape(name)}", adds, total, f"{step.added / path_total_us:.0%}"]
