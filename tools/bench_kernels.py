# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the kernels promise, as ratios of launches interleaved in one run; prints a table and what is missed.

    bench_kernels.py [--launches N] [--preferred] [--library NAME] [GROUP …]      groups: fftw, auto, overlap

Each launch of mpirun is one experimental unit. An execution takes as long as its slowest rank, a launch's value is the
median of its executions, a ratio is of the medians over launches; beside it stands its interval by the bootstrap.
"""

import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

# Before the package: it makes it known to Python.
from promises import BAREWIRE, ROOT, Promise, command_line, judge, ratio

from barewire.mpi import installed_libraries

Point = tuple[str, int, float]  # variant, message bytes, parameter
SEPARATE_VARIANTS = ("original", "row-by-row", "non-blocking", "multi-threaded")
SORTING = ("original", "non-blocking", "multi-threaded", "auto")
PAIR = ("-n", "2", "--lab", "pair")


@dataclass(frozen=True)
class Subject:
    """A program with its options, where it runs, and what carries its messages."""

    program: str
    options: tuple[str, ...]
    place: tuple[str, ...]
    fabric: str


class Bench:
    """Launches, their programs, and how they are run."""

    def __init__(self, folder: Path, library: str, launches: int, preferred: bool) -> None:
        """Programs are built into `folder` for one library."""
        self.folder, self.launches = folder, launches
        self.front = ("nice", "-n", "-19") if preferred else ()
        self.library = next(found for found in installed_libraries() if found.name == library)
        self.random = random.Random(1)
        # How often auto chose what, by message bytes.
        self.choices: Counter[tuple[int, str]] = Counter()

    def build(self, program: str) -> str:
        """Build with the library's own compiler."""
        command = ["make", "-s", "-C", str(ROOT / "mpi"), f"MPICC={self.library.program('mpicc')}"]
        subprocess.run([*command, f"OUT={self.folder}", str(self.folder / program)], check=True)
        return str(self.folder / program)

    def launch(self, subject: Subject) -> dict[Point, float]:
        """Milliseconds of each point."""
        command = [BAREWIRE, "run", *subject.place, "--fabric", subject.fabric, "--library", self.library.name, "--"]
        command += [*self.front, self.build(subject.program), "--seed", str(self.random.getrandbits(31))]
        done = subprocess.run([*command, *subject.options], capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-800:]}")
        ranks: dict[Point, list[list[float]]] = defaultdict(list)
        for line in map(json.loads, filter(lambda text: text.startswith("{"), done.stdout.splitlines())):
            if line["record"] == "choice":
                self.choices[line["message_bytes"], line["chosen"]] += 1
            if line["record"] == "samples" and line["phase"] == "measure" and line["quantity"] == "total":
                point = (line["variant"], line["message_bytes"], line.get("order", line.get("keys", 0)))
                ranks[point].append(line["values"])
        return {point: median(map(max, zip(*values, strict=True))) / 1e6 for point, values in ranks.items()}

    def interleave(self, subjects: Sequence[Subject]) -> dict[Point, list[float]]:
        """Launch all subjects, shuffled anew in each round; no two may measure the same point."""
        values: dict[Point, list[float]] = defaultdict(list)
        for _ in range(self.launches):
            for subject in self.random.sample(subjects, len(subjects)):
                for point, value in self.launch(subject).items():
                    values[point].append(value)
        for (variant, size, parameter), of in sorted(values.items(), key=lambda item: (item[0][2], item[0][1])):
            spread = f"{min(of):.3f} … {max(of):.3f}"
            print(f"        {variant:20} {parameter:8} {size:9} B {median(of):10.3f} ms   {spread}", flush=True)
        return values


def best(values: dict[Point, list[float]], points: Sequence[Point]) -> Point:
    """The fastest of them."""
    return min(points, key=lambda point: median(values[point]))


