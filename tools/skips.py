# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compares the skipped tests with those that may be skipped: tools/skips.py LOG JUNIT.xml…

LOG has a line for each skipped Rust test. Prints each new skip, and exits with 1 if there is any. A machine that lacks
something sets BAREWIRE_ALLOW_SKIPS to a regular expression for reasons that are no failure there; `.*` allows all.
"""

import os
import re
import sys
import xml.etree.ElementTree as tree
from collections import defaultdict
from pathlib import Path

KNOWN = Path(__file__).parents[1] / "tests" / "skips.txt"


def skipped(log: Path, junit: list[Path]) -> dict[str, list[str]]:
    """Return the names of the skipped tests, by reason."""
    by_reason = defaultdict(list)
    for line in log.read_text().splitlines():
        name, _, reason = line.removeprefix("SKIPPED ").partition(": ")
        by_reason[reason].append(name)
    for file in junit:
        for case in tree.parse(file).getroot().iter("testcase"):
            for skip in case.findall("skipped"):
                by_reason[skip.get("message", "")].append(f"{case.get('classname')}::{case.get('name')}")
    return by_reason


def new_ones(by_reason: dict[str, list[str]], known: str, allowed: str) -> list[str]:
    """Return a sentence for each reason with more skipped tests than allowed; `known` as in tests/skips.txt."""
    lines = [line.split("\t", 1) for line in known.splitlines() if line and not line.startswith("#")]
    remaining = {pattern: int(count) for count, pattern in lines}
    sentences = []
    for reason, names in by_reason.items():
        # Pytest's reasons may span several lines.
        if allowed and re.fullmatch(allowed, reason, re.DOTALL):
            continue
        pattern = next((pattern for pattern in remaining if re.fullmatch(pattern, reason, re.DOTALL)), None)
        limit = remaining[pattern] if pattern is not None else 0
        if pattern is not None:
            remaining[pattern] -= len(names)
        if len(names) > max(limit, 0):
            shown = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            allowance = f"only {limit} may be" if limit > 0 else "none may be"
            sentences.append(f"skipped, and {allowance}, because {reason!r}: {shown}")
    return sentences


if __name__ == "__main__":
    by_reason = skipped(Path(sys.argv[1]), [Path(file) for file in sys.argv[2:]])
    sentences = new_ones(by_reason, KNOWN.read_text(), os.environ.get("BAREWIRE_ALLOW_SKIPS", ""))
    for sentence in sentences:
        print(f"skips: {sentence}")
    if sentences:
        print("skips: install what is missing, or if that is impossible set BAREWIRE_ALLOW_SKIPS='regular expression'")
    sys.exit(bool(sentences))
