# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Jobs whose network, brokers or ranks fail temporarily: each must succeed. Counts those that do.

    survive.py [--runs 100] [--library openmpi,mpich-5] [--seed N] [FAULT …]

interface    a host's interface down for 1 s, or both hosts' at once (the default)
carrier      the switch's end of a link down for 1 s, or of both
broker       sockets from brokers: one broker is terminated (SIGTERM) or killed, and restarted
interface_with_brokers   the first with sockets from brokers
controller   in a network of switches: the controller is terminated or killed, and restarted
cable        in a network of switches: one of two paths is disconnected for 1 s
stopped      a rank stopped for 5 s
all_stopped  all ranks stopped for 5 s

Two or four ranks on two hosts send messages of all sizes around a ring and reduce vectors, and check every byte
(tests/mpi/goes_on.c). The start of a fault and the side that it affects are drawn from the seed. Exit code 1 if a job
failed; its output is then printed.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from common import exit_code
from survival import Faults, Site, built, libraries_over_barewire, running_site

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
# A fault that lasts longer than intended by this much is inconclusive: peers are given up after 28 s.
BUSY_S = 20.0


def main() -> int:
    """Run; return 1 if a job failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", choices=[*FAULTS, []], help="faults to inject (default: interface)")
    parser.add_argument("--runs", type=int, default=100, help="jobs with each fault under each library (default: 100)")
    parser.add_argument("--library", default="", help="names, comma-separated (default: all that support barewire)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    # Ends everything that was started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {options.seed}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="barewire-survive-") as folder:
        for fault in options.faults or ["interface"]:
            for library in libraries_over_barewire(options.library):
                failed += _series(fault, library, options.runs, options.seed, Path(folder))
    return int(failed > 0)


def _series(fault: str, library: Library, runs: int, seed: int, folder: Path) -> int:
    """Run jobs with one fault under one library; return the number of failures."""
    topology, brokers = FAULTS[fault]
    started, succeeded = time.monotonic(), 0
    with running_site(topology, folder, brokers=brokers) as site:
        for number in range(runs):
            succeeded += _run_job(fault, site, library, f"{seed}-{fault}-{library.name}-{number}", folder)
    seconds = time.monotonic() - started
    print(f"{fault:24} {library.name:10} {succeeded} of {runs} jobs succeeded, {seconds:.0f} s", flush=True)
    return runs - succeeded


def _run_job(fault: str, site: Site, library: Library, seed: str, folder: Path) -> bool:
    source = random.Random(seed)
    program, ranks, injected = built(library, "goes_on", folder), source.choice([2, 4]), ""
    seconds = STOPPED_S if "stopped" in fault else 1.0
    faults = Faults(site, program, source, seconds)

    def inject() -> None:
        nonlocal injected
        time.sleep(source.uniform(0, 0.7))
        injected = getattr(faults, fault.removesuffix("_with_brokers"))()

    ended = site.run(library, program, [seconds + 2, 0], ranks, inject, patience_s=90)
    lasted_s = max(faults.lasted_s, default=0)
    if lasted_s > seconds + BUSY_S:
        print(f"the fault of {seed} lasted {lasted_s:.1f} s: this machine is too busy; repeating", flush=True)
        return _run_job(fault, site, library, f"{seed}-again", folder)
    succeeded = ended.code == 0 and '"right": true' in ended.output and injected != ""
    if not succeeded:
        output = f"{ended.output[-2000:]}{ended.errors[-4000:]}"
        print(
            f"FAILED {seed}, {ranks} ranks, {injected}: {ended.code} after {ended.seconds:.1f} s\n{output}", flush=True
        )
    return succeeded


if __name__ == "__main__":
    sys.exit(exit_code(main))
