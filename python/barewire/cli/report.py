# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire report`: renders a run as one self-contained HTML file, or many runs as a gallery."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from barewire.cli import complete, options
from barewire.cli.output import print_document
from barewire.cli.predict import model_from
from barewire.cli.progress import progress_bar
from barewire.errors import BarewireError, WrongUse
from barewire.measure.recover import recover_run
from barewire.report.answer import Answer
from barewire.report.gallery_page import Entry, render_gallery
from barewire.report.host_page import host_answer, render_host
from barewire.report.run_page import answer_of, compared, render
from barewire.report.sdn_page import render_sdn, sdn_answer
from barewire.results.confidence import as_asked
from barewire.results.held_out import Checked, check
from barewire.results.host import Reference, read_reference
from barewire.results.model import shared_cores
from barewire.results.prediction import KERNELS
from barewire.results.run import Run
from barewire.results.store import RUN_FILE, samples, write_output

REPORT_FILE, GALLERY_FILE = "report.html", "index.html"
# The reference of `barewire bench host`, stored beside the run.
REFERENCE_FILE = "reference.json"
_BASELINE = "tcp"


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="directory of the run; with --gallery several", autocompletion=complete.runs
        ),
    ],
    gallery: Annotated[
        bool, typer.Option("--gallery", help="one page of all runs and their reports; a directory is its runs")
    ] = False,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--predict-from",
            metavar="RUN|MODEL",
            help="show what this predicts beside what the run measured",
            autocompletion=complete.runs,
        ),
    ] = None,
    confidence: options.ConfidenceOrItsOwn = None,
    output: Annotated[Path | None, options.REPORT_FILE] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a run's report: one HTML file that works offline."""
    document: dict[str, object] = {}
    if gallery:
        if model:
            raise WrongUse("--predict-from is of one run's report: omit it with --gallery")
        if confidence is not None:
            raise WrongUse("--confidence is of one run's report: omit it with --gallery")
        with progress_bar("building the reports"):
            path, unread = write_gallery(runs, output)
        document["unread"] = unread
        for reason in unread:
            typer.echo(f"left out: {reason}", err=True)
    elif len(runs) > 1:
        raise WrongUse("one report is of one run: name one, or add --gallery for a page of all")
    else:
        with progress_bar("building the report"):
            share = None if confidence is None else options.read_confidence(confidence)
            path = write_report(runs[0], output, model or (), share)
    if as_json:
        print_document("report", {**document, "report": str(path), "bytes": path.stat().st_size})
    else:
        typer.echo(path)


def write_report(
    directory: Path, output: Path | None = None, model: Sequence[Path] = (), confidence: float | None = None
) -> Path:
    """Render the run in `directory` to `output` (default: its report.html) and return the path.

    Intervals have this confidence, by default that for which the run was measured.
    """
    run, frame = recover_run(directory), samples(directory)
    run = as_asked(run, directory, confidence)
    if model and run.kind in ("host", "sdn"):
        raise WrongUse(f"{directory} has no times of messages to predict")
    if run.kind == "host":
        page = render_host(run, frame, _reference(directory))
    elif run.kind == "sdn":
        page = render_sdn(run, frame)
    else:
        page = render(run, frame, baseline=_BASELINE, checked=_checked(run, directory, model))
    return write_page(output or directory / REPORT_FILE, page)


def write_gallery(paths: Sequence[Path], output: Path | None = None) -> tuple[Path, list[str]]:
    """Write a page of all runs, and the reports that are missing or older than their runs.

    A path is a run or a directory that contains some, at any depth. Return the page (default: in the only directory
    given), and a sentence for each run without a report: that cannot be read, or in whose directory nothing can be
    written. WrongUse if there is no other run.
    """
    if output is None and (len(paths) > 1 or (paths[0] / RUN_FILE).exists()):
        raise WrongUse(f"say where to write the page of these runs: -o {GALLERY_FILE}")
    target = output or paths[0] / GALLERY_FILE
    found = [run for path in paths for run in ([path] if (path / RUN_FILE).exists() else _below(path))]
    entries, unread = [], []
    for directory in dict.fromkeys(found):
        try:
            entries.append(_entry(directory, target.parent))
        except BarewireError as error:
            unread.append(str(error))
    if not entries:
        raise WrongUse(f"no run in {', '.join(map(str, paths))}{''.join(f'; {reason}' for reason in unread)}")
    entries.sort(key=lambda entry: entry.created, reverse=True)
    return write_page(target, render_gallery(entries, unread)), unread


def _below(path: Path) -> list[Path]:
    if not path.is_dir():
        raise WrongUse(f"{path} is no directory")
    return sorted(file.parent for file in path.rglob(RUN_FILE))


def _entry(directory: Path, base: Path) -> Entry:
    run = as_asked(recover_run(directory), directory)
    page = directory / REPORT_FILE
    if not page.exists() or page.stat().st_mtime < (directory / RUN_FILE).stat().st_mtime:
        write_report(directory)
    return Entry(
        run.id,
        run.created,
        len(run.launches),
        run.complete,
        quote(os.fsencode(os.path.relpath(page, base))),
        _answer(run, directory),
    )


def _answer(run: Run, directory: Path) -> Answer:
    if run.kind == "host":
        return host_answer(run, samples(directory), _reference(directory))
    if run.kind == "sdn":
        return sdn_answer(run, samples(directory))
    return answer_of(run, compared(run, _BASELINE), _BASELINE)


def _reference(directory: Path) -> Reference | None:
    stored = directory / REFERENCE_FILE
    return read_reference(stored) if stored.exists() else None


def _checked(run: Run, directory: Path, paths: Sequence[Path]) -> list[Checked]:
    if not paths:
        return []
    model = model_from(paths)
    if run.id in model.runs:
        raise WrongUse(f"{directory} is one of {', '.join(map(str, paths))}: predict it from other runs")
    checked, unsaid = check(model, run, KERNELS, None, None, shared_cores(run))
    if not checked:
        reasons = "; ".join(unsaid) or "they have no subject and pattern in common"
        raise WrongUse(f"nothing in {directory} can be predicted from {', '.join(map(str, paths))}: {reasons}")
    return checked


def write_page(path: Path, page: str) -> Path:
    """Write a page, and the folder if it is missing; WrongUse if the system refuses."""
    if path.is_dir():
        raise WrongUse(f"{path} is a directory: name the page's file, such as {path / 'report.html'}")
    write_output(path, page.encode())
    return path
