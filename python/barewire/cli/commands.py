# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands: one module each, and the group that finds them."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

_COMMAND_FOLLOWS = {"allow_interspersed_args": False, "ignore_unknown_options": False}
# Each command's module and function, or group, and its settings if it has any; in the order of the help. A module is
# imported when its command is asked for: together they take half a second.
_COMMANDS: dict[str, tuple[Any, ...]] = {
    "doctor": ("doctor", "doctor"),
    "lab": ("lab", "app"),
    "bench": ("bench", "bench"),
    "bench host": ("host", "host"),
    "bench budget": ("budget", "budget"),
    "mpi": ("mpi", "mpi"),
    "mpi scoreboard": ("scoreboard", "scoreboard"),
    "run": ("run", "run", _COMMAND_FOLLOWS),
    "try": ("trial", "trial", _COMMAND_FOLLOWS),
    "profile": ("profile", "profile", _COMMAND_FOLLOWS),
    "tune": ("tune", "tune"),
    "compare": ("compare", "compare"),
    "report": ("report", "report"),
    "sdn": ("sdn", "app"),
}


class _Commands(TyperGroup):
    """`bench` and `mpi` take tests as arguments, but commands such as `bench host` have options of their own."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        module_name, attribute, *settings = _COMMANDS[cmd_name]
        found = getattr(import_module(f"barewire.cli.{module_name}"), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(cmd_name, context_settings=settings[0] if settings else None)(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        both = " ".join(args[:2])
        if both in _COMMANDS:
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


@app.callback()
def _all() -> None: ...
