# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Jobs whose network, brokers or ranks fail for a while in their middle: each must end right. Counts them.

    survive.py [--runs 100] [--library openmpi,mpich-5] [--seed N] [FAULT …]

interface    a host's interface down for 1 s, or both hosts' at once (what is run unless others are named)
carrier      the switch's end of a link down for 1 s, or of both
broker       sockets by brokers: one of these is ended (SIGTERM) or killed, and started again
interface_with_brokers   the first with sockets by brokers
controller   in a network of switches: the controller is ended or killed, and started again
cable        in a network of switches: one of two paths is pulled for 1 s
stopped      a rank stopped for 5 s
all_stopped  all ranks stopped for 5 s

Two ranks or four on two hosts send messages of all sizes around a ring and reduce vectors, and check every byte
(tests/mpi/goes_on.c). When a fault begins, and which side it hits, is drawn from the seed. Exit code 1 if a job
failed; its output is then printed.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from survival import Faults, Site, built, libraries_over_barewire, standing

from barewire.mpi import Library

FAULTS = {
    "interface": ("star:2", False),
    "carrier": ("star:2", False),
    "broker": ("star:2", True),
    "interface_with_brokers": ("star:2", True),
    "controller": ("switches", False),
    "cable": ("switches", False),
    "stopped": ("star:2", False),
    "all_stopped": ("star:2", False),
}
STOPPED_S = 5.0
# A fault that lasts so much longer than meant says nothing: from 28 s on a peer is given up.
BUSY_S = 20.0


def main() -> int:
    """Run; 1 if a job failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", choices=[*FAULTS, []], help="which (default: interface)")
    parser.add_argument("--runs", type=int, default=100, help="of each fault under each library (default: 100)")
    parser.add_argument("--library", default="", help="names, comma-separated (default: all that barewire carries)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    # What was started is ended then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {given.seed}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="barewire-survive-") as folder:
        for fault in given.faults or ["interface"]:
            for library in libraries_over_barewire(given.library):
                failed += _series(fault, library, given.runs, given.seed, Path(folder))
    return int(failed > 0)


def _series(fault: str, library: Library, runs: int, seed: int, folder: Path) -> int:
    """Run jobs with one fault under one library; the number of those that failed."""
    topology, brokers = FAULTS[fault]
    began, right = time.monotonic(), 0
    with standing(topology, folder, brokers=brokers) as site:
        for number in range(runs):
            right += _one(fault, site, library, f"{seed}-{fault}-{library.name}-{number}", folder)
    seconds = time.monotonic() - began
    print(f"{fault:24} {library.name:10} {right} of {runs} jobs ended right, {seconds:.0f} s", flush=True)
    return runs - right


def _one(fault: str, site: Site, library: Library, draw: str, folder: Path) -> bool:
    source = random.Random(draw)
    program, ranks, did = built(library, "goes_on", folder), source.choice([2, 4]), ""
    seconds = STOPPED_S if "stopped" in fault else 1.0
    faults = Faults(site, program, source, seconds)

    def strike() -> None:
        nonlocal did
        time.sleep(source.uniform(0, 0.7))
        did = getattr(faults, fault.removesuffix("_with_brokers"))()

    ended = site.run(library, program, [seconds + 2, 0], ranks, strike, patience_s=90)
    lasted_s = max(faults.lasted_s, default=0)
    if lasted_s > seconds + BUSY_S:
        print(f"the fault of {draw} lasted {lasted_s:.1f} s: this machine is too busy; again", flush=True)
        return _one(fault, site, library, f"{draw}-again", folder)
    right = ended.code == 0 and '"right": true' in ended.output and did != ""
    if not right:
        said = f"{ended.output[-2000:]}{ended.errors[-4000:]}"
        print(f"FAILED {draw}, {ranks} ranks, {did}: {ended.code} after {ended.seconds:.1f} s\n{said}", flush=True)
    return right


if __name__ == "__main__":
    sys.exit(main())
