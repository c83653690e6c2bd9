# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prints CHANGELOG.md in the form of Debian's changelogs: changelog.py REVISION MAINTAINER."""

import re
import sys
import textwrap
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
_VERSION = re.compile(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", re.MULTILINE)


def entries(revision: str, maintainer: str) -> str:
    """Return one entry for each version."""
    _, *parts = _VERSION.split(CHANGELOG.read_text())
    printed = []
    for version, day, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        lines = [line for line in text.strip().splitlines() if line]
        changes = [
            textwrap.fill(line.removeprefix("- "), 79, initial_indent="  * ", subsequent_indent="    ")
            for line in lines
        ]
        date = format_datetime(datetime.fromisoformat(day).replace(tzinfo=UTC))
        head = f"barewire ({version}-{revision}) bookworm; urgency=medium"
        printed.append("\n".join([head, "", *changes, "", f" -- {maintainer}  {date}", ""]))
    return "\n".join(printed)


print(entries(sys.argv[1], sys.argv[2]), end="")
