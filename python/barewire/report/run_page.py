# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page of a run of messages: of transports, of MPI libraries, of a budget."""

import shlex
from collections.abc import Sequence
from typing import Any

import polars as pl

from barewire.models.naming import is_floor
from barewire.report import budget, captions, mpi, words
from barewire.report.answer import Answer, answer
from barewire.report.figures import (
    EVEN_SHARES,
    Figure,
    against_processes,
    against_size,
    combined_with_choice,
    distributions,
    ratio_rows,
    ratios,
    shares,
)
from barewire.report.findings import warnings
from barewire.report.html import page, rows
from barewire.report.model_figures import laws_figure, logp_figures, prediction_figure, speedup_figures
from barewire.report.mpi_figures import BEYOND_MEAN, against_computation, by_variant, phases
from barewire.report.prediction import checked_tables
from barewire.report.versus import MARGIN, Settings, Versus, compare_in_run, has_baseline
from barewire.results.derived import curves
from barewire.results.held_out import Checked, errors
from barewire.results.laws import laws_of
from barewire.results.quantities import has_own_sizes
from barewire.results.run import Place, Run, Series
from barewire.stats.comparison import RESAMPLES
from barewire.stats.confidence import launches_for_interval

_LAWS = (
    "A message of s bytes takes α + β·s (Hockney), in pieces: a new piece begins where, for example, rendezvous "
    "replaces eager, or a second frame is needed. The fit determines the number and positions of pieces."
)


def render(run: Run, frame: pl.DataFrame, *, baseline: str = "tcp", checked: Sequence[Checked] = ()) -> str:
    """The report of `run` as one HTML page; `frame` holds its raw samples, columns of `SAMPLE_SCHEMA`.

    `checked` are predictions of what the run measured. Without the subject `baseline` the page has no ratios. A run
    without series gives a page that says so.
    """
    comparisons = compared(run, baseline)
    return page(
        "report.html.j2",
        answer=answer_of(run, comparisons, baseline),
        run=run,
        warnings=warnings(run),
        first=budget.sections(run),
        sharing=_sharing(run),
        tests=_tests(run, frame, comparisons),
        more=[*_scaling(run), *_parameters(run, frame), *_phases(run), *_laws(run), *_predictions(checked)],
        baseline=baseline_name(run, baseline),
        command=shlex.join(run.command),
        environment=rows({**run.environment, **({"lab": run.lab} if run.lab else {})}),
        parameters=rows(run.parameters),
        launches=len(run.launches),
        measured=int((frame["phase"] == "measure").sum()),
        warmup=int((frame["phase"] == "warmup").sum()),
        limit_kinds={s.limit_kind for s in run.series},
        few=launches_for_interval(run.confidence),
        interval_heading=words.interval_heading(run.confidence),
        half_tail=(1 - run.confidence) / 2,
        figures_confidence=run.confidence,
        margin_percent=round(MARGIN * 100),
        resamples=RESAMPLES,
    )


def compared(run: Run, baseline: str) -> list[Versus]:
    """Every subject against the baseline, without floors, which are references; empty if the run has no baseline."""
    if not has_baseline(run, baseline):
        return []
    return [
        versus
        for versus in compare_in_run(run, baseline, Settings(confidence=run.confidence))
        if not is_floor(versus.a.subject)
    ]


def answer_of(run: Run, comparisons: Sequence[Versus], baseline: str = "tcp") -> Answer:
    """The first screen of a run's page."""
    return answer(run, comparisons, baseline_name(run, baseline))


def baseline_name(run: Run, baseline: str) -> str:
    """The baseline as readers know it."""
    return words.baseline_name(baseline, {s.subject for s in run.series})


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


def _scaling(run: Run) -> list[dict[str, Any]]:
    """Per kernel measured at several numbers of ranks: its speed-up and efficiency."""
    return [
        _section(test, 0, "speed-up", [], figures) | {"title": f"{words.test_title(test)}: speed-up"}
        for test, figures in speedup_figures(run)
    ]


