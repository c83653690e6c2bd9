# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an experiment on switches says, in words and tables; how they look is the terminal's and the page's business."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.results import Run
from barewire.results.sdn import NATURAL, RANDOM, UNITS, Cell, Summary
from barewire.stats.paired import Ratio

# From better to worse, as published.
_PUBLISHED_ORDER = ("isolated", "ecmp-published", "stp")
_HEADINGS = (
    "strategy",
    "hosts",
    "mean",
    "95 %",
    "of wide",
    "of star",
    "of it alone",
    "of bound",
    "of stp",
    "simulated",
    "error",
    "published",
    "busy",
    "switches",
    "controller",
)


@dataclass(frozen=True)
class SdnTable:
    """One quantity's table."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(summary: Summary) -> Iterator[SdnTable]:
    """A table for each quantity; columns that nothing is known for are left out."""
    for quantity, unit in UNITS.items():
        cells = [cell for cell in summary.cells if cell.place.quantity == quantity]
        if not cells:
            continue
        rows = [_row(cell) for cell in cells]
        kept = [at for at in range(len(_HEADINGS)) if any(row[at] for row in rows)]
        yield SdnTable(
            f"{quantity}, {unit}",
            tuple(_HEADINGS[at] for at in kept),
            tuple(tuple(row[at] for at in kept) for row in rows),
        )


def findings(run: Run, summary: Summary) -> Iterator[str]:
    """Sentences: the published order, what the best reaches, the simulator's errors, saturated launches."""
    for quantity in (RANDOM, NATURAL):
        for hosts in run.parameters["host_counts"]:
            for better, worse in itertools.pairwise(_PUBLISHED_ORDER):
                ratio = summary.ratio(quantity, hosts, better, worse)
                if ratio is not None:
                    yield f"{quantity}, {hosts} hosts: {better} ≥ {worse}: {_judged(ratio)}"
    for quantity, one in summary.predictions.items():
        where = f"{one.worst_place.policy} at {one.worst_place.hosts} hosts"
        yield (
            f"{quantity}: the simulator, calibrated on the wide network alone, is wrong by {one.mean:.1%} on average "
            f"over {one.cells} cells, at most by {one.worst:.1%} ({where})"
        )
    saturated = [launch for launch in run.launches if _is_saturated(launch.details)]
    if saturated:
        yield (
            f"saturated: in {len(saturated)} of {len(run.launches)} launches the machine was more than 85 % busy; "
            "there its cores are the limit, and strategies look alike: lower --rate"
        )


def print_sdn(console: Console, run: Run, summary: Summary) -> None:
    """Print all tables and findings."""
    for table in tables(summary):
        shown = Table(title=table.title, box=SIMPLE_HEAD, title_justify="left")
        for number, heading in enumerate(table.headings):
            shown.add_column(heading, justify="right" if number else "left", no_wrap=not number)
        for row in table.rows:
            shown.add_row(*map(escape, row))
        console.print(shown)
    for text in findings(run, summary):
        console.print(escape(text))
    console.print(f"[dim]{escape(LEGEND)}[/]")


LEGEND = (
    "Means over blocks with Student's intervals. Fractions are geometric means of pairs of one block, so of equal "
    "seeds, with bootstrap intervals from 6 blocks on, below with the range in brackets. Two references "
    "cannot block, under the same controller and with the same hosts on links of the same rate: wide is the network "
    "under test, but links between its switches carry what all hosts send together, so it has the same hops; star is "
    "one switch. The bound is what no "
    "routing beats on links that carry nothing but full frames. Published values are of links of 1 Gb/s. busy is the "
    "busiest launch's share of all cores, ! marks more than 85 %; switches and controller are cores' worth."
)


def shown_ratio(ratio: Ratio | None) -> str:
    """`0.93 (0.91–0.95)`, or with the range in brackets `[0.90–0.96]` where pairs are too few for an interval."""
    if ratio is None:
        return ""
    if ratio.ci95 is not None:
        return f"{ratio.value:.2f} ({ratio.ci95[0]:.2f}–{ratio.ci95[1]:.2f})"
    return f"{ratio.value:.2f} [{ratio.low:.2f}–{ratio.high:.2f}]"


def _row(cell: Cell) -> tuple[str, ...]:
    beside = " beside the other" if cell.place.beside else ""
    interval = "" if cell.ci95 is None else f"{cell.ci95[0]:.2f}–{cell.ci95[1]:.2f}"
    return (
        f"{cell.place.policy}{beside}",
        str(cell.place.hosts),
        f"{cell.mean:.3f}",
        interval,
        shown_ratio(cell.of_wide),
        shown_ratio(cell.of_star),
        shown_ratio(cell.of_alone),
        shown_ratio(cell.of_bound),
        shown_ratio(cell.of_stp),
        "" if cell.predicted is None else f"{cell.predicted:.3f}",
        "" if cell.error is None else f"{cell.error:+.1%}",
        "" if cell.published is None else f"{cell.published:.1f}",
        f"{cell.busy_share:.0%}{'!' if cell.saturated else ''}",
        f"{cell.switches_cores:.2f}",
        f"{cell.controller_cores:.2f}",
    )


def _judged(ratio: Ratio) -> str:
    said = shown_ratio(ratio)
    if ratio.ci95 is None:
        return f"{said}; too few blocks to say more"
    if ratio.ci95[0] >= 1:
        return f"yes, {said}"
    return f"NO, {said}" if ratio.ci95[1] < 1 else f"no difference shown, {said}"


def _is_saturated(details: dict[str, object]) -> bool:
    start = details.get("start")
    facts = start.get("sdn") if isinstance(start, dict) else None
    return bool(facts and facts["load"] and facts["load"]["saturated"])
