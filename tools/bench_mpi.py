# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The promises of MPI over Barewire, as ratios of launches interleaved in one run; prints a table and what is missed.

    bench_mpi.py [--launches N] [--preferred] [GROUP …]      groups: latency, rate, bulk, jumbo, shaped, local,
                                                          loss, foreign, routed, interfaces

The experimental unit is a launch of mpirun, and its median (or its mean rate) is one value. A ratio is that of the
medians over launches, with the bootstrap interval of `barewire.stats`.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import polars as pl

# Must precede imports from the package: it adds the package to the path.
from promises import BAREWIRE, ROOT, Promise, command_line, exit_code, judge, ratio
from second_network import add_second_network, set_second_carrier

from barewire.lab import Lab, LinkSpec
from barewire.measure.mpi_records import read_mpi_records
from barewire.mpi import installed_libraries
from barewire.mpi.suite import build

TCP = [("openmpi", "tcp"), ("mpich", "tcp"), ("mpich-5", "tcp"), ("openmpi", "udp")]
# Debian's MPICH, whose TCP is UCX's, hangs in windows of 64 messages of 1 MiB.
STREAMING_TCP = [("openmpi", "tcp"), ("mpich-5", "tcp")]
# Number of repetitions of a point in NetPIPE 3.7, which takes the best.
NETPIPE_TRIALS = 7
OURS = [("openmpi", "barewire"), ("mpich-5", "barewire")]


