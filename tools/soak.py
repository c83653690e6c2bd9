# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The soak: MPI traffic of many kinds for as long as wanted, while what it runs on fails and is mended.

    soak.py [--hours 0.17] [--seed N] [--library openmpi,mpich-5] [--output FILE.jsonl]

Rounds follow each other, all drawn from the seed. Each makes a lab (below), runs three jobs in it, ends it, and looks
whether anything is left. A job is a program of tests/mpi that checks all it gets, under one library, with two to four
ranks; while it runs, faults strike one after the other. Every fourth job or so loses a rank by SIGKILL instead: then it
must end, or go on without that rank where Open MPI 5 lets it.

plain      two hosts and a switch of the kernel's: interfaces down, carriers lost, ranks stopped, one or all
brokers    the same with sockets by brokers
restarts   sockets by brokers, which are ended, killed and started again; carriers lost, ranks stopped. No interface is
           down: sockets of a broker that has ended do not outlive that (docs/security.md)
rate       links of 100 Mb/s
lossy      1 % of all frames lost
faulty     frames lost, delivered twice, and overtaken by others (tools/faulty_wire.py)
jumbo      MTU 9000
switches   three switches of Open vSwitch: the controller is ended, killed and started again, cables are pulled
one host   all ranks on one host: shared memory

What is wrong: an exit code or a result; a job that hangs; ranks whose memory or descriptors grow; processes, files in
/dev/shm, sockets, interfaces, labs that stay, but for what MPICH itself leaves in /dev/shm when a rank is killed. One
line of JSON for each job and each lab goes to the output; the exit code is 1 if anything was wrong.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promises import ROOT
from survival import KILLED, Faults, Site, built, libraries_over_barewire, standing, with_faulty_wire

from barewire.errors import BarewireError
from barewire.lab import LinkSpec
from barewire.mpi import Library

JOBS = 3
TEN_MINUTES_H = 1 / 6
# A job takes seconds, and faults some seconds each.
HANGS_S = 300.0
# Of a rank's resident memory in the last two thirds of a job: what slots and windows take that were not used before.
GROWN_BYTES_MAX = 8 << 20
# What a broker, or the controller, may have more of after a job; log and tables.
SERVER_GROWN_BYTES_MAX = 8 << 20
LEAVING_S = 15.0
# Well below the patience; faults are meant to take 2 s at most.
FAULT_S_MAX = 20.0
# For the survivors of ranks that are killed.
PATIENCE_S = 5


@dataclass(frozen=True)
class Bed:
    """A kind of lab: what it is made of, and what can fail in it."""

    topology: str
    faults: tuple[str, ...]
    link: LinkSpec = field(default_factory=LinkSpec)
    brokers: bool = False
    is_faulty: bool = False
    options: tuple[str, ...] = ()


_USUAL = ("interface", "carrier", "stopped", "all_stopped")
BEDS = {
    "plain": Bed("star:2", _USUAL),
    "brokers": Bed("star:2", _USUAL, brokers=True),
    "restarts": Bed("star:2", ("broker", "broker", "carrier", "stopped", "all_stopped"), brokers=True),
    "rate": Bed("star:2", _USUAL, LinkSpec(rate_bit_s=100_000_000)),
    "lossy": Bed("star:2", _USUAL, LinkSpec(loss=0.01)),
    "faulty": Bed("star:2", _USUAL, is_faulty=True),
    "jumbo": Bed("star:2", _USUAL, LinkSpec(mtu=9000)),
    "switches": Bed("switches", ("controller", "cable", "stopped", "all_stopped")),
    "one host": Bed("star:2", ("stopped", "all_stopped"), options=("--hosts", "h1:4")),
}
# Arguments by seed; each takes some seconds.
PROGRAMS = {
    "goes_on": lambda seed: [20, 0, seed],
    "messages": lambda seed: [seed, 150],
    "collectives": lambda seed: [seed, 1500],
    "onesided": lambda seed: [seed, 2000],
    "threads": lambda seed: [seed, 400],
}


