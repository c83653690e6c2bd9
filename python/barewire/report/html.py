# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One self-contained HTML file per run, which needs no network and no other file."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline.offline import get_plotlyjs

from barewire.models.naming import is_floor
from barewire.report import budget, host, mpi, sdn, sdn_page, words
from barewire.report.figures import (
    DARK,
    EVEN_SHARES,
    Figure,
    against_processes,
    against_size,
    combined_with_choice,
    distributions,
    ratios,
    shares,
)
from barewire.report.findings import headlines, warnings
from barewire.report.mpi_figures import against_computation, by_variant, phases
from barewire.report.versus import MARGIN, Versus, compare_in_run, flatten, has_baseline
from barewire.results import Place, Run, Series
from barewire.results.derived import curves
from barewire.results.host import HOST_TEST_ORDER, Measure, Reference, host_crossovers, host_measures
from barewire.results.quantities import has_own_sizes
from barewire.results.sdn import summarised
from barewire.stats.comparison import RESAMPLES
from barewire.stats.intervals import LAUNCHES_FOR_INTERVAL

_ASSETS = Path(__file__).parent / "assets"


def render(run: Run, frame: pl.DataFrame, *, baseline: str = "tcp") -> str:
    """The report of `run` as one HTML page; `frame` holds its raw samples, columns of `SAMPLE_SCHEMA`.

    Without the subject `baseline` the page has no ratios. A run without series gives a page that says so.
    """
    comparisons: list[Versus] = []
    if has_baseline(run, baseline):
        # The floor is a reference, not a subject to compare.
        comparisons = [versus for versus in compare_in_run(run, baseline) if not is_floor(versus.a.subject)]
    return page(
        "report.html.j2",
        run=run,
        headlines=budget.headlines(run) or headlines(run, comparisons),
        warnings=warnings(run),
        first=budget.sections(run),
        sharing=_sharing(run),
        tests=_tests(run, frame, comparisons),
        more=[*_parameters(run, frame), *_phases(run)],
        laws=mpi.law_tables(run),
        baseline=words.baseline_name(baseline, {s.subject for s in run.series}),
        command=shlex.join(run.command),
        environment=rows({**run.environment, **({"lab": run.lab} if run.lab else {})}),
        parameters=rows(run.parameters),
        launches=len(run.launches),
        measured=int((frame["phase"] == "measure").sum()),
        warmup=int((frame["phase"] == "warmup").sum()),
        limit_kinds={s.limit_kind for s in run.series},
        few=LAUNCHES_FOR_INTERVAL,
        margin_percent=round(MARGIN * 100),
        resamples=RESAMPLES,
    )


def render_host(run: Run, frame: pl.DataFrame, reference: Reference | None) -> str:
    """The page of a run that characterises a machine; `frame` holds its raw samples, columns of `SAMPLE_SCHEMA`."""
    measures, crossovers = host_measures(run, reference), host_crossovers(frame)
    compared = host.chosen_for_bars(measures)
    return page(
        "host.html.j2",
        run=run,
        headlines=host.headlines(measures, crossovers, reference),
        warnings=warnings(run),
        reference=reference,
        bars=host.bar_figure(compared) if compared else None,
        tests=[_host_test(test, run, measures) for test in HOST_TEST_ORDER if any(s.test == test for s in run.series)],
        crossovers=[(crossover.name, host.sentence(crossover), crossover.launches) for crossover in crossovers],
        command=shlex.join(run.command),
        environment=rows(run.environment),
        parameters=rows(run.parameters),
        launches=len(run.launches),
        measured=int((frame["phase"] == "measure").sum()),
        warmup=int((frame["phase"] == "warmup").sum()),
        few=LAUNCHES_FOR_INTERVAL,
    )


