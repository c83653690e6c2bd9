# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Random programs of two ranks over Barewire and over another fabric in turns, the slowest beside the other first.

    random_programs.py [--first 0] [--count 100] [--launches 3] [--library openmpi] [--beside tcp] [--worst 20]
                       [-- OPTION …]        make programs PROGRAMS="--library mpich-5 -- --lab pair --offloads on"

Each program has a few steps: computing, bursts, exchanges, overlapped and synchronous sends, collectives, of 8 B to
1 MB (tests/mpi/random_programs.c, which also checks what arrives). Programs compute between messages; benchmarks do
not, so they miss what waits for a peer's next call. The options after -- are those of `barewire run` (default: --lab
pair).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from common import BAREWIRE, exit_code
from survival import built, libraries_over_barewire

from barewire.errors import BarewireError

ROUNDS = 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs and print the comparison; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"first": 0, "count": 100, "launches": 3, "worst": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--library", default="openmpi")
    parser.add_argument("--beside", default="tcp", help="the other fabric")
    parser.add_argument("run_options", nargs="*", metavar="OPTION", default=["--lab", "pair"])
    options = parser.parse_args(arguments)
    if options.first < 0 or min(options.count, options.launches) < 1:
        parser.error("--count and --launches must be 1 or more, --first 0 or more")
    for library in libraries_over_barewire(options.library):
        times: dict[int, dict[str, list[float]]] = {}
        steps: dict[int, str] = {}
        with tempfile.TemporaryDirectory(prefix="barewire-random-") as folder:
            program = built(library, "random_programs", Path(folder))
            for _ in range(options.launches):
                for fabric in ("barewire", options.beside):
                    command = [BAREWIRE, "run", "-n", "2", "--library", library.name, "--fabric", fabric]
                    command += [*options.run_options, "--", program, str(options.first), str(options.count)]
                    for line in _lines([*command, str(ROUNDS)]):
                        times.setdefault(line["program"], {}).setdefault(fabric, []).append(line["us"])
                        steps[line["program"]] = line["steps"]
        _print(library.name, options.beside, options.worst, times, steps)
    return 0


def _lines(command: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BarewireError(f"exit code {done.returncode} of {' '.join(command)}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _print(
    library: str, beside: str, worst: int, times: dict[int, dict[str, list[float]]], steps: dict[int, str]
) -> None:
    rows = []
    for program, by_fabric in times.items():
        ours, theirs = by_fabric["barewire"], by_fabric[beside]
        rows.append((median(ours) / median(theirs), max(ours) / min(theirs), program, median(ours), median(theirs)))
    rows.sort(reverse=True)
    mean = geometric_mean(ratio for ratio, *_ in rows)
    print(f"{library}: {len(rows)} programs, geometric mean {mean:.2f} of {beside}'s time")
    print("ratio (at most)  program      us  beside  steps")
    for ratio, most, program, our_us, their_us in rows[:worst]:
        print(f"{ratio:5.2f} ({most:5.2f})   {program:7} {our_us:8.0f} {their_us:7.0f}  {steps[program]}", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main))