def fftw(bench: Bench) -> Iterator[Promise]:
    """The original variant against the better of FFTW's own transforms over MPI, planned alike."""
    for fabric in ("barewire", "tcp"):
        for planning in ("measure", "estimate"):
            options = ("--planning", planning, "--order", "20", "--seconds", "1")
            print(f"    {fabric}, {planning}:", flush=True)
            values = bench.interleave(
                [
                    Subject("fft", ("--variants", "original", *options), PAIR, fabric),
                    Subject("fftw_mpi", ("--variants", "in-place", *options), PAIR, fabric),
                    Subject("fftw_mpi", ("--variants", "out-of-place", *options), PAIR, fabric),
                ]
            )
            ours = next(point for point in values if point[0] == "original")
            theirs = best(values, [point for point in values if point[0] != "original"])
            what = f"{bench.library.name} {fabric}, 2^20 on 2 ranks, {planning}, against FFTW {theirs[0]}"
            yield Promise(what, *ratio(values[ours], values[theirs]), "≤", 1.1)


# Ranks that share a core take seconds for messages of 128 bytes.
SORTING_PLACES = (
    (("-n", "2", "--lab", "pair"), "barewire", "128,1403,16384"),
    (("-n", "2", "--lab", "pair"), "tcp", "128,1403,16384"),
    (("-n", "2"), "shm", "128,1403,16384"),
    (("-n", "4", "--lab", "star:4"), "barewire", "1403,16384"),
    (("-n", "8", "--lab", "star:4", "--rate", "1gbit"), "barewire", "1403,16384"),
    (("-n", "8", "--lab", "star:4", "--rate", "1gbit"), "tcp", "1403,16384"),
)


def auto(bench: Bench) -> Iterator[Promise]:
    """The variant that chooses, against the best of the three, each in launches of its own."""
    for place, fabric, sizes in SORTING_PLACES:
        print(f"    {' '.join(place)} {fabric}:", flush=True)
        options = ("--buffer", sizes, "--seconds", "0.5", "--warmup", "1")
        subjects = [Subject("radix", ("--variants", variant, *options), place, fabric) for variant in SORTING]
        values = bench.interleave(subjects)
        for size in sorted({point[1] for point in values}):
            points = {point[0]: point for point in values if point[1] == size}
            fastest = best(values, [points[variant] for variant in SORTING[:3]])
            what = f"{' '.join(place)} {fabric}, {size} B: {fastest[0]} (the best) by auto"
            yield Promise(what, *ratio(values[fastest], values[points["auto"]]), "≥", 0.9)
        print(f"        chosen: {dict(bench.choices)}", flush=True)
        bench.choices.clear()


OVERLAP_PLACES = (
    (("-n", "8", "--lab", "star:4", "--rate", "1gbit"), "barewire", "16,18,20,22"),
    (("-n", "8", "--lab", "star:4", "--rate", "1gbit"), "tcp", "16,18,20,22"),
    (("-n", "8", "--lab", "star:8", "--rate", "1gbit"), "barewire", "20"),
    (("-n", "2", "--lab", "pair", "--rate", "1gbit"), "barewire", "16,20"),
    (("-n", "2", "--lab", "pair"), "barewire", "16,20"),
)


def overlap(bench: Bench) -> Iterator[Promise]:
    """The better of non-blocking and multi-threaded against rows exchanged before they are computed."""
    for place, fabric, orders in OVERLAP_PLACES:
        print(f"    {' '.join(place)} {fabric}:", flush=True)
        options = ("--order", orders, "--seconds", "0.7", "--warmup", "1")
        names = SEPARATE_VARIANTS
        values = bench.interleave([Subject("fft", ("--variants", name, *options), place, fabric) for name in names])
        for order in sorted({point[2] for point in values}):
            points = {point[0]: point for point in values if point[2] == order}
            better = best(values, [points["non-blocking"], points["multi-threaded"]])
            what = f"{' '.join(place)} {fabric}, 2^{order:.0f}: {better[0]} by row-by-row"
            yield Promise(what, *ratio(values[better], values[points["row-by-row"]]), "≤", 1.0)


GROUPS = {"fftw": fftw, "auto": auto, "overlap": overlap}


def main() -> int:
    """Measure; 1 if a promise is missed."""
    parser = command_line(__doc__, GROUPS)
    parser.add_argument("--library", default="openmpi", help="MPI library; FFTW's own must be built with it (openmpi)")
    options = parser.parse_args()
    return judge(
        options.groups,
        GROUPS,
        lambda folder: Bench(folder, options.library, options.launches, options.preferred),
    )


if __name__ == "__main__":
    sys.exit(main())