def render_sdn(run: Run, frame: pl.DataFrame) -> str:
    """The page of an experiment on switches; `frame` holds its raw samples, columns of `SAMPLE_SCHEMA`."""
    summary = summarised(run, frame)
    return page(
        "sdn.html.j2",
        run=run,
        headlines=sdn.headlines(run, summary),
        warnings=[*warnings(run), *sdn.warnings(run)],
        parts=sdn_page.parts(summary),
        legend=sdn.LEGEND,
        calibration=sdn.calibration(run),
        command=shlex.join(run.command),
        environment=rows({**run.environment, **({"lab": run.lab} if run.lab else {})}),
        parameters=rows(run.parameters),
        launches=len(run.launches),
        measured=int((frame["phase"] == "measure").sum()),
    )


def _host_test(test: str, run: Run, measures: Sequence[Measure]) -> dict[str, Any]:
    series = [s for s in run.series if s.test == test and s.message_bytes and s.median is not None]
    what = "time" if series and series[0].lower_is_better else "bandwidth"
    return {
        "id": test,
        "title": words.test_title(test),
        "explanation": words.TEST_EXPLANATIONS.get(test, ""),
        "figure": against_size(series, f"median {what}", size="block size") if series else None,
        "measures": [measure for measure in measures if measure.name.partition("/")[0] == test],
    }


def fill(template: str, **content: Any) -> str:
    """Fill a template in `assets`, with the style and functions common to all pages."""
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inline_json"] = _inline_json
    environment.globals["asset"] = lambda name: Markup((_ASSETS / name).read_text(encoding="utf-8"))
    style = Markup((_ASSETS / "report.css").read_text(encoding="utf-8"))
    return environment.get_template(template).render(**content, words=words, style=style)


def page(template: str, **content: Any) -> str:
    """Fill a template in `assets` that has figures, with the script and plotly."""
    script = Markup((_ASSETS / "report.js").read_text(encoding="utf-8"))
    return fill(template, **content, dark=DARK, script=script, plotly=_plotly())


def _tests(run: Run, frame: pl.DataFrame, comparisons: Sequence[Versus]) -> list[dict[str, Any]]:
    """Per place: title, figures and the series of its table."""
    tests = []
    for place, series in mpi.by_place(run):
        chosen = [versus for versus in comparisons if versus.a.place == place]
        rows = sorted(series, key=lambda s: s.row.order)
        tests.append(
            {
                "id": "-".join(str(part).replace(" ", "-") for part in place if part != ""),
                "title": words.title_of(place),
                "explanation": words.TEST_EXPLANATIONS.get(place.test, ""),
                "figures": _figures(series, chosen, frame),
                "series": rows,
                "with_variant": any(s.variant for s in series),
                "parameter": place.parameter,
                "versus": {(versus.a.subject, versus.a.row): versus.result for versus in chosen},
                "unit": words.unit_name(series[0].unit),
            }
        )
    return tests


