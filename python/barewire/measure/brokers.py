# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A broker on each host of a lab, so that measured programs get their sockets as ordinary users' programs do."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from barewire.errors import MachineCannot
from barewire.lab import Host, Lab
from barewire.measure.programs import find_program
from barewire.processes import end_process

BROKER = "barewire-broker"
# Programs in a lab run as root; allow all service access points.
_POLICY = """
[[allow]]
users = [0]
interfaces = ["{interface}"]
saps = ["0x02-0xfe"]
at_most = 127
"""


@contextlib.contextmanager
def brokers_in(lab: Lab, hosts: Sequence[Host]) -> Iterator[dict[str, str]]:
    """Yield each host's broker socket by the host's name; the brokers end with the block."""
    with contextlib.ExitStack() as running:
        yield {host.name: running.enter_context(_broker(lab, host)) for host in hosts}


@contextlib.contextmanager
def _broker(lab: Lab, host: Host) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix=f"broker-{host.name}-", dir=lab.directory) as directory:
        yield from _serving(lab, host, Path(directory))


def _serving(lab: Lab, host: Host, directory: Path) -> Iterator[str]:
    policy, socket, audit = directory / "policy.toml", directory / "socket", directory / "audit"
    policy.write_text(_POLICY.format(interface=host.interface))
    files = ["--policy", policy, "--socket", socket, "--audit", audit]
    command = [find_program(BROKER), "serve", *map(str, files)]
    with tempfile.TemporaryFile("w+") as errors:
        process = lab.popen(host.name, command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            _wait_until_ready(process, errors)
            yield str(socket)
        finally:
            process.terminate()
            end_process(process)
    _check_shared_hook(audit)


def _wait_until_ready(process: "subprocess.Popen[str]", errors: IO[str]) -> None:
    assert process.stdout is not None
    if '"ready"' not in process.stdout.readline():
        process.wait()
        errors.seek(0)
        raise MachineCannot(errors.read().strip() or f"{BROKER} ended before it was ready")


def _check_shared_hook(audit: Path) -> None:
    """Raise MachineCannot if a socket is not in a group: each such socket would receive every frame."""
    unshared = [line for line in audit.read_text().splitlines() if '"not in a group"' in line]
    if unshared:
        raise MachineCannot(f"the broker could not put its sockets into one fanout group: {unshared[0]}")
