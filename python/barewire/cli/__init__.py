# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command line: one module per command, all errors turned into a message and an exit code here."""

import signal
import sys
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from barewire.cli import bench, budget, compare, doctor, host, lab, mpi, report, run, sdn, tune
from barewire.errors import BarewireError

_BENCH_HOST, _BENCH_BUDGET = "bench host", "bench budget"


class _Commands(TyperGroup):
    """`bench` takes tests as arguments, but `bench host` and `bench budget` have options of their own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        both = " ".join(args[:2])
        if both in (_BENCH_HOST, _BENCH_BUDGET):
            return both, self.get_command(ctx, both), args[2:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="MPI over plain Ethernet frames: carry it, measure it, route it.",
    epilog="Exit codes: 0 done, 1 the measured thing failed, 2 wrong use, 3 this machine cannot, 130 interrupted.",
)
app.command()(doctor.doctor)
app.add_typer(lab.app, name="lab")
app.command()(bench.bench)
app.command(_BENCH_HOST)(host.host)
app.command(_BENCH_BUDGET)(budget.budget)
app.command()(mpi.mpi)
app.command(context_settings=run.COMMAND_FOLLOWS)(run.run)
app.command()(tune.tune)
app.command()(compare.compare)
app.command()(report.report)
app.add_typer(sdn.app, name="sdn")


def main() -> None:
    """Run the command line; exits the process."""
    # A terminated run must clean up like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(prog_name="barewire")
    except BarewireError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"barewire: {error}", markup=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
