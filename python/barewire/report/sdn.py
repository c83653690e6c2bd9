# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results of an experiment on switches as text and tables, for the terminal and for the page."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.report.words import decimals, percent
from barewire.results.run import Run
from barewire.results.sdn import NATURAL, RANDOM, Cell, Ranking, Summary, unit_of
from barewire.stats.confidence import launches_for_interval
from barewire.stats.paired import Ratio

# From better to worse, as published.
_PUBLISHED_ORDER = ("isolated", "ecmp-published", "stp")
_DOCUMENT_COLUMNS = 200
# Stands for the intervals' confidence.
_INTERVAL = "interval"
_HEADINGS = (
    "strategy",
    "hosts",
    "mean",
    _INTERVAL,
    "of wide",
    "of star",
    "of it alone",
    "of bound",
    "of stp",
    "simulated",
    "error (largest)",
    "published",
    "busy",
    "switches",
    "controller",
)


@dataclass(frozen=True)
class SdnTable:
    """One quantity's table."""

    quantity: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(summary: Summary) -> Iterator[SdnTable]:
    """A table for each quantity, without empty columns."""
    for quantity in summary.quantities:
        unit = unit_of(quantity)
        cells = [cell for cell in summary.cells if cell.place.quantity == quantity]
        rows = [_row(cell) for cell in cells]
        kept = [at for at in range(len(_HEADINGS)) if any(row[at] for row in rows)]
        yield SdnTable(
            quantity,
            f"{quantity}, {unit}",
            tuple(percent(cells[0].confidence) if _HEADINGS[at] == _INTERVAL else _HEADINGS[at] for at in kept),
            tuple(tuple(row[at] for at in kept) for row in rows),
        )


def headlines(run: Run, summary: Summary) -> list[str]:
    """Sentences: the published order, the best strategy, the interference of jobs, the simulator's errors."""
    found = [text for hosts in run.parameters["host_counts"] for text in _of_hosts(summary, hosts)]
    for quantity, prediction in summary.predictions.items():
        where = f"{prediction.worst_place.policy} at {prediction.worst_place.hosts} hosts"
        found.append(
            f"{quantity.capitalize()}: the simulator, calibrated only on the wide network, has a mean error of "
            f"{prediction.mean:.1%} over {prediction.launches} launches, at most {prediction.worst:.1%} ({where})."
        )
    return found


def warnings(run: Run) -> list[str]:
    """Launches in which the machine was the limit, and problems of launches."""
    facts = [(launch, start["sdn"]) for launch in run.launches if (start := launch.details["start"]).get("sdn")]
    saturated = [launch for launch, known in facts if known["load"] and known["load"]["saturated"]]
    found = []
    if saturated:
        found.append(
            f"Saturated: in {len(saturated)} of {len(run.launches)} launches the machine was over 85 % busy. There "
            "its cores are a limit, too, and differences between strategies appear smaller, so nothing is said of "
            "them: use a lower --rate, or an idle machine."
        )
    return found + [f"Launch {launch.index}: {note}" for launch, known in facts for note in known["notes"]]


def calibration(run: Run) -> str:
    """The simulator's two parameters as text."""
    found = run.parameters.get("calibration")
    if not found:
        obstacle = run.parameters.get("calibration_obstacle")
        return f"none in this run: {obstacle}" if obstacle else "none in this run"
    return (
        f"payload is {found['efficiency']:.3f} of a link's rate, a message takes another "
        f"{found['overhead_s'] * 1e3:.2f} ms; the largest residual of the fit is {found['worst_residual']:.1%}"
    )


def _of_hosts(summary: Summary, hosts: int) -> Iterator[str]:
    for better, worse in pairwise(_PUBLISHED_ORDER):
        verdict = summary.verdict(RANDOM, hosts, better, worse)
        if verdict is not None:
            ratio = shown_ratio(summary.ratio(RANDOM, hosts, better, worse))
            answer = {"better": "yes", "worse": "NO"}.get(verdict, verdict)
            yield f"{hosts} hosts, random rings: {better} ≥ {worse}? {answer}, {ratio}."
    for ranking in summary.rankings():
        if ranking.first.hosts == hosts:
            yield _ranked(summary, ranking)
    for cell in summary.cells:
        if cell.of_alone is not None and cell.place.hosts == hosts and cell.place.quantity != NATURAL:
            what = f"{hosts} hosts, {cell.place.policy}: {cell.place.quantity} beside the other job"
            if cell.unit == "ms":
                yield f"{what} {1 / cell.of_alone.value:.1f} times that alone."
            else:
                yield f"{what} {shown_ratio(cell.of_alone)} of alone."


