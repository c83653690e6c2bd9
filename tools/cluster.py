# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire cluster check` in labs with seeded faults, each of which it must name, and in clean ones.

    cluster.py [--hosts 16] [--clean 20] [FAULT …]        make cluster FAULTS="…"

Exit code 1 if a fault was not found, was named wrongly or more than once, or if one was invented.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from typing import Any

from common import BAREWIRE, exit_code
from seeded_faults import FAULTS

from barewire.errors import MachineCannot
from barewire.lab import Lab, LinkSpec

# Of clean labs: what faults are seeded in.
CLEAN_LINKS = (LinkSpec(), LinkSpec(mtu=9000), LinkSpec(rate_bit_s=100_000_000))
_TIMEOUT_S = 300


def main() -> int:
    """Run the series; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--clean", type=int, default=20)
    parser.add_argument("faults", nargs="*", metavar="FAULT")
    options = parser.parse_args()
    if unknown := set(options.faults) - set(FAULTS):
        parser.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(FAULTS)}")
    names = options.faults or list(FAULTS)
    found = sum(_seeded(name, options.hosts, number) for number, name in enumerate(names))
    silent = sum(_clean(number, options.hosts) for number in range(options.clean))
    print(f"{found} of {len(names)} seeded faults named, none invented in {silent} of {options.clean} clean runs")
    return int(found < len(names) or silent < options.clean)


def _seeded(name: str, hosts: int, number: int) -> bool:
    """Seed a fault at one host and check; return whether the check named it, once."""
    fault = FAULTS[name]
    host = f"h{number % hosts + 1}"
    with Lab.up(f"star:{hosts}", fault.link) as lab:
        try:
            with fault.seed(lab, host):
                findings, duration_s = _check(lab)
        except MachineCannot as error:
            print(f"{name:16} not possible: {error}", flush=True)
            return False
    expected = (fault.kind, "network" if fault.is_of_network else host, fault.direction)
    said = [(finding["kind"], finding["subject"], finding["direction"]) for finding in findings]
    is_right = said == [expected]
    print(f"{name:16} {'named' if is_right else 'WRONG'} in {duration_s:.0f} s: {_texts(findings)}", flush=True)
    return is_right


def _clean(number: int, hosts: int) -> bool:
    with Lab.up(f"star:{hosts}", CLEAN_LINKS[number % len(CLEAN_LINKS)]) as lab:
        findings, duration_s = _check(lab)
    print(
        f"clean {number:10} {'WRONG' if findings else 'silent'} in {duration_s:.0f} s: {_texts(findings)}", flush=True
    )
    return not findings


def _check(lab: Lab) -> tuple[list[dict[str, Any]], float]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="barewire-cluster-") as folder:
        command = [BAREWIRE, "cluster", "check", "--lab", lab.id, "--no-doctor", "--json", "--output", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    duration_s = time.monotonic() - started
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"the check failed with {done.returncode}: {done.stderr}")
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings, duration_s


def _texts(findings: list[dict[str, Any]]) -> str:
    return "; ".join(finding["text"] for finding in findings) or "nothing is wrong"


if __name__ == "__main__":
    sys.exit(exit_code(main))
