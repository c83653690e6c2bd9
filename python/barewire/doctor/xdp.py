# SPDX-License-Identifier: Apache-2.0 OR MIT
"""AF_XDP support of interfaces, tried by binding a socket in each mode with a program that takes no frames.

Attaching a program briefly resets the link of some cards, so it is tried on a temporary veth, and on other interfaces
only if they are named.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping

from barewire import installed
from barewire.doctor.finding import Finding, Status
from barewire.errors import BarewireError
from barewire.lab import Lab, LinkSpec
from barewire.measure.programs import PROBE, find_program

_TIMEOUT_S = 30
_FIX = "run as root on a kernel with CONFIG_XDP_SOCKETS; until then use --link packet"


def xdp_findings(interfaces: Iterable[str]) -> list[Finding]:
    """Try a lab's veth, and each of `interfaces`."""
    try:
        command = [find_program(PROBE), "xdp-modes", "--interface"]
        with Lab.up("pair", LinkSpec()) as lab:
            findings = [_tried("lab's veth", lab.command("h1", [*command, "eth0"]))]
    except BarewireError as error:
        return [Finding("network", "AF_XDP", Status.MISSING, str(error), f"{installed.FIX}; see the lab's findings")]
    return findings + [_tried(name, [*command, name]) for name in interfaces]


def judge_modes(what: str, modes: Mapping[str, str]) -> Finding:
    """Return a finding about the modes that work; `modes` maps each mode to its error, empty if it works."""
    works = [mode for mode, error in modes.items() if not error]
    detail = [f"tried: {', '.join(works) or 'nothing'} works"]
    detail += [f"no {mode} ({error})" for mode, error in modes.items() if error]
    if works:
        return Finding("network", f"AF_XDP on {what}", Status.OK, "; ".join(detail))
    return Finding("network", f"AF_XDP on {what}", Status.MISSING, "; ".join(detail), _FIX)


def _tried(what: str, command: list[str]) -> Finding:
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Finding("network", f"AF_XDP on {what}", Status.MISSING, f"no answer within {_TIMEOUT_S} s", _FIX)
    if completed.returncode == 0:
        return judge_modes(what, json.loads(completed.stdout)["modes"])
    error = (completed.stderr.strip().splitlines() or ["no reason given"])[-1].removeprefix(f"{PROBE}: ")
    return Finding("network", f"AF_XDP on {what}", Status.MISSING, error, _FIX)