def _parameters(run: Run, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Curves and tables per test with derived parameters, and number of ranks."""
    tables: dict[tuple[str, int], list[mpi.TextTable]] = {}
    for test, ranks, table in mpi.parameter_tables(run):
        tables.setdefault((test, ranks), []).append(table)
    sections = []
    for (test, ranks), found in tables.items():
        of_test = curves(frame, test, ranks)
        caption = (
            "Points: every launch. Flat while the computation is hidden, then rising with slope 1: the bend is the "
            "largest computation that does not lengthen the time."
        )
        figures = []
        if of_test:
            figure = against_computation(of_test)
            figures.append({"title": "Against the computation", "caption": caption, "figure": figure})
        sections.append(_section(test, ranks, "parameters", found, figures))
    return sections


def _phases(run: Run) -> list[dict[str, Any]]:
    """Per kernel and number of ranks: where the time goes."""
    sections = []
    for number, (test, ranks, table, times) in enumerate(mpi.phase_tables(run)):
        caption = "Each phase is the mean over the ranks; hollow: additional time of the slowest rank."
        figure = {"title": "Phases", "caption": caption, "figure": phases(times)}
        sections.append(_section(test, ranks, f"phases-{number}", [table], [figure]) | {"title": table.title})
    return sections


def _section(
    test: str, ranks: int, what: str, tables: Sequence[mpi.TextTable], figures: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": f"{test}-{ranks}-{what}",
        "title": words.title_of(Place(test, ranks=ranks)),
        "explanation": words.TEST_EXPLANATIONS.get(test, ""),
        "figures": figures,
        "tables": tables,
    }


def _sharing(run: Run) -> list[dict[str, Any]]:
    """Per test and size: title, figures and rows about processes that share the interface."""
    sections = []
    for test, size in dict.fromkeys((row.test, row.message_bytes) for row in run.shared):
        rows = [row for row in run.shared if (row.test, row.message_bytes) == (test, size)]
        is_rate = test != "pingpong"
        what, band = "total goodput" if is_rate else "median time", "Band: 95 % interval of the median."
        figures = [
            {"title": "Against processes", "caption": band, "figure": against_processes(rows, what)},
            {
                "title": "Shares",
                "caption": f"Bars: the smallest and the largest share of the mean; lines at ±{EVEN_SHARES:.0%}.",
                "figure": shares(rows),
            },
        ]
        title = f"{words.test_title(test)}, {words.message_size(size)}: several processes through one interface"
        unit = words.unit_name(rows[0].unit)
        section = {"id": f"sharing-{test}-{size}", "title": title, "figures": figures, "rows": rows, "unit": unit}
        sections.append(section | {"explanation": words.TEST_EXPLANATIONS.get(test, ""), "is_rate": is_rate})
    return sections


def _figures(series: Sequence[Series], comparisons: Sequence[Versus], frame: pl.DataFrame) -> list[dict[str, Any]]:
    what = "median time" if series[0].lower_is_better else "median rate" if series[0].ranks else "median goodput"
    band = "Band: 95 % interval of the median."
    variants = list(dict.fromkeys(s.variant for s in series))
    found: list[tuple[str, str, Figure]] = []
    if len(variants) > 1:
        found.append(("Variants", "Bars: 95 % interval of the median.", by_variant(series, what)))
    if not has_own_sizes(series[0].test):
        sizes = {name: against_size([s for s in series if s.variant == name], what) for name in variants}
        found.append(("Against message size", f"{band} Dashed: the limit.", combined_with_choice(sizes, "Variant")))
        found += _compared(comparisons)
    caption = "All measured samples of all launches: a steep curve means little variation, a long right end is a tail."
    if not series[0].lower_is_better:
        caption = "All measured samples of all launches: a steep curve means little variation."
    found.append(("Distribution", caption, distributions(frame, series)))
    return [{"title": title, "caption": caption, "figure": figure} for title, caption, figure in found]


def _compared(comparisons: Sequence[Versus]) -> list[tuple[str, str, Figure]]:
    if not comparisons:
        return []
    bases = {versus.b.subject for versus in comparisons}
    base = words.subject_name(bases.pop()) if len(bases) == 1 else "its baseline"
    faster = "below" if comparisons[0].a.lower_is_better else "above"
    caption = f"{faster.capitalize()} the line at 1 is faster than {base}. Bars: 95 % interval of the ratio."
    variants = dict.fromkeys(versus.a.variant for versus in comparisons)
    figures = {name: ratios([versus for versus in comparisons if versus.a.variant == name], base) for name in variants}
    return [(f"Compared with {base}", caption, combined_with_choice(figures, "Variant"))]


def rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Nested values as rows of a table, with dotted keys."""
    flat = {key: "–" if value is None else value for key, value in flatten(data).items()}
    return [
        (key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for key, value in flat.items()
    ]


def _plotly() -> Markup:
    source: str = get_plotlyjs()  # type: ignore[no-untyped-call]
    return Markup(source)


def _inline_json(data: object) -> Markup:
    """JSON for a script element, escaped so that it cannot end the element."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))
