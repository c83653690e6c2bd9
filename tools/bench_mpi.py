# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ratios that no study can measure, of launches in turns: beside foreign programs, and with two interfaces.

    bench_mpi.py [--launches N] [GROUP …]      groups: netpipe, fftw, interfaces

Prints each ratio of medians over launches with its bootstrap interval; the exit code is 1 if one misses its bound. The
other targets are the study `speed`.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

import polars as pl

# Must precede imports from the package: it adds the package to the path.
from common import BAREWIRE, ROOT, exit_code
from second_network import add_second_network, set_second_carrier

from barewire.lab import Lab, LinkSpec
from barewire.measure.mpi_records import read_mpi_records
from barewire.mpi import find_library
from barewire.mpi.suite import build
from barewire.results.quantities import US_OF
from barewire.stats.comparison import compare_over_sizes

# Debian's NetPIPE and FFTW are built with this one.
LIBRARY = "openmpi"
# Number of repetitions of a point in NetPIPE 3.7, which takes the best of their means.
NETPIPE_TRIALS = 7
GIGABIT = 1_000_000_000
# Allowed pause of a job when a cable is pulled out.
PAUSE_US = 50_000.0


class Target(NamedTuple):
    """A ratio of two sets of launches, and its bounds."""

    what: str
    first: list[float]
    second: list[float]
    low: float
    high: float


