# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire compare`: which subject is faster, by how much, and with what certainty."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli import complete, options
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.errors import MeasurementFailed, WrongUse
from barewire.measure.recover import recover_run
from barewire.models.naming import FLOOR
from barewire.report.drift import drift_sentences, floor_sentences
from barewire.report.gate import Gate, GateRow, judge, missing_rows, unpaired_rows
from barewire.report.gate_page import gate_lines, gate_markdown
from barewire.report.junit import junit
from barewire.report.terminal import versus_tables
from barewire.report.versus import (
    MARGIN,
    Settings,
    Versus,
    baseline_pairs,
    compare_in_run,
    compare_runs,
    compare_variants,
    variant_pairs,
)
from barewire.report.words import percent
from barewire.results.floors import Drift, Moved, drifts, moved
from barewire.results.run import Run
from barewire.results.store import write_output
from barewire.stats.confidence import launches_for_interval

_SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)")

Margin = Annotated[float, typer.Option(metavar="SHARE", help="difference that does not matter: 0.02 is 2 %")]
FloorName = Annotated[
    str,
    typer.Option(
        "--floor",
        metavar="SUBJECT",
        help="runs of different times are normalised by this subject, or fabric of each MPI library; none: not at all",
    ),
]
AcrossEnvironments = Annotated[
    bool, typer.Option("--across-environments", help="compare runs of different machines or settings")
]
_GATE = "A gate"


@dataclass(frozen=True)
class Found:
    """What a comparison found. `runs` are A's and B's, or the only one, which has no `floors` that moved.

    `missing` are the rows that could not be compared.
    """

    runs: tuple[Run, ...]
    comparisons: list[Versus]
    floors: list[Moved]
    drifts: list[Drift]
    missing: list[GateRow]


def compare(
    run: Annotated[Path, options.RUN],
    new_run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[NEW]",
            help="a newer run: each of its subjects is compared with itself in RUN",
            autocompletion=complete.runs,
        ),
    ] = None,
    baseline: Annotated[str | None, options.BASELINE_OR_TCP] = None,
    variant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="variant to compare the others of its test with, in one run"),
    ] = None,
    margin: Margin = MARGIN,
    confidence: options.Confidence = 95,
    floor: FloorName = FLOOR,
    across_environments: AcrossEnvironments = False,
    p_values: Annotated[
        bool,
        typer.Option(
            "--p-values", help="also print differences in their unit, and Welch's and rank tests as papers do"
        ),
    ] = False,
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="exit with 1 if anything is slower by more than this beyond doubt: 5% or 0.05",
            rich_help_panel=_GATE,
        ),
    ] = None,
    to_junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="also write JUnit XML", rich_help_panel=_GATE)
    ] = None,
    to_markdown: Annotated[Path | None, options.MARKDOWN] = None,
    as_json: options.AsJson = False,
) -> None:
    """Report which subject is faster, by how much and with what certainty, in one run or between two.

    Of two runs the newer is divided by the older, and both by the floor that they measured beside their subjects.
    """
    settings = read_settings(margin, confidence, floor)
    if new_run is not None and baseline is not None:
        raise WrongUse("--baseline compares subjects of one run; with two runs each subject is compared with itself")
    if variant is not None and (new_run is not None or baseline is not None):
        raise WrongUse("--variant compares variants of each subject of one run: omit the other run and --baseline")
    if new_run is None and floor != FLOOR:
        raise WrongUse("--floor normalises runs of different times: give the newer run, too")
    if fail_if_slower is None and (to_junit or to_markdown):
        raise WrongUse("--junit and --markdown write the result of a gate: give --fail-if-slower 5%")
    limit = None if fail_if_slower is None else read_share(fail_if_slower)
    with progress_bar("comparing"):
        first = recover_run(run)
        if new_run is not None:
            found = _compare_runs(recover_run(new_run), first, settings, across_environments)
        elif variant is not None:
            missing = unpaired_rows(variant_pairs(first, variant), variant, settings)
            comparisons = compare_variants(first, variant, settings)
            found = Found((first,), comparisons, [], _drifts([first], settings), missing)
        else:
            base = baseline or "tcp"
            missing = unpaired_rows(baseline_pairs(first, base), base, settings)
            comparisons = compare_in_run(first, base, settings)
            found = Found((first,), comparisons, [], _drifts([first], settings), missing)
    gate = None if limit is None else _gate(found, limit, settings)
    if gate is not None:
        _write(gate, found, to_junit, to_markdown)
    if not found.comparisons:
        raise WrongUse(f"{run} contains nothing to compare: no other subject was measured at the same sizes")
    if as_json:
        print_document("compare", _document(found, gate, settings))
    else:
        _print(found, gate, settings, with_tests=p_values)
    if gate is not None and not gate.passed:
        worst = gate.of("slower")[0]
        raise MeasurementFailed(f"{gate.summary}; the worst is {worst.label}: {worst.numbers}")


