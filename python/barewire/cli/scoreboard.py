# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire mpi scoreboard`: compares every pattern with the best TCP, worst row first."""

import json
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli import complete, options
from barewire.cli.directories import make_empty, results_directory
from barewire.cli.measuring import lab_facts
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.errors import BarewireError, MachineCannot, MeasurementFailed, WrongUse
from barewire.lab import Lab, parse_topology
from barewire.lab.load import busy_before
from barewire.measure.mpi import MpiSite
from barewire.measure.mpi_subjects import exclude_failing, parse_libraries
from barewire.measure.patterns import PATTERNS, TESTBEDS, Testbed
from barewire.measure.programs import expand_sizes
from barewire.measure.scoreboard import ScoreCampaign, ScorePlan, measure_testbed
from barewire.measure.scoreboard_plan import BoardPlan, find_subjects
from barewire.measure.scoreboard_runs import Board, directory_for, is_measured, read_board
from barewire.models.wire import Link
from barewire.mpi import Library, installed_libraries, suite
from barewire.mpi.placement import LOCAL_HOST, HostSlots
from barewire.report.scoreboard import TITLES, markdown, print_board
from barewire.report.scoreboard_page import render_board
from barewire.results.bounds import judge
from barewire.results.store import write_output
from barewire.stats.confidence import CONFIDENCE

PAGE, DOCUMENT = "scoreboard.html", "scoreboard.json"
# Report of a run of the probe, which tools/demo.sh puts beside the testbeds.
_TRANSPORTS = Path("transports") / "report.html"
_QUICK_LAUNCHES, _FULL_LAUNCHES = 3, 6
# Builds, labs and the page are extra: six minutes in all.
_QUICK_BUDGET_S = 320.0
_TESTBEDS = ", ".join(testbed.name for testbed in TESTBEDS)
_PATTERNS = ", ".join(dict.fromkeys(pattern.test for pattern in PATTERNS))


