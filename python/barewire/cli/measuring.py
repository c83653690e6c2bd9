# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What measuring commands share: options of several parts, a lab's facts, the final output."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from barewire.cli.options import is_whole
from barewire.cli.output import print_document
from barewire.errors import WrongUse
from barewire.lab import Lab
from barewire.report.terminal import print_run
from barewire.results.run import Run
from barewire.stats.refinement import Refinement


def parse_launches(text: str) -> tuple[int, int]:
    """Parse `6`, or `6..12`: minimum and maximum."""
    first, dots, last = text.partition("..")
    if not is_whole(first) or (dots and not is_whole(last)):
        raise WrongUse(f"'{text}' is not a number of launches; write 6, or 6..12 until precise")
    return int(first), int(last or first)


def parse_refinement(threshold: float | None, smallest_bytes: int | None) -> Refinement | None:
    """Return the refinement of `--refine` and `--refine-smallest`; WrongUse if invalid."""
    if threshold is None:
        if smallest_bytes is not None:
            raise WrongUse("--refine-smallest applies to --refine: add --refine 0.05")
        return None
    try:
        return Refinement(threshold) if smallest_bytes is None else Refinement(threshold, smallest_bytes)
    except ValueError as error:
        raise WrongUse(f"--refine: {error}") from error


def facts_of_all(labs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts of labs that differ in their MTU, which then is a list."""
    if len(labs) == 1:
        return labs[0]
    return {**labs[0], "id": ",".join(facts["id"] for facts in labs), "mtu": [facts["mtu"] for facts in labs]}


def lab_facts(lab: Lab) -> dict[str, Any]:
    """Return a lab's facts for the description of a run."""
    return {
        "id": lab.id,
        "topology": lab.topology,
        "rate_bit_s": lab.link.rate_bit_s,
        "mtu": lab.link.mtu,
        "offloads": lab.link.offloads,
        "loss": lab.link.loss,
        "receive_on": lab.link.receive_on,
        "delay_us": lab.link.delay_us,
        "jitter_us": lab.link.jitter_us,
        "wire": lab.wire,
        "notes": lab.notes,
    }


def print_result(command: str, run: Run, directory: Path, as_json: bool, **extra: Any) -> None:
    """Print the run's tables, or everything as JSON with the `extra` entries."""
    if as_json:
        print_document(command, {"directory": str(directory), **run.to_json(), **extra})
        return
    print_run(Console(highlight=False), run)
    typer.echo(f"every sample is in {directory}; `barewire report {directory}` makes a page of it")
