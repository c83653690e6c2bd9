# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire import`: makes a run of what another benchmark printed."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from barewire.cli import complete, options
from barewire.cli.directories import results_directory
from barewire.cli.measuring import print_result
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.importers.output import Hints
from barewire.importers.runs import ImportPlan, import_outputs
from barewire.importers.tools import AUTO, TOOLS
from barewire.models.wire import Link
from barewire.topology.rate import UNSHAPED, check_rate, parse_rate


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="what the benchmark printed; one launch each"),
    ],
    format: Annotated[
        str, typer.Option(metavar="TOOL", help=f"{AUTO}, or {', '.join(TOOLS)}", autocompletion=complete.tools)
    ] = AUTO,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="SUBJECT",
            help="what was measured, such as tcp or openmpi/tcp",
            show_default="the tool's name",
        ),
    ] = None,
    ranks: Annotated[int | None, options.RANKS] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="TEST", help="what was measured, for tools that do not print it: pingpong, stream, all_reduce …"
        ),
    ] = None,
    rate: Annotated[str, options.REAL_RATE] = UNSHAPED,
    mtu: Annotated[int, options.REAL_MTU] = Link.mtu,
    environment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="machine and settings; runs of one name compare without a warning"),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="import outputs that are cut short, or of failed launches, as they are")
    ] = False,
    add: Annotated[bool, typer.Option("--add", help="add to the imported run in --output")] = False,
    output: options.Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a run of outputs of OSU, IMB, NetPIPE, HPC Challenge, fabtests or nccl-tests, to compare, model and report.

    The tool is recognised by what it prints. Several files are several launches of the same. --ranks is for tools that
    do not print their number; --rate and --mtu of the link give the wire's limit.
    """
    if add and output is None:
        raise WrongUse("--add needs the run to add to: -o RUN")
    if add and (rate != UNSHAPED or mtu != Link.mtu or environment is not None):
        raise WrongUse(
            "--rate, --mtu and --environment belong to the whole run: give them with its first import, not with --add"
        )
    if subject is not None and not subject.strip():
        raise WrongUse("--subject needs a name, such as openmpi/tcp")
    rate_bit_s = parse_rate(rate)
    check_rate(rate_bit_s)
    hints = Hints(subject, ranks, test)
    plan = ImportPlan(tuple(files), format, hints, Link(rate_bit_s, mtu), environment, partial)
    with results_directory(output, "import") as directory, progress_bar("reading"):
        run = import_outputs(plan, directory, command=sys.argv, add=add)
    print_result("import", run, directory, as_json)
