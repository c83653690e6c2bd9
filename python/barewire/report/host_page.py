# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page of a run that characterises a machine."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import polars as pl

from barewire.report import captions, host, words
from barewire.report.answer import Answer
from barewire.report.figures import against_size
from barewire.report.findings import warnings
from barewire.report.html import page, rows
from barewire.results.host import HOST_TEST_ORDER, Crossover, Measure, Reference, host_crossovers, host_measures
from barewire.results.run import Run
from barewire.stats.confidence import launches_for_interval


def render_host(run: Run, frame: pl.DataFrame, reference: Reference | None) -> str:
    """The page of a run that characterises a machine; `frame` holds its raw samples, columns of `SAMPLE_SCHEMA`."""
    measures, crossovers = host_measures(run, reference), host_crossovers(frame, run.confidence)
    return page(
        "host.html.j2",
        answer=_answer(run, measures, crossovers, reference),
        run=run,
        warnings=warnings(run),
        reference=reference,
        tests=[_host_test(test, run, measures) for test in HOST_TEST_ORDER if any(s.test == test for s in run.series)],
        crossovers=[
            (crossover.name, host.sentence(crossover, run.confidence), crossover.launches) for crossover in crossovers
        ],
        command=shlex.join(run.command),
        environment=rows(run.environment),
        parameters=rows(run.parameters),
        launches=len(run.launches),
        measured=int((frame["phase"] == "measure").sum()),
        warmup=int((frame["phase"] == "warmup").sum()),
        few=launches_for_interval(run.confidence),
        interval_heading=words.interval_heading(run.confidence),
        figures_confidence=run.confidence,
    )


def _host_test(test: str, run: Run, measures: Sequence[Measure]) -> dict[str, Any]:
    series = [s for s in run.series if s.test == test and s.message_bytes and s.median is not None]
    what = "time" if series and series[0].lower_is_better else "bandwidth"
    figures = []
    if len({s.message_bytes for s in series}) > 1:
        figure = against_size(series, f"median {what}", size="block size")
        figures.append({"title": "Against block size", "caption": captions.size_caption(series), "figure": figure})
    return {
        "id": test,
        "title": words.test_title(test),
        "explanation": words.TEST_EXPLANATIONS.get(test, ""),
        "figures": figures,
        "measures": [measure for measure in measures if measure.name.partition("/")[0] == test],
    }


def host_answer(run: Run, frame: pl.DataFrame, reference: Reference | None) -> Answer:
    """The first screen of a machine's page."""
    return _answer(run, host_measures(run, reference), host_crossovers(frame, run.confidence), reference)


def _answer(
    run: Run, measures: Sequence[Measure], crossovers: Sequence[Crossover], reference: Reference | None
) -> Answer:
    sentences = host.headlines(measures, crossovers, reference, run.confidence)
    if not sentences:
        return Answer("", "This run has no result.")
    compared = host.chosen_for_bars(measures)
    if compared and reference is not None:
        times = [measure.times_reference or 1.0 for measure in compared]
        better = sum(value >= 1 for value in times)
        sentence = (
            f"{better or 'None'} of {len(times)} measures {'is' if better <= 1 else 'are'} at least as good as in the "
            f"reference run {reference.run}; their median is {words.number(median(times))}\u00a0times as good."
        )
        caption = "Above 1 is better, for times and rates alike. Of measures with sizes, the smallest and the largest."
        title = f"Against the reference, {reference.run}"
        return Answer(
            "Is this machine as fast as the reference?",
            sentence,
            tuple(sentences),
            title,
            caption,
            host.bar_figure(compared),
        )
    series = [s for s in run.series if s.test == "memory" and s.message_bytes and s.median is not None]
    first = Answer("How fast is this machine?", sentences[0], tuple(sentences[1:]))
    if len({s.message_bytes for s in series}) < 2:
        return first
    figure = against_size(series, "median bandwidth", size="block size")
    return replace(first, title=words.test_title("memory"), caption=captions.size_caption(series), figure=figure)
