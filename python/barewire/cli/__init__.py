# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command line: turns all errors into a message and an exit code."""

import errno
import io
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from barewire.cli.output import print_error
from barewire.errors import BarewireError, WrongUse

_NAME_SHOWN = 120


def main() -> None:
    """Run the command line; exits the process."""
    _open_missing_streams()
    # A terminated run must clean up like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # So must one whose terminal is gone, except under nohup.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    # A terminal that lacks a sign shows another one.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.exit(_told(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as end:
        # typer and rich end with 1 if nobody reads any more, which would mean that what was measured failed.
        if isinstance(end.__context__, BrokenPipeError):
            _end_without_output(128 + signal.SIGPIPE)
        raise
    except BrokenPipeError:
        _end_without_output(128 + signal.SIGPIPE)
    except OSError as error:
        _end_with(error)


def _told(arguments: list[str]) -> int:
    """Run one command and print its error, if any; an error of printing is the caller's, of either."""
    try:
        code = _command(arguments)
        sys.stdout.flush()
        return code
    except BarewireError as error:
        print_error(str(error), error.hint, error.exit_code, as_json=error.as_json)
        return error.exit_code


def _end_with(error: OSError) -> NoReturn:
    """End with the message of an error that no command expected: of a file that was named, or of a full disk."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if error.filename is None and not is_full:
        raise error
    name = "the output" if error.filename is None else str(error.filename)
    if len(name) > _NAME_SHOWN:
        name = f"{name[:_NAME_SHOWN]}…"
    code = 1 if is_full else WrongUse.exit_code
    if error.filename is None:
        print_error(f"cannot write {name}: {error.strerror}", None, code, as_json=False)
        _end_without_output(code)
    print_error(f"{name}: {error.strerror}", None, code, as_json="--json" in sys.argv)
    sys.exit(code)


def _open_missing_streams() -> None:
    """Give standard streams that were closed to nothing: a socket or a pipe would get their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115


def _end_without_output(code: int) -> NoReturn:
    """End where nothing can be written any more; what is still buffered would be an error at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    sys.exit(code)


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
