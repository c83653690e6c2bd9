# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands, one module each, and the group that loads them."""

import ast
import contextlib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from barewire.cli.groups import CONTEXT, Group, finish, version_option

_COMMAND_FOLLOWS = {"allow_interspersed_args": False, "ignore_unknown_options": False}
# Module and function (or group) of each command, and its settings if any, in the order of the help. Modules are
# imported on demand: together they take a second.
_COMMANDS: dict[str, tuple[Any, ...]] = {
    "doctor": ("doctor", "doctor"),
    "lab": ("lab", "app"),
    "bench": ("bench", "bench"),
    "bench host": ("host", "host"),
    "bench budget": ("budget", "budget"),
    "mpi": ("mpi", "mpi"),
    "mpi scoreboard": ("scoreboard", "scoreboard"),
    "mpi applications": ("applications", "applications"),
    "run": ("run", "run", _COMMAND_FOLLOWS),
    "enable": ("enable", "enable"),
    "disable": ("enable", "disable"),
    "status": ("enable", "status"),
    "modulefile": ("enable", "modulefile"),
    "try": ("trial", "trial", _COMMAND_FOLLOWS),
    "profile": ("profile", "profile", _COMMAND_FOLLOWS),
    "cluster": ("cluster", "app"),
    "tune": ("tune", "tune"),
    "compare": ("compare", "compare"),
    "model": ("model", "model"),
    "predict": ("predict", "predict"),
    "trajectory": ("trajectory", "trajectory"),
    "report": ("report", "report"),
    "export": ("export", "export"),
    "import": ("importing", "import_files"),
    "account": ("account", "account"),
    "study": ("study", "app"),
    "exercise": ("exercise", "app"),
    "sdn": ("sdn", "app"),
}


class _Commands(Group):
    """`bench` and `mpi` take tests as arguments, but commands such as `bench host` have options of their own."""

    _lists_only = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        module_name, attribute, *settings = _COMMANDS[cmd_name]
        if self._lists_only:
            return TyperCommand(cmd_name, help=summary(module_name, attribute))
        target = getattr(import_module(f"barewire.cli.{module_name}"), attribute)
        if not isinstance(target, typer.Typer):
            single = typer.Typer(add_completion=False)
            single.command(cmd_name, context_settings=settings[0] if settings else None)(target)
            target = single
        command = typer.main.get_command(target)
        command.name = cmd_name
        return finish(command, version_option(self))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        two_words = " ".join(args[:2])
        if two_words in _COMMANDS:
            return two_words, self.get_command(ctx, two_words), args[2:]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete one word: the second one of `bench host` is completed as an argument of `bench`."""
        with self._listing():
            return [item for item in super().shell_complete(ctx, incomplete) if " " not in item.value]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the commands by their names and summaries."""
        with self._listing():
            super().format_help(ctx, formatter)

    @contextlib.contextmanager
    def _listing(self) -> Iterator[None]:
        """Load no command meanwhile."""
        self._lists_only = True
        try:
            yield
        finally:
            self._lists_only = False


def summary(module_name: str, attribute: str) -> str:
    """Return the first paragraph of a command's help, from the source of its module."""
    spec = find_spec(f"barewire.cli.{module_name}")
    assert spec is not None and spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text()).body:
        match node:
            case ast.FunctionDef(name=name) if name == attribute:
                return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Constant(value=str(text))])):
                if name == attribute:
                    return text
    raise AssertionError(f"barewire.cli.{module_name} defines no {attribute}")


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    help="MPI over plain Ethernet frames: carry it, measure it, route it.",
    epilog="Exit codes: 0 success, 1 the measured system failed, 2 wrong use, 3 unsupported machine, 130 interrupted, "
    "141 output closed.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from barewire.cli.version import text

        typer.echo(text())
        raise typer.Exit


@app.callback()
def _all(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="print the versions of what is installed",
        ),
    ] = False,
) -> None: ...
