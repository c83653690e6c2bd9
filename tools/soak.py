# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The soak: MPI traffic of many kinds for a given time, while the infrastructure fails and recovers.

    soak.py [--hours 0.17] [--seed N] [--library openmpi,mpich-5] [--output FILE.jsonl]

All rounds are drawn from the seed. Each creates a lab (below), runs three jobs in it, ends it, and checks that nothing
is left. A job is a program of tests/mpi that checks everything it receives, under one library, with two to four ranks;
faults are injected one after the other while it runs. Roughly every fourth job instead loses a rank by SIGKILL: it must
then end, or continue without that rank if Open MPI 5 supports it.

plain      two hosts and a kernel switch: interfaces down, carriers lost, one or all ranks stopped
brokers    the same with sockets from brokers
restarts   sockets from brokers, which are terminated, killed and restarted; carriers lost, ranks stopped. No interface
           goes down: sockets of a broker that has ended do not survive that (docs/security.md)
rate       links of 100 Mb/s
lossy      1 % of all frames lost
faulty     frames lost, duplicated and reordered (tools/faulty_wire.py)
jumbo      MTU 9000
switches   three Open vSwitch switches: the controller is terminated, killed and restarted, cables are disconnected
one host   all ranks on one host: shared memory

Failures are: an exit code or a result; a job that hangs; ranks whose memory or descriptors grow; processes, files in
/dev/shm, sockets, interfaces or labs that remain, except for what MPICH itself leaves in /dev/shm when a rank is
killed. Each job and each lab appends a line of JSON to the output; the exit code is 1 after any failure.
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
from unittest.mock import patch

from common import ROOT, exit_code
from survival import KILLED, Faults, Site, built, libraries_over_barewire, running_site, with_faulty_wire

from barewire.errors import BarewireError
from barewire.lab import LinkSpec
from barewire.mpi import Library

JOBS = 3
TEN_MINUTES_H = 1 / 6
# A job takes seconds, and each fault a few seconds.
HANGS_S = 300.0
# Growth of a rank's resident memory in the last two thirds of a job: slots and windows used for the first time.
GROWN_BYTES_MAX = 8 << 20
# The UDP carrier has a second socket, connected to the only peer with which it exchanges datagrams, from when frames to
# it got no answer for the first time.
GROWN_DESCRIPTORS_MAX = 1
LEAVING_S = 15.0
# Well below the patience; faults are meant to take 2 s at most.
FAULT_S_MAX = 20.0
# For the survivors of killed ranks.
PATIENCE_S = 5


@dataclass(frozen=True)
class LabKind:
    """A kind of lab: its parts, and what can fail in it."""

    topology: str
    faults: tuple[str, ...]
    link: LinkSpec = field(default_factory=LinkSpec)
    brokers: bool = False
    is_faulty: bool = False
    options: tuple[str, ...] = ()


_USUAL = ("interface", "carrier", "stopped", "all_stopped")
LAB_KINDS = {
    "plain": LabKind("star:2", _USUAL),
    "brokers": LabKind("star:2", _USUAL, brokers=True),
    "restarts": LabKind("star:2", ("broker", "broker", "carrier", "stopped", "all_stopped"), brokers=True),
    "rate": LabKind("star:2", _USUAL, LinkSpec(rate_bit_s=100_000_000)),
    "lossy": LabKind("star:2", _USUAL, LinkSpec(loss=0.01)),
    "faulty": LabKind("star:2", _USUAL, is_faulty=True),
    "jumbo": LabKind("star:2", _USUAL, LinkSpec(mtu=9000)),
    "switches": LabKind("switches", ("controller", "cable", "stopped", "all_stopped")),
    "one host": LabKind("star:2", ("stopped", "all_stopped"), options=("--hosts", "h1:4")),
}
# Arguments by seed; each program takes some seconds.
PROGRAMS = {
    "goes_on": lambda seed: [20, 0, seed],
    "messages": lambda seed: [seed, 150],
    "collectives": lambda seed: [seed, 1500],
    "onesided": lambda seed: [seed, 2000],
    "threads": lambda seed: [seed, 400],
}


