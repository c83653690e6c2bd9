# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page of an experiment on switches: bars with intervals for each number of hosts, tables, loads."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import polars as pl

from barewire.report.answer import Answer
from barewire.report.figures import (
    INK,
    Figure,
    colour_by_number,
    hatch,
    layout_of,
    log_axis,
    plain_axis,
    point_data,
    shortened,
)
from barewire.report.findings import warnings
from barewire.report.html import page, rows
from barewire.report.sdn import calibration, headlines, legend, tables
from barewire.report.sdn import warnings as sdn_warnings
from barewire.report.words import interval_heading
from barewire.results.run import Run
from barewire.results.sdn import (
    JOB,
    MEAN_COMPLETION,
    MEDIAN_LATENCY,
    NATURAL,
    P99_LATENCY,
    RANDOM,
    Cell,
    Summary,
    summarised,
)
from barewire.stats.paired import Ratio

_EXPLANATIONS = {
    RANDOM: "Bytes per second that each process sends to its neighbours in rings of random order, all at once.",
    NATURAL: "The same in the ring of the ranks' numbers, in which neighbours are often on one switch.",
    MEDIAN_LATENCY: "Half of the time of an exchange of 8 bytes with both neighbours, of all ranks, in rings of random "
    "order: half of the exchanges take less. The published means (Oliveira et al. 2018, figure 4) are 0.37 to 0.40 ms, "
    "the same for all strategies, at 1 Gb/s and without other traffic. Less is better, and fractions above 1 are "
    "better still.",
    P99_LATENCY: "The same: 99 of 100 exchanges take less.",
    JOB: "From when a shuffle wants its first part, also if it has to wait for its turn, to its last, or all "
    "iterations of a training job; less is better, and fractions above 1 are better still.",
    MEAN_COMPLETION: "The mean of the times of all jobs, alone or all at once; less is better.",
}
_OF_A_JOB = "The time of this job, alone or while all jobs run; less is better."
# Markers of medians, then of 99th percentiles: unloaded, under load.
_SYMBOLS = ("circle-open", "circle", "triangle-up-open", "triangle-up")
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
        legend=legend(run.confidence),
        figures_confidence=run.confidence,
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
    best = next((text for text in sentences if "best is" in text or "which is best" in text), sentences[0])
    others = tuple(text for text in sentences if text != best)
    main = next((part for part in made if part["title"].startswith((RANDOM, JOB, MEAN_COMPLETION))), made[0])
    of_latency = main["title"].startswith(MEDIAN_LATENCY)
    card = main["figures"][1 if len(main["figures"]) > 2 and not of_latency else 0]
    title = f"{main['title'].partition(',')[0].capitalize()}: {card['title'].lower()}"
    return Answer("Which strategy serves the jobs best?", best, others, title, card["caption"], card["figure"])


def parts(summary: Summary) -> list[dict[str, Any]]:
    """One section per measured quantity."""
    found = []
    for table in tables(summary):
        cells = [cell for cell in summary.cells if cell.place.quantity == table.quantity]
        looks = {name: number for number, name in enumerate(dict.fromkeys(map(_label, cells)))}
        spread = _spread(cells[0].confidence, [cell.interval for cell in cells])
        means = _bars(cells, looks, _mean, f"mean, {cells[0].unit}") | {"interval": spread}
        figures = [_captioned("Measured", f"Geometric means of {_blocks(cells)}. Error bars: {spread}.", means)]
        if table.quantity == MEDIAN_LATENCY:
            figures = [*_latency_figures(summary), *figures]
        fractions: tuple[tuple[str, Callable[[Cell], Ratio | None]], ...] = (
            ("Of the wide network, which cannot block", lambda cell: cell.of_wide),
            ("Beside the other job, of alone", lambda cell: cell.of_alone),
        )
        for title, ratio in fractions:
            compared = [cell for cell in cells if ratio(cell) is not None]
            if compared:
                known = [each for cell in compared if (each := ratio(cell)) is not None]
                spread = _spread(cells[0].confidence, [each.interval for each in known])
                drawn = _bars(compared, looks, _of_ratio(ratio), "fraction") | {"interval": spread}
                caption = f"Geometric means of {_blocks(compared)}, in pairs. Error bars: {spread}."
                figures.append(_captioned(title, caption, drawn))
        busy = _bars(cells, looks, lambda cell: (cell.busy_share * 100, 0.0, 0.0), "busiest launch, % of all cores")
        saturated = sum(cell.saturated for cell in cells)
        many = f"{saturated} launch{'es were' if saturated != 1 else ' was'} above 85 %, which counts as saturated."
        figures.append(_captioned("Load of the machine", many if saturated else "No launch was above 85 %.", busy))
        found.append(
            {
                "id": table.quantity.replace(" ", "-"),
                "title": table.title,
                "explanation": _EXPLANATIONS.get(table.quantity, _OF_A_JOB),
                "figures": figures,
                "table": table,
            }
        )
    return found


