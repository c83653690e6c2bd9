# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The kernels' promises, as ratios of launches interleaved in one run; prints a table and the missed promises.

    bench_kernels.py [--launches N] [--preferred] [--library NAME] [GROUP …]      groups: fftw, auto, overlap, solver

The experimental unit is a launch of mpirun. An execution takes as long as its slowest rank, a launch's value is the
median of its executions, a ratio is that of the medians over launches, with its bootstrap interval.
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

# Must precede imports from the package: it adds the package to the path.
from promises import BAREWIRE, ROOT, Promise, command_line, exit_code, judge, ratio

from barewire.mpi import find_library

Point = tuple[str, int, float]  # variant, message bytes, parameter
SEPARATE_VARIANTS = ("original", "row-by-row", "non-blocking", "multi-threaded")
SORTING = ("original", "non-blocking", "multi-threaded", "auto")
PAIR = ("-n", "2", "--lab", "pair")


@dataclass(frozen=True)
class Subject:
    """A program with its options, placement and fabric."""

    program: str
    options: tuple[str, ...]
    placement: tuple[str, ...]
    fabric: str


class Bench:
    """Builds and launches programs."""

    def __init__(self, folder: Path, library: str, launches: int, preferred: bool) -> None:
        """Build programs for one library into `folder`."""
        self.folder, self.launches = folder, launches
        self.prefix = ("nice", "-n", "-19") if preferred else ()
        self.library = find_library(library)
        self.random = random.Random(1)
        # How often auto chose which variant, by message bytes.
        self.choices: Counter[tuple[int, str]] = Counter()

    def build(self, program: str) -> str:
        """Build a program with the library's own compiler."""
        command = ["make", "-s", "-C", str(ROOT / "mpi"), f"MPICC={self.library.program('mpicc')}"]
        subprocess.run([*command, f"OUT={self.folder}", str(self.folder / program)], check=True)
        return str(self.folder / program)

    def launch(self, subject: Subject) -> dict[Point, float]:
        """Return the milliseconds of each point."""
        command = [
            BAREWIRE,
            "run",
            *subject.placement,
            "--fabric",
            subject.fabric,
            "--library",
            self.library.name,
            "--",
        ]
        command += [*self.prefix, self.build(subject.program), "--seed", str(self.random.getrandbits(31))]
        completed = subprocess.run(
            [*command, *subject.options], capture_output=True, text=True, check=False, timeout=300
        )
        if completed.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {completed.stderr[-800:]}")
        ranks: dict[Point, list[list[float]]] = defaultdict(list)
        for line in map(json.loads, filter(lambda text: text.startswith("{"), completed.stdout.splitlines())):
            if line["record"] == "choice":
                self.choices[line["message_bytes"], line["chosen"]] += 1
            if line["record"] == "samples" and line["phase"] == "measure" and line["quantity"] == "total":
                parameter = next((line[name] for name in ("order", "keys", "side_2d") if name in line), 0)
                point = (line["variant"], line["message_bytes"], parameter)
                ranks[point].append(line["values"])
        return {point: median(map(max, zip(*values, strict=True))) / 1e6 for point, values in ranks.items()}

    def interleave(self, subjects: Sequence[Subject]) -> dict[Point, list[float]]:
        """Launch all subjects, shuffled anew in each round; no two may measure the same point."""
        values: dict[Point, list[float]] = defaultdict(list)
        for _ in range(self.launches):
            for subject in self.random.sample(subjects, len(subjects)):
                for point, value in self.launch(subject).items():
                    values[point].append(value)
        for (variant, size, parameter), times in sorted(values.items(), key=lambda item: (item[0][2], item[0][1])):
            spread = f"{min(times):.3f} … {max(times):.3f}"
            print(f"        {variant:20} {parameter:8} {size:9} B {median(times):10.3f} ms   {spread}", flush=True)
        return values


def best(values: dict[Point, list[float]], points: Sequence[Point]) -> Point:
    """Return the fastest of the points."""
    return min(points, key=lambda point: median(values[point]))


def fftw(bench: Bench) -> Iterator[Promise]:
    """The original variant compared with the better of FFTW's own transforms over MPI, planned alike."""
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


# Ranks that share a core need seconds for messages of 128 bytes.
SORTING_PLACEMENTS = (
    (("-n", "2", "--lab", "pair"), "barewire", "128,1403,16384"),
    (("-n", "2", "--lab", "pair"), "tcp", "128,1403,16384"),
    (("-n", "2"), "shm", "128,1403,16384"),
    (("-n", "4", "--lab", "star:4"), "barewire", "1403,16384"),
    (("-n", "8", "--lab", "star:4", "--rate", "1gbit"), "barewire", "1403,16384"),
    (("-n", "8", "--lab", "star:4", "--rate", "1gbit"), "tcp", "1403,16384"),
)


