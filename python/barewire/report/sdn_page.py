# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Page sections for an experiment on switches: bars with intervals for each number of hosts, tables, loads."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barewire.report.figures import INK, Figure, colour_by_number, layout_of, plain_axis, shortened
from barewire.report.sdn import tables
from barewire.results.sdn import JOB, NATURAL, RANDOM, Cell, Summary
from barewire.stats.paired import Ratio

_EXPLANATIONS = {
    RANDOM: "Bytes per second that each process sends to its neighbours in rings of random order, all at once.",
    NATURAL: "The same in the ring of the ranks' numbers, in which neighbours are often on one switch.",
    JOB: "From the first fetch of a shuffle to the last; less is better, and fractions above 1 are better still.",
}
_INTERVAL = "Error bars: 95 % interval, or the range if there are too few blocks."

# Height of a bar, and its interval's extent downwards and upwards.
_Bar = tuple[float, float, float]


def parts(summary: Summary) -> list[dict[str, Any]]:
    """One section per measured quantity."""
    found = []
    for table in tables(summary):
        cells = [cell for cell in summary.cells if cell.place.quantity == table.quantity]
        looks = {name: colour_by_number(number) for number, name in enumerate(dict.fromkeys(map(_label, cells)))}
        figures = [_captioned("Measured", _INTERVAL, _bars(cells, looks, _mean, f"mean, {cells[0].unit}"))]
        fractions: tuple[tuple[str, Callable[[Cell], Ratio | None]], ...] = (
            ("Of the wide network, which cannot block", lambda cell: cell.of_wide),
            ("Beside the other job, of alone", lambda cell: cell.of_alone),
        )
        for title, ratio in fractions:
            compared = [cell for cell in cells if ratio(cell) is not None]
            if compared:
                figures.append(_captioned(title, _INTERVAL, _bars(compared, looks, _of_ratio(ratio), "fraction")))
        busy = _bars(cells, looks, lambda cell: (cell.busy_share * 100, 0.0, 0.0), "busiest launch, % of all cores")
        figures.append(_captioned("Load of the machine", "Above 85 % a launch counts as saturated.", busy))
        found.append(
            {
                "id": table.quantity.replace(" ", "-"),
                "title": table.title,
                "explanation": _EXPLANATIONS[table.quantity],
                "figures": figures,
                "table": table,
            }
        )
    return found


def _captioned(title: str, caption: str, figure: Figure) -> dict[str, Any]:
    return {"title": title, "caption": caption, "figure": figure}


def _bars(cells: Sequence[Cell], looks: Mapping[str, str], value: Callable[[Cell], _Bar], what: str) -> Figure:
    """A group of bars for each number of hosts; `looks` maps policies to colours."""
    by_policy: dict[str, list[Cell]] = {}
    for cell in cells:
        by_policy.setdefault(_label(cell), []).append(cell)
    traces = [_trace(name, looks[name], policy_cells, value) for name, policy_cells in by_policy.items()]
    hosts: Mapping[str, Any] = {**plain_axis("hosts"), "type": "category"}
    return {"data": traces, "layout": layout_of(dict(hosts), plain_axis(what)) | {"barmode": "group"}}


def _trace(name: str, colour: str, cells: Sequence[Cell], value: Callable[[Cell], _Bar]) -> dict[str, Any]:
    bars = [value(cell) for cell in cells]
    return {
        "type": "bar",
        "name": name,
        "x": [str(cell.place.hosts) for cell in cells],
        "y": [shortened(bar[0]) for bar in bars],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [shortened(up) for _, _, up in bars],
            "arrayminus": [shortened(down) for _, down, _ in bars],
            "color": INK,
            "thickness": 1,
            "width": 3,
        },
        "marker": {"color": colour, "line": {"color": INK, "width": 0.5}},
        "hovertemplate": f"{name}, %{{x}} hosts: %{{y:.3g}}<extra></extra>",
    }


def _label(cell: Cell) -> str:
    return f"{cell.place.policy} beside the other" if cell.place.beside else cell.place.policy


def _mean(cell: Cell) -> _Bar:
    low, high = cell.ci95 or (cell.mean, cell.mean)
    return cell.mean, cell.mean - low, high - cell.mean


def _of_ratio(ratio: Callable[[Cell], Ratio | None]) -> Callable[[Cell], _Bar]:
    def bar(cell: Cell) -> _Bar:
        found = ratio(cell)
        assert found is not None
        low, high = found.ci95 or (found.low, found.high)
        return found.value, found.value - low, high - found.value

    return bar