class Soak:
    """A running soak: draws, records, and counts failures."""

    def __init__(self, seed: int, libraries: Sequence[Library], output: Path, folder: Path) -> None:
        """Create a soak that builds programs into `folder` and appends to `output`."""
        self.source = random.Random(seed)
        self.libraries, self.output, self.folder = libraries, output, folder
        self.jobs = self.wrong = self.faults = 0
        self.started = time.monotonic()

    def round(self, number: int) -> None:
        """Run one lab and its jobs."""
        kind = list(LAB_KINDS)[number % len(LAB_KINDS)]
        lab_kind, before = LAB_KINDS[kind], Traces.now()
        try:
            with running_site(lab_kind.topology, self.folder, lab_kind.link, brokers=lab_kind.brokers) as site:
                seed = self.source.getrandbits(32)
                with with_faulty_wire(site, seed) if lab_kind.is_faulty else nullcontext():
                    for _ in range(JOBS):
                        self._job(kind, lab_kind, site)
        except BarewireError as error:
            self._record({"kind": "lab", "lab": kind, "wrong": [f"the lab failed: {error}"]})
            return
        leftovers = _eventually_none(lambda: Traces.now().since(before))
        self._record({"kind": "lab", "lab": kind, "wrong": leftovers})

    def _job(self, kind: str, lab_kind: LabKind, site: Site) -> None:
        draws = random.Random(self.source.getrandbits(64))
        library, name = draws.choice(self.libraries), draws.choice([*PROGRAMS, "goes_on"])
        kills_rank, ranks = draws.random() < 0.25, draws.randint(2, 4)
        options = list(lab_kind.options)
        if kills_rank and library.name == "openmpi-5" and kind != "one host" and draws.random() < 0.5:
            # Ranks 0 and 1 are on the first host, the launcher's, and 2 and 3 on the other.
            name, ranks, arguments = "ulfm", 4, [draws.choice([1, 2, 3])]
            options.append("--ulfm")
        else:
            name = "goes_on" if kills_rank else name
            arguments = PROGRAMS[name](draws.getrandbits(20))
        program = built(library, name, self.folder)
        faults = Faults(site, program, draws, draws.uniform(0.2, 2))
        servers, before = site.servers(), site.traces()
        with _patience(PATIENCE_S if kills_rank else None):
            finished, injected = threading.Event(), list[str]()
            kinds = () if name == "ulfm" else ("killed",) if kills_rank else lab_kind.faults
            injector = threading.Thread(target=faults.inject, args=(kinds, finished, injected))
            injector.start()
            try:
                ended = site.run(library, program, arguments, ranks, None, HANGS_S, options)
            finally:
                finished.set()
                injector.join()
        records, halves = _records(ended.output)
        wrong = [] if faults.failure is None else [faults.failure]
        if halves and not kills_rank:
            wrong.append(f"a rank wrote {halves[0]!r}")
        wrong += list(_judge(ended.code, records, name, killed=KILLED in injected))
        wrong += _eventually_none(lambda: site.left_since(before, with_foreign=ended.code == 0))
        wrong += _eventually_none(lambda: site.grown(servers))
        longest_s = max(faults.lasted_s, default=0)
        if longest_s > FAULT_S_MAX and ended.code != 0:
            # The peers were right to give up.
            injected.append(f"void: a fault lasted {longest_s:.0f} s, on a busy machine")
            wrong = []
        self.jobs += 1
        self.faults += len(injected)
        record = {"kind": "job", "lab": kind, "library": library.name, "program": name, "arguments": arguments}
        record |= {
            "ranks": ranks,
            "faults": injected,
            "code": ended.code,
            "seconds": round(ended.seconds, 1),
            "said": records,
        }
        if wrong:
            record["output"] = ended.output[-3000:] + ended.errors[-6000:]
        self._record(record | {"wrong": wrong})

    def _record(self, record: dict[str, Any]) -> None:
        record["at_s"] = round(time.monotonic() - self.started, 1)
        with self.output.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.wrong += bool(record["wrong"])
        if record["kind"] == "job":
            ranks, faults = record["ranks"], len(record["faults"])
            description = f"{record['program']} under {record['library']}, {ranks} ranks, {faults} faults"
        else:
            description = "ended"
        print(
            f"{record['at_s']:7.0f} s  {record['lab']:9} {description}: {'; '.join(record['wrong']) or 'right'}",
            flush=True,
        )
        if "output" in record:
            print(record["output"], record["faults"], flush=True)