class Soak:
    """A soak under way: draws, records, and counts what was wrong."""

    def __init__(self, seed: int, libraries: Sequence[Library], output: Path, folder: Path) -> None:
        """Programs are built into `folder`; `output` is appended to."""
        self.source = random.Random(seed)
        self.libraries, self.output, self.folder = libraries, output, folder
        self.jobs = self.wrong = self.faults = 0
        self.began = time.monotonic()

    def round(self, number: int) -> None:
        """One lab and its jobs."""
        kind = list(BEDS)[number % len(BEDS)]
        bed, before = BEDS[kind], Traces.now()
        try:
            with standing(bed.topology, self.folder, bed.link, brokers=bed.brokers) as site:
                seed = self.source.getrandbits(32)
                with with_faulty_wire(site, seed) if bed.is_faulty else nullcontext():
                    for _ in range(JOBS):
                        self._job(kind, bed, site)
        except BarewireError as error:
            self._record({"kind": "lab", "lab": kind, "wrong": [f"the lab failed: {error}"]})
            return
        left = _eventually_none(lambda: Traces.now().since(before))
        self._record({"kind": "lab", "lab": kind, "wrong": left})

    def _job(self, kind: str, bed: Bed, site: Site) -> None:
        source = random.Random(self.source.getrandbits(64))
        library, name = source.choice(self.libraries), source.choice([*PROGRAMS, "goes_on"])
        kills, ranks = source.random() < 0.25, source.randint(2, 4)
        options = list(bed.options)
        if kills and library.name == "openmpi-5" and kind != "one host" and source.random() < 0.5:
            # With ranks 0 and 1 on the first host, the launcher's, and 2 and 3 on the other.
            name, ranks, arguments = "ulfm", 4, [source.choice([1, 2, 3])]
            options.append("--ulfm")
        else:
            name = "goes_on" if kills else name
            arguments = PROGRAMS[name](source.getrandbits(20))
        program = built(library, name, self.folder)
        faults = Faults(site, program, source, source.uniform(0.2, 2))
        servers, before = site.servers(), site.traces()
        with _patience(PATIENCE_S if kills else None):
            over, did = threading.Event(), list[str]()
            kinds = () if name == "ulfm" else ("killed",) if kills else bed.faults
            striker = threading.Thread(target=faults.strike, args=(kinds, over, did))
            striker.start()
            try:
                ended = site.run(library, program, arguments, ranks, None, HANGS_S, options)
            finally:
                over.set()
                striker.join()
        said = [json.loads(line) for line in ended.output.splitlines() if line.startswith("{")]
        wrong = list(_judge(ended.code, said, name, killed=KILLED in did))
        wrong += _eventually_none(lambda: site.left_since(before, with_foreign=ended.code == 0))
        wrong += _eventually_none(lambda: site.grown(servers, SERVER_GROWN_BYTES_MAX))
        longest_s = max(faults.lasted_s, default=0)
        if longest_s > FAULT_S_MAX and ended.code != 0:
            # The peers were right to give up.
            did.append(f"void: a fault lasted {longest_s:.0f} s, on a busy machine")
            wrong = []
        self.jobs += 1
        self.faults += len(did)
        record = {"kind": "job", "lab": kind, "library": library.name, "program": name, "arguments": arguments}
        record |= {"ranks": ranks, "faults": did, "code": ended.code, "seconds": round(ended.seconds, 1), "said": said}
        if wrong:
            record["output"] = ended.output[-3000:] + ended.errors[-6000:]
        self._record(record | {"wrong": wrong})

    def _record(self, record: dict[str, Any]) -> None:
        record["at_s"] = round(time.monotonic() - self.began, 1)
        with self.output.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.wrong += bool(record["wrong"])
        if record["kind"] == "job":
            ranks, faults = record["ranks"], len(record["faults"])
            what = f"{record['program']} under {record['library']}, {ranks} ranks, {faults} faults"
        else:
            what = "ended"
        print(f"{record['at_s']:7.0f} s  {record['lab']:9} {what}: {'; '.join(record['wrong']) or 'right'}", flush=True)
        if "output" in record:
            print(record["output"], record["faults"], flush=True)


