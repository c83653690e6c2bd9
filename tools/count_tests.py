# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Counts the tests of a run of tools/test.sh: tools/count_tests.py FOLDER prints "passed failed skipped".

FOLDER has the output of `cargo test` (cargo) and of the lints (lint), and pytest's junit files of the tests without a
lab and in it (pure.xml, lab.xml). What ran again is beside it (cargo.again, pure.again.xml, lab.again.xml), and counts
by how it ended then. `--failed-rust` prints the names of the Rust tests that failed instead, one a line.
"""

import re
import sys
import xml.etree.ElementTree as tree
from collections import Counter
from pathlib import Path

# The worst last: a test whose phases end differently has the worst.
OUTCOMES = ("passed", "skipped", "failed")
ELEMENTS = {"skipped": "skipped", "failure": "failed", "error": "failed"}


def python_tests(files: list[Path]) -> Counter[str]:
    """Return the number of tests of junit files by outcome; a test that is in several has that of the last."""
    outcomes: dict[tuple[str | None, str | None], str] = {}
    for file in files:
        of_file: dict[tuple[str | None, str | None], str] = {}
        for case in tree.parse(file).getroot().iter("testcase"):
            key = case.get("classname"), case.get("name")
            found = [ELEMENTS[child.tag] for child in case if child.tag in ELEMENTS]
            of_file[key] = max([of_file.get(key, "passed"), *found], key=OUTCOMES.index)
        outcomes |= of_file
    return Counter(outcomes.values())


def rust_tests(output: str, again: str = "") -> Counter[str]:
    """Return the number of tests of `cargo test` by outcome; those that passed `again` have not failed."""
    total, repeated = _results(output), _results(again)
    # Where programs have tests of one name, those that had passed run again as well, and pass for none that fails.
    recovered = max(0, min(repeated["passed"], total["failed"] - repeated["failed"] - _crashed(again)))
    total.update(passed=recovered, failed=-recovered)
    total["failed"] += _crashed(output)
    if not _named(output) and "cargo test: broken" in output:
        total["failed"] += 1
    return total


def _crashed(output: str) -> int:
    """Return the number of programs that failed without a failed test; one that did not compile is not even named."""
    return max(0, len(_named(output)) - output.count("test result: FAILED"))


def _named(output: str) -> list[str]:
    return re.findall(r"^    `.+`$", output.rpartition(" failed:\n")[2], re.MULTILINE)


def _results(output: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for line in re.findall(r"^test result: .*", output, re.MULTILINE):
        total.update({outcome: int(number) for number, outcome in re.findall(r"(\d+) (passed|failed)", line)})
    return total


def failed_rust(output: str) -> list[str]:
    """Return the names of the tests that failed."""
    return re.findall(r"^---- (.+) stdout ----$", output, re.MULTILINE)


def lints(output: str) -> Counter[str]:
    """Return the number of lints by outcome; lints that ended without one that passed have failed."""
    total = Counter(outcome.lower() for outcome in re.findall(r": (passed|FAILED)$", output, re.MULTILINE))
    if not total["passed"]:
        total["failed"] += 1
    return total


def main(folder: Path, *options: str) -> None:
    """Print what the options ask for."""

    def text(name: str) -> str:
        return (folder / name).read_text(errors="replace") if (folder / name).exists() else ""

    if options == ("--failed-rust",):
        print(*failed_rust(text("cargo")), sep="\n")
        return
    junit = [folder / name for name in ("pure.xml", "lab.xml", "pure.again.xml", "lab.again.xml")]
    present = [file for file in junit if file.exists()]
    total = python_tests(present) + rust_tests(text("cargo"), text("cargo.again")) + lints(text("lint"))
    # Pytest writes no file if it crashes.
    total["failed"] += sum(file not in present for file in junit[:2])
    print(*(total[outcome] for outcome in ("passed", "failed", "skipped")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