def auto(bench: Bench) -> Iterator[Promise]:
    """The variant that chooses, compared with the best of the three, each in separate launches."""
    for placement, fabric, sizes in SORTING_PLACEMENTS:
        print(f"    {' '.join(placement)} {fabric}:", flush=True)
        options = ("--buffer", sizes, "--seconds", "0.5", "--warmup", "1")
        subjects = [Subject("radix", ("--variants", variant, *options), placement, fabric) for variant in SORTING]
        values = bench.interleave(subjects)
        for size in sorted({point[1] for point in values}):
            points = {point[0]: point for point in values if point[1] == size}
            fastest = best(values, [points[variant] for variant in SORTING[:3]])
            what = f"{' '.join(placement)} {fabric}, {size} B: {fastest[0]} (the best) by auto"
            yield Promise(what, *ratio(values[fastest], values[points["auto"]]), "≥", 0.9)
        print(f"        chosen: {dict(bench.choices)}", flush=True)
        bench.choices.clear()


OVERLAP_PLACEMENTS = (
    (("-n", "8", "--lab", "star:4", "--rate", "1gbit"), "barewire", "16,18,20,22"),
    (("-n", "8", "--lab", "star:4", "--rate", "1gbit"), "tcp", "16,18,20,22"),
    (("-n", "8", "--lab", "star:8", "--rate", "1gbit"), "barewire", "20"),
    (("-n", "2", "--lab", "pair", "--rate", "1gbit"), "barewire", "16,20"),
    (("-n", "2", "--lab", "pair"), "barewire", "16,20"),
)


def overlap(bench: Bench) -> Iterator[Promise]:
    """The better of non-blocking and multi-threaded compared with rows exchanged before they are computed."""
    for placement, fabric, orders in OVERLAP_PLACEMENTS:
        print(f"    {' '.join(placement)} {fabric}:", flush=True)
        options = ("--order", orders, "--seconds", "0.7", "--warmup", "1")
        names = SEPARATE_VARIANTS
        values = bench.interleave([Subject("fft", ("--variants", name, *options), placement, fabric) for name in names])
        for order in sorted({point[2] for point in values}):
            points = {point[0]: point for point in values if point[2] == order}
            better = best(values, [points["non-blocking"], points["multi-threaded"]])
            what = f"{' '.join(placement)} {fabric}, 2^{order:.0f}: {better[0]} by row-by-row"
            yield Promise(what, *ratio(values[better], values[points["row-by-row"]]), "≤", 1.0)


SOLVING = ("blocking", "overlapped", "one-reduction", "pipelined")
SOLVER_PLACEMENTS = (
    (("-n", "4", "--lab", "star:4", "--rate", "1gbit"), "barewire"),
    (("-n", "4", "--lab", "star:4", "--rate", "1gbit"), "tcp"),
    (("-n", "2", "--lab", "pair", "--rate", "1gbit"), "barewire"),
)


def solver(bench: Bench) -> Iterator[Promise]:
    """The better of one reduction and a pipelined one compared with two reductions, beside an overlapped halo."""
    for placement, fabric in SOLVER_PLACEMENTS:
        print(f"    {' '.join(placement)} {fabric}:", flush=True)
        options = ("--side", "64", "--seconds", "0.7", "--warmup", "1")
        subjects = [Subject("krylov", ("--variants", name, *options), placement, fabric) for name in SOLVING]
        values = bench.interleave(subjects)
        points = {point[0]: point for point in values}
        better = best(values, [points["one-reduction"], points["pipelined"]])
        what = f"{' '.join(placement)} {fabric}, 64 x 64: {better[0]} by overlapped"
        yield Promise(what, *ratio(values[better], values[points["overlapped"]]), "≤", 1.0)


GROUPS = {"fftw": fftw, "auto": auto, "overlap": overlap, "solver": solver}


def main() -> int:
    """Measure; return 1 if any promise is missed."""
    parser = command_line(__doc__, GROUPS)
    parser.add_argument("--library", default="openmpi", help="MPI library; FFTW's own must be built with it (openmpi)")
    options = parser.parse_args()
    return judge(
        options.groups,
        GROUPS,
        lambda folder: Bench(folder, options.library, options.launches, options.preferred),
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