def _ranked(summary: Summary, ranking: Ranking) -> str:
    """Say which strategy is best, or why that cannot be said."""
    first = ranking.first
    cell = summary.cell(first.quantity, first.hosts, first.policy, beside=first.beside)
    assert cell is not None
    what = f"{first.hosts} hosts, {first.quantity}{' beside the other job' if first.beside else ''}"
    value = f"{shown_ratio(cell.of_wide)} of the wide network" if cell.of_wide else f"{cell.mean:.3g} {cell.unit}"
    if ranking.best is None:
        return f"{what}: cannot say which is best: {ranking.reason}. First is {first.policy}, {value}."
    isolated = summary.ratio(first.quantity, first.hosts, first.policy, "isolated")
    beside = (
        ""
        if isolated is None or first.beside or first.policy == "isolated"
        else f", and {shown_ratio(isolated)} of isolated"
    )
    return f"{what}: best is {first.policy}, {value}{beside}."


def print_sdn(console: Console, run: Run, summary: Summary) -> None:
    """Print all tables and findings; at full width if the output is not a terminal."""
    if not console.is_terminal:
        console.width = max(console.width, _DOCUMENT_COLUMNS)
    for table in tables(summary):
        shown = Table(title=table.title, box=SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
        for number, heading in enumerate(table.headings):
            shown.add_column(heading, justify="right" if number else "left", no_wrap=True)
        for row in table.rows:
            shown.add_row(*map(escape, row))
        console.print(shown)
    for text in headlines(run, summary):
        console.print(escape(text))
    for text in (*run.warnings, *warnings(run)):
        console.print(f"[yellow]{escape(text)}[/]")
    console.print(f"[dim]{escape(legend(run.confidence))}[/]")


def legend(confidence: float) -> str:
    """How to read the tables."""
    return _LEGEND.format(sure=percent(confidence), few=launches_for_interval(confidence))


_LEGEND = (
    "Geometric means over blocks; fractions are those of pairs in a block, so with equal seeds. Intervals are "
    "Student's, of logarithms, from {few} blocks on; otherwise the range is in brackets. A strategy is called best or "
    "better only if Student's paired test, of the logarithms of the ratios within a block, finds it so at {sure}, "
    "corrected over all pairs of strategies and numbers of hosts (Holm), from {few} blocks on, and if no launch was "
    "saturated. Two references "
    "cannot block, under the same controller and with the same hosts on links of the same rate: wide is the network "
    "under test with links between switches that can carry the traffic of all hosts, so it has the same hops; star is "
    "one switch. The bound is the optimum of "
    "any routing, on links that carry only full frames. Published values are from links of 1 Gb/s. busy is the "
    "busiest launch's share of all cores, ! marks more than 85 %; switches and controller are numbers of cores."
)


def shown_ratio(ratio: Ratio | None) -> str:
    """`0.93 (0.91–0.95)`, or with the range `[0.90–0.96]` if there are too few pairs for an interval."""
    if ratio is None:
        return ""
    if ratio.interval is not None:
        return f"{ratio.value:.2f} ({ratio.interval[0]:.2f}–{ratio.interval[1]:.2f})"
    return f"{ratio.value:.2f} [{ratio.low:.2f}–{ratio.high:.2f}]"


def _row(cell: Cell) -> tuple[str, ...]:
    beside = " beside the other" if cell.place.beside else ""
    low, high = cell.interval or (min(cell.values), max(cell.values))
    digits = decimals(cell.mean)
    interval = f"{low:.{digits}f}–{high:.{digits}f}"
    return (
        f"{cell.place.policy}{beside}",
        str(cell.place.hosts),
        f"{cell.mean:.{max(3, digits)}f}",
        interval if cell.interval else f"[{interval}]",
        shown_ratio(cell.of_wide),
        shown_ratio(cell.of_star),
        shown_ratio(cell.of_alone),
        shown_ratio(cell.of_bound),
        shown_ratio(cell.of_stp),
        "" if cell.predicted is None else f"{cell.predicted:.{max(3, digits)}f}",
        "" if cell.error is None else f"{cell.error:+.1%} ({max(cell.errors, key=abs):+.1%})",
        "" if cell.published is None else f"{cell.published:.1f}",
        f"{cell.busy_share:.0%}{'!' if cell.saturated else ''}",
        f"{cell.switches_cores:.2f}",
        f"{cell.controller_cores:.2f}",
    )
