# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compare the tests that were skipped with those that may be: tools/skips.py LOG JUNIT.xml…

LOG has a line for each skipped Rust test. Says which skip is new and ends with 1 if there is one. A machine that lacks
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
    """Return the names of the tests that were skipped, by reason."""
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
    """Return a sentence for each reason for which more tests are skipped than may be; `known` as in tests/skips.txt."""
    lines = [line.split("\t", 1) for line in known.splitlines() if line and not line.startswith("#")]
    left = {pattern: int(most) for most, pattern in lines}
    sentences = []
    for reason, names in by_reason.items():
        # Reasons of pytest may have lines.
        if allowed and re.fullmatch(allowed, reason, re.DOTALL):
            continue
        pattern = next((pattern for pattern in left if re.fullmatch(pattern, reason, re.DOTALL)), None)
        may = left[pattern] if pattern is not None else 0
        if pattern is not None:
            left[pattern] -= len(names)
        if len(names) > max(may, 0):
            shown = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            before = f"only {may} may be" if may > 0 else "none may be"
            sentences.append(f"skipped, and {before}, because {reason!r}: {shown}")
    return sentences


if __name__ == "__main__":
    found = skipped(Path(sys.argv[1]), [Path(file) for file in sys.argv[2:]])
    sentences = new_ones(found, KNOWN.read_text(), os.environ.get("BAREWIRE_ALLOW_SKIPS", ""))
    for sentence in sentences:
        print(f"skips: {sentence}")
    if sentences:
        print(
            "skips: get what is missing; or, if this machine cannot have it, BAREWIRE_ALLOW_SKIPS='regular expression'"
        )
    sys.exit(bool(sentences))
