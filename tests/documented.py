# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands in the code blocks of README.md and docs, by page, in order."""

import re
from collections.abc import Iterator

from conftest import ROOT

# Dated records, whose commands were those of their day.
_RECORDS = ("notebook", "decisions")
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SHELL = ("", "bash", "sh")
# A program is named first, behind variables of its environment; `[a-z-]` excludes quoted output (`barewire: …`).
_COMMAND = re.compile(r'(?:\w+=\S+ )*(?:sudo )?(?:\S*/)?barewire"? [a-z-]|\w+="[^"]*"$')
# A description follows two spaces, or # ; what is redirected may be aligned.
_DESCRIPTION = re.compile(r" {2,}(?![ >]).*| +# .*")


def pages() -> dict[str, list[str]]:
    """Each page's calls of `barewire`, and assignments for them, as printed but for descriptions."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {}
    for file in files:
        name = str(file.relative_to(ROOT / "docs")) if file.is_relative_to(ROOT / "docs") else file.name
        if name.partition("/")[0] not in _RECORDS and (commands := list(_commands(file.read_text()))):
            found[name] = commands
    return found


def block(page: str, language: str) -> str:
    """The only code block in this language on a page of docs."""
    found = _BLOCK.findall((ROOT / "docs" / page).read_text())
    (text,) = (text for of, text in found if of == language)
    return str(text)


def _commands(text: str) -> Iterator[str]:
    for language, block in _BLOCK.findall(text):
        if language in _SHELL:
            for line in re.sub(r"\\\n *", "", block).splitlines():
                command = line.strip().removeprefix("$ ")
                if _COMMAND.match(command):
                    yield re.sub(r" +", " ", _DESCRIPTION.sub("", command))
