# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Manual pages, completion scripts and tables of the documentation, all from the commands and the tables.

`python -m barewire.cli.manual FOLDER` writes pages and scripts below FOLDER, as share/ of an installation has them;
with `--markdown` it prints all commands as one page.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from barewire import __version__
from barewire.cli.commands import app
from barewire.cli.output import SCHEMAS
from barewire.models.catalogue import TESTS, TRANSPORTS, TUNING_VALUES

PROGRAM, COMPLETE = "barewire", "_BAREWIRE_COMPLETE"
# Where each shell looks for completions below share/.
COMPLETIONS = {
    "bash": "bash-completion/completions/barewire",
    "zsh": "zsh/vendor-completions/_barewire",
    "fish": "fish/vendor_completions.d/barewire.fish",
}
_NOTHING = "\\&"
_HANGING_PUNCTUATION = re.compile(r"^[.']", re.MULTILINE)
# What typer adds to a name without a metavar: a flag needs none, and an argument's name says what it is.
_TYPE = re.compile(r" <(?:str|bool|int|float|path|list\[str\]|list\[Path\])>")


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words of each command, of which the program's own are (), and the command."""
    yield from _below((), get_command(app))


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from _below((*words, *name.split()), command.get_command(None, name))


def page(words: Sequence[str], command: Any) -> str:
    """Return a command's manual page, as troff with the macros of man(7)."""
    context = typer.Context(command, info_name=" ".join((PROGRAM, *words)), help_option_names=["-h", "--help"])
    name = "-".join((PROGRAM, *words))
    summary, *paragraphs = (command.help or "").split("\n\n")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH {_text(name.upper())} 1 "" "Barewire {__version__}" "Barewire"',
        *(".SH NAME", f"{_text(name)} \\- {_text(_joined(summary).rstrip('.'))}"),
        *(".SH SYNOPSIS", f".B {_text(context.info_name or '')}", _text(usage)),
    ]
    if paragraphs:
        lines += [".SH DESCRIPTION", "\n.PP\n".join(_text(_joined(paragraph)) for paragraph in paragraphs)]
    for heading, records in _sections(command, context).items():
        lines += [f'.SH "{heading.upper()}"', *(_entry(*record) for record in records)]
    lines += [".SH EXIT STATUS", _text("0 success, 1 the measured system failed, 2 wrong use, 3 unsupported machine,")]
    lines += ["130 interrupted, 141 output closed.", ".SH SEE ALSO", *_see_also(words)]
    return "\n".join(lines) + "\n"


def _sections(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Return a command's arguments, options by their panel, and commands: each a term and its help, by heading."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        if (record := parameter.get_help_record(context)) is not None:
            default = "Arguments" if parameter.param_type_name == "argument" else "Options"
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or default, []).append(record)
    if hasattr(command, "list_commands"):
        below = ((name, command.get_command(None, name)) for name in command.list_commands(None))
        sections["Commands"] = [(name, found.get_short_help_str(1000)) for name, found in below]
    return sections


def reference() -> str:
    """Return every command with its arguments and options, as one page of Markdown."""
    lines = ["# Commands", "", f"Of Barewire {__version__}; `barewire COMMAND --help` says the same."]
    for words, command in commands():
        context = typer.Context(command, info_name=" ".join((PROGRAM, *words)), help_option_names=["-h", "--help"])
        usage = " ".join((context.info_name or "", *command.collect_usage_pieces(context)))
        lines += ["", f"## {context.info_name}", "", "```text", usage, "```"]
        lines += [f"\n{_joined(paragraph)}" for paragraph in (command.help or "").split("\n\n")]
        for heading, records in _sections(command, context).items():
            rows = ((f"`{_TYPE.sub('', term)}`".replace("|", "\\|"), _cell(text)) for term, text in records)
            lines += ["", f"**{heading}**", "", _table(("", ""), rows).rstrip("\n")]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return _joined(text).replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")


def _entry(term: str, text: str) -> str:
    name = _text(_TYPE.sub("", term))
    return f".TP\n\\fB{name}\\fR\n{_text(_joined(text)) or _NOTHING}"


def _see_also(words: Sequence[str]) -> Iterator[str]:
    above = [PROGRAM, *words][:-1]
    if above:
        yield f".BR {_text('-'.join(above))} (1)"
    else:
        names = ["-".join((PROGRAM, *below)) for below, _ in commands() if len(below) == 1]
        yield ",\n".join(f".BR {_text(name)} (1)" for name in names).replace("(1),", "(1),")


def _joined(paragraph: str) -> str:
    return " ".join(paragraph.split())


def _text(text: str) -> str:
    """Escape what troff would interpret; words between backquotes are bold."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return _HANGING_PUNCTUATION.sub(r"\\&\g<0>", re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped))


def completion(shell: str) -> str:
    """Return a shell's completion script."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script: str = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE, shell=shell)
    # zsh reads the file when the first completion is wanted, which the function it defines must then answer.
    return script + ('\n\n_barewire_completion "$@"\n' if shell == "zsh" else "\n")


def tables() -> dict[str, str]:
    """Return the tables of docs/reference.md, by the name in the comment before each."""
    return {
        "transports": _table(
            ("`--transport`", "what it is", "over `--link`", "sockets of a broker"),
            ((f"`{one.name}`", one.what, _yes(one.has_link), _yes(one.brokered)) for one in TRANSPORTS),
        ),
        "tests": _table(
            ("test", "of `barewire …`", "what it measures", "variant by default"),
            ((f"`{one.name}`", one.program.value, one.what, f"`{one.usual}`" if one.usual else "") for one in TESTS),
        ),
        "tuning": _table(
            ("in the tuning file, and of `--tuned`", "what it is", "for the provider", "written by"),
            (
                (f"`{one.name}`", one.what, f"`FI_BAREWIRE_{one.parameter}`" if one.parameter else "", one.measured_by)
                for one in TUNING_VALUES
            ),
        ),
        "schemas": _table(
            ("command", "schema"), ((f"`barewire {words}`", f"`{schema}`") for words, schema in SCHEMAS.items())
        ),
    }


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)) + "\n"


def write_all(share: Path) -> None:
    """Write pages and completion scripts."""
    for words, command in commands():
        _write(share / "man/man1" / f"{'-'.join((PROGRAM, *words))}.1", page(words, command))
    for shell, place in COMPLETIONS.items():
        _write(share / place, completion(shell))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    if sys.argv[1] == "--markdown":
        print(reference(), end="")
    else:
        write_all(Path(sys.argv[1]))