def scoreboard(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]", help="show this scoreboard instead of measuring one", autocompletion=complete.runs
        ),
    ] = None,
    quick: options.Quick = False,
    testbeds: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help=_TESTBEDS,
            show_default="all of the form",
            autocompletion=complete.testbeds,
        ),
    ] = None,
    patterns: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help=_PATTERNS, show_default="all", autocompletion=complete.patterns),
    ] = None,
    library: Annotated[str | None, options.LIBRARIES] = None,
    sizes: Annotated[str | None, options.SIZES] = None,
    launches: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="launches of each subject",
            show_default="3 with --quick, else 6",
            rich_help_panel=options.EFFORT,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="time after which no new round begins",
            show_default="320 with --quick, else none",
            rich_help_panel=options.EFFORT,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="resume an interrupted scoreboard", autocompletion=complete.runs),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="number of the worst rows to print")] = 20,
    fail_above: Annotated[
        float | None,
        typer.Option(metavar="RATIO", help="exit with 1 if a row's whole interval is above this"),
    ] = None,
    confidence: options.ConfidenceOrItsOwn = None,
    to_markdown: Annotated[Path | None, options.MARKDOWN] = None,
    seed: options.Seed = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure every pattern with every library over Barewire and over TCP, and show the worst row first.

    A row is Barewire's time divided by the time of the best TCP of any library in the same run; on one host by that of
    the best shared memory. Each testbed is a separate interleaved run in the scoreboard's directory. --quick measures a
    selection of testbeds, patterns and sizes in six minutes.
    """
    if sum(given is not None for given in (run, resume, output)) > 1:
        raise WrongUse("give one of RUN (show it), --resume RUN (continue it) and --output (measure)")
    planned = {
        "--quick": quick or None,
        "--testbeds": testbeds,
        "--patterns": patterns,
        "--library": library,
        "--sizes": sizes,
        "--launches": launches,
        "--budget": budget,
        "--seed": seed,
    }
    given = [name for name, value in planned.items() if value is not None]
    if given and (run or resume) is not None:
        raise WrongUse(f"omit {' and '.join(given)} with a scoreboard that was begun: its plan has been made")
    if fail_above is not None and not fail_above > 0:
        raise WrongUse(f"--fail-above must be a ratio above 0, such as 1.05, not {fail_above}")
    share = None if confidence is None else options.read_confidence(confidence)
    existing = run or resume
    with results_directory(output, "scoreboard") if existing is None else nullcontext(existing) as directory:
        stopped: BaseException | None = None
        if resume is not None:
            stopped = _measure(BoardPlan.read(resume), directory)
        elif run is None:
            plan = BoardPlan(
                quick=quick,
                seed=secrets.randbits(32) if seed is None else seed,
                launches=launches or (_QUICK_LAUNCHES if quick else _FULL_LAUNCHES),
                budget_s=budget or (_QUICK_BUDGET_S if quick else None),
                testbeds=testbeds,
                patterns=patterns,
                libraries=library,
                sizes=None if sizes is None else expand_sizes(sizes, 0),
                confidence=share or CONFIDENCE,
            )
            parse_libraries(library)
            make_empty(directory)
            plan.write(directory)
            stopped = _measure(plan, directory)
        try:
            board = read_board(directory, share)
        except WrongUse:
            # The error that ended the measurement before its first run is more specific than its absence.
            raise stopped or sys.exception() from None  # type: ignore[misc]
        _write(board, directory, to_markdown)
        _show(board, directory, rows, as_json)
        if stopped is not None:
            typer.echo(f"to resume: barewire mpi scoreboard --resume {directory}", err=True)
            raise stopped
    _judge(board, fail_above)


def _measure(plan: BoardPlan, directory: Path) -> BaseException | None:
    """Measure the testbeds without a complete run; return the error that ended this early, with all samples on disk."""
    libraries = parse_libraries(plan.libraries) or tuple(installed_libraries())
    busy = busy_before()
    machine = () if busy is None else (f"the machine was busy: {busy}; do not rely on these rows",)
    testbeds = [testbed for testbed in plan.chosen_testbeds() if not is_measured(directory, testbed.name)]
    started = time.monotonic()
    try:
        for number, testbed in enumerate(testbeds):
            remaining_s = None if plan.budget_s is None else plan.budget_s - (time.monotonic() - started)
            if remaining_s is not None and remaining_s <= 0:
                typer.echo(f"barewire: {testbed.title} and the following are left out: --budget is spent", err=True)
                return None
            share_s = (
                None
                if remaining_s is None
                else remaining_s * testbed.weight / sum(each.weight for each in testbeds[number:])
            )
            try:
                _measure_testbed(plan, testbed, libraries, share_s, directory, machine)
            except MachineCannot as error:
                if plan.testbeds is not None:
                    raise
                typer.echo(f"barewire: {testbed.title} is left out: {error}", err=True)
    except (BarewireError, KeyboardInterrupt) as error:
        return error
    return None


def _measure_testbed(
    plan: BoardPlan,
    testbed: Testbed,
    libraries: Sequence[Library],
    seconds: float | None,
    directory: Path,
    machine: Sequence[str],
) -> None:
    started = time.monotonic()
    candidates, reasons = find_subjects(libraries, testbed, quick=plan.quick)
    scores = ScorePlan(
        testbed, candidates, plan.chosen_patterns(), plan.quick, plan.seed, plan.launches, seconds, plan.sizes
    )
    groups = tuple(scores.groups())
    if not groups:
        raise MachineCannot(f"no chosen pattern supports {testbed.ranks} ranks")
    programs: dict[tuple[str, str], str] = {}

    def build(library: Library) -> None:
        programs.update({(library.name, name): path for name, path in suite.build(library, groups).items()})

    subjects, unbuilt = exclude_failing(candidates, build, named=plan.libraries is not None)
    warnings = (*machine, *reasons, *unbuilt)
    typer.echo(f"{testbed.title}: {len(subjects)} subjects", err=True)
    for warning in warnings:
        typer.echo(f"barewire: {warning}", err=True)
    if seconds is not None:
        scores = replace(scores, seconds=max(seconds - (time.monotonic() - started), 0.0))
    with _site(testbed) as (site, lab), progress_bar() as progress:
        measure_testbed(
            ScoreCampaign(site, replace(scores, subjects=subjects), programs),
            directory_for(directory, testbed.name),
            command=sys.argv,
            lab=lab,
            warnings=warnings,
            progress=progress,
        )


@contextmanager
def _site(testbed: Testbed) -> Iterator[tuple[MpiSite, dict[str, Any] | None]]:
    link = Link(testbed.link.rate_bit_s, testbed.link.mtu)
    if testbed.topology is None:
        yield MpiSite((HostSlots(LOCAL_HOST),), link), None
        return
    topology = parse_topology(testbed.topology)
    with Lab.up(topology, testbed.link, standalone=True) as lab:
        yield MpiSite(tuple(HostSlots(name) for name in topology.workers), link, lab), lab_facts(lab)


def _write(board: Board, directory: Path, to_markdown: Path | None) -> None:
    """Write the page and the document beside the runs, and a page of documentation if requested."""
    transports = str(_TRANSPORTS) if (directory / _TRANSPORTS).exists() else None
    texts = {
        directory / PAGE: render_board(board, more=transports),
        directory / DOCUMENT: json.dumps(_document(board), indent=1, allow_nan=False, ensure_ascii=False) + "\n",
    }
    if to_markdown is not None:
        texts[to_markdown] = markdown(board, source="bin/barewire mpi scoreboard --markdown")
    for path, text in texts.items():
        write_output(path, text.encode(errors="backslashreplace"))


def _document(board: Board) -> dict[str, Any]:
    return {
        **board.scores.to_json(),
        "quick": board.plan.quick,
        "unmeasured": board.unmeasured,
        "bounds": [asdict(bound) for bound in judge(board.scores)],
        "testbeds": {
            name: {"title": TITLES[name], "run": run.id, "complete": run.complete, "warnings": list(run.warnings)}
            for name, run in board.runs.items()
        },
    }


def _show(board: Board, directory: Path, rows: int, as_json: bool) -> None:
    if as_json:
        print_document("mpi scoreboard", {"directory": str(directory), **_document(board)})
        return
    print_board(Console(highlight=False), board, rows)
    typer.echo(f"page: {directory / PAGE}; every row: {directory / DOCUMENT}; every sample is beside them")


def _judge(board: Board, fail_above: float | None) -> None:
    """Raise if a launch failed, or if a row is slower than allowed."""
    failures = sum(not launch.complete for run in board.runs.values() for launch in run.launches)
    if failures:
        raise MeasurementFailed(f"{failures} launch{'es' if failures != 1 else ''} failed; see the warnings above")
    above = () if fail_above is None else board.scores.above(fail_above)
    if above:
        worst, are = above[0], "s are" if len(above) != 1 else " is"
        raise MeasurementFailed(
            f"{len(above)} row{are} slower than {fail_above:g} times the best competitor with certainty, the worst "
            f"{worst.pattern}, {worst.message_bytes} B, {worst.library}, {TITLES[worst.testbed]}: {worst.ratio:.2f}"
        )
