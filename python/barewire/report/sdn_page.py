# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page of an experiment on switches: bars with intervals for each number of hosts, tables, loads."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from barewire.report.answer import Answer
from barewire.report.figures import INK, Figure, colour_by_number, hatch, layout_of, plain_axis, point_data, shortened
from barewire.report.findings import warnings
from barewire.report.html import page, rows
from barewire.report.sdn import LEGEND, calibration, headlines, tables
from barewire.report.sdn import warnings as sdn_warnings
from barewire.results import Run
from barewire.results.sdn import JOB, NATURAL, RANDOM, Cell, Summary, summarised
from barewire.stats.paired import Ratio

_EXPLANATIONS = {
    RANDOM: "Bytes per second that each process sends to its neighbours in rings of random order, all at once.",
    NATURAL: "The same in the ring of the ranks' numbers, in which neighbours are often on one switch.",
    JOB: "From the first fetch of a shuffle to the last; less is better, and fractions above 1 are better still.",
}
# Height of a bar, and its interval's extent downwards and upwards.
_Bar = tuple[float, float, float]


def render_sdn(run: Run, frame: pl.DataFrame) -> str:
    """The page of an experiment on switches; `frame` holds its raw samples, columns of `SAMPLE_SCHEMA`."""
    summary = summarised(run, frame)
    made = parts(summary)
    return page(
        "sdn.html.j2",
        run=run,
        answer=_answer(headlines(run, summary), made),
        warnings=[*warnings(run), *sdn_warnings(run)],
        parts=made,
        legend=LEGEND,
        calibration=calibration(run),
        command=shlex.join(run.command),
        environment=rows({**run.environment, **({"lab": run.lab} if run.lab else {})}),
        parameters=rows(run.parameters),
        launches=len(run.launches),
        measured=int((frame["phase"] == "measure").sum()),
    )


def sdn_answer(run: Run, frame: pl.DataFrame) -> Answer:
    """The first screen of such a page."""
    summary = summarised(run, frame)
    return _answer(headlines(run, summary), parts(summary))


def _answer(sentences: Sequence[str], made: Sequence[Mapping[str, Any]]) -> Answer:
    """The best strategy, and how near each comes to a network that cannot block."""
    if not sentences or not made:
        return Answer("", "This run has no result.")
    best = next((text for text in sentences if "best is" in text), sentences[0])
    others = tuple(text for text in sentences if text != best)
    main = next((part for part in made if part["title"].startswith((RANDOM, JOB))), made[0])
    card = main["figures"][1 if len(main["figures"]) > 2 else 0]
    title = f"{main['title'].partition(',')[0].capitalize()}: {card['title'].lower()}"
    return Answer("Which strategy serves the jobs best?", best, others, title, card["caption"], card["figure"])


def parts(summary: Summary) -> list[dict[str, Any]]:
    """One section per measured quantity."""
    found = []
    for table in tables(summary):
        cells = [cell for cell in summary.cells if cell.place.quantity == table.quantity]
        looks = {name: number for number, name in enumerate(dict.fromkeys(map(_label, cells)))}
        means = _bars(cells, looks, _mean, f"mean, {cells[0].unit}")
        is_sure = any(cell.ci95 for cell in cells)
        bars = "Error bars: 95 % interval." if is_sure else "Too few for an interval."
        figures = [_captioned("Measured", f"Means of {_blocks(cells)}. {bars}", means)]
        fractions: tuple[tuple[str, Callable[[Cell], Ratio | None]], ...] = (
            ("Of the wide network, which cannot block", lambda cell: cell.of_wide),
            ("Beside the other job, of alone", lambda cell: cell.of_alone),
        )
        for title, ratio in fractions:
            compared = [cell for cell in cells if ratio(cell) is not None]
            if compared:
                known = [each for cell in compared if (each := ratio(cell)) is not None]
                spread = "95 % interval" if all(each.ci95 for each in known) else "the range over the blocks"
                drawn = _bars(compared, looks, _of_ratio(ratio), "fraction") | {"interval": spread}
                caption = f"Geometric means of {_blocks(compared)}, in pairs. Error bars: {spread}."
                figures.append(_captioned(title, caption, drawn))
        busy = _bars(cells, looks, lambda cell: (cell.busy_share * 100, 0.0, 0.0), "busiest launch, % of all cores")
        saturated = sum(cell.saturated for cell in cells)
        many = f"{saturated} launches were above 85 %, which counts as saturated."
        figures.append(_captioned("Load of the machine", many if saturated else "No launch was above 85 %.", busy))
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


def _blocks(cells: Sequence[Cell]) -> str:
    counts = sorted({len(cell.blocks) for cell in cells})
    return f"{' to '.join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))} blocks"


def _captioned(title: str, caption: str, figure: Figure) -> dict[str, Any]:
    return {"title": title, "caption": caption, "figure": figure}


def _bars(cells: Sequence[Cell], looks: Mapping[str, int], value: Callable[[Cell], _Bar], what: str) -> Figure:
    """A group of bars for each number of hosts; `looks` numbers the policies, for colours and hatches."""
    by_policy: dict[str, list[Cell]] = {}
    for cell in cells:
        by_policy.setdefault(_label(cell), []).append(cell)
    traces = [_trace(name, looks[name], policy_cells, value) for name, policy_cells in by_policy.items()]
    hosts: Mapping[str, Any] = {**plain_axis("hosts"), "type": "category"}
    return {"data": traces, "layout": layout_of(dict(hosts), plain_axis(what)) | {"barmode": "group"}}


def _trace(name: str, look: int, cells: Sequence[Cell], value: Callable[[Cell], _Bar]) -> dict[str, Any]:
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
        "marker": {"color": colour_by_number(look), "line": {"color": INK, "width": 0.5}, "pattern": hatch(look)},
        "customdata": [
            point_data((middle - down, middle + up) if up or down else None, len(cell.blocks))
            for cell, (middle, down, up) in zip(cells, bars, strict=True)
        ],
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
