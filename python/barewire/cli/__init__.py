# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command line: turns all errors into a message and an exit code."""

import signal
import sys

from barewire.cli.output import print_error
from barewire.errors import BarewireError


def main() -> None:
    """Run the command line; exits the process."""
    # A terminated run must clean up like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(_command(sys.argv[1:]))
    except BarewireError as error:
        print_error(str(error), error.hint, error.exit_code, as_json=error.as_json)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _command(arguments: list[str]) -> int:
    """Run one command. `run` precedes every launch of a program, so it avoids typer, whose import takes 0.2 s."""
    if arguments[:1] == ["run"]:
        from barewire.cli.run_arguments import parse

        if (request := parse(arguments[1:])) is not None:
            from barewire.cli.launch import launch

            try:
                return launch(request)
            except BarewireError as error:
                error.as_json = request.as_json
                raise
    from typer.exceptions import TyperException

    from barewire.cli.commands import app
    from barewire.cli.groups import is_help, usage_error

    try:
        return app(arguments, prog_name="barewire", standalone_mode=False) or 0
    except TyperException as error:
        if is_help(error):
            return error.exit_code
        raise usage_error(error, arguments) from error