def read_settings(margin: float, confidence: float, floor: str) -> Settings:
    """Check these options; WrongUse for values that make no sense."""
    if not 0 < margin < 1:
        raise WrongUse(f"--margin must be a share between 0 and 1 (0.02 is 2 %), not {margin}")
    return Settings(margin, options.read_confidence(confidence), floor)


def read_share(text: str) -> float:
    """Parse `5%`, `5 %` or `0.05`; WrongUse for anything else. A bare number from 1 on could be meant as percent."""
    match = _SHARE.fullmatch(text.strip())
    value = float(match[1]) if match else 0.0
    if match is None or (not match[2] and value >= 1):
        raise WrongUse(f"--fail-if-slower is a share such as 5% or 0.05, not '{text}'")
    return value / 100 if match[2] else value


def _compare_runs(new: Run, old: Run, settings: Settings, across_environments: bool) -> Found:
    comparisons = compare_runs(new, old, settings, across_environments=across_environments)
    floors = moved(new, old, settings.floor, confidence=settings.confidence, margin=settings.margin)
    missing = missing_rows(new, old, comparisons, settings)
    return Found((new, old), comparisons, floors, _drifts((old, new), settings), missing)


def _drifts(runs: Iterable[Run], settings: Settings) -> list[Drift]:
    return [drift for run in runs for drift in drifts(run, confidence=settings.confidence)]


def _gate(found: Found, limit: float, settings: Settings) -> Gate:
    gate = judge(found.comparisons, limit, settings, seed=found.runs[0].seed, missing=found.missing)
    if not gate.rows:
        raise WrongUse("there is nothing for a gate to judge: only floors, or parts of other quantities")
    return gate


def _write(gate: Gate, found: Found, to_junit: Path | None, to_markdown: Path | None) -> None:
    new, old = found.runs[0].id, found.runs[1].id if len(found.runs) > 1 else "baseline"
    texts = {
        to_junit: junit(gate, f"barewire compare {old} {new}"),
        to_markdown: gate_markdown(gate, a=new, b=old, notes=_notes(found)).encode(),
    }
    for path, text in texts.items():
        if path is not None:
            write_output(path, text)


def _notes(found: Found) -> list[str]:
    """What a reader must know besides the rows: the floor, drift, incomplete runs."""
    ids = [run.id for run in found.runs]
    notes = [*(floor_sentences(found.floors, *ids) if len(ids) > 1 else []), *drift_sentences(found.drifts)]
    return notes + [f"{run.id} is incomplete (stopped by {run.stopped_by})." for run in found.runs if not run.complete]


def _caption(found: Found, settings: Settings) -> str:
    sure, needed = percent(settings.confidence), launches_for_interval(settings.confidence)
    with_interval = [versus.deciding.ratio_interval is not None for versus in found.comparisons]
    few = min(min(versus.deciding.launches_a, versus.deciding.launches_b) for versus in found.comparisons)
    tests = "p values between launches, corrected over sizes (Holm)"
    no_verdict = (
        f"{few} launch{'es' if few != 1 else ''}: no verdict, which needs the {sure} interval of {needed} or more"
    )
    if not any(with_interval):
        return f"Ratio of medians; {tests}. {no_verdict}."
    text = f"Ratio of medians with its {sure} bootstrap interval; {tests}. "
    text += f"No difference: the interval lies within ±{percent(settings.margin)}."
    return text if all(with_interval) else f"{text} {no_verdict}."


def _not_compared(missing: Sequence[GateRow]) -> list[str]:
    """Say in one line which rows the tables lack, and why; a gate lists them itself."""
    by_reason: dict[str, list[str]] = {}
    for row in missing:
        by_reason.setdefault(row.reason, []).append(row.label)
    texts = [
        f"{labels[0]}{f' and {len(labels) - 1} more' if len(labels) > 1 else ''} ({reason})"
        for reason, labels in by_reason.items()
    ]
    return [f"Not compared: {'; '.join(texts)}."] if texts else []


def _document(found: Found, gate: Gate | None, settings: Settings) -> dict[str, Any]:
    return {
        "a": found.runs[0].id,
        "b": found.runs[-1].id,
        "incomplete": [run.id for run in found.runs if not run.complete],
        "margin": settings.margin,
        "confidence": settings.confidence,
        "floor": settings.floor,
        "floors": [each.to_json() for each in found.floors],
        "drifts": [each.to_json() for each in found.drifts],
        "comparisons": [comparison.to_json() for comparison in found.comparisons],
        "gate": None if gate is None else gate.to_json(),
    }


def _print(found: Found, gate: Gate | None, settings: Settings, *, with_tests: bool) -> None:
    console = Console(highlight=False)
    names: Sequence[str | None] = [run.id for run in found.runs] if len(found.runs) > 1 else (None, None)
    for table in versus_tables(found.comparisons, a_name=names[0], b_name=names[1], with_tests=with_tests):
        console.print(table)
    console.print(f"[dim]{_caption(found, settings)}[/]")
    for note in [*_notes(found), *(_not_compared(found.missing) if gate is None else ())]:
        console.print(f"! {note}", style="yellow", markup=False)
    for line in () if gate is None else gate_lines(gate):
        console.print(line, markup=False)
