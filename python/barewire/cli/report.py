# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire report`: renders a run as one self-contained HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from barewire.cli import options
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.errors import MeasurementFailed
from barewire.measure import recover_run
from barewire.report.html import render, render_host, render_sdn
from barewire.results import samples
from barewire.results.host import read_reference
from barewire.results.store import write_atomically

REPORT_FILE = "report.html"
# The reference of `barewire bench host`, stored beside the run.
REFERENCE_FILE = "reference.json"


def report(
    run: Annotated[Path, options.RUN],
    output: Annotated[Path | None, options.REPORT_FILE] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a run's report: one HTML file that works offline."""
    with progress_bar("building the report"):
        path = write_report(run, output)
    if as_json:
        print_document("report", {"report": str(path), "bytes": path.stat().st_size})
    else:
        typer.echo(path)


def write_report(directory: Path, output: Path | None = None) -> Path:
    """Render the run in `directory` to `output` (default: its report.html) and return the path."""
    run, frame = recover_run(directory), samples(directory)
    if run.kind == "host":
        stored = directory / REFERENCE_FILE
        page = render_host(run, frame, read_reference(stored) if stored.exists() else None)
    elif run.kind == "sdn":
        page = render_sdn(run, frame)
    else:
        page = render(run, frame)
    path = output or directory / REPORT_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page.encode())
    except OSError as error:
        raise MeasurementFailed(f"cannot write {path}: {error.strerror or error}") from error
    return path
