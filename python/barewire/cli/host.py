# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench host`: what this machine gives a program, beside a stored reference."""

import json
import secrets
import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from barewire.cli.measuring import kept_if_broken_off
from barewire.cli.progress import progress_bar
from barewire.cli.report import REFERENCE_FILE
from barewire.errors import MachineCannot
from barewire.lab import Lab, LinkSpec
from barewire.measure.host import HOST_TESTS, HostPlan, measure_host
from barewire.report.host import print_host
from barewire.results import samples
from barewire.results.host import (
    STORED_REFERENCE,
    host_crossovers,
    host_document,
    host_measures,
    read_reference,
)
from barewire.results.store import write_atomically
from barewire.results.tuning import write_crossover

# The largest that a veth takes: the copy crossover may lie beyond what one frame of an ordinary link holds.
_LAB_MTU = 65535


def host(
    launches: Annotated[int, typer.Option(help="launches of each test; below 6 there is no interval")] = 6,
    only: Annotated[
        str, typer.Option(metavar="TEST[,TEST]", help=f"of {', '.join(HOST_TESTS)}; all unless given")
    ] = ",".join(HOST_TESTS),
    seconds: Annotated[float, typer.Option(help="time per launch, subject and size")] = 0.03,
    largest_block: Annotated[
        int | None,
        typer.Option(min=8192, help="bytes of memory; 4 times the last cache unless given, as far as memory allows"),
    ] = None,
    reference: Annotated[
        str, typer.Option(metavar="FILE|none", help="document of another run to compare with; stored unless given")
    ] = "stored",
    seed: Annotated[int | None, typer.Option(help="of the order; drawn unless given")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="the run's directory; runs/… unless given")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="write what was found into the tuning file that endpoints read")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Characterise this machine: memory, system calls, waking, files, and when copying a message pays.

    Nothing else should run meanwhile. Sending needs a lab of two hosts; where none can be made it is left out, and
    the run says so. `barewire report` makes a page.
    """
    plan = HostPlan(
        tests=tuple(dict.fromkeys(only.split(","))),
        launches=launches,
        seconds=seconds,
        seed=secrets.randbits(32) if seed is None else seed,
        largest_block_bytes=largest_block,
    )
    beside = {"none": None, "stored": STORED_REFERENCE}.get(reference, Path(reference))
    stored = None if beside is None else read_reference(beside)
    directory = output or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-host"
    with ExitStack() as stack:
        lab, warnings = _lab(stack, plan) if "send" in plan.tests else (None, ())
        progress = stack.enter_context(progress_bar(quiet=as_json))
        stack.enter_context(kept_if_broken_off(directory))
        run = measure_host(plan, directory, command=sys.argv, lab=lab, warnings=warnings, progress=progress)
    if beside is not None:
        write_atomically(directory / REFERENCE_FILE, beside.read_bytes())
    frame = samples(directory)
    if tune:
        path = write_crossover(host_crossovers(frame), source=run.id)
        typer.echo(f"endpoints of this user now follow {path}", err=True)
    if as_json:
        document = {"directory": str(directory), **host_document(run, frame, stored)}
        typer.echo(json.dumps(document, allow_nan=False))
        return
    print_host(Console(highlight=False), run, host_measures(run, stored), host_crossovers(frame), stored)
    typer.echo(f"every sample is in {directory}; `barewire report {directory}` makes a page of it")


def _lab(stack: ExitStack, plan: HostPlan) -> tuple[Lab | None, tuple[str, ...]]:
    """A lab until the stack ends; or none, and why not, told at once and kept with the run.

    MachineCannot where nothing but sending was asked for.
    """
    try:
        return stack.enter_context(Lab.up("pair", LinkSpec(mtu=_LAB_MTU))), ()
    except MachineCannot as error:
        if plan.tests == ("send",):
            raise
        warning = f"sending was not measured, and so no copy crossover: {error}"
        typer.echo(f"barewire: {warning}", err=True)
        return None, (warning,)