@dataclass(frozen=True)
class Traces:
    """What this machine has outside of labs that a run could leave behind."""

    shared_memory: frozenset[str]
    interfaces: frozenset[str]
    processes: frozenset[str]
    labs: frozenset[str]

    @classmethod
    def now(cls) -> "Traces":
        """Look."""
        labs = Path(os.environ["XDG_RUNTIME_DIR"])
        mark = str(labs).encode()
        marked = set()
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                is_other = process.name.isdecimal() and int(process.name) != os.getpid()
                if is_other and mark in (process / "environ").read_bytes():
                    marked.add(f"{process.name} {(process / 'comm').read_text().strip()}")
        return cls(
            frozenset(file.name for file in Path("/dev/shm").iterdir()),
            frozenset(file.name for file in Path("/sys/class/net").iterdir()),
            frozenset(marked),
            frozenset(str(file) for file in labs.glob("barewire/labs/*")),
        )

    def since(self, before: "Traces") -> list[str]:
        """What was not there before."""
        found = []
        for what in ("shared_memory", "interfaces", "processes", "labs"):
            new = sorted(getattr(self, what) - getattr(before, what))
            found += [f"left behind, {what.replace('_', ' ')}: {', '.join(new)}"] if new else []
        return found


def _judge(code: int | None, said: list[dict[str, Any]], program: str, killed: bool) -> Iterator[str]:
    if code is None:
        yield "it hung"
    elif program == "ulfm":
        # Finalising is Open MPI's own affair, and hangs over TCP as well.
        if len([one for one in said if one.get("left") == 3]) != 3 or code != 0:
            yield f"the survivors did not go on, exit code {code}"
    elif killed:
        if code == 0:
            yield "a job whose rank was killed ended well"
    elif code != 0:
        yield f"exit code {code}"
    elif not any(one.get("right") for one in said):
        yield "no result"
    for one in said:
        if one.get("grown_bytes", 0) > GROWN_BYTES_MAX:
            yield f"a rank's memory grew by {one['grown_bytes']} bytes"
        if one.get("grown_descriptors", 0) > 0:
            yield f"a rank has {one['grown_descriptors']} more descriptors"


def _eventually_none(look: Any) -> list[str]:
    deadline = time.monotonic() + LEAVING_S
    while found := look():
        if time.monotonic() > deadline:
            return list(found)
        time.sleep(0.1)
    return []


@contextmanager
def _patience(seconds: int | None) -> Iterator[None]:
    if seconds is not None:
        os.environ["FI_BAREWIRE_PATIENCE"] = str(seconds)
    try:
        yield
    finally:
        os.environ.pop("FI_BAREWIRE_PATIENCE", None)


def main() -> int:
    """Soak; 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=TEN_MINUTES_H, help="how long (default: ten minutes)")
    parser.add_argument("--library", default="", help="names, comma-separated (default: all that barewire carries)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--output", type=Path, help="JSON Lines (default: target/soak-SEED.jsonl)")
    given = parser.parse_args()
    # What was started is ended then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    output = given.output or ROOT / "target" / f"soak-{given.seed}.jsonl"
    print(f"seed {given.seed}, records in {output}", flush=True)
    with tempfile.TemporaryDirectory(prefix="barewire-soak-") as folder:
        runtime = Path(folder, "runtime")
        runtime.mkdir(mode=0o700)
        # Labs and whatever starts in them are known by it.
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
        soak = Soak(given.seed, libraries_over_barewire(given.library), output, Path(folder))
        number = soak.source.randrange(len(BEDS))
        while time.monotonic() < soak.began + given.hours * 3600:
            soak.round(number)
            number += 1
    minutes = (time.monotonic() - soak.began) / 60
    print(f"{soak.jobs} jobs, {soak.faults} faults in {minutes:.0f} minutes: {soak.wrong} wrong (seed {given.seed})")
    return int(soak.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
