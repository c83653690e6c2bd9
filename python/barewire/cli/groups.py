# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What all commands have besides their options: -h, --version, and errors that name what was probably meant."""

import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

from barewire.errors import BarewireError, WrongUse, closest, unknown

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
# Options by the names that they once had.
_RENAMED = {
    "--on": ("--hosts", "--hostfile", "--slurm"),
    "--time": ("--budget",),
    "--out": ("--output",),
    "--against": ("--baseline",),
    "--tests": ("--p-values",),
    "--only": ("[TEST,TEST]",),
}
# Options of a lab that only its creation takes.
_OF_A_LAB = ("--delay", "--jitter")
_NOT_A_CHOICE = re.compile(r"(?:Value error, )?'(.*)' is not one of ")


class Group(TyperGroup):
    """Commands of which an unknown one is an error that lists the known ones."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command and the rest; WrongUse if there is none of that name."""
        if not ctx.resilient_parsing and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """Return -h and --help, described like all other options."""
        return _plain(super().get_help_option(ctx))


def finish(command: Any, version: TyperOption) -> Any:
    """Add --version to a command and to those below it, and what they need to report errors as JSON.

    Lines of a paragraph of help are joined, because typer keeps their ends.
    """
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    command.params.append(version)
    for parameter in command.params:
        if getattr(parameter, "is_flag", False):
            # Else the type is shown, which is of no use.
            parameter.metavar = ""
    for below in getattr(command, "commands", {}).values():
        finish(below, version)
    if isinstance(command, TyperCommand):
        _plain(command.get_help_option(typer.Context(command, **CONTEXT)))
        command.callback = _with_json_errors(command.callback)
    return command


def _plain(help_option: Any) -> Any:
    help_option.metavar, help_option.help = "", "show this help"
    return help_option


def _with_json_errors(callback: Any) -> Any:
    @functools.wraps(callback)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return callback(*args, **options)
        except BarewireError as error:
            error.as_json = options.get("as_json", False)
            raise

    return call


def usage_error(error: TyperException, arguments: Sequence[str]) -> WrongUse:
    """Return what typer found wrong in the arguments, with what was probably meant."""
    context = getattr(error, "ctx", None)
    hint = _hint(error, context)
    if hint is None and context is not None:
        hint = f"`{context.command_path} --help` lists what it takes"
    # Without pydantic's words, and without the parser's own guesses.
    error.message = error.message.removeprefix("Value error, ")
    wrong = WrongUse(error.message if hasattr(error, "possibilities") else error.format_message(), hint)
    before_program = itertools.takewhile(lambda word: word != "--", arguments)
    wrong.as_json = "--json" in before_program and "as_json" in _parameters(context)
    return wrong


def _parameters(context: Any) -> dict[str, Any]:
    return {} if context is None else {parameter.name: parameter for parameter in context.command.params}


def _hint(error: TyperException, context: Any) -> str | None:
    parameters = _parameters(context).values()
    if (option := getattr(error, "option_name", None)) is not None and hasattr(error, "possibilities"):
        known = [name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)]
        if option in _OF_A_LAB and "--lab" in known:
            return f"{option} is an option of `barewire lab up`: create the lab there, and name it with --lab ID"
        metavars = [parameter.metavar for parameter in parameters]
        new = [name for name in _RENAMED.get(option, ()) if name in (*known, *metavars)]
        close = closest(option, [name for name in known if name.startswith("--")])
        meant = new or ([close] if close else [])
    elif (parameter := getattr(error, "param", None)) is not None and (found := _NOT_A_CHOICE.match(error.message)):
        close = closest(found[1], [str(getattr(choice, "value", choice)) for choice in parameter.type.choices])
        meant = [close] if close else []
    else:
        return None
    return f"did you mean {' or '.join(meant)}?" if meant else None


def is_help(error: TyperException) -> bool:
    """Whether the help has been printed because there were no arguments."""
    return type(error).__name__ == "NoArgsIsHelpError"


def version_option(command: Any) -> TyperOption:
    """Return a command's own --version."""
    option: TyperOption = next(parameter for parameter in command.params if parameter.name == "version")
    return option


def typer_group(help: str) -> typer.Typer:
    """Return a group of commands, such as `barewire lab`."""
    return typer.Typer(cls=Group, add_completion=False, no_args_is_help=True, help=help)
