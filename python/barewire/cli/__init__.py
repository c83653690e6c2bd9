# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command line: turns all errors into a message and an exit code."""

import os
import signal
import sys

from barewire.errors import BarewireError

# Set by the shell's completion function, which packages install.
_COMPLETE = "_BAREWIRE_COMPLETE"


def main() -> None:
    """Run the command line; exits the process."""
    # A terminated run must clean up like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(_command(sys.argv[1:]))
    except BarewireError as error:
        from rich.console import Console

        Console(stderr=True, highlight=False, soft_wrap=True).print(f"barewire: {error}", markup=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _command(arguments: list[str]) -> int:
    """Run one command. `run` precedes every launch of a program, so it avoids typer, whose import takes 0.2 s."""
    if arguments[:1] == ["run"]:
        from barewire.cli.run_arguments import parse

        if (request := parse(arguments[1:])) is not None:
            from barewire.cli.launch import launch

            return launch(request)
    from barewire.cli.commands import app

    if _COMPLETE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    app(arguments, prog_name="barewire")
    return 0