class Bench:
    """Builds and launches programs."""

    def __init__(self, folder: Path, launches: int, preferred: bool) -> None:
        """Build programs into `folder`."""
        self.folder, self.launches = folder, launches
        self.prefix = ["nice", "-n", "-19"] if preferred else []
        self.libraries = {library.name: library for library in installed_libraries()}
        self.random = random.Random(1)

    def program(self, library: str, source: str) -> str:
        """Build a test program with a library's own compiler."""
        built = self.folder / f"{source}-{library}"
        if not built.exists():
            command = [self.libraries[library].program("mpicc"), "-O2", str(ROOT / "tests/mpi" / f"{source}.c")]
            subprocess.run([*command, "-o", str(built), "-lpthread"], check=True)
        return str(built)

    def mpi(self, library: str, fabric: str, source: str, *arguments: str, lab: tuple[str, ...]) -> dict[int, float]:
        """Launch once; return the program's value for each size, without the time of its clock."""
        command = [BAREWIRE, "run", "-n", "2", *lab, "--fabric", fabric, "--library", library, "--"]
        command += [*self.prefix, self.program(library, source), *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if completed.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {completed.stderr[-800:]}")
        lines = [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]
        if source == "pingpong":
            return {line["bytes"]: line["half_round_trip_us"] - line["clock_us"] for line in lines}
        return {line["bytes"]: line["messages_per_s"] for line in lines}

    def suite(self, fabric: str, size: int, trips: int) -> dict[int, float]:
        """Launch the suite's ping-pong once; return the best of NetPIPE's number of means over `trips` round trips."""
        program = build(self.libraries["openmpi"], ["pingpong"])["pingpong"]
        records = Path(tempfile.mkdtemp(dir=self.folder)) / "records"
        effort = ["--samples", str(NETPIPE_TRIALS * trips), "--seconds", "60", "--warmup", str(trips // 10)]
        options = ["--variants", "blocking-standard", "--sizes", str(size), "--output", str(records)]
        self.run(fabric, program, *options, *effort)
        samples = read_mpi_records(records, 0, f"openmpi/{fabric}").samples
        values = samples.filter(pl.col("phase") == "measure")["value"].to_numpy()
        return {size: float(values.reshape(NETPIPE_TRIALS, trips).mean(axis=1).min())}

    def netpipe(self, fabric: str, size: int, trips: int) -> dict[int, float]:
        """Launch NetPIPE once; its output has bytes and rates in 2^20 bit/s, which are more exact than its times."""
        output = Path(tempfile.mkdtemp(dir=self.folder)) / "np.out"
        bounds = ["-l", str(size), "-u", str(size), "-p", "0", "-n", str(trips), "-o", str(output)]
        self.run(fabric, "NPopenmpi", *bounds)
        rates = {int(line.split()[0]): float(line.split()[1]) for line in output.read_text().splitlines()}
        return {size: size * 8e6 / (rates[size] * (1 << 20))}

    def run(self, fabric: str, *program: str) -> None:
        """Run a program of Debian's Open MPI in a separate lab."""
        command = [BAREWIRE, "run", "-n", "2", *PAIR, "--fabric", fabric, "--", *self.prefix, *program]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if completed.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {completed.stderr[-800:]}")

    def probe(self, subject: str, test: str, size: str, lab: tuple[str, ...]) -> dict[int, float]:
        """Launch the probe once; return microseconds one way, without the time of the clock, or messages per second."""
        command = [*self.prefix, BAREWIRE, "bench", test, "--transport", "raw", "--sizes", size, "--launches", "1"]
        output = tempfile.mkdtemp(dir=self.folder)
        command += ["--json", "--output", output, *(option for option in lab if option not in ("--lab", "pair"))]
        completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        run = json.loads(completed.stdout)
        series = {entry["subject"]: entry for entry in run["series"]}[subject]
        if test == "pingpong":
            clock_ns = max(launch["start"].get("clock_read_ns", 0) for launch in run["launches"])
            value = series["median"] - clock_ns / 2000
        else:
            value = series["median"] * 1e6 / 8 / series["message_bytes"]
        return {series["message_bytes"]: value}

    def interleave(self, subjects: dict[str, Callable[[], dict[int, float]]], size: int) -> dict[str, list[float]]:
        """Launch all subjects, shuffled anew in each round."""
        values: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(self.launches):
            for name in self.random.sample(list(subjects), len(subjects)):
                result = subjects[name]()
                values[name].append(result.get(size, next(iter(result.values()))))
        for name, results in values.items():
            print(f"        {name:30} {median(results):12.3f}   {min(results):.3f} … {max(results):.3f}", flush=True)
        return values

    def subjects(
        self, pairs: list[tuple[str, str]], source: str, *arguments: str, lab: tuple[str, ...]
    ) -> dict[str, Callable[[], dict[int, float]]]:
        """Return the installed MPI libraries with their fabrics as subjects."""
        return {
            f"{library} {fabric}": lambda library=library, fabric=fabric: self.mpi(  # type: ignore[misc]
                library, fabric, source, *arguments, lab=lab
            )
            for library, fabric in pairs
            if library in self.libraries
        }


def against(values: dict[str, list[float]], best: Callable[[list[float]], float]) -> str:
    """Return the name of the best subject that is not ours."""
    rivals = [name for name in values if "barewire" not in name and name not in ("floor", "raw", "wire")]
    return {median(values[name]): name for name in rivals}[best([median(values[name]) for name in rivals])]


PAIR = ("--lab", "pair")


def latency(bench: Bench) -> Iterator[Promise]:
    """8 B one way, compared with the floor of raw frames and the best TCP."""
    subjects = bench.subjects([*OURS, *TCP], "pingpong", "20000", "8", lab=PAIR)
    subjects["floor"] = lambda: bench.probe("floor", "pingpong", "64", PAIR)
    values = bench.interleave(subjects, 8)
    tcp = against(values, min)
    for name in (name for name in values if "barewire" in name):
        yield Promise(f"{name}, 8 B one way, against the floor", *ratio(values[name], values["floor"]), "≤", 1.6)
        yield Promise(f"{name}, 8 B one way, against {tcp}", *ratio(values[name], values[tcp]), "≤", 0.45)


def rate(bench: Bench) -> Iterator[Promise]:
    """64 B messages in windows of 64."""
    values = bench.interleave(bench.subjects([*OURS, *TCP[:3]], "stream", "2000", "64", lab=PAIR), 64)
    tcp = against(values, max)
    for name in (name for name in values if "barewire" in name):
        yield Promise(f"{name}, 64 B messages a second, against {tcp}", *ratio(values[name], values[tcp]), "≥", 2.0)


def bulk(bench: Bench) -> Iterator[Promise]:
    """1 MiB messages on frames of 1500 bytes, compared with the raw stream."""
    subjects = bench.subjects(OURS, "stream", "12", "1048576", lab=PAIR)
    subjects["raw"] = lambda: bench.probe("raw", "stream", "1MiB", PAIR)
    values = bench.interleave(subjects, 1 << 20)
    for name in (name for name in values if "barewire" in name):
        yield Promise(f"{name}, 1 MiB stream, MTU 1500, against raw", *ratio(values[name], values["raw"]), "≥", 0.85)


def jumbo(bench: Bench) -> Iterator[Promise]:
    """1 MiB messages on frames of 9000 bytes, compared with TCP with offloads."""
    lab = (*PAIR, "--mtu", "9000", "--offloads", "on")
    values = bench.interleave(bench.subjects([*OURS, *STREAMING_TCP], "stream", "12", "1048576", lab=lab), 1 << 20)
    tcp = against(values, max)
    for name in (name for name in values if "barewire" in name):
        yield Promise(f"{name}, 1 MiB stream, MTU 9000, against {tcp}", *ratio(values[name], values[tcp]), "≥", 0.9)


def shaped(bench: Bench) -> Iterator[Promise]:
    """1 MiB messages at 1 Gb/s, compared with the wire limit and TCP."""
    lab = (*PAIR, "--rate", "1gbit")
    values = bench.interleave(bench.subjects([*OURS, *STREAMING_TCP], "stream", "4", "1048576", lab=lab), 1 << 20)
    # A frame of 1500 bytes takes 1538 on the wire; LLC, token and fragment header take 17 of the 1500.
    wire = [1e9 / 8 * (1500 - 17) / 1538 / (1 << 20)] * 2
    tcp = against(values, max)
    for name in (name for name in values if "barewire" in name):
        yield Promise(f"{name}, 1 MiB stream at 1 Gb/s, against the wire", *ratio(values[name], wire), "≥", 0.98)
        yield Promise(f"{name}, 1 MiB stream at 1 Gb/s, against {tcp}", *ratio(values[name], values[tcp]), "≥", 1.0)


def loss(bench: Bench) -> Iterator[Promise]:
    """1 MiB messages at 1 Gb/s with a thousandth of the frames lost, compared with no loss."""
    lossless = bench.subjects(OURS, "stream", "4", "1048576", lab=(*PAIR, "--rate", "1gbit"))
    lossy = bench.subjects(OURS, "stream", "4", "1048576", lab=(*PAIR, "--rate", "1gbit", "--loss", "0.1%"))
    values = bench.interleave(lossless | {f"{name}, lossy": launch for name, launch in lossy.items()}, 1 << 20)
    for name in lossy:
        measured = ratio(values[f"{name}, lossy"], values[name])
        yield Promise(f"{name}, 1 MiB stream at 1 Gb/s, 0.1 % lost, against no loss", *measured, "≥", 0.8)


ROUTED = ("--lab", "routed:2")
ROUTED_TCP = [*TCP[:1], *TCP[2:3], ("openmpi", "ucx")]


def routed(bench: Bench) -> Iterator[Promise]:
    """UDP between two subnets compared with TCP: short messages, streams with and without offloads, and at 1 Gb/s."""
    values = bench.interleave(bench.subjects([*OURS, *ROUTED_TCP], "pingpong", "20000", "8", lab=ROUTED), 8)
    tcp = against(values, min)
    for name in (name for name in values if "barewire" in name):
        yield Promise(f"{name} by UDP, 8 B one way, against {tcp}", *ratio(values[name], values[tcp]), "≤", 0.75)
    for offloads in ("off", "on"):
        for size, count in ((65_536, "200"), (1 << 20, "20")):
            lab = (*ROUTED, "--offloads", offloads)
            subjects = bench.subjects([*OURS, *ROUTED_TCP], "stream", count, str(size), lab=lab)
            values = bench.interleave(subjects, size)
            tcp = against(values, max)
            for name in (name for name in values if "barewire" in name):
                what = f"{name} by UDP, {size >> 10} KiB stream, offloads {offloads}, against {tcp}"
                yield Promise(what, *ratio(values[name], values[tcp]), "≥", 1.0)
    lab = (*ROUTED, "--rate", "1gbit")
    values = bench.interleave(bench.subjects(OURS, "stream", "4", "1048576", lab=lab), 1 << 20)
    # What a datagram carries of a frame's wire time: 1500 less IP and UDP, of 1538.
    wire = [1e9 / 8 * (1500 - 28) / 1538 / (1 << 20)] * 2
    for name in values:
        yield Promise(
            f"{name} by UDP, 1 MiB stream at 1 Gb/s, against UDP's wire", *ratio(values[name], wire), "≥", 0.98
        )


GIGABIT = 1_000_000_000
# Allowed pause of a job when a cable is pulled out.
PAUSE_US = 50_000


def interfaces(bench: Bench) -> Iterator[Promise]:
    """Two links of 1 Gb/s compared with one: long streams, short messages, and one that fails in mid-job."""
    with Lab.up("pair", LinkSpec(rate_bit_s=GIGABIT)) as lab:
        add_second_network(lab, rate_bit_s=GIGABIT)
        for source, size, count, sign, bound in (
            ("stream", 1 << 20, "4", "≥", 1.9),
            ("pingpong", 8, "20000", "≤", 1.03),
        ):
            values = {}
            for chosen in ("eth0", "eth0,eth1"):
                place = ("--lab", lab.id, "--interface", chosen)
                subjects = bench.subjects(OURS, source, count, str(size), lab=place)
                values |= {f"{name} {chosen}": launch for name, launch in subjects.items()}
            values = bench.interleave(values, size)
            for name in (" ".join(subject) for subject in OURS):
                measured = ratio(values[f"{name} eth0,eth1"], values[f"{name} eth0"])
                yield Promise(f"{name}, {size} B {source} by two links of 1 Gb/s, against one", *measured, sign, bound)
        for library, _ in OURS:
            longest = [_longest_turn(bench, lab, library) for _ in range(bench.launches)]
            what = f"{library} barewire, longest turn while a cable is out, against {PAUSE_US // 1000} ms"
            yield Promise(what, *ratio(longest, [PAUSE_US] * 2), "≤", 1.0)


def _longest_turn(bench: Bench, lab: Lab, library: str) -> float:
    """Pull a second cable out in mid-job; return rank 0's longest turn of exchanges, in µs."""
    command = [BAREWIRE, "run", "-n", "2", "--lab", lab.id, "--interface", "eth0,eth1", "--library", library, "--"]
    command += [*bench.prefix, bench.program(library, "goes_on"), "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        job.stdout.readline()
        time.sleep(0.5)
        set_second_carrier(lab, lab.hosts[0].name, up=False)
        record = json.loads(job.stdout.readlines()[-1])
    set_second_carrier(lab, lab.hosts[0].name, up=True)
    return float(record["longest_turn_us"])


def local(bench: Bench) -> Iterator[Promise]:
    """Ranks on this host, each on its own core, compared with Open MPI's shared memory; nothing uses the interface."""
    for size, trips in ((8, "200000"), (1 << 20, "1000")):
        ours = bench.subjects([("openmpi", "barewire")], "pingpong", trips, str(size), lab=("--interface", "lo"))
        theirs = bench.subjects([("openmpi", "shm")], "pingpong", trips, str(size), lab=())
        values = bench.interleave(ours | theirs, size)
        against_shm = ratio(values["openmpi barewire"], values["openmpi shm"])
        yield Promise(f"openmpi barewire on one host, {size} B, against vader", *against_shm, "≤", 1.5)


def foreign(bench: Bench) -> Iterator[Promise]:
    """Our ping-pong compared with NetPIPE's, with the library and the fabrics that Debian's NetPIPE is built for.

    NetPIPE's value is the best of several means over a number of round trips; ours is computed likewise.
    """
    for fabric in ("barewire", "tcp"):
        for size, trips in ((8, 10_000), (1024, 10_000), (65_536, 1000)):
            subjects = {
                f"suite {fabric}": lambda fabric=fabric, size=size, trips=trips: bench.suite(fabric, size, trips),  # type: ignore[misc]
                f"NetPIPE {fabric}": lambda fabric=fabric, size=size, trips=trips: bench.netpipe(fabric, size, trips),  # type: ignore[misc]
            }
            values = bench.interleave(subjects, size)
            measured = ratio(values[f"suite {fabric}"], values[f"NetPIPE {fabric}"])
            yield Promise(f"our ping-pong, {size} B, openmpi {fabric}, against NetPIPE", *measured, "≤", 1.05)
            yield Promise(f"our ping-pong, {size} B, openmpi {fabric}, against NetPIPE", *measured, "≥", 0.95)


GROUPS = {
    "latency": latency,
    "rate": rate,
    "bulk": bulk,
    "jumbo": jumbo,
    "shaped": shaped,
    "loss": loss,
    "local": local,
    "foreign": foreign,
    "routed": routed,
    "interfaces": interfaces,
}


def main() -> int:
    """Measure; return 1 if any promise is missed."""
    options = command_line(__doc__, GROUPS).parse_args()
    return judge(options.groups, GROUPS, lambda folder: Bench(folder, options.launches, options.preferred))


if __name__ == "__main__":
    sys.exit(exit_code(main))