def _parameters(run: Run, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Curves and tables per test with derived parameters, and number of ranks."""
    tables: dict[tuple[str, int], list[mpi.TextTable]] = {}
    for test, ranks, table in mpi.parameter_tables(run):
        tables.setdefault((test, ranks), []).append(table)
    of_logp = dict(logp_figures(run))
    sections = []
    for (test, ranks), found in tables.items():
        figures = [of_logp[ranks]] if test == "logp" and ranks in of_logp else []
        if of_test := curves(frame, test, ranks):
            figures.append(
                _card("Against the computation", "", against_computation(of_test, confidence=run.confidence))
            )
        sections.append(_section(test, ranks, "parameters", found, figures))
    return sections


def _phases(run: Run) -> list[dict[str, Any]]:
    """Per kernel and number of ranks: where the time goes."""
    sections = []
    for number, (test, ranks, table, times) in enumerate(mpi.phase_tables(run)):
        figure = phases(times)
        caption = "Each phase is the mean over the ranks."
        if any(trace["name"] == BEYOND_MEAN for trace in figure["data"]):
            caption += " Hollow: additional time of the slowest rank."
        card = _card("Phases", caption, figure)
        sections.append(_section(test, ranks, f"phases-{number}", [table], [card]) | {"title": table.title})
    return sections


def _laws(run: Run) -> list[dict[str, Any]]:
    """The laws of ping-pongs over many sizes."""
    laws = laws_of(run)
    if not laws:
        return []
    section = {"id": "laws", "title": "Laws of latency", "explanation": _LAWS, "tables": mpi.law_tables(run, laws)}
    return [section | {"figures": [laws_figure(run, laws)]}]


def _predictions(checked: Sequence[Checked]) -> list[dict[str, Any]]:
    """Predictions beside measurements."""
    if not checked:
        return []
    summary = errors(checked)
    explanation = "Times predicted from other runs, with two ranks, beside what this run measured."
    section = {"id": "predictions", "title": "Predicted and measured", "explanation": explanation}
    return [section | {"figures": [prediction_figure(checked, summary)], "tables": checked_tables(checked, summary)}]


def _card(title: str, caption: str, figure: Figure) -> dict[str, Any]:
    return {"title": title, "caption": caption, "figure": figure}


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
        what = "total goodput" if is_rate else "median time"
        figures = [_card("Against processes", captions.processes_caption(rows), against_processes(rows, what))]
        if any(row.smallest_share for row in rows):
            caption = f"Bars: the smallest and the largest share of the mean; lines at ±{EVEN_SHARES:.0%}."
            figures.append(_card("Shares", caption, shares(rows)))
        title = f"{words.test_title(test)}, {words.message_size(size)}: several processes through one interface"
        unit = words.unit_name(rows[0].unit)
        section = {"id": f"sharing-{test}-{size}", "title": title, "figures": figures, "rows": rows, "unit": unit}
        sections.append(section | {"explanation": words.TEST_EXPLANATIONS.get(test, ""), "is_rate": is_rate})
    return sections


def _figures(series: Sequence[Series], comparisons: Sequence[Versus], frame: pl.DataFrame) -> list[dict[str, Any]]:
    series = [s for s in series if s.median is not None]
    if not series:
        return []
    what = "median time" if series[0].lower_is_better else "median rate" if series[0].ranks else "median goodput"
    variants = list(dict.fromkeys(s.variant for s in series))
    found = []
    if len(variants) > 1:
        found.append(_card("Variants", captions.variants_caption(series), by_variant(series, what)))
    of_variants = {name: [s for s in series if s.variant == name] for name in variants}
    if not has_own_sizes(series[0].test):
        sizes = {
            name: against_size(of_variant, what) | {"caption": captions.size_caption(of_variant)}
            for name, of_variant in of_variants.items()
            if len({s.message_bytes for s in of_variant if s.message_bytes}) > 1
        }
        if sizes:
            found.append(_card("Against message size", "", combined_with_choice(sizes, "Variant")))
    found += _compared(comparisons)
    distribution = distributions(frame, series)
    if any(choice["data"] for choice in distribution["choices"]):
        found.append(_card("Distribution", captions.distribution_caption(series), distribution))
    return found


def _compared(comparisons: Sequence[Versus]) -> list[dict[str, Any]]:
    if not comparisons:
        return []
    bases = {versus.b.subject for versus in comparisons}
    base = words.subject_name(bases.pop()) if len(bases) == 1 else "its baseline"
    place = comparisons[0].a.place
    if has_own_sizes(place.test) or len({versus.a.message_bytes for versus in comparisons}) == 1:
        figure = ratio_rows(comparisons, base, [words.row_name(versus.a.row, place) for versus in comparisons])
        return [_card(f"Compared with {base}", captions.ratio_caption(comparisons, base), figure)]
    comparisons = [versus for versus in comparisons if versus.a.message_bytes]
    figures = {}
    for name in dict.fromkeys(versus.a.variant for versus in comparisons):
        shown = [versus for versus in comparisons if versus.a.variant == name]
        figures[name] = ratios(shown, base) | {"caption": captions.ratio_caption(shown, base)}
    return [_card(f"Compared with {base}", "", combined_with_choice(figures, "Variant"))]
