# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budget on the terminal: a table for each message size, readable at 80 columns."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from barewire.models.budget import Budget, Layer
from barewire.report.budget import added, fixed, headline, in_all, layer_name
from barewire.report.words import message_size, number
from barewire.results import Run


def print_budgets(console: Console, run: Run, budgets: Sequence[Budget]) -> None:
    """Print a table and a sentence for each size, and what limits them."""
    libraries: Mapping[str, str] = run.parameters.get("libraries", {})
    for one in budgets:
        console.print(budget_table(one, libraries))
        console.print(headline(one, libraries).replace("\u00a0", " "))
        if one.limit_us is not None:
            console.print(f"The wire's limit is {number(one.limit_us)} µs: its frames at the link's rate.")
        console.print()
    if not budgets:
        console.print("[yellow]nothing to tell: no layer was measured at all[/]")
        return
    console.print("[dim]≈ what this layer adds cannot be told from nothing.[/]")
    if any(layer.step.added_ci95 is None for one in budgets for layer in one.path):
        console.print("[dim]No interval where fewer than 6 launches were made.[/]")


def budget_table(one: Budget, libraries: Mapping[str, str]) -> Table:
    """From the wire upwards: what each layer adds, and the time with all that is below it."""
    title = f"Latency budget, {message_size(one.message_bytes)}: µs one way [95 % interval]"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("layer")
    for name in ("adds", "in all", "of all"):
        table.add_column(name, justify="right", no_wrap=True)
    best = one.best.step.total
    for layer in one.path:
        table.add_row(*_cells(layer, libraries, best, best))
    table.add_section()
    for layer in one.libraries:
        # The share of a library is by its own total.
        table.add_row(*_cells(layer, libraries, best, layer.step.total))
    if one.libraries:
        table.add_section()
    for layer in one.yardsticks:
        times = f"{number(layer.step.total / best)} ×"
        table.add_row(escape(layer_name(layer.subject, libraries)), "", escape(in_all(layer, best)), times)
    return table


def _cells(layer: Layer, libraries: Mapping[str, str], best: float, whole: float) -> list[str | Text]:
    step = layer.step
    name = layer_name(layer.subject, libraries)
    total = Text(in_all(layer, best))
    total.stylize("bold", 0, len(fixed(step.total, best)))
    if layer.below is None:
        return [escape(name), "", total, f"{step.total / whole:.0%}"]
    is_nothing = step.added_ci95 is not None and not step.is_told_apart
    adds = Text(added(layer, best) + (" ≈" if is_nothing else ""), style="dim" if is_nothing else "")
    return [f"+ {escape(name)}", adds, total, f"{step.added / whole:.0%}"]
