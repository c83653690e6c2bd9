# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A check of a cluster in the terminal: findings, and a heat map of all paths."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from barewire.cluster.check import Checked
from barewire.cluster.diagnosis import LOSS_MIN, REORDERING_MIN, relative_rates
from barewire.cluster.measured import Measured, Path
from barewire.cluster.tournament import Pair
from barewire.cluster.words import percent, rate

LEGEND = (
    "Rows send, columns receive: the rate of a stream in percent of the usual one. "
    "× dead, L loss, D loss only when both send, R reordering, M long frames do not pass."
)
# Lower limits of the colours, from the xterm palette: legible on light and dark.
_COLOURS = ((0.8, "black on #7fc97f"), (0.5, "black on #fdd35d"), (0.0, "white on #c0392b"))
_DIAGONAL = "·"
_CELL_COLUMNS = 4


@dataclass(frozen=True)
class Cell:
    """A path in the heat map; `share` is None if its rate says nothing."""

    share: float | None
    mark: str
    tooltip: str

    @property
    def text(self) -> str:
        """Percent of the usual rate, and the mark."""
        return self.mark if self.share is None else f"{round(100 * self.share)}{self.mark}"


def cells(measured: Measured) -> dict[Pair, Cell]:
    """Return the heat map's cells."""
    shares = relative_rates(measured)
    return {ends: Cell(shares.get(ends), _mark(path), tooltip(ends, path)) for ends, path in measured.paths.items()}


def print_check(console: Console, checked: Checked) -> None:
    """Print the findings, the heat map and the remarks."""
    measured = checked.measured
    if _map_columns(list(measured.hosts)) <= console.width:
        console.print(_heat_map(list(measured.hosts), cells(measured)))
        console.print(LEGEND, style="dim")
    for finding in checked.findings:
        console.print(f"[bold red]{finding.kind}[/]: {escape(finding.text)}\n  [bold]fix:[/] {escape(finding.fix)}")
    for finding in checked.unconfirmed:
        console.print(f"seen once, not confirmed: {escape(finding.text)}", style="yellow")
    for remark in checked.remarks:
        console.print(escape(remark), style="dim")
    console.print(verdict(checked), markup=False)


def verdict(checked: Checked) -> str:
    """Summarise a check in one sentence."""
    hosts, paths = len(checked.measured.hosts), len(checked.measured.paths)
    bad = len(checked.findings)
    said = "nothing is wrong" if bad == 0 else f"{bad} thing{'s are' if bad != 1 else ' is'} wrong"
    return f"{hosts} hosts, {paths} paths: {said}."


def tooltip(ends: Pair, path: Path) -> str:
    """Describe a path in one line."""
    parts = [f"{ends[0]} to {ends[1]}: {rate(path.bandwidth_bit_s) if path.bandwidth_bit_s else 'nothing arrives'}"]
    parts.append(f"loss {percent(path.loss)}, with load from the other side {percent(path.both_loss)}")
    if path.round_trip_ns is not None:
        parts.append(f"round trip {path.round_trip_ns / 1e3:.0f} µs")
    if path.mtu_passed is not None:
        parts.append(f"{path.mtu_passed} bytes pass")
    if path.reordered:
        parts.append(f"{path.reordered} of {path.sent} frames reordered")
    return "; ".join(parts)


def _mark(path: Path) -> str:
    marks = {
        "×": path.is_dead,
        "L": path.loss >= LOSS_MIN,
        "D": path.both_loss >= max(LOSS_MIN, 4 * path.loss),
        "R": path.sent and path.reordered >= REORDERING_MIN * path.sent,
        "M": path.mtu_passed is not None and path.mtu_passed < path.mtu_expected,
    }
    return next((mark for mark, is_set in marks.items() if is_set), "")


def _map_columns(hosts: list[str]) -> int:
    """The width of a heat map: a broken name or number would say nothing."""
    return max(map(len, hosts), default=0) + 1 + sum(max(_CELL_COLUMNS, len(name) + 1) for name in hosts)


def _heat_map(hosts: list[str], found: Mapping[Pair, Cell]) -> Table:
    table = Table("", *(f"{name} " for name in hosts), show_edge=False, pad_edge=False, padding=(0, 0), box=None)
    for sender in hosts:
        row = [Text(f"{sender} ")]
        for receiver in hosts:
            cell = found.get((sender, receiver))
            row.append(
                Text(f"{cell.text:^{_CELL_COLUMNS}}", _colour(cell)) if cell else Text(_DIAGONAL, justify="center")
            )
        table.add_row(*row)
    return table


def _colour(cell: Cell) -> str:
    if cell.mark in ("×", "L", "D", "M"):
        return _COLOURS[-1][1]
    return next(colour for limit, colour in _COLOURS if (cell.share or 0.0) >= limit)