def _spread(confidence: float, intervals: Sequence[tuple[float, float] | None]) -> str:
    """What error bars are: intervals, or ranges where there are too few values for one."""
    heading, few = interval_heading(confidence), "the range over the blocks"
    if all(intervals):
        return heading
    return f"{heading}, or {few} where these are too few" if any(intervals) else f"{few}, too few for an interval"


def _latency_figures(summary: Summary) -> Iterator[dict[str, Any]]:
    """For each number of hosts: median and 99th percentile of each strategy, alone and beside the other job."""
    of_latency = [cell for cell in summary.cells if cell.place.quantity in (MEDIAN_LATENCY, P99_LATENCY)]
    for hosts in dict.fromkeys(cell.place.hosts for cell in of_latency):
        cells = [cell for cell in of_latency if cell.place.hosts == hosts]
        traces = []
        for number, (quantity, beside) in enumerate(product((MEDIAN_LATENCY, P99_LATENCY), (False, True))):
            name = f"{quantity.removesuffix(' latency')}, {'under load' if beside else 'unloaded'}"
            shown = [cell for cell in cells if cell.place.quantity == quantity and cell.place.beside == beside]
            if shown:
                traces.append(_points(name, number, shown))
        policies = {**plain_axis("strategy"), "type": "category"}
        layout = layout_of(dict(policies), log_axis("latency, ms", traces, "y")) | {"scattermode": "group"}
        half = f"Ranks on {hosts // 2} of {hosts} hosts; under load a shuffle runs on the others."
        is_loaded = any(cell.place.beside for cell in cells)
        spread = _spread(cells[0].confidence, [cell.interval for cell in cells])
        caption = f"{half if is_loaded else f'Ranks on {hosts} hosts, without other traffic.'} Error bars: {spread}."
        figure = {"data": traces, "layout": layout, "interval": spread}
        yield _captioned(f"Latency of 8-byte rings, {hosts} hosts", caption, figure)


def _points(name: str, look: int, cells: Sequence[Cell]) -> dict[str, Any]:
    bars = [_mean(cell) for cell in cells]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [cell.place.policy for cell in cells],
        "y": [shortened(bar[0]) for bar in bars],
        "error_y": _error_bars(bars),
        "marker": {"color": colour_by_number(look), "size": 10, "symbol": _SYMBOLS[look]},
        "customdata": [
            point_data((middle - down, middle + up) if up or down else None, len(cell.blocks))
            for cell, (middle, down, up) in zip(cells, bars, strict=True)
        ],
        "hovertemplate": f"{name}, %{{x}}: %{{y:.3g}} ms<extra></extra>",
    }


def _error_bars(bars: Sequence[_Bar]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [shortened(up) for _, _, up in bars],
        "arrayminus": [shortened(down) for _, down, _ in bars],
        "color": INK,
        "thickness": 1,
        "width": 3,
    }


def _blocks(cells: Sequence[Cell]) -> str:
    counts = sorted({len(cell.blocks) for cell in cells})
    many = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{many} block{'' if many == '1' else 's'}"


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
        "error_y": _error_bars(bars),
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
    low, high = cell.interval or (min(cell.values), max(cell.values))
    return cell.mean, cell.mean - low, high - cell.mean


def _of_ratio(ratio: Callable[[Cell], Ratio | None]) -> Callable[[Cell], _Bar]:
    def bar(cell: Cell) -> _Bar:
        found = ratio(cell)
        assert found is not None
        low, high = found.interval or (found.low, found.high)
        return found.value, found.value - low, high - found.value

    return bar
