# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench host`: characterises this machine and compares it with a stored reference."""

import secrets
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from barewire.cli import complete, options
from barewire.cli.directories import results_directory
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.cli.report import REFERENCE_FILE
from barewire.errors import MachineCannot, WrongUse
from barewire.lab import Lab, LinkSpec
from barewire.measure.host import HOST_TESTS, HostPlan, measure_host
from barewire.report.host import print_host
from barewire.results.confidence import at_confidence
from barewire.results.host import (
    STORED_REFERENCE,
    host_crossovers,
    host_document,
    host_measures,
    read_reference,
)
from barewire.results.store import samples, write_atomically
from barewire.results.tuning import check_target, tuning_path, write_crossover

# The maximum of a veth: the copy crossover may be larger than the frames of an ordinary link.
_LAB_MTU = 65535


def host(
    tests: Annotated[
        str,
        typer.Argument(
            metavar="[TEST,TEST]",
            help=", ".join(HOST_TESTS),
            show_default="all",
            autocompletion=complete.host_tests,
        ),
    ] = ",".join(HOST_TESTS),
    launches: Annotated[
        int,
        typer.Option(
            metavar="N", help="launches of each test; no interval below 6, or 8 at 99 %", rich_help_panel=options.EFFORT
        ),
    ] = 6,
    seconds: options.Seconds = 0.03,
    largest_block: Annotated[
        int | None,
        typer.Option(
            min=8192,
            metavar="BYTES",
            help="largest block of memory",
            show_default="4 times the last-level cache, as far as memory allows",
        ),
    ] = None,
    confidence: options.Confidence = 95,
    reference: Annotated[
        str,
        typer.Option(metavar="FILE|none", help="document of another run to compare with"),
    ] = "stored",
    seed: options.Seed = None,
    output: options.Output = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="write the results to the tuning file that endpoints read")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Characterise this machine: memory, system calls, processes, local channels, files, when copying a message pays.

    Nothing else should run meanwhile. The test `send` needs a lab of two hosts; it is left out, with a warning, where
    none can be created. `barewire report` makes a page.
    """
    plan = HostPlan(
        tests=tuple(dict.fromkeys(name.strip() for name in tests.split(","))),
        launches=launches,
        seconds=seconds,
        seed=secrets.randbits(32) if seed is None else seed,
        largest_block_bytes=largest_block,
        confidence=options.read_confidence(confidence),
    )
    if tune:
        if "send" not in plan.tests:
            raise WrongUse("--tune writes the copy crossover, which the test `send` measures: add it, or omit --tune")
        check_target(tuning_path())
    reference_file = {"none": None, "stored": STORED_REFERENCE}.get(reference, Path(reference))
    stored = None if reference_file is None else read_reference(reference_file)
    with ExitStack() as stack:
        lab, warnings = _lab(stack, plan) if "send" in plan.tests else (None, ())
        directory = stack.enter_context(results_directory(output, "host"))
        progress = stack.enter_context(progress_bar())
        measured = measure_host(plan, directory, command=sys.argv, lab=lab, warnings=warnings, progress=progress)
    if reference_file is not None:
        write_atomically(directory / REFERENCE_FILE, reference_file.read_bytes())
    frame = samples(directory)
    run = at_confidence(measured, frame, plan.confidence)
    crossovers = host_crossovers(frame, plan.confidence)
    try:
        if tune:
            path = write_crossover(crossovers, source=run.id)
            typer.echo(f"endpoints of this user now use {path}", err=True)
    finally:
        # Also if there is no crossover, or its file is not writable any more.
        if as_json:
            document = {"directory": str(directory), **host_document(run, frame, stored)}
            print_document("bench host", document)
        else:
            print_host(Console(highlight=False), run, host_measures(run, stored), crossovers, stored)
            typer.echo(f"every sample is in {directory}; `barewire report {directory}` makes a page of it")


def _lab(stack: ExitStack, plan: HostPlan) -> tuple[Lab | None, tuple[str, ...]]:
    """Return a lab until the stack ends; or None and a warning, which is also printed.

    MachineCannot if only `send` was requested.
    """
    try:
        return stack.enter_context(Lab.up("pair", LinkSpec(mtu=_LAB_MTU))), ()
    except MachineCannot as error:
        if plan.tests == ("send",):
            raise
        warning = f"`send` and the copy crossover were not measured: {error}"
        typer.echo(f"barewire: {warning}", err=True)
        return None, (warning,)