@dataclass(frozen=True)
class Traces:
    """State of this machine outside of labs that a run could leave behind."""

    shared_memory: frozenset[str]
    interfaces: frozenset[str]
    processes: frozenset[str]
    labs: frozenset[str]

    @classmethod
    def now(cls) -> "Traces":
        """Read the current state."""
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
        """Return what did not exist before."""
        leftovers = []
        for kind in ("shared_memory", "interfaces", "processes", "labs"):
            new = sorted(getattr(self, kind) - getattr(before, kind))
            leftovers += [f"left behind, {kind.replace('_', ' ')}: {', '.join(new)}"] if new else []
        return leftovers


def _records(output: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The records that ranks printed, and lines that are none, such as a killed rank's half one."""
    records, halves = [], []
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                records.append(json.loads(line))
            except ValueError:
                halves.append(line)
    return records, halves


def _judge(code: int | None, records: list[dict[str, Any]], program: str, killed: bool) -> Iterator[str]:
    if code is None:
        yield "it hung"
    elif program == "ulfm":
        # MPI_Finalize is not judged: it hangs in Open MPI, over TCP as well.
        if len([record for record in records if record.get("left") == 3]) != 3 or code != 0:
            yield f"the survivors did not continue, exit code {code}"
    elif killed:
        if code == 0:
            yield "a job whose rank was killed succeeded"
    elif code != 0:
        yield f"exit code {code}"
    elif not any(record.get("right") for record in records):
        yield "no result"
    for record in records:
        if record.get("grown_bytes", 0) > GROWN_BYTES_MAX:
            yield f"a rank's memory grew by {record['grown_bytes']} bytes"
        if record.get("grown_descriptors", 0) > GROWN_DESCRIPTORS_MAX:
            yield f"a rank has {record['grown_descriptors']} more descriptors"


def _eventually_none(check: Any) -> list[str]:
    deadline = time.monotonic() + LEAVING_S
    while leftovers := check():
        if time.monotonic() > deadline:
            return list(leftovers)
        time.sleep(0.1)
    return []


@contextmanager
def _patience(seconds: int | None) -> Iterator[None]:
    with patch.dict(os.environ, {} if seconds is None else {"FI_BAREWIRE_PATIENCE": str(seconds)}):
        yield


def main() -> int:
    """Soak; return 1 after any failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=TEN_MINUTES_H, help="duration (default: ten minutes)")
    parser.add_argument("--library", default="", help="names, comma-separated (default: all that support barewire)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--output", type=Path, help="JSON Lines (default: target/soak-SEED.jsonl)")
    options = parser.parse_args()
    # Ends everything that was started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    output = options.output or ROOT / "target" / f"soak-{options.seed}.jsonl"
    print(f"seed {options.seed}, records in {output}", flush=True)
    with tempfile.TemporaryDirectory(prefix="barewire-soak-") as folder:
        runtime = Path(folder, "runtime")
        runtime.mkdir(mode=0o700)
        # Identifies labs and processes of this run.
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
        soak = Soak(options.seed, libraries_over_barewire(options.library), output, Path(folder))
        number = soak.source.randrange(len(LAB_KINDS))
        while time.monotonic() < soak.started + options.hours * 3600:
            soak.round(number)
            number += 1
    minutes = (time.monotonic() - soak.started) / 60
    print(f"{soak.jobs} jobs, {soak.faults} faults in {minutes:.0f} minutes: {soak.wrong} wrong (seed {options.seed})")
    # A soak without a job has shown nothing.
    return int(soak.wrong > 0 or soak.jobs == 0)


if __name__ == "__main__":
    sys.exit(exit_code(main))