class Bench:
    """Builds and launches programs."""

    def __init__(self, folder: Path, launches: int) -> None:
        """Build programs into `folder`."""
        self.folder, self.launches = folder, launches
        self.library = find_library(LIBRARY)
        self.random = random.Random(1)

    def run(self, fabric: str, *program: str, place: tuple[str, ...] = ("--lab", "pair")) -> str:
        """Run a program with two ranks; return its output."""
        command = [BAREWIRE, "run", "-n", "2", *place, "--fabric", fabric, "--library", LIBRARY, "--", *program]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-800:]}")
        return done.stdout

    def test_program(self, source: str) -> str:
        """Build a program of the tests."""
        built = self.folder / source
        if not built.exists():
            command = [self.library.program("mpicc"), "-O2", str(ROOT / "tests/mpi" / f"{source}.c")]
            subprocess.run([*command, "-o", str(built), "-lpthread"], check=True)
        return str(built)

    def kernel(self, name: str) -> str:
        """Build a kernel, or the same with a foreign library."""
        command = ["make", "-s", "-C", str(ROOT / "mpi"), f"MPICC={self.library.program('mpicc')}"]
        subprocess.run([*command, f"OUT={self.folder}", str(self.folder / name)], check=True)
        return str(self.folder / name)

    def records(self, fabric: str, program: str, *options: str) -> pl.DataFrame:
        """Run a measurement; return its samples."""
        records = Path(tempfile.mkdtemp(dir=self.folder)) / "records"
        self.run(fabric, program, *options, "--output", str(records))
        return read_mpi_records(records, 0, f"{LIBRARY}/{fabric}").samples.filter(pl.col("phase") == "measure")

    def in_turns(self, subjects: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
        """Launch all subjects, shuffled anew in each round; return their values."""
        values: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(self.launches):
            for name in self.random.sample(list(subjects), len(subjects)):
                values[name].append(subjects[name]())
        for name, found in values.items():
            print(f"        {name:30} {median(found):12.3f}   {min(found):.3f} … {max(found):.3f}", flush=True)
        return values


def netpipe(bench: Bench) -> Iterator[Target]:
    """Our ping-pong beside NetPIPE's, the best of as many means over as many round trips."""

    def ours(fabric: str, size: int, trips: int) -> float:
        effort = ("--samples", str(NETPIPE_TRIALS * trips), "--seconds", "60", "--warmup", str(trips // 10))
        program = build(bench.library, ["pingpong"])["pingpong"]
        samples = bench.records(fabric, program, "--variants", "blocking-standard", "--sizes", str(size), *effort)
        return float(samples["value"].to_numpy().reshape(NETPIPE_TRIALS, trips).mean(axis=1).min())

    def theirs(fabric: str, size: int, trips: int) -> float:
        output = Path(tempfile.mkdtemp(dir=bench.folder)) / "np.out"
        bench.run(fabric, "NPopenmpi", "-l", str(size), "-u", str(size), "-p", "0", "-n", str(trips), "-o", str(output))
        # Bytes and rates in 2^20 bit/s, which are more exact than its times.
        rates = {int(line.split()[0]): float(line.split()[1]) for line in output.read_text().splitlines()}
        return size * 8e6 / (rates[size] * (1 << 20))

    for fabric in ("barewire", "tcp"):
        for size, trips in ((8, 10_000), (1024, 10_000), (65_536, 1000)):
            point = (fabric, size, trips)
            values = bench.in_turns({"ours": lambda at=point: ours(*at), "NetPIPE": lambda at=point: theirs(*at)})  # type: ignore[misc]
            yield Target(f"our ping-pong by NetPIPE's, {size} B, {fabric}", *values.values(), 0.95, 1.05)


def fftw(bench: Bench) -> Iterator[Target]:
    """Our original Fourier transform beside the better of FFTW's own over MPI, planned alike."""

    def total(fabric: str, program: str, variant: str, planning: str) -> float:
        options = ("--variants", variant, "--planning", planning, "--order", "20", "--seconds", "1")
        samples = bench.records(fabric, bench.kernel(program), *options).filter(pl.col("quantity") == "total")
        # An execution takes as long as its slowest rank. The kernel's times are in ms, those of a foreign one in µs.
        slowest = samples.group_by("block").agg(pl.col("value").max())["value"].to_numpy()
        return float(median(slowest)) * US_OF[samples["unit"][0]] / 1000

    programs = (("fft", "original"), ("fftw_mpi", "in-place"), ("fftw_mpi", "out-of-place"))
    for fabric in ("barewire", "tcp"):
        for planning in ("measure", "estimate"):
            ours, *theirs = bench.in_turns(
                {
                    f"{program} {variant}": lambda at=(fabric, program, variant, planning): total(*at)  # type: ignore[misc]
                    for program, variant in programs
                }
            ).values()
            what = f"our transform by FFTW's, 2^20 on 2 ranks, {planning}, {fabric}"
            yield Target(what, ours, min(theirs, key=median), 0.0, 1.1)


def interfaces(bench: Bench) -> Iterator[Target]:
    """Two links of 1 Gb/s beside one: long streams, short messages, and a cable that is pulled out in mid-job."""

    def value(lab: Lab, interface: str, source: str, *arguments: str) -> float:
        place = ("--lab", lab.id, "--interface", interface)
        output = bench.run("barewire", bench.test_program(source), *arguments, place=place)
        record = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
        return float(record["half_round_trip_us"] if source == "pingpong" else record["messages_per_s"])

    with Lab.up("pair", LinkSpec(rate_bit_s=GIGABIT)) as lab:
        add_second_network(lab, rate_bit_s=GIGABIT)
        for source, size, count, low, high in (
            ("stream", "1048576", "4", 1.9, float("inf")),
            ("pingpong", "8", "20000", 0.0, 1.03),
        ):
            values = bench.in_turns(
                {
                    interface: lambda at=(lab, interface, source, count, size): value(*at)  # type: ignore[misc]
                    for interface in ("eth0,eth1", "eth0")
                }
            )
            yield Target(f"two links by one, {source} of {size} B", *values.values(), low, high)
        longest = [_longest_turn(bench, lab) for _ in range(bench.launches)]
        yield Target(f"longest turn by {PAUSE_US / 1000:g} ms, a cable out", longest, [PAUSE_US] * len(longest), 0, 1)


def _longest_turn(bench: Bench, lab: Lab) -> float:
    """Pull a second cable out in mid-job; return rank 0's longest turn of exchanges, in µs."""
    command = [BAREWIRE, "run", "-n", "2", "--lab", lab.id, "--interface", "eth0,eth1", "--library", LIBRARY, "--"]
    with subprocess.Popen([*command, bench.test_program("goes_on"), "2"], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        job.stdout.readline()
        time.sleep(0.5)
        set_second_carrier(lab, lab.hosts[0].name, up=False)
        record = json.loads(job.stdout.readlines()[-1])
    set_second_carrier(lab, lab.hosts[0].name, up=True)
    return float(record["longest_turn_us"])


GROUPS = {"netpipe": netpipe, "fftw": fftw, "interfaces": interfaces}


def main() -> int:
    """Measure; return 1 if any target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", metavar="GROUP", nargs="*", choices=[*GROUPS, []], help="default: all")
    parser.add_argument("--launches", type=int, default=7, help="of each subject (7)")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        bench = Bench(Path(folder), options.launches)
        for group in options.groups or GROUPS:
            print(f"{group}:", flush=True)
            for target in GROUPS[group](bench):
                missed += not _is_met(target)
    print(f"{missed} missed" if missed else "all met")
    return int(missed > 0)


def _is_met(target: Target) -> bool:
    """Print a target's ratio; return whether it lies within its bounds."""
    (found,) = compare_over_sizes([(target.first, target.second)], lower_is_better=True)
    interval = found.ratio_interval and " [{:.3f}, {:.3f}]".format(*found.ratio_interval)
    is_met = target.low <= found.ratio <= target.high
    ratio = f"{found.ratio:7.3f}{interval or ''}, {target.low:g} to {target.high:g}"
    print(f"{'met   ' if is_met else 'MISSED'}  {target.what:60} {ratio}", flush=True)
    return is_met


if __name__ == "__main__":
    sys.exit(exit_code(main))
