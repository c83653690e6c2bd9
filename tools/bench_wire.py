# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How well a lab's link is a wire: ping-pongs against wire time plus the unshaped exchange, streams against the rate.

Unshaped and shaped runs take turns. Prints a table and what is missed; the exit code
is then 1. A ratio contains each transport's own headers.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BAREWIRE = str(ROOT / "bin" / "barewire")
RATES = ("10mbit", "100mbit", "1gbit", "10gbit")
TRANSPORTS = "raw,udp,tcp,llc2,endpoint"
EFFORT = ("--launches", "3", "--seconds", "0.3")
MESSAGE_BYTES, STREAM_BYTES = 1400, 16384
PING_PONG_MAX, STREAM_MIN = 1.03, 0.98


def main(rounds: int, rates: list[str]) -> int:
    """Measure all rates; return 1 if anything is missed."""
    print("rate       transport  unshaped µs  shaped µs   wire µs  ratio  stream / limit")
    missed = 0
    with tempfile.TemporaryDirectory() as scratch:
        medians: dict[str, list[dict[str, dict[str, Any]]]] = {name: [] for name in ("", *rates)}
        streams: dict[str, list[dict[str, dict[str, Any]]]] = {name: [] for name in ("", *rates)}
        for number in range(rounds):
            for rate in ("", *rates):
                folder = Path(scratch) / f"{rate}-{number}"
                shaped = ("--rate", rate) if rate else ()
                medians[rate].append(series(folder / "pingpong", "pingpong", MESSAGE_BYTES, *shaped))
                streams[rate].append(series(folder / "stream", "stream", STREAM_BYTES, *shaped))
        for rate in rates:
            for transport in TRANSPORTS.split(","):
                unshaped = statistics.median(run[transport]["median"] for run in medians[""])
                median = statistics.median(run[transport]["median"] for run in medians[rate])
                wire = medians[rate][0][transport]["limit"]
                ratio = median / (wire + unshaped)
                fraction = max(run[transport]["fraction_of_limit"] or 0.0 for run in streams[rate])
                # Where the machine itself is slower than the link, there is nothing to fill it with.
                most = max(run[transport]["median"] for run in streams[""])
                filled = fraction >= STREAM_MIN or most < streams[rate][0][transport]["limit"]
                kept = ratio <= PING_PONG_MAX and filled and median >= wire
                missed += not kept
                numbers = f"{unshaped:11.2f} {median:10.2f} {wire:9.2f} {ratio:6.3f} {fraction:15.3f}"
                print(f"{rate:10} {transport:10} {numbers} {'' if kept else 'MISSED'}", flush=True)
    return int(missed > 0)


def series(folder: Path, test: str, message_bytes: int, *link: str) -> dict[str, dict[str, Any]]:
    """Run one test; return its series by transport."""
    command = [BAREWIRE, "bench", test, "--transport", TRANSPORTS, "--sizes", str(message_bytes), *EFFORT, *link]
    done = subprocess.run([*command, "--json", "-o", str(folder)], capture_output=True, text=True, check=True)
    return {one["subject"]: one for one in json.loads(done.stdout)["series"]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rates", metavar="RATE", nargs="*", help=f"default: {' '.join(RATES)}")
    chosen = parser.parse_args()
    sys.exit(main(chosen.rounds, chosen.rates or list(RATES)))
