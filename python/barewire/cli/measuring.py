# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What commands that measure have in common: how many launches, what a lab is, what is said at the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from barewire.errors import BarewireError, WrongUse
from barewire.lab import Lab
from barewire.report.terminal import print_run
from barewire.results import Run


def parse_launches(text: str) -> tuple[int, int]:
    """Read `6`, or `6..12`: at least and at most so many."""
    first, _, last = text.partition("..")
    try:
        return int(first), int(last or first)
    except ValueError:
        raise WrongUse(f"'{text}' is no number of launches; write 6, or 6..12 to go on until precise") from None


def lab_facts(lab: Lab) -> dict[str, Any]:
    """What a run keeps of the lab that it was measured in."""
    return {
        "id": lab.id,
        "topology": lab.topology,
        "rate_bit_s": lab.link.rate_bit_s,
        "mtu": lab.link.mtu,
        "offloads": lab.link.offloads,
        "loss": lab.link.loss,
        "notes": lab.notes,
    }


@contextmanager
def kept_if_broken_off(directory: Path) -> Iterator[None]:
    """Say where the samples are of a run that does not reach its end."""
    try:
        yield
    except (BarewireError, KeyboardInterrupt):
        if (directory / "run.json").exists():
            typer.echo(f"what was measured so far is in {directory}, marked incomplete", err=True)
        raise


def print_result(run: Run, directory: Path, as_json: bool, **more: Any) -> None:
    """Print the run's tables, or all of it as JSON, with what there is `more`."""
    if as_json:
        typer.echo(json.dumps({"directory": str(directory), **run.to_json(), **more}, allow_nan=False))
        return
    print_run(Console(highlight=False), run)
    typer.echo(f"every sample is in {directory}; `barewire report {directory}` makes a page of it")
