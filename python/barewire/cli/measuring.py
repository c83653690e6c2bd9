# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Options, lab facts and final output shared by measuring commands."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli.links import IN_A_LAB
from barewire.errors import BarewireError, WrongUse
from barewire.lab import Lab
from barewire.report.terminal import print_run
from barewire.results import Run
from barewire.stats import Refinement

LAB = IN_A_LAB
HOSTS = "Real machines"
EFFORT = "How much to measure"

TwoHosts = Annotated[
    str | None, typer.Option(help="two machines a,b instead of a lab; localhost is this machine", rich_help_panel=HOSTS)
]
RawInterface = Annotated[str | None, typer.Option(help="their interface for raw frames", rich_help_panel=HOSTS)]
RemoteShell = Annotated[
    str | None, typer.Option(help="command that starts programs there; default: ssh", rich_help_panel=HOSTS)
]
ControlPort = Annotated[int, typer.Option(help="control port on the second machine", rich_help_panel=HOSTS)]
Launches = Annotated[
    str, typer.Option(help="launches of each subject: N, or N..M until precise", rich_help_panel=EFFORT)
]
Precision = Annotated[
    float, typer.Option(help="half width of the median's interval: 0.02 is ± 2 %", rich_help_panel=EFFORT)
]
Budget = Annotated[float, typer.Option(help="seconds after which no new round begins", rich_help_panel=EFFORT)]
Refine = Annotated[
    float | None,
    typer.Option(
        help="add message sizes where linear interpolation between two sizes misses the middle by more than this "
        "share: 0.05 is 5 %; launches and precision then apply to each size",
        rich_help_panel=EFFORT,
    ),
]
RefineSmallest = Annotated[
    int | None,
    typer.Option(help="intervals of this many bytes are not refined further; default: 32", rich_help_panel=EFFORT),
]
RoundTrips = Annotated[int, typer.Option(min=1, help="round trips per launch and size", rich_help_panel=EFFORT)]
Seconds = Annotated[float, typer.Option(help="time per launch and size, at most", rich_help_panel=EFFORT)]
WarmUp = Annotated[int, typer.Option(min=1, help="round trips before the samples", rich_help_panel=EFFORT)]
Seed = Annotated[int | None, typer.Option(help="seed of order and contents; random unless given")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="the run's directory; default: runs/…")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]


def parse_launches(text: str) -> tuple[int, int]:
    """Parse `6`, or `6..12`: minimum and maximum."""
    first, _, last = text.partition("..")
    try:
        return int(first), int(last or first)
    except ValueError:
        raise WrongUse(f"'{text}' is not a number of launches; write 6, or 6..12 until precise") from None


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


@contextmanager
def report_kept_samples(directory: Path) -> Iterator[None]:
    """Print where the samples of an interrupted run are."""
    existed = (directory / "run.json").exists()
    try:
        yield
    except (BarewireError, KeyboardInterrupt):
        if not existed and (directory / "run.json").exists():
            complete = json.loads((directory / "run.json").read_text())["complete"]
            content = "all that was measured" if complete else "what was measured so far"
            typer.echo(f"{content} is in {directory}{'' if complete else ', marked incomplete'}", err=True)
        raise


def print_result(run: Run, directory: Path, as_json: bool, **extra: Any) -> None:
    """Print the run's tables, or everything as JSON with the `extra` entries."""
    if as_json:
        typer.echo(json.dumps({"directory": str(directory), **run.to_json(), **extra}, allow_nan=False))
        return
    print_run(Console(highlight=False), run)
    typer.echo(f"every sample is in {directory}; `barewire report {directory}` makes a page of it")
