# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes what is generated from the commands: manual pages, bash's completion, modulefiles. pages.py VERSION ROOT.

It runs with the Python packages of the root that is being packed, and TYPER_USE_RICH=0: without frames of lines.
"""

import gzip
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.completion import get_completion_script
from typer.main import get_command
from typer.testing import CliRunner

from barewire.cli.commands import app

ABOUT = "part of Barewire, which carries MPI over plain Ethernet frames"
PROVIDER = "/usr/lib/x86_64-linux-gnu/libfabric"


def words(command: object, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command and of the commands below it."""
    yield before
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        if (found := command.get_command(None, name)) is not None:  # type: ignore[attr-defined]
            yield from words(found, (*before, *name.split()))


def help_of(command: Sequence[str]) -> str:
    """Return what --help prints, without frames."""
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="barewire", terminal_width=80)
    assert result.exit_code == 0, f"{command}: {result.output}"
    return result.output


def manual_page(name: str, text: str, version: str, root: Path) -> None:
    """Write the page of a command from the text of its --help."""
    with TemporaryDirectory() as folder:
        # help2man takes the title from the file of a program, which it starts.
        program = Path(folder) / name
        program.write_text(f"#!/bin/sh\ncat <<'THE_END'\n{text}\nTHE_END\n")
        program.chmod(0o755)
        options = ["--no-info", f"--version-string={version}", "--source=Barewire", f"--name={ABOUT}"]
        page = subprocess.run(["help2man", *options, program], check=True, capture_output=True, text=True).stdout
    write_zipped(root / "usr/share/man/man1" / f"{name}.1.gz", page)


def write_zipped(file: Path, text: str) -> None:
    """Write a file that holds no time and no name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as zipped:
        zipped.write(text.encode())


def write(file: Path, text: str) -> None:
    """Write a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def main(version: str, root: Path) -> None:
    """Write everything."""
    for command in words(get_command(app)):
        manual_page("-".join(("barewire", *command)), help_of(command), version, root)
    for program in ("barewire-probe", "barewire-broker"):
        text = subprocess.run([root / "usr/bin" / program, "--help"], check=True, capture_output=True, text=True).stdout
        manual_page(program, text, version, root)
    completion = get_completion_script(prog_name="barewire", complete_var="_BAREWIRE_COMPLETE", shell="bash")
    write(root / "usr/share/bash-completion/completions/barewire", completion + "\n")
    for form, suffix in (("tcl", ""), ("lua", ".lua")):
        command = [sys.executable, "-m", "barewire", "modulefile", form, "--provider", PROVIDER]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        write(root / "usr/share/modules/modulefiles/barewire" / f"{version}{suffix}", text)


main(sys.argv[1], Path(sys.argv[2]))
